"""Columns from strangers: a payload that is said to be an Arrow IPC stream becomes a batch that is safe to use.

Belongs here: reading it, in this order: what it claims is checked before Arrow allocates for it (`ipc_messages.py`),
then Arrow reads it, every value is validated, and values that rows share are written out within bounds. Does not belong
here: what the columns mean (`column_door.py`).
"""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.door.ipc_messages import bad, look_through, too_large
from tidemark.wire.limits import Limits

_WITHOUT_VIEWS = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}
_OPTIONS = pa.ipc.IpcReadOptions(use_threads=False)


def read_columns(payload: bytes | memoryview, limits: Limits) -> pa.RecordBatch:
    """All rows of the stream in one batch, without dictionaries and views.

    The batch keeps `payload` alive and shows its bytes, unless it is a view: what lies under that may be used again, so
    it is copied.
    """
    data = bytes(payload)
    found = look_through(memoryview(data), limits)
    try:
        with pa.ipc.open_stream(pa.py_buffer(data), options=_OPTIONS) as stream:
            batches = [batch for batch in stream if len(batch)]
            schema = stream.schema
        for batch in batches:
            batch.validate(full=True)
        if found.has_wrapped:
            schema = _plain_schema(schema)
            batches = _written_out(batches, schema, limits)
        if len(batches) == 1:
            return batches[0]
        return pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema)
    except (pa.ArrowException, OSError) as error:
        raise bad(f"The Arrow stream cannot be read: {error}") from error


def _written_out(batches: Iterable[pa.RecordBatch], schema: pa.Schema, limits: Limits) -> list[pa.RecordBatch]:
    """The batches with a value of its own for each row. How large they get is counted first."""
    written, total = [], 0
    for batch in batches:
        total += sum(_shared_bytes(column) for column in batch.columns)
        if total > limits.unpacked_bytes:
            raise too_large(
                f"The columns take more than {limits.unpacked_bytes:,} bytes, once each row has its own value of a "
                "dictionary or view. Send smaller writes."
            )
        columns = [_alone(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
        written.append(pa.RecordBatch.from_arrays(columns, schema=schema))
    return written


def _alone(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """The same values without dictionaries and views, in this type. The column begins where its buffers do."""
    if column.type.equals(kind):
        return column
    if pa.types.is_dictionary(column.type):
        return _alone(column.dictionary, kind).take(column.indices)
    if not pa.types.is_nested(kind):
        return _without_hidden_views(column).cast(kind)
    types = [kind.field(place).type for place in range(kind.num_fields)]
    inner = [_alone(child, type_) for child, type_ in zip(_inner(column), types, strict=True)]
    own = column.buffers()[: 1 if pa.types.is_struct(kind) or pa.types.is_fixed_size_list(kind) else 2]
    return pa.Array.from_buffers(kind, len(column), own, column.null_count, children=inner)


def _without_hidden_views(column: pa.Array) -> pa.Array:
    """The same views, empty in rows without a value: Arrow does not validate those, and follows them when it casts."""
    if not column.null_count:
        return column
    validity, _, *texts = column.buffers()
    views = _views(column) * np.asarray(column.is_valid())[:, None]
    return pa.Array.from_buffers(column.type, len(column), [validity, pa.py_buffer(views), *texts])


def _views(column: pa.Array) -> npt.NDArray[np.int32]:
    """The views of a column; each begins with the size of its text."""
    if not len(column):
        return np.empty((0, 4), np.int32)
    return np.frombuffer(column.buffers()[1], np.int32, 4 * len(column)).reshape(-1, 4)


def _inner(column: pa.Array) -> list[pa.Array]:
    """The columns within a column."""
    if pa.types.is_struct(column.type):
        return [column.field(place) for place in range(column.type.num_fields)]
    return [column.values] if pa.types.is_nested(column.type) else []


def _shared_bytes(column: pa.Array) -> int:
    """What the values of dictionaries and views take once each row has its own. Counts no others."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        sizes = _sizes(column.dictionary)
        return pc.sum(sizes.take(column.indices)).as_py() or 0
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return pc.sum(_sizes(column)).as_py() or 0
    return sum(map(_shared_bytes, _inner(column)))


def _sizes(values: pa.Array) -> pa.Array:
    """The bytes of each value."""
    kind = values.type
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        lengths = _views(values)[:, 0]
        return pa.array(lengths.astype(np.int64), mask=~np.asarray(values.is_valid()))
    if pa.types.is_string(kind) or pa.types.is_binary(kind) or pa.types.is_large_string(kind):
        return pc.binary_length(values).cast(pa.int64())
    if pa.types.is_large_binary(kind):
        return pc.binary_length(values)
    width = 0 if pa.types.is_null(kind) else -(-kind.bit_width // 8)
    return pa.array(np.full(len(values), width, np.int64))


@lru_cache(maxsize=64)
def _plain_schema(schema: pa.Schema) -> pa.Schema:
    return pa.schema([field.with_type(_plain(field.type)) for field in schema])


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type whose rows share nothing."""
    if pa.types.is_dictionary(kind):
        return _plain(kind.value_type)
    if not pa.types.is_nested(kind):
        return _WITHOUT_VIEWS.get(kind, kind)
    inner = [kind.field(place) for place in range(kind.num_fields)]
    return _nested(kind, [field.with_type(_plain(field.type)) for field in inner])


def _nested(kind: pa.DataType, inner: list[pa.Field]) -> pa.DataType:
    """The same nesting around other fields."""
    if pa.types.is_struct(kind):
        return pa.struct(inner)
    [field] = inner
    if pa.types.is_map(kind):
        return pa.map_(*field.type)
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(field, kind.list_size)
    return pa.large_list(field) if pa.types.is_large_list(kind) else pa.list_(field)
