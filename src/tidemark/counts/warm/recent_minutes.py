"""Minutes that are held in memory in full: the last hour and what is ahead, and older ones that no table covers yet.

Belongs here: how counts get into minutes, and what a minute takes. The few minutes in which live traffic counts are
*hot*: they have a place for every row, in one ring of minutes, into which a batch is added at once. When a minute has
cooled down it is kept as a bucket, which takes a few bytes for each row that counted in it. What arrives for such a
minute later waits, loose, until there is enough of it or somebody asks.
"""

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import numpy as np

from tidemark.counts.warm.buckets import EMPTY, Bucket, Numbers, Rows, bucket_of_dense, by_minute, look_up, together
from tidemark.counts.warm.cells import HOT, Table

# So many loose counts are sorted into their minutes at once: 20 MB, and some hundredths of a second.
LOOSE_LIMIT = 1 << 20


class Stamp(NamedTuple):
    """Of which shard counts are, and that they are of no epoch above that one."""

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
        """Count in any minutes, when they are looked at."""
        if len(rows):
            self._loose.append((rows, minutes, counts))
            self._loose_counts += len(rows)
            if stamp is not None:
                self._stamp(np.unique(minutes).tolist(), stamp)

    def were_added(self, minutes: Collection[int], stamp: Stamp | None = None) -> None:
        """Something was counted in the ring, in these minutes."""
        self._hot.update(minutes)
        if stamp is not None:
            self._stamp(minutes, stamp)

    @property
    def is_untidy(self) -> bool:
        """Whether so much is loose that it should be folded."""
        return self._loose_counts > LOOSE_LIMIT

    def is_covered(self, minute: int, covered: dict[int, int]) -> bool:
        """Whether everything in a minute is of epochs that are covered."""
        return all(epoch <= covered.get(shard, 0) for shard, epoch in self.last.get(minute, {}).items())

    def put(self, minute: int, bucket: Bucket) -> None:
        """Count a whole bucket."""
        self._buckets[minute] = together((self._buckets.get(minute, EMPTY), bucket))

    def fold(self) -> None:
        """Sort what is loose into its minutes."""
        if self._loose:
            rows, minutes, counts = (np.concatenate(part) for part in zip(*self._loose, strict=True))
            self._loose, self._loose_counts = [], 0
            for minute, bucket in by_minute(rows, minutes, counts).items():
                self.put(minute, bucket)

    def cool(self, hot: range, rows: int) -> None:
        """Keep minutes that are not hot any more as buckets; `rows` is how many rows there are."""
        for minute in [minute for minute in self._hot if minute not in hot]:
            dense = self._dense(minute)
            bucket = bucket_of_dense(dense[:rows])
            dense[bucket.rows] = 0
            self._hot.remove(minute)
            self.put(minute, bucket)

    def between(self, start: int, end: int) -> list[int]:
        """The minutes of a range in which anything may have been counted, in order. Nothing may be loose."""
        return sorted(minute for minute in self._known() if start <= minute < end)

    def holds(self, minute: int) -> bool:
        """Whether anything may have been counted in a minute. Nothing may be loose."""
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
        """Let go of a minute that is not hot."""
        self._buckets.pop(minute, None)
        self.last.pop(minute, None)

    def items(self, rows: int) -> Iterator[tuple[int, Bucket]]:
        """All minutes, in order."""
        self.fold()
        for minute in sorted(self._known()):
            yield minute, self.get(minute, rows)

    def _known(self) -> set[int]:
        """A minute whose counts have cancelled out is known, too: a table may have only some of them."""
        return {*self._hot, *self._buckets, *self.last}

    def _stamp(self, minutes: Iterable[int], stamp: Stamp) -> None:
        for minute in minutes:
            last = self.last.setdefault(minute, {})
            last[stamp.shard] = max(last.get(stamp.shard, 0), stamp.epoch)

    def _dense(self, minute: int) -> Numbers:
        """The places of a hot minute, with one for nobody at the end."""
        found: Numbers = self._ring[minute & (HOT - 1)]
        return found
