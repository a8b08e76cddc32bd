"""A write in columns at its shard: the keys of its deltas, and which of them the door refused.

Belongs here: one or several batches made by the door for columns (`column_door.py`). Their types are the log's; rows
that are no deltas come with their refusals.
"""

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.arrays.columns import constant_of, nulls
from tidemark.door.decoded import FEW_WORDS, DecodedBatch, Refusal, RefusedError, Sent, name_series
from tidemark.door.originals import FEW_ELEMENTS, Beginning
from tidemark.door.row_objects import row_objects
from tidemark.model.deltas import KEY_FIELDS, SERIES_LABELS, Priority, Reason, Source
from tidemark.model.fingerprint import SeriesNames
from tidemark.model.log_schema import HASHES, REFUSED_FIELDS, SENT_SCHEMA

# From so many rows on, one look at a whole column is quicker than one at each row.
MANY_ROWS = 4_096
# Defaults of missing fields, in columns as in JSON.
DEFAULTS = {"priority": str(Priority.NORMAL), "source": str(Source.LOCAL)}


def concatenate(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches from the door, concatenated; a payload that none of them has is not copied row by row."""
    if len(batches) == 1:
        return batches[0]
    if len({tuple(batch.schema.names) for batch in batches}) > 1:  # not all of them have hashes or refusals
        names = set.intersection(*(set(batch.schema.names) for batch in batches)) & set(HASHES)
        batches = [_with_refusals(batch, [*SENT_SCHEMA.names, *sorted(names)]) for batch in batches]
    table = pa.Table.from_batches(batches)
    rows = table.num_rows
    columns = [
        nulls(rows, column.type) if column.null_count == rows else column.combine_chunks() for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def _with_refusals(batch: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
    columns = {name: batch[name] for name in names}
    for name, kind in REFUSED_FIELDS:
        columns[name] = batch[name] if name in batch.schema.names else nulls(len(batch), kind)
    return pa.RecordBatch.from_pydict(columns)


def decode_columns(batch: pa.RecordBatch, series: SeriesNames) -> DecodedBatch:
    """The columns of a batch from the door, with the key of each row; some rows may be no deltas."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    found = {name: constant_of(columns[name]) for name in FEW_WORDS}
    words = {name: frozenset([word]) for name, word in found.items() if word is not None}
    brought = _brought(columns)
    refusals = {row: refusal for row, (refusal, _) in brought.items()}
    keys = key_column(columns)
    for payload, labels in SERIES_LABELS.items():
        if columns[payload].null_count < len(batch):
            keys = _with_series(keys, _flattened(columns[payload], labels), series, refusals)
    sent = {name: columns[name] for name in SENT_SCHEMA.names}
    columns["key"] = keys

    def originals(rows: Sequence[int], is_short: bool) -> Iterator[Sent]:
        plain = [row for row in rows if row not in brought]
        rendered = row_objects(sent, plain, FEW_ELEMENTS if is_short else None)
        for row in rows:
            yield brought[row][1] if row in brought else next(rendered)

    return DecodedBatch(columns, refusals, lambda row: next(originals([row], False)), words, originals)


def _brought(columns: dict[str, pa.Array]) -> dict[int, tuple[Refusal, Beginning]]:
    """The door's refusals: the reason, and the stored bytes. Removed from the columns."""
    reasons, *others = (columns.pop(name, None) for name, _ in REFUSED_FIELDS)
    if reasons is None or reasons.null_count == len(reasons):
        return {}
    rows = pc.indices_nonzero(reasons.is_valid())
    shown = (column.take(rows).to_pylist() for column in (reasons, *others))
    return {
        row: (Refusal(Reason(reason), detail), Beginning.of(raw, length))
        for row, reason, detail, raw, length in zip(rows.to_pylist(), *shown, strict=True)
    }


def key_column(columns: Mapping[str, pa.Array]) -> pa.Array:
    """The key of each row, except for series: fingerprints of labels are found one by one."""
    (payload, field), *others = reversed(KEY_FIELDS.items())
    keys = _texts_of(columns, payload, field)
    for payload, field in others:
        if columns[payload].null_count < len(keys):
            keys = pc.coalesce(_texts_of(columns, payload, field), keys)
    return keys


def _texts_of(columns: Mapping[str, pa.Array], payload: str, field: str) -> pa.Array:
    structs = columns[payload]
    if structs.null_count == len(structs):
        return nulls(len(structs), pa.string())
    return _flattened(structs, field)


def _flattened(structs: pa.StructArray, field: str) -> pa.Array:
    """A field of payloads; null where there is no payload, whatever values lie hidden there."""
    return pc.struct_field(structs, field) if structs.null_count else structs.field(field)


def _with_series(keys: pa.Array, labels: pa.Array, series: SeriesNames, refusals: dict[int, Refusal]) -> pa.Array:
    names: list[str | None] = keys.to_pylist()
    for row, found in enumerate(labels.to_pylist()):
        if found is None:
            continue
        try:
            names[row] = name_series(found, series)
        except RefusedError as refused:
            refusals[row] = refused.refusal
        except Exception as error:  # noqa: BLE001 - as in a row: refuses only this delta (C14)
            refusals[row] = Refusal(Reason.MALFORMED, f"The delta cannot be read ({type(error).__name__}).")
    return pa.array(names, pa.string())
