"""What one frame of the log holds: the control messages and the writes that were flushed together.

Belongs here: a group as bytes and back. What is flushed together has one checksum and one sync, so it is there whole
or not at all. Messages come before rows, because that is the order in which they took effect.

    payload  length of the messages u32 · messages, a JSON array filled up with spaces · Arrow record batch, or nothing
"""

import struct
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from resources.coordinator.control import Control, decode_controls, encode_controls
from resources.coordinator.schema import LOG_SCHEMA

_LENGTH = struct.Struct(">I")
# Arrow wants its buffers at multiples of this, counted from where the batch begins.
_ALIGNMENT = 64


class Group(NamedTuple):
    """What one frame says."""

    controls: list[Control]
    rows: pa.RecordBatch | None


def encode_group(controls: Sequence[Control], rows: pa.RecordBatch | None) -> bytes:
    """The payload of a frame."""
    messages = encode_controls(controls)
    filled = messages.ljust(-(-(len(messages) + _LENGTH.size) // _ALIGNMENT) * _ALIGNMENT - _LENGTH.size)
    return b"".join((_LENGTH.pack(len(filled)), filled, rows.serialize() if rows is not None else b""))


def decode_controls_of(payload: memoryview) -> list[Control]:
    """Only the messages: whoever looks for those need not read the rows."""
    return decode_controls(payload[_LENGTH.size : _LENGTH.size + _messages_length(payload)])


def decode_group(payload: memoryview) -> Group:
    """What a payload says."""
    rows = payload[_LENGTH.size + _messages_length(payload) :]
    # A copy of its own is aligned, which a place in the middle of a file is not.
    batch = pa.ipc.read_record_batch(pa.py_buffer(bytes(rows)), LOG_SCHEMA) if len(rows) else None
    return Group(decode_controls_of(payload), batch)


def _messages_length(payload: memoryview) -> int:
    (length,) = _LENGTH.unpack_from(payload)
    return int(length)
