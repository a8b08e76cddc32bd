"""The format of a log file: a header, then frames, each with its length and checksum; zeros after the last.

Belongs here: bytes to frames and back, without a disk. One frame holds one group (`groups.py`): the writes that are
flushed together, so they are stored together or not at all. A checksum is salted with the file's identity and the
frame's offset: a frame that was copied, or left over from another file, is not valid here.

    header  magic 8 · format u32 · schema u32 · shard u32 · crc32c u32 · number u64 · incarnation u64
            · first epoch u64 · created i64
    frame   magic u16 · 0 u16 · length u32 · first epoch u64 · last epoch u64 · crc32c u32 · 0 u32 · payload
"""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import google_crc32c

from tidemark.model.deltas import SCHEMA_VERSION
from tidemark.model.shard_errors import LogDamageError

FORMAT_VERSION = 3
FILE_MAGIC = b"TIDEMARK"
FRAME_MAGIC = 0xD317
_HEADER = struct.Struct(">8sIIIIQQQq")
_FRAME = struct.Struct(">HHIQQII")
HEADER_BYTES = _HEADER.size
FRAME_BYTES = _FRAME.size
# Checked before any memory is allocated for it.
PAYLOAD_LIMIT = 256 * 1024 * 1024
_ZEROS = bytes(1024 * 1024)
# The checksum copies a file piece by piece, so that each piece stays in the cache of a core.
_PIECE = 256 * 1024


class Header(NamedTuple):
    """Which start of which shard wrote a log file, and where it begins."""

    shard: int
    number: int
    incarnation: int
    first_epoch: int
    created_us: int


class Frame(NamedTuple):
    """One group: its writes have the epochs `first_epoch` to `last_epoch`, both in it; 0 and 0 if it has none."""

    first_epoch: int
    last_epoch: int
    payload: memoryview
    offset: int
    end: int


class Tail(NamedTuple):
    """Where the valid frames end, and whether anything but zeros follows."""

    offset: int
    is_torn: bool


def encode_header(header: Header) -> bytes:
    """The first bytes of a file."""

    def pack(crc: int) -> bytes:
        return _HEADER.pack(
            FILE_MAGIC,
            FORMAT_VERSION,
            SCHEMA_VERSION,
            header.shard,
            crc,
            header.number,
            header.incarnation,
            header.first_epoch,
            header.created_us,
        )

    return pack(google_crc32c.value(pack(0)))


def decode_header(data: memoryview, where: str) -> Header | None:
    """The header, or None if the file was never begun; a wrong header with anything behind it is damage.

    Nothing is written after a header before the header is on the disk. So a torn header has only zeros after it, and
    nothing in such a file was ever acknowledged.
    """
    if len(data) < HEADER_BYTES:
        return None
    magic, version, schema, shard, crc, number, incarnation, first_epoch, created_us = _HEADER.unpack_from(data)
    header = Header(shard, number, incarnation, first_epoch, created_us)
    if encode_header(header) == bytes(data[:HEADER_BYTES]):
        return header
    if _is_zero(data[HEADER_BYTES:]):
        return None
    if magic != FILE_MAGIC or version != FORMAT_VERSION or schema != SCHEMA_VERSION:
        raise LogDamageError(
            f"{where} is not a log file of format {FORMAT_VERSION} and schema {SCHEMA_VERSION}. "
            "Use the version of Tidemark that wrote it."
        )
    raise LogDamageError(f"{where} has a header with a wrong checksum ({crc:08x}). Restore the file from a backup.")


def encode_frame_head(epochs: tuple[int, int], payload: Sequence[Any], header: Header, offset: int) -> bytes:
    """The bytes before the payload in a frame at `offset` of the file with this header.

    `epochs` are the first and the last of its writes; the payload may be in pieces, each bytes or an Arrow buffer.
    """
    length = sum(len(piece) for piece in payload)
    crc = _checksum(_FRAME.pack(FRAME_MAGIC, 0, length, *epochs, 0, 0), payload, header, offset)
    return _FRAME.pack(FRAME_MAGIC, 0, length, *epochs, crc, 0)


def read_frames(data: memoryview, header: Header) -> Iterator[Frame]:
    """The valid frames from the start on; stops at the first invalid one."""
    offset = HEADER_BYTES
    while (frame := frame_at(data, header, offset)) is not None:
        yield frame
        offset = frame.end


def frame_at(data: memoryview, header: Header, offset: int) -> Frame | None:
    """The valid frame at `offset`, if there is one."""
    if offset + FRAME_BYTES > len(data):
        return None
    magic, zero, length, first_epoch, last_epoch, crc, zeros = _FRAME.unpack_from(data, offset)
    end = offset + FRAME_BYTES + length
    if magic != FRAME_MAGIC or zero or zeros or length > PAYLOAD_LIMIT or end > len(data):
        return None
    payload = data[offset + FRAME_BYTES : end]
    start = _FRAME.pack(FRAME_MAGIC, 0, length, first_epoch, last_epoch, 0, 0)
    pieces = (bytes(payload[at : at + _PIECE]) for at in range(0, length, _PIECE))
    if crc != _checksum(start, pieces, header, offset):
        return None
    return Frame(first_epoch, last_epoch, payload, offset, end)


def find_tail(data: memoryview, header: Header, end_of_frames: int, where: str) -> Tail:
    """What follows the last valid frame: nothing, or a torn tail. A valid frame further on is neither.

    A group is written only after the one before it is on the disk, so a crash can tear only the last one in the file.
    If anything valid follows, an acknowledged frame has been damaged, and nothing may be cut off.
    """
    if _is_zero(data[end_of_frames:]):
        return Tail(end_of_frames, is_torn=False)
    rest = bytes(data[end_of_frames:])
    mark = struct.pack(">H", FRAME_MAGIC)
    at = rest.find(mark, 1)
    while at != -1:
        if frame_at(data, header, end_of_frames + at) is not None:
            raise LogDamageError(
                f"{where} is damaged at byte {end_of_frames}: a valid frame follows at byte {end_of_frames + at}, "
                "so this is no torn tail. Restore the file from a backup; nothing was changed."
            )
        at = rest.find(mark, at + 1)
    return Tail(end_of_frames, is_torn=True)


def _is_zero(data: memoryview) -> bool:
    """Whether there is nothing but zeros, compared piece by piece: a file is many megabytes, and mostly zeros."""
    return all(
        bytes(data[start : start + len(_ZEROS)]) == _ZEROS[: len(data) - start]
        for start in range(0, len(data), len(_ZEROS))
    )


def _checksum(start: bytes, payload: Iterable[Any], header: Header, offset: int) -> int:
    salt = struct.pack(">QQQQ", header.shard, header.number, header.incarnation, offset)
    crc = google_crc32c.value(salt + start)
    for piece in payload:
        crc = google_crc32c.extend(crc, piece)
    return int(crc)
