"""Late counts: those for minutes that only the rollups have, and that these do not cover yet (R3).

Belongs here: storing them with their epochs, finding them by minute, and dropping those that are covered. They
are few: only deltas that came more than an hour late, and only since the last drain.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from tidemark.counts.warm.buckets import Bucket, Numbers, Rows, by_minute


class LateColumns(NamedTuple):
    """Late counts, a column each."""

    rows: Rows
    minutes: Numbers
    counts: Numbers
    shards: Numbers
    epochs: Numbers

    def where(self, chosen: np.ndarray) -> "LateColumns":
        """Those chosen by a mask."""
        return LateColumns(*(column[chosen] for column in self))


NONE = LateColumns(*(np.empty(0, np.int64) for _ in LateColumns._fields))


class LateCounts:
    """Late counts in the order in which they came. One thread at a time."""

    def __init__(self) -> None:
        self._chunks: list[LateColumns] = []

    def __len__(self) -> int:
        return sum(len(chunk.rows) for chunk in self._chunks)

    def columns(self) -> LateColumns:
        """All of them."""
        if len(self._chunks) > 1:
            self._chunks = [LateColumns(*(np.concatenate(part) for part in zip(*self._chunks, strict=True)))]
        return self._chunks[0] if self._chunks else NONE

    def add(self, rows: Rows, minutes: Numbers, counts: Numbers, shards: Numbers, epochs: Numbers) -> None:
        """Add some."""
        self._chunks.append(LateColumns(rows, minutes, counts, shards, epochs))

    def between(self, start: int, end: int) -> Iterator[tuple[int, Bucket]]:
        """Those of a range of minutes, by minute."""
        if self._chunks:
            found = self.columns()
            found = found.where((found.minutes >= start) & (found.minutes < end))
            yield from by_minute(found.rows, found.minutes, found.counts).items()

    def release(self, covered: Mapping[int, int]) -> dict[int, Bucket]:
        """Remove those that are covered; return them by minute."""
        found = self.columns()
        if not len(found.rows):
            return {}
        limits = np.zeros(int(found.shards.max()) + 1, np.int64)
        for shard, epoch in covered.items():
            if shard < len(limits):
                limits[shard] = epoch
        is_covered = found.epochs <= limits[found.shards]
        gone = found.where(is_covered)
        self._chunks = [found.where(~is_covered)]
        return by_minute(gone.rows, gone.minutes, gone.counts)

    def forget(self, before: int) -> None:
        """Drop those that are before every window."""
        if self._chunks:
            found = self.columns()
            self._chunks = [found.where(found.minutes >= before)]
