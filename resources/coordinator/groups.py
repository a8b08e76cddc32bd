"""What one frame of the log holds: the control messages and the writes that were flushed together.

Belongs here: a group as bytes and back. What is flushed together has one checksum and one sync, so it is there whole
or not at all. Messages come before rows, because that is the order in which they took effect. Columns in which no row
has anything are left out: most groups have one kind of payload, and nothing that was refused.

    payload  length of the messages u32 · columns that are there u32, a bit each · messages, a JSON array filled up with
             spaces · Arrow record batch, or nothing
"""

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from resources.coordinator.control import Control, decode_controls, encode_controls
from resources.coordinator.schema import LOG_SCHEMA

_HEAD = struct.Struct(">II")
# Arrow wants its buffers at multiples of this, counted from where the batch begins.
_ALIGNMENT = 64


class Group(NamedTuple):
    """What one frame says."""

    controls: list[Control]
    rows: pa.RecordBatch | None


class Payload(NamedTuple):
    """A group as bytes, in two pieces: the second may be large, and is not copied to stand behind the first."""

    head: bytes
    body: pa.Buffer

    @property
    def bytes(self) -> int:
        """How long it is."""
        return len(self.head) + int(self.body.size)


def encode_group(controls: Sequence[Control], rows: pa.RecordBatch | None) -> Payload:
    """The payload of a frame."""
    messages = encode_controls(controls)
    filled = messages.ljust(-(-(len(messages) + _HEAD.size) // _ALIGNMENT) * _ALIGNMENT - _HEAD.size)
    if rows is None:
        return Payload(_HEAD.pack(len(filled), 0) + filled, pa.py_buffer(b""))
    mask = sum(1 << place for place, column in enumerate(rows.columns) if column.null_count < len(rows))
    return Payload(_HEAD.pack(len(filled), mask) + filled, rows.select(_places(mask)).serialize())


def decode_group(payload: memoryview) -> Group:
    """What a payload says."""
    length, mask = _HEAD.unpack_from(payload)
    rows = payload[_HEAD.size + length :]
    return Group(decode_controls(payload[_HEAD.size : _HEAD.size + length]), _decode_rows(rows, mask) if mask else None)


def _decode_rows(data: memoryview, mask: int) -> pa.RecordBatch:
    # A copy of its own is aligned, which a place in the middle of a file is not.
    found = pa.ipc.read_record_batch(pa.py_buffer(bytes(data)), _schema(mask))
    there = dict(zip(_places(mask), found.columns, strict=True))
    columns = [there.get(place) for place in range(len(LOG_SCHEMA))]
    return pa.RecordBatch.from_arrays(
        [
            pa.nulls(len(found), field.type) if column is None else column
            for column, field in zip(columns, LOG_SCHEMA, strict=True)
        ],
        schema=LOG_SCHEMA,
    )


@lru_cache(maxsize=256)
def _places(mask: int) -> list[int]:
    return [place for place in range(len(LOG_SCHEMA)) if mask >> place & 1]


@lru_cache(maxsize=256)
def _schema(mask: int) -> pa.Schema:
    return pa.schema([LOG_SCHEMA.field(place) for place in _places(mask)])
