"""A write that comes in columns: is it one at all, and what are its deltas about.

Belongs here: structure, for all rows at once. A write in columns comes from outside, so that its buffers are proved
to be what they claim (offsets within bounds, texts in UTF-8) before any value in them is touched.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from resources.coordinator.columns import bytes_of, constant, constant_of, nulls
from resources.coordinator.decode_values import FIRST_US, LAST_US
from resources.coordinator.decoded import DecodedBatch, Refusal, RefusedError, name_series
from resources.coordinator.errors import WriteFormatError
from resources.coordinator.fingerprint import SeriesNames
from resources.coordinator.model import Kind, Priority, Reason, Source
from resources.coordinator.schema import SENT_FIELDS, SENT_SCHEMA, TIMESTAMP
from resources.timegrid import from_us

_KNOWN = frozenset(name for name, _ in SENT_FIELDS)
# Columns in which most groups have but one text, or a few.
FEW_WORDS = ("namespace", "kind", "priority", "source")
# From so many rows on a look at a whole column is quicker than one at each row.
MANY_ROWS = 4_096
# What a delta that does not say has, in columns as in JSON.
DEFAULTS = {"priority": str(Priority.NORMAL), "source": str(Source.LOCAL)}


def to_batch(table: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """Columns that a producer sends, proved and in the log's types; what is missing is as in a delta without it."""
    try:
        _prove(table)
        is_ready = isinstance(table, pa.RecordBatch) and table.schema.equals(SENT_SCHEMA)
        if is_ready and not any(table[name].null_count for name in DEFAULTS):
            return table
        _refuse_other_columns(table.column_names)
        found = dict(zip(table.column_names, table.columns, strict=True))
        columns = [_column(found.get(name), name, kind, len(table)) for name, kind in SENT_FIELDS]
        return pa.RecordBatch.from_arrays(columns, schema=SENT_SCHEMA)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowIndexError, pa.ArrowTypeError) as error:
        raise WriteFormatError(f"A column of the write cannot be read: {error}") from error


def _prove(table: pa.Table | pa.RecordBatch) -> None:
    """Raise unless every value can be read. Of many rows, most columns are proved without a step for each."""
    if not isinstance(table, pa.RecordBatch) or len(table) < MANY_ROWS:
        table.validate(full=True)
        return
    table.validate()  # every buffer is there, and long enough for its rows
    for column in table.columns:
        if not _is_surely_sound(column):
            column.validate(full=True)


def _is_surely_sound(column: pa.Array) -> bool:
    """Whether a column with whole buffers is right in every row: no gaps, offsets that rise, nothing but ASCII."""
    kind = column.type
    if column.null_count or column.buffers()[0] is not None:
        return False
    if pa.types.is_struct(kind):
        return all(_is_surely_sound(column.field(place)) for place in range(kind.num_fields))
    if pa.types.is_string(kind):
        offsets, data = bytes_of(column)
        return bool((offsets[1:] >= offsets[:-1]).all()) and (not len(data) or bool(data.max() < 0x80))
    return bool(pa.types.is_int64(kind) or kind == TIMESTAMP)


def _refuse_other_columns(names: Sequence[str]) -> None:
    if "kind" not in names or len(set(names)) < len(names) or not _KNOWN.issuperset(names):
        wanted = ", ".join(name for name, _ in SENT_FIELDS)
        raise WriteFormatError(f"A write in columns has {wanted}; this one has {', '.join(names)}.")


def _column(column: pa.Array | pa.ChunkedArray | None, name: str, kind: pa.DataType, rows: int) -> pa.Array:
    if column is None:
        return constant(DEFAULTS[name], rows) if name in DEFAULTS else nulls(rows, kind)
    if column.type != kind:
        column = column.cast(kind)
    if name in DEFAULTS and column.null_count:
        column = column.fill_null(DEFAULTS[name])
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def concatenate(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches from `to_batch` behind one another; a payload that none of them has is not copied row by row."""
    if len(batches) == 1:
        return batches[0]
    if len({batch.num_columns for batch in batches}) > 1:  # not all of them bring hashes along
        batches = [batch.select(SENT_SCHEMA.names) for batch in batches]
    table = pa.Table.from_batches(batches)
    rows = table.num_rows
    columns = [
        nulls(rows, column.type) if column.null_count == rows else column.combine_chunks() for column in table.columns
    ]
    return pa.RecordBatch.from_arrays(columns, schema=table.schema)


def decode_columns(batch: pa.RecordBatch, series: SeriesNames) -> DecodedBatch:
    """The columns of a batch from `to_batch`, with the key of each row; some rows may be no deltas."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    found = {name: constant_of(columns[name]) for name in FEW_WORDS}
    words = {name: frozenset([word]) for name, word in found.items() if word is not None}
    refusals: dict[int, Refusal] = {}
    keys = key_column(columns)
    if columns["sample"].null_count < len(batch):
        keys = _with_series(keys, _flattened(columns["sample"], "labels"), series, refusals)
    for row in _mismatches(columns, words.get("kind")).tolist():
        kind = columns["kind"][row].as_py()
        known = kind in {str(member) for member in Kind}
        refusals[row] = (
            Refusal(Reason.PAYLOAD_MISMATCH, f"A delta of kind {kind!r} has exactly the payload {kind!r}.")
            if known
            else Refusal(Reason.UNKNOWN_KIND, f"The kind {kind!r} is not known; it is one of vector, sample, signal.")
        )
    columns["key"] = keys
    return DecodedBatch(columns, refusals, lambda row: _row_as_object(batch, row), words)


def key_column(columns: Mapping[str, pa.Array]) -> pa.Array:
    """What each row is about, except for samples: the fingerprint of their labels is found one by one."""
    keys = _texts_of(columns, "signal", "entity_id")
    if columns["vector"].null_count < len(keys):
        keys = pc.coalesce(_texts_of(columns, "vector", "vector_id"), keys)
    return keys


def _texts_of(columns: Mapping[str, pa.Array], payload: str, field: str) -> pa.Array:
    structs = columns[payload]
    if structs.null_count == len(structs):
        return nulls(len(structs), pa.string())
    return _flattened(structs, field)


def _flattened(structs: pa.StructArray, field: str) -> pa.Array:
    """A field of payloads; none where there is no payload, whatever lies hidden there."""
    return pc.struct_field(structs, field) if structs.null_count else structs.field(field)


def _with_series(keys: pa.Array, labels: pa.Array, series: SeriesNames, refusals: dict[int, Refusal]) -> pa.Array:
    names: list[str | None] = keys.to_pylist()
    for row, found in enumerate(labels.to_pylist()):
        if found is None:
            continue
        if any(value is None for _, value in found):
            refusals[row] = Refusal(Reason.BAD_ID, "A label has no value.")
            continue
        try:
            names[row] = name_series(sorted(found), series)
        except RefusedError as refused:
            refusals[row] = refused.refusal
    return pa.array(names, pa.string())


def _mismatches(columns: Mapping[str, pa.Array], kinds: frozenset[str] | None) -> npt.NDArray[np.int64]:
    """Rows that do not have exactly the payload that their kind promises."""
    rows = len(columns["kind"])
    is_known = kinds is not None and len(kinds) == 1 and kinds.issubset(Kind)
    if is_known and kinds and all(columns[kind].null_count == (0 if kind in kinds else rows) for kind in Kind):
        return np.empty(0, dtype=np.int64)
    wrong = ~np.asarray(pc.is_in(columns["kind"], pa.array([str(kind) for kind in Kind])))
    for kind in Kind:
        promised = np.asarray(pc.fill_null(pc.equal(columns["kind"], str(kind)), False))
        wrong |= promised != np.asarray(columns[kind].is_valid())
    return np.flatnonzero(wrong)


def _row_as_object(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    one = batch.slice(row, 1)
    # As a number: Python has no moment beyond the year 9999.
    columns = [one[name].cast(pa.int64()) if name == "event_ts" else one[name] for name in SENT_SCHEMA.names]
    sent = pa.RecordBatch.from_arrays(columns, names=SENT_SCHEMA.names).to_pylist()[0]
    found = {name: value for name, value in sent.items() if value is not None}
    if FIRST_US <= found.get("event_ts", FIRST_US - 1) <= LAST_US:
        found["event_ts"] = from_us(found["event_ts"])
    return found
