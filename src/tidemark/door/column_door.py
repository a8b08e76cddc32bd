"""The door for columns: Arrow tables and batches become the log's columns, for all rows at once.

Belongs here: structure. A write in columns comes from outside, so its buffers are validated (offsets within bounds,
texts in UTF-8) before any value in them is touched. Then each column is converted (`column_types.py`), and unproven
rows go through the door for rows, as the objects that they would have been there (`row_objects.py`). So both doors give
the same result for a delta, in the same words.
"""

from collections import Counter
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.arrays.columns import Mask, Rows, bytes_of, constant, constant_of, nulls
from tidemark.arrays.json_sizes import may_exceed
from tidemark.door import column_types as take
from tidemark.door.column_types import Taken, either
from tidemark.door.decode_columns import DEFAULTS, MANY_ROWS
from tidemark.door.decode_rows import DELTA_LIMIT, decode_rows
from tidemark.door.decoded import DecodedBatch, Refusal, bounded, scattered
from tidemark.door.originals import keep_originals
from tidemark.door.plain_columns import as_it_is
from tidemark.door.row_objects import combined, row_objects
from tidemark.model.deltas import KINDS, PAYLOADS, Kind, PayloadField, Reason
from tidemark.model.fingerprint import SeriesNames
from tidemark.model.log_schema import REFUSED_FIELDS, SENT_FIELDS, SENT_SCHEMA, TIMESTAMP
from tidemark.model.shard_errors import WriteFormatError

# The door for rows looks at weights in millionths beyond this; it knows weights only.
_CLEAR_MILLIONTHS = 10**12
_REQUIRED_TEXTS = frozenset(("namespace", "kind", "delta_id"))


def to_batch(table: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """A producer's columns, validated and in the log's types; a missing column means deltas without that field.

    Rows that are no deltas have their refusals in further columns (`REFUSED_FIELDS`) and do not affect other rows.
    """
    try:
        _prove(table)
        return _taken(table)
    except pa.lib.ArrowException as error:
        raise unreadable(error) from error


def unreadable(error: pa.lib.ArrowException) -> WriteFormatError:
    """The message about columns whose buffers are not valid."""
    return WriteFormatError(f"A column of the write cannot be read: {error}")


def _prove(table: pa.Table | pa.RecordBatch) -> None:
    """Raise unless every value can be read. With many rows, most columns are validated without a step for each row."""
    if not isinstance(table, pa.RecordBatch) or len(table) < MANY_ROWS:
        table.validate(full=True)
        return
    table.validate()  # every buffer exists and is long enough for its rows
    for column in table.columns:
        if not _is_surely_sound(column):
            column.validate(full=True)


def _is_surely_sound(column: pa.Array) -> bool:
    """Whether a column with whole buffers is valid in every row: no gaps, rising offsets, only ASCII."""
    kind = column.type
    if column.null_count or column.buffers()[0] is not None:
        return False
    if pa.types.is_struct(kind):
        return all(_is_surely_sound(column.field(place)) for place in range(kind.num_fields))
    if pa.types.is_string(kind):
        offsets, data = bytes_of(column)
        return bool((offsets[1:] >= offsets[:-1]).all()) and (not len(data) or bool(data.max() < 0x80))
    return bool(pa.types.is_int64(kind) or kind == TIMESTAMP)


def _taken(table: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    if isinstance(table, pa.RecordBatch):
        plain = as_it_is(table, _CLEAR_MILLIONTHS, DELTA_LIMIT)
        if plain is not None:
            return plain
    rows = len(table)
    found = {name: combined(column) for name, column in zip(table.column_names, table.columns, strict=True)}
    if (twice := _named_twice(table.schema)) is not None:
        return _refused(table, Refusal(Reason.MALFORMED, f"The column {twice!r} is there twice."))
    taken = {name: _field(found.get(name), name, rows) for name, _ in SENT_FIELDS}
    columns = {name: field.column for name, field in taken.items()}
    unknown = [take.unknown(column) for name, column in found.items() if name not in columns]
    doubts = either(
        *(field.doubts for field in taken.values()),
        *unknown,
        _mismatches(columns),
        may_exceed(list(columns.values()), DELTA_LIMIT),
    )
    if doubts is not None and doubts.any():
        wanted = np.flatnonzero(doubts)
        looked_at = decode_rows(list(row_objects(found, wanted.tolist())), SeriesNames())
        return _merged(columns, wanted, looked_at)
    is_in_order = isinstance(table, pa.RecordBatch) and table.schema.equals(SENT_SCHEMA)
    if is_in_order and all(columns[name] is column for name, column in found.items()):
        return table
    return pa.RecordBatch.from_arrays(list(columns.values()), schema=SENT_SCHEMA)


def _named_twice(schema: pa.Schema) -> str | None:
    payloads = [field for field in schema if pa.types.is_struct(field.type)]
    names = [*schema.names, *(f"{payload.name}.{field.name}" for payload in payloads for field in payload.type)]
    return next((name for name, count in Counter(names).items() if count > 1), None)


def _field(column: pa.Array | None, name: str, rows: int) -> Taken:
    try:
        if name == "event_ts":
            return take.times(column, rows)
        if name in PAYLOADS:
            return _payload(column, name, rows)
        default = constant(DEFAULTS[name], rows) if name in DEFAULTS else None
        if column is None and default is not None:
            return Taken(default)
        return take.texts(column, rows, is_required=name in _REQUIRED_TEXTS, default=default)
    except Exception:  # noqa: BLE001 - Arrow lacks this conversion; row by row it may be possible (C14)
        return Taken(nulls(rows, SENT_SCHEMA.field(name).type), np.ones(rows, dtype=np.bool_))


def _payload(column: pa.Array | None, name: str, rows: int) -> Taken:
    """Payloads of one kind; rows without one are never unproven."""
    kind = SENT_SCHEMA.field(name).type
    if column is None or column.null_count == rows:
        return Taken(column if column is not None and column.type == kind else nulls(rows, kind))
    if not pa.types.is_struct(column.type):
        return Taken(nulls(rows, kind), take.unknown(column))
    is_there = np.asarray(column.is_valid()) if column.null_count else None
    found = {field.name: column.field(place) for place, field in enumerate(column.type)}
    declared = KINDS[Kind(name)].fields
    fields = {
        field.name: take.weights(found.get(sent), found.get(field.name), rows, _CLEAR_MILLIONTHS)
        if (sent := declared[field.name].millionths_of)
        else _payload_field(found.get(field.name), field.type, declared[field.name], rows)
        for field in kind
    }
    # A field kept in millionths may also come as producers send it.
    known = {*fields, *(field.millionths_of for field in declared.values())}
    unknown = [take.unknown(child) for field, child in found.items() if field not in known]
    doubts = either(*(field.doubts for field in fields.values()), *unknown)
    if doubts is not None and is_there is not None:
        doubts = doubts & is_there
    if column.type == kind and all(field.column is found[child] for child, field in fields.items()):
        return Taken(column, doubts)
    made = [fields[field.name].column for field in kind]
    absent = None if is_there is None else pa.array(~is_there)
    return Taken(pa.StructArray.from_arrays(made, fields=list(kind), mask=absent), doubts)


def _payload_field(column: pa.Array | None, kind: pa.DataType, field: PayloadField, rows: int) -> Taken:
    """A field of a payload, by the type that the log has for it."""
    if pa.types.is_string(kind):
        return take.texts(column, rows, is_required=field.is_required)
    if pa.types.is_list(kind):
        return take.lists(column, rows, kind)
    if pa.types.is_map(kind):
        return take.maps(column, rows, kind, is_required=field.is_required)
    if pa.types.is_floating(kind):
        return take.numbers(column, rows, is_required=field.is_required)
    return take.whole_numbers(column, rows, default=field.default)


def _mismatches(columns: Mapping[str, pa.Array]) -> Mask | None:
    """Rows that do not have exactly the payload of their kind."""
    rows = len(columns["kind"])
    known = constant_of(columns["kind"])
    if known in PAYLOADS and all(columns[kind].null_count == (0 if kind == known else rows) for kind in PAYLOADS):
        return None
    wrong = ~np.asarray(pc.is_in(columns["kind"], pa.array(PAYLOADS)))
    for kind in PAYLOADS:
        promised = np.asarray(pc.fill_null(pc.equal(columns["kind"], kind), False))
        wrong |= promised != np.asarray(columns[kind].is_valid())
    return wrong


def _merged(columns: Mapping[str, pa.Array], rows: Rows, looked_at: DecodedBatch) -> pa.RecordBatch:
    """The columns, with the result of the door for rows for these rows, and its refusals."""
    total = len(columns["kind"])
    places = np.arange(total)
    places[rows] = total + np.arange(len(rows))
    chosen = pa.array(places)
    arrays = [pa.concat_arrays([columns[name], looked_at.columns[name]]).take(chosen) for name in SENT_SCHEMA.names]
    if not looked_at.refusals:
        return pa.RecordBatch.from_arrays(arrays, schema=SENT_SCHEMA)
    kept = keep_originals(sorted(looked_at.refusals), lambda _: 0, looked_at)
    values: dict[str, dict[int, object]] = {
        "reason": {row: str(why.reason) for row, why in looked_at.refusals.items()},
        "detail": {row: bounded(why.detail) for row, why in looked_at.refusals.items()},
        "raw": {row: found.raw for row, found in kept.items()},
        "raw_bytes": {row: found.length for row, found in kept.items()},
    }
    for name, kind in REFUSED_FIELDS:
        arrays.append(scattered({int(rows[row]): value for row, value in values[name].items()}, total, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema([*SENT_FIELDS, *REFUSED_FIELDS]))


def _refused(table: pa.Table | pa.RecordBatch, why: Refusal) -> pa.RecordBatch:
    """Every row refused for the same reason; the stored bytes show every column, numbered if its name repeats."""
    rows = np.arange(len(table))
    seen: Counter[str] = Counter()
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        seen[name] += 1
        found[name if seen[name] == 1 else f"{name} ({seen[name]})"] = combined(column)
    sent = list(row_objects(found, rows.tolist()))
    nothing = {name: nulls(len(rows), kind) for name, kind in SENT_FIELDS}
    refusals = dict.fromkeys(range(len(rows)), why)
    decoded = DecodedBatch(nothing, refusals, sent.__getitem__, {}, lambda wanted, _: map(sent.__getitem__, wanted))
    return _merged(nothing, rows, decoded)
