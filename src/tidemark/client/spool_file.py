"""One file of a spool: groups of writes, appended and synced, and found again after a crash.

Belongs here: bytes. A group is what was synced at once:

    header    magic, first number, writes, length of what follows, and CRC32C of these
    writes    each: kind, flags, deltas, length, payload, and CRC32C of these and its number

The next group is begun only when the one before is on the disk, so a crash can tear nothing but the last one.
"""

import os
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import google_crc32c

from tidemark.client.batches import Content
from tidemark.client.errors import SpoolDamageError
from tidemark.wire.frames import Flag, FrameType

_MAGIC = b"TdS\xd3"
_GROUP = struct.Struct(">4sQII")
_WRITE = struct.Struct(">BBII")
_CRC = struct.Struct(">I")
_NUMBER = struct.Struct(">Q")
_GROUP_BYTES = _GROUP.size + _CRC.size
_WRITE_BYTES = _WRITE.size + _CRC.size


class Place(NamedTuple):
    """Where a write is."""

    file: Path
    offset: int
    length: int  # with all that belongs to it
    rows: int
    payload_bytes: int


class Found(NamedTuple):
    """What a file has."""

    places: dict[int, Place]  # by number, in order
    end: int  # what comes after it was torn by a crash


def encode_group(first: int, writes: Sequence[Content], file: Path, start: int) -> tuple[bytes, dict[int, Place]]:
    """The bytes of a group that begins at `start`, and where its writes will be."""
    parts, places = [], dict[int, Place]()
    offset = start + _GROUP_BYTES
    for number, write in enumerate(writes, start=first):
        head = _WRITE.pack(write.kind, write.flags, write.rows, len(write.payload))
        body = head + write.payload
        parts += [body, _CRC.pack(_checksum(number, body))]
        length = len(body) + _CRC.size
        places[number] = Place(file, offset, length, write.rows, len(write.payload))
        offset += length
    header = _GROUP.pack(_MAGIC, first, len(writes), offset - start - _GROUP_BYTES)
    return b"".join([header, _CRC.pack(google_crc32c.value(header)), *parts]), places


def decode_write(number: int, data: bytes) -> Content | None:
    """A write as it was appended; None if these are not its bytes."""
    if len(data) < _WRITE_BYTES:
        return None
    kind, flags, rows, length = _WRITE.unpack_from(data)
    body, checksum = data[: -_CRC.size], _CRC.unpack(data[-_CRC.size :])[0]
    if len(data) != _WRITE_BYTES + length or checksum != _checksum(number, body):
        return None
    return Content(FrameType(kind), Flag(flags), rows, body[_WRITE.size :])


def _checksum(number: int, body: bytes) -> int:
    return int(google_crc32c.extend(google_crc32c.value(_NUMBER.pack(number)), body))


def read_file(file: Path, first: int, *, is_last: bool) -> Found:
    """What a file has whose first write has this number. A torn end is allowed in the last file alone."""
    data = file.read_bytes()
    places: dict[int, Place] = {}
    start, number = 0, first
    while start < len(data):
        group = _read_group(data, start, number, file)
        if group is None:
            if not is_last or _has_group_behind(data, start, number):
                raise SpoolDamageError(
                    f"{file} is damaged at byte {start:,}, where no crash can have torn it. Writes from {number} on "
                    "may be lost. Nothing was changed: restore the file, or move the whole spool away and send again "
                    "from the source what was not acknowledged."
                )
            break
        places |= group
        number += len(group)
        start = max(place.offset + place.length for place in group.values())
    return Found(places, start)


def _read_group(data: bytes, start: int, number: int, file: Path) -> dict[int, Place] | None:
    header = _header(data, start)
    if header is None:
        return None
    first, count, length = header
    end = start + _GROUP_BYTES + length
    if first != number or count < 1 or end > len(data):
        return None
    places: dict[int, Place] = {}
    offset = start + _GROUP_BYTES
    for each in range(first, first + count):
        if offset + _WRITE_BYTES > end:
            return None
        _, _, rows, payload_bytes = _WRITE.unpack_from(data, offset)
        size = _WRITE_BYTES + payload_bytes
        if decode_write(each, data[offset : min(end, offset + size)]) is None:
            return None
        places[each] = Place(file, offset, size, rows, payload_bytes)
        offset += size
    return places if offset == end else None


def _header(data: bytes, start: int) -> tuple[int, int, int] | None:
    if start + _GROUP_BYTES > len(data):
        return None
    packed = data[start : start + _GROUP.size]
    magic, first, count, length = _GROUP.unpack(packed)
    (checksum,) = _CRC.unpack_from(data, start + _GROUP.size)
    return (first, count, length) if magic == _MAGIC and checksum == google_crc32c.value(packed) else None


def _has_group_behind(data: bytes, start: int, number: int) -> bool:
    """Whether a later group was begun behind this place: then what is here had been synced, and is damaged now."""
    place = start
    while (place := data.find(_MAGIC, place + 1)) >= 0:
        header = _header(data, place)
        if header is not None and header[0] > number:
            return True
    return False


def sync_directory(path: Path) -> None:
    """Make the names in a directory last."""
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
