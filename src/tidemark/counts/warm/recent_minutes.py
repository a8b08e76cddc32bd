"""Recent minutes, in memory in full: the last hour and what is ahead, and older ones that no table covers yet.

Belongs here: how counts get into minutes, and the memory that a minute takes. The few minutes in which live traffic
counts are *hot*: they have a place for every row, in one ring of minutes, to which a batch is added at once. A minute
that is no longer hot is stored as a bucket, which takes a few bytes for each row that counted in it. Counts that arrive
for such a minute later wait, loose, until there are enough of them or a question needs them.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tidemark.counts.warm.buckets import EMPTY, Bucket, Numbers, Rows, bucket_of_dense, by_minute, look_up, together
from tidemark.counts.warm.cells import HOT, Table

# This many loose counts are sorted into their minutes at once: 20 MB, and some hundredths of a second.
LOOSE_LIMIT = 1 << 20


class Stamp(NamedTuple):
    """The shard of some counts, and an epoch that none of them is above."""

    shard: int
    epoch: int


class RecentMinutes:
    """Minutes by number. One thread at a time."""

    def __init__(self, ring: Table) -> None:
        self._ring = ring
        self._hot: set[int] = set()
        self._buckets: dict[int, Bucket] = {}
        self._loose: list[tuple[Rows, Numbers, Numbers]] = []
        self._loose_counts = 0
        self.last: dict[int, dict[int, int]] = {}  # minute → shard → no epoch above this one is in it

    def add(self, rows: Rows, minutes: Numbers, counts: Numbers, stamp: Stamp | None = None) -> None:
        """Count in any minutes; they are sorted into them later."""
        if len(rows):
            self._loose.append((rows, minutes, counts))
            self._loose_counts += len(rows)
            if stamp is not None:
                self._stamp(np.unique(minutes).tolist(), stamp)

    def were_added(self, minutes: Collection[int], stamp: Stamp | None = None) -> None:
        """Note that counts were added to the ring, in these minutes."""
        self._hot.update(minutes)
        if stamp is not None:
            self._stamp(minutes, stamp)

    @property
    def is_untidy(self) -> bool:
        """Whether so many counts are loose that they should be sorted."""
        return self._loose_counts > LOOSE_LIMIT

    def is_covered(self, minute: int, covered: dict[int, int]) -> bool:
        """Whether all epochs in a minute are covered."""
        return all(epoch <= covered.get(shard, 0) for shard, epoch in self.last.get(minute, {}).items())

    def put(self, minute: int, bucket: Bucket) -> None:
        """Count a whole bucket."""
        self._buckets[minute] = together((self._buckets.get(minute, EMPTY), bucket))

    def fold(self) -> None:
        """Sort loose counts into their minutes."""
        if self._loose:
            rows, minutes, counts = (np.concatenate(part) for part in zip(*self._loose, strict=True))
            self._loose, self._loose_counts = [], 0
            for minute, bucket in by_minute(rows, minutes, counts).items():
                self.put(minute, bucket)

    def cool(self, hot: range, rows: int) -> None:
        """Store minutes that are no longer hot as buckets; `rows` is how many rows there are."""
        for minute in [minute for minute in self._hot if minute not in hot]:
            dense = self._dense(minute)
            bucket = bucket_of_dense(dense[:rows])
            dense[bucket.rows] = 0
            self._hot.remove(minute)
            self.put(minute, bucket)

    def between(self, start: int, end: int) -> list[int]:
        """The minutes of a range that may have counts, in order. Nothing may be loose."""
        return sorted(minute for minute in self._known() if start <= minute < end)

    def holds(self, minute: int) -> bool:
        """Whether a minute may have counts. Nothing may be loose."""
        return minute in self._hot or minute in self._buckets or minute in self.last

    def get(self, minute: int, rows: int) -> Bucket:
        """One minute; `rows` is how many rows there are. Nothing may be loose."""
        bucket = self._buckets.get(minute, EMPTY)
        if minute not in self._hot:
            return bucket
        return together((bucket, bucket_of_dense(self._dense(minute)[:rows])))

    def look(self, minute: int, rows: Rows) -> Numbers:
        """The counts of some rows in a minute. Nothing may be loose."""
        found = look_up(self._buckets.get(minute, EMPTY), rows)
        return found + self._dense(minute)[rows] if minute in self._hot else found

    def drop(self, minute: int) -> None:
        """Drop a minute that is not hot."""
        self._buckets.pop(minute, None)
        self.last.pop(minute, None)

    def items(self, rows: int) -> Iterator[tuple[int, Bucket]]:
        """All minutes, in order."""
        self.fold()
        for minute in sorted(self._known()):
            yield minute, self.get(minute, rows)

    def _known(self) -> set[int]:
        """All minutes, including those whose counts have cancelled out: a table may have only some of the counts."""
        return {*self._hot, *self._buckets, *self.last}

    def _stamp(self, minutes: Iterable[int], stamp: Stamp) -> None:
        for minute in minutes:
            last = self.last.setdefault(minute, {})
            last[stamp.shard] = max(last.get(stamp.shard, 0), stamp.epoch)

    def _dense(self, minute: int) -> Numbers:
        """The places of a hot minute, with one for unknown names at the end."""
        found: Numbers = self._ring[minute & (HOT - 1)]
        return found
