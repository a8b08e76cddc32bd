"""The content of one frame of the log: the control messages and the writes that were flushed together.

Belongs here: a group as bytes and back. A group has one checksum and one sync, so it is stored whole or not at all.
Messages come before rows, because that is the order in which they took effect. Columns have only what differs between
rows; the rest is in an outline before them (`log_rows.py`).

    payload  length of the messages u32 · length of the outline u32 · messages, a JSON array · outline, a JSON object
             filled up with spaces, or nothing · Arrow record batch, or nothing
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec
import pyarrow as pa
from msgspec import Struct

from tidemark.log.control import Control, decode_controls, encode_controls
from tidemark.log.log_rows import LogRows, Writes
from tidemark.model.log_schema import LOG_SCHEMA

_HEAD = struct.Struct(">II")
# Arrow reads its buffers in place if they are at multiples of this. The sizes of file and frame headers are, too.
_ALIGNMENT = 8


class Outline(Struct, frozen=True):
    """The part of the rows that is stored once, before their columns."""

    shard: int
    writes: Writes
    shared: dict[str, str]
    copies: tuple[str, ...]
    columns: tuple[str, ...]


class Group(NamedTuple):
    """The content of one frame."""

    controls: list[Control]
    rows: LogRows | None


class Payload(NamedTuple):
    """A group as bytes, in two pieces: the second may be large, and is not copied behind the first."""

    head: bytes
    body: pa.Buffer

    @property
    def bytes(self) -> int:
        """Its length."""
        return len(self.head) + int(self.body.size)


_outlines = msgspec.json.Decoder(Outline)


def encode_group(controls: Sequence[Control], rows: LogRows | None) -> Payload:
    """The payload of a frame."""
    messages = encode_controls(controls)
    outline, body = b"", pa.py_buffer(b"")
    if rows is not None:
        names = tuple(rows.columns)
        outline = msgspec.json.encode(Outline(rows.shard, rows.writes, dict(rows.shared), rows.copies, names))
        body = pa.RecordBatch.from_arrays(list(rows.columns.values()), schema=_schema(names)).serialize()
    size = _HEAD.size + len(messages) + len(outline)
    filling = b" " * (-size % _ALIGNMENT)
    return Payload(_HEAD.pack(len(messages), len(outline) + len(filling)) + messages + outline + filling, body)


def decode_group(payload: memoryview) -> Group:
    """The content of a payload. The columns share the payload's memory and keep it alive."""
    messages_size, outline_size = _HEAD.unpack_from(payload)
    outline_at = _HEAD.size + messages_size
    columns_at = outline_at + outline_size
    controls = decode_controls(payload[_HEAD.size : outline_at])
    if len(payload) == columns_at:
        return Group(controls, None)
    outline = _outlines.decode(payload[outline_at:columns_at])
    batch = pa.ipc.read_record_batch(_aligned(payload[columns_at:]), _schema(outline.columns))
    columns = dict(zip(outline.columns, batch.columns, strict=True))
    return Group(controls, LogRows(outline.shard, outline.writes, outline.shared, outline.copies, columns))


def _aligned(data: memoryview) -> pa.Buffer:
    where = pa.py_buffer(data)
    return where if where.address % _ALIGNMENT == 0 else pa.py_buffer(bytes(data))


@lru_cache(maxsize=256)
def _schema(names: tuple[str, ...]) -> pa.Schema:
    return pa.schema([LOG_SCHEMA.field(name) for name in names])
