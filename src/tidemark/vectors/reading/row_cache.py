"""Rows of `vectors` in memory: decoded once for each file, and cached as long as there is room.

Belongs here: the form of cached rows, in which a thousand of them are found and returned in milliseconds, and the bound
on the cache. Which files a table has is in `snapshot.py`.

A table's file is never changed: a new version of a table has new files for the buckets that were written again, and the
others are not read again.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from sys import getsizeof

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tidemark.vectors.reading.answers import NOWHERE, Arrival, Counts, Key, Place, ReadFrom, Singles, Source, Vector

# As much as all vectors of a small platform: 600,000 of 384 numbers.
DEFAULT_ROOM = 1 << 30

# As whole numbers, in this order.
_NUMBERS = (
    *("exists", "is_dead", "eff_ts", "depth", "event_ts", "shard", "first_epoch", "last_epoch", "last_ordinal"),
    *("deltas", "no_base", "no_effect", "parked", "cycles"),
)
_TEXTS = ("origin", "delta_id", "metadata", "clock")
_COLUMNS = ("namespace", "vector_id", "values", *_NUMBERS, *_TEXTS)
# The size of a dictionary's entry beside its place in the table: a Python text, and a number.
_ENTRY_BYTES = 96


class CachedFile:
    """The rows of one file, each found by its vector."""

    def __init__(self, path: str) -> None:
        # Without what DuckDB and Arrow read from a path's own name: the bucket is known already.
        table = pq.ParquetFile(path).read(columns=list(_COLUMNS)).combine_chunks()
        keys = zip(table["namespace"].to_pylist(), table["vector_id"].to_pylist(), strict=True)
        self._rows: dict[Key, int] = {key: row for row, key in enumerate(keys)}
        columns = [np.asarray(table[name].cast(pa.int64()).fill_null(0)) for name in _NUMBERS]
        self._numbers: npt.NDArray[np.int64] = np.stack(columns, axis=1) if len(table) else np.empty((0, 14), np.int64)
        self._texts = table.select(list(_TEXTS))
        lists = table["values"].combine_chunks() if table.num_rows else pa.array([], pa.list_(pa.float32()))
        # The numbers stay where they were decoded, and their offsets too.
        self._offsets, self._values = np.asarray(lists.offsets), np.asarray(lists.values, np.float32)
        self._has_values = np.asarray(lists.is_valid())
        self.bytes = (
            self._values.nbytes
            + self._offsets.nbytes
            + self._numbers.nbytes
            + self._texts.nbytes
            + getsizeof(self._rows)
            + _ENTRY_BYTES * len(self._rows)
        )

    def find(self, keys: Sequence[Key], versions: Mapping[str, int]) -> dict[Key, Vector]:
        """Those of the vectors that are in this file."""
        rows = {key: row for key in keys if (row := self._rows.get(key)) is not None}
        if not rows:
            return {}
        places = list(rows.values())
        texts = self._texts.take(pa.array(places))
        origins, delta_ids, metadata, clocks = (texts[name].to_pylist() for name in _TEXTS)
        numbers = self._numbers[places].tolist()
        found, versions = {}, dict(versions)
        for key, row, number, *rest in zip(rows, places, numbers, origins, delta_ids, metadata, clocks, strict=True):
            exists, is_dead, eff_us, depth, event_us, shard, first, last, ordinal, *counts = number
            # A row may exist for its counts alone, if none of its deltas has a place.
            place = Place(eff_us, depth, event_us, rest[0], rest[1]) if counts[0] else None
            arrival = Arrival(shard, first, last, ordinal) if counts[0] else NOWHERE
            found[key] = Vector(
                key[0],
                key[1],
                bool(exists),
                bool(is_dead),
                self._values_at(row),
                dict(rest[2] or ()),
                dict(rest[3] or ()),
                place,
                arrival,
                Counts(*counts),
                ReadFrom(Source.VECTORS, counts[0], place=place),
                versions,
            )
        return found

    def _values_at(self, row: int) -> Singles | None:
        if not self._has_values[row]:
            return None
        # A copy: keeping one vector must not keep the whole bucket in memory.
        values = self._values[self._offsets[row] : self._offsets[row + 1]].copy()
        values.flags.writeable = False
        return values


class RowCache:
    """Files in memory; if room runs out, the least recently used ones go. A file larger than the room is not cached."""

    def __init__(self, room: int = DEFAULT_ROOM) -> None:
        self._room = room
        self._files: OrderedDict[str, CachedFile] = OrderedDict()
        self.decoded = 0  # how many files were read so far

    @property
    def bytes(self) -> int:
        """Size of all cached files."""
        return sum(file.bytes for file in self._files.values())

    def get(self, path: str) -> CachedFile:
        """The file, from the cache if it is there."""
        cached = self._files.pop(path, None)
        if cached is None:
            cached = CachedFile(path)
            self.decoded += 1
        if cached.bytes <= self._room:
            self._files[path] = cached
            while self.bytes > self._room:
                self._files.popitem(last=False)
        return cached

    def keep_only(self, paths: Collection[str]) -> None:
        """Drop files that the table no longer has."""
        for path in [path for path in self._files if path not in paths]:
            del self._files[path]
