"""Taking over a caller's objects: a copy that no other code can change (C14).

Belongs here: the copy, made on the caller's thread before `write` returns. A caller may refill its list, its
dictionaries or the array under a column as soon as it has its handle; the write must not change with them. Errors in a
delta are found later (`decode.py`).
"""

import copy
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
from msgspec import Struct

from tidemark.door.column_door import to_batch, unreadable
from tidemark.door.decode import original_bytes
from tidemark.door.decoded import Sent
from tidemark.door.plain_columns import is_plain
from tidemark.model.deltas import Delta
from tidemark.model.shard_errors import WriteFormatError

# Values that cannot change.
_ATOMS = frozenset((str, bytes, int, float, bool, type(None), datetime))
_ONE_DELTA = (str, bytes, bytearray, Mapping, Delta)


def own(deltas: Any) -> list[Sent]:
    """The deltas of a write, each a copy."""
    if isinstance(deltas, _ONE_DELTA):
        raise WriteFormatError(
            f"A write is a list of deltas, or an Arrow table; this is one {type(deltas).__name__}. Put it into a list."
        )
    try:
        sent = list(deltas)
    except TypeError as error:
        raise WriteFormatError(f"A write is a list of deltas, or an Arrow table: {error}.") from error
    return [each if type(each) in _ATOMS else _own_delta(each) for each in sent]


def as_columns(deltas: Any) -> pa.Table | pa.RecordBatch | None:
    """A write in Arrow columns; None if it is in rows. Any data frame with Arrow inside will do."""
    if isinstance(deltas, pa.RecordBatch | pa.Table):
        return deltas
    try:
        if type(deltas).__module__.partition(".")[0] == "pandas":
            return pa.Table.from_pandas(deltas, preserve_index=False)
        if hasattr(deltas, "__arrow_c_stream__") or hasattr(deltas, "__arrow_c_array__"):
            return pa.table(deltas)
    except (pa.lib.ArrowException, TypeError, ValueError) as error:
        raise WriteFormatError(
            f"The {type(deltas).__name__} has a column that is of no single type: {error}. "
            "Give it one, or send its rows as dictionaries."
        ) from error
    return None


def own_columns(table: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """Columns in the log's types and in memory of their own: the caller may refill its array."""
    if isinstance(table, pa.RecordBatch) and is_plain(table.schema):
        # Missing fields have many buffers, so the copy is made before they are added, and is validated then.
        return to_batch(_copied_columns(table))
    return _copied_columns(to_batch(table))


def _copied_columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    try:
        batch.validate()  # no buffer is read beyond its end
        return pa.ipc.read_record_batch(batch.serialize(), batch.schema)
    except pa.lib.ArrowException as error:
        raise unreadable(error) from error


def _own_delta(sent: Any) -> Any:
    try:
        return _copied(sent)
    except Exception:  # noqa: BLE001 - a caller's object may raise anything; what cannot be copied is kept as text
        return original_bytes(sent)


def _copied(value: Any) -> Any:
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is dict:
        return {name: each if type(each) in _ATOMS else _copied(each) for name, each in value.items()}
    if kind is list:
        return list(value) if _ATOMS.issuperset(map(type, value)) else [_copied(each) for each in value]
    if isinstance(value, Struct):
        return kind(**{name: _copied(getattr(value, name)) for name in value.__struct_fields__})
    return copy.deepcopy(value)
