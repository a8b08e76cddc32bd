"""A snapshot of the counters in a file, with a version and a checksum (R3).

Belongs here: the format, and how it reaches the disk. It is no pickle: an outline (JSON), arrays as in memory,
little-endian, and a CRC32C over all of it at the end. A file that is not whole, not ours or of another version is
refused; the tables and the log have the same counts. Hours that were read from the tables are not in it: they are read
again.
"""

import struct
from pathlib import Path
from typing import Any

import google_crc32c
import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from tidemark.counts.errors import FullError, SnapshotDamageError
from tidemark.counts.warm.buckets import Bucket
from tidemark.counts.warm.cells import WINDOWS
from tidemark.counts.warm.late import LateColumns
from tidemark.counts.warm.state import State
from tidemark.storage.disk import RealDisk

MAGIC = b"TIDECNTS"
VERSION = 1
_HEAD = struct.Struct("<8sIQ")  # magic, version, bytes of the outline
_TAIL = struct.Struct("<I")  # CRC32C of everything before it


class _Group(Struct, frozen=True, array_like=True):
    namespace: str
    signal: str
    entities: int
    bytes: int  # of their names


class _Minute(Struct, frozen=True, array_like=True):
    minute: int
    rows: int
    width: int  # bytes of a count
    last: dict[int, int]  # shard → epoch


class _Outline(Struct, frozen=True):
    """The rest of the file, in this order: names and rows of each group, sums, firsts, minutes, late counts."""

    head: int
    rows: int
    windows: list[str]
    is_following: bool
    weight: int
    applied: dict[int, int]
    covered: dict[int, int]
    groups: list[_Group]
    minutes: list[_Minute]
    late: int


def save_state(state: State, path: Path) -> None:
    """Write a state to a file, in place of the old one. No thread may change the state meanwhile."""
    disk = RealDisk()
    groups, outline, arrays = _laid_out(state)
    parts: list[bytes | memoryview] = [msgspec.json.encode(outline)]
    parts += [memoryview(part).cast("B") for part in (*groups, *arrays) if len(part)]
    parts.insert(0, _HEAD.pack(MAGIC, VERSION, len(parts[0])))
    size = sum(len(part) for part in parts) + _TAIL.size
    disk.make_directory(path.parent)
    temporary = path.with_name(path.name + ".tmp")
    disk.remove(temporary)
    fd = disk.create(temporary, size)
    try:
        at, checksum = 0, 0
        for part in parts:
            checksum = google_crc32c.extend(checksum, np.frombuffer(part, np.uint8))
            disk.pwrite(fd, part, at)
            at += len(part)
        disk.pwrite(fd, _TAIL.pack(checksum), at)
        disk.sync(fd)
    finally:
        disk.close(fd)
    disk.rename(temporary, path)


def load_state(path: Path, capacity: int) -> State:
    """The state in a file; one that follows the log still needs its tables, and to be brought up to date with both."""
    data = memoryview(RealDisk().read(path))
    outline, body = _opened(data, path)
    if outline.rows > capacity:
        raise FullError(f"The snapshot {path} has {outline.rows:,} pairs, and there is room for {capacity:,}.")
    state = State(capacity, outline.head)
    state.weight, state.applied, state.covered = outline.weight, dict(outline.applied), dict(outline.covered)
    reader = _Reader(body)
    for group in outline.groups:
        opened = state.names.open(group.namespace, group.signal)
        entities = reader.texts(group.entities, group.bytes)
        opened.put(entities, reader.array(np.int64, group.entities).copy())
    state.names.rows = outline.rows
    for place in range(len(WINDOWS)):
        state.cells.sums[place, : outline.rows] = reader.array(np.int64, outline.rows)
    state.cells.firsts[: outline.rows] = reader.array(np.int64, outline.rows)
    for minute in outline.minutes:
        rows, counts = reader.array(np.uint32, minute.rows), reader.array(f"<i{minute.width}", minute.rows)
        state.recent.put(minute.minute, Bucket(rows.copy(), counts.copy()))
        if minute.last:
            state.recent.last[minute.minute] = dict(minute.last)
    if outline.late:
        state.late.add(*(reader.array(np.int64, outline.late).copy() for _ in LateColumns._fields))
    return state


def _laid_out(state: State) -> tuple[list[Any], _Outline, list[Any]]:
    names: list[Any] = []
    groups = []
    for group in state.names:
        places = group.texts.places()
        offsets, data = group.texts.packed(places)
        names += [offsets, data, group.texts.rows_at(places)]
        groups.append(_Group(group.namespace, group.signal, len(places), len(data)))
    minutes = list(state.recent.items(state.rows))
    late = state.late.columns()
    outline = _Outline(
        head=state.head,
        rows=state.rows,
        windows=[str(window) for window in WINDOWS],
        is_following=state.rollups is not None,
        weight=state.weight,
        applied=state.applied,
        covered=state.covered,
        groups=groups,
        minutes=[
            _Minute(minute, len(bucket.rows), bucket.counts.itemsize, state.recent.last.get(minute, {}))
            for minute, bucket in minutes
        ],
        late=len(late.rows),
    )
    arrays: list[Any] = [
        *(np.ascontiguousarray(state.cells.sums[place, : state.rows]) for place in range(len(WINDOWS))),
        np.ascontiguousarray(state.cells.firsts[: state.rows]),
    ]
    arrays += [part for _, bucket in minutes for part in bucket]
    arrays += [np.ascontiguousarray(column, np.int64) for column in late]
    return names, outline, arrays


def _opened(data: memoryview, path: Path) -> tuple[_Outline, memoryview]:
    def damaged(what: str) -> SnapshotDamageError:
        return SnapshotDamageError(f"The snapshot {path} {what}. Delete it: tables and log have everything in it.")

    if len(data) < _HEAD.size + _TAIL.size:
        raise damaged("is not whole")
    magic, version, size = _HEAD.unpack_from(data)
    if magic != MAGIC:
        raise damaged("is no snapshot of counters")
    if version != VERSION:
        raise damaged(f"is of version {version}, and this is version {VERSION}")
    end = len(data) - _TAIL.size
    if google_crc32c.extend(0, np.frombuffer(data[:end], np.uint8)) != _TAIL.unpack_from(data, end)[0]:
        raise damaged("has another checksum than when it was written")
    outline = msgspec.json.decode(data[_HEAD.size : _HEAD.size + size], type=_Outline)
    if outline.windows != [str(window) for window in WINDOWS]:
        raise damaged(f"is about other windows ({', '.join(outline.windows)})")
    return outline, data[_HEAD.size + size : end]


class _Reader:
    """Reads arrays, one after the other."""

    def __init__(self, data: memoryview) -> None:
        self._data, self._at = data, 0

    def array(self, kind: npt.DTypeLike, length: int) -> npt.NDArray[Any]:
        found = np.frombuffer(self._data, kind, length, self._at)
        self._at += found.nbytes
        return found

    def texts(self, length: int, size: int) -> pa.Array:
        offsets, data = self.array(np.int64, length + 1), self.array(np.uint8, size)
        # Copied, because numbers in it must begin at word boundaries.
        return pa.LargeStringArray.from_buffers(length, pa.py_buffer(offsets.copy()), pa.py_buffer(data))
