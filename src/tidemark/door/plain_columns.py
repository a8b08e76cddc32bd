"""A write in columns that already has the log's form: signals in the log's own types, without gaps.

Belongs here: detecting this with as few looks as possible, because fast producers send it and every call costs them as
much as a hundred rows. Any other batch takes the longer way (`column_door.py`), with the same result.
"""

from collections.abc import Mapping
from functools import lru_cache

import pyarrow as pa

from tidemark.arrays.columns import constant, constant_of, nulls, numbers_of
from tidemark.arrays.json_sizes import is_surely_below, may_exceed
from tidemark.door.column_types import is_outside
from tidemark.door.decode_columns import DEFAULTS
from tidemark.door.decode_values import FIRST_US, LAST_US
from tidemark.model.deltas import OTHERS, Kind
from tidemark.model.log_schema import SENT_FIELDS, SENT_SCHEMA

# Without these a row is no signal; the others have a default, or are null if they are left out.
_REQUIRED = frozenset(("namespace", "kind", "delta_id", "event_ts", Kind.SIGNAL.value))
# Fields that a delta may leave out, so they may have gaps.
_WITH_GAPS = frozenset(("origin", *OTHERS))


def as_it_is(batch: pa.RecordBatch, most_millionths: int, limit: int) -> pa.RecordBatch | None:
    """The batch with every column of a delta, if no row needs a look; None if one might."""
    if not is_plain(batch.schema):
        return None
    rows = len(batch)
    found = dict(zip(batch.schema.names, batch.columns, strict=True))
    if _has_gaps(found, rows) or constant_of(found["kind"]) != Kind.SIGNAL:
        return None
    is_odd = is_outside(numbers_of(found["event_ts"]), FIRST_US, LAST_US) or is_outside(
        numbers_of(found["signal"].field("weight_millionths")), -most_millionths, most_millionths
    )
    if is_odd or not (is_surely_below(batch, limit) or may_exceed(batch.columns, limit) is None):
        return None
    if batch.schema.equals(SENT_SCHEMA):  # non-nullable columns have another schema, so no neighbours
        return batch
    columns = [found[name] if name in found else _left_out(name, kind, rows) for name, kind in SENT_FIELDS]
    return pa.RecordBatch.from_arrays(columns, schema=SENT_SCHEMA)


def _has_gaps(found: Mapping[str, pa.Array], rows: int) -> bool:
    """Whether a row lacks a field of a signal, or has another payload."""
    payload = found["signal"]
    return (
        any(column.null_count for name, column in found.items() if name not in _WITH_GAPS)
        or any(found[name].null_count < rows for name in OTHERS if name in found)
        or any(payload.field(place).null_count for place in range(payload.type.num_fields))
    )


@lru_cache(maxsize=64)
def is_plain(schema: pa.Schema) -> bool:
    """Whether the columns are those of a delta, in their order and of the log's types."""
    names = schema.names
    wanted = [(name, kind) for name, kind in SENT_FIELDS if name in names]
    return _REQUIRED.issubset(names) and wanted == [(field.name, field.type) for field in schema]


def _left_out(name: str, kind: pa.DataType, rows: int) -> pa.Array:
    return constant(DEFAULTS[name], rows) if name in DEFAULTS else nulls(rows, kind)
