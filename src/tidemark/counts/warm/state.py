"""The counters themselves: sums of five windows for every row, kept exact while time goes on (R3).

Belongs here: the effect of a count, of the next minute, and of tables that cover more epochs. It has no lock, no clock
and no disk; threads use `counters.py`.

The sums are as of one minute, the *head*: `[head - window, head)`. When the head moves, each window gains the minutes
that have come and loses those that are too old. Most counts have the same effect on all windows, so it is done once: a
window is stored as its difference to `all`. Recent minutes, near the head, are in memory. What a window of a day or
more loses is so old that the rollups have it: it is read from them, an hour at a time, as of the epochs that they
cover. Counts that arrived later than that for such a minute are *late*, and stored separately until they are covered.
Without rollups every minute of the last 30 days is in memory.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Protocol

import numpy as np

from tidemark.counts.errors import BehindError, FullError
from tidemark.counts.warm.buckets import EMPTY, Bucket, Numbers, Rows, by_minute, hours_of, look_up, plain, together
from tidemark.counts.warm.cells import ALL, HEAVIEST, HOT, PLACES, WINDOWS, Cells, places_of, weight_of
from tidemark.counts.warm.late import LateCounts
from tidemark.counts.warm.names import Names
from tidemark.counts.warm.recent_minutes import RecentMinutes, Stamp
from tidemark.counts.windows import Window
from tidemark.model.timegrid import MINUTE_US

# In minutes; None for the window without a start.
LENGTHS = tuple(None if window.length_us is None else window.length_us // MINUTE_US for window in WINDOWS)
SHORTEST, LONGEST = LENGTHS[0] or 0, LENGTHS[PLACES[Window.MONTH]] or 0
# Questions may be as of this many minutes ago: a caller may have read the clock a while ago.
FEW = 5
# Minutes that are stored densely: the running one, some before it, and those that a producer's clock may be ahead.
BEHIND, AHEAD = HOT - 6, 6


class Rollups(Protocol):
    """The tables as of the epochs that they cover."""

    def hour(self, hour: int, names: Names) -> tuple[Rows, Numbers, Numbers]:
        """Rows, minutes and counts of an hour, given by its first minute."""


class Taken(NamedTuple):
    """Counts to take back: duplicates that only the drain found (Q3)."""

    rows: Rows
    minutes: Numbers
    counts: Numbers  # as they were counted
    shards: Numbers
    epochs: Numbers


class Change(NamedTuple):
    """A minute that a window gains or loses; the window is `all`, or another's difference to it."""

    place: int
    sign: int
    bucket: Bucket


class Move(NamedTuple):
    """Moves the head to a later minute."""

    to: int
    changes: list[Change]


class State:
    """Everything that is counted. `rollups` is None for counters without tables."""

    def __init__(self, capacity: int, head: int, rollups: Rollups | None = None) -> None:
        self.names = Names(capacity)
        self.head = head
        self.rollups = rollups
        self.cells = Cells(capacity)
        self.recent = RecentMinutes(self.cells.ring)
        self.late = LateCounts()
        self.edges: dict[int, dict[int, Bucket]] = {}  # by hour, as of the covered epochs
        self.applied: dict[int, int] = {}  # shard → last epoch that was counted
        self.covered: dict[int, int] = {}  # shard → last epoch that the rollups have
        self.weight = 0  # the sum of all absolute counts ever

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.names.rows

    @property
    def first_recent(self) -> int:
        """From here on every minute is in memory."""
        return self.head - (LONGEST if self.rollups is None else SHORTEST) - FEW

    def weigh(self, added: int) -> int:
        """The weight with so much more; refused if a sum might leave 64 bits."""
        weight = self.weight + added
        if weight >= HEAVIEST:
            raise FullError(
                f"Counts of {weight:,} or more in all could leave 64 bits. Send less; the lake has the same limit."
            )
        return weight

    def count(
        self,
        rows: Rows,
        minutes: Numbers,
        counts: Numbers,
        shard: int = 0,
        epochs: Numbers | None = None,
        *,
        weight: int | None = None,
    ) -> None:
        """Count; with rollups, each count comes with its epoch in a shard.

        A caller that has weighed the counts before, to be refused in time, passes the weight.
        """
        if not len(rows):
            return
        rows, minutes, counts = plain(rows), plain(minutes), plain(counts)
        self.weight = self.weigh(weight_of(counts)) if weight is None else weight
        touched, rest = self.cells.count(rows, minutes, counts, self._starts(), _hot(self.head))
        self.recent.were_added(touched, None if epochs is None else Stamp(shard, int(epochs.max())))
        if len(rest):
            self._count_cold(rest, rows, minutes, counts, shard, epochs)

    def tidy(self) -> None:
        """Finish work left over from counting that no reader as of the head can see."""
        if self.recent.is_untidy:
            self.recent.fold()

    def prepare(self, to: int) -> Move:
        """Nearly all the work of moving the head: the part that no reader as of the head can see."""
        self.recent.fold()
        changes = [Change(ALL, 1, bucket) for bucket in self._buckets(self.head, to)]
        for place, length in enumerate(LENGTHS):
            if length is not None:
                gone = self._buckets(self.head - length, to - length)
                changes += [Change(place, -1, bucket) for bucket in gone]
        self.recent.cool(_hot(to), self.rows)
        return Move(to, changes)

    def advance(self, move: Move) -> None:
        """Move the head as prepared; nothing may have been counted since."""
        for place, sign, bucket in move.changes:
            self.cells.sums[place][bucket.rows] += sign * bucket.counts.astype(np.int64)
        self.head = move.to
        self._forget()

    def advance_to(self, head: int) -> None:
        """Both at once, when no reader asks meanwhile; a minute that is over already is no move."""
        if head > self.head:
            self.advance(self.prepare(head))

    def settle(self, covered: Mapping[int, int], rollups: Rollups, taken: Taken | None) -> None:
        """The rollups cover more: drop what was stored for that, and take back duplicates that the drain found."""
        behind = {shard: epoch for shard, epoch in covered.items() if epoch > self.applied.get(shard, 0)}
        if behind:
            raise BehindError(f"The tables cover epochs {behind} (by shard), and only {self.applied} are counted yet.")
        self.recent.fold()
        if taken is not None and len(taken.rows):
            self._take_back(taken)
        for minute, bucket in self.late.release(covered).items():
            edge = self.edges.get(minute // 60 * 60)
            if edge is not None:
                edge[minute] = together((edge.get(minute, EMPTY), bucket))
        self.covered, self.rollups = dict(covered), rollups
        self._forget()

    def look(self, place: int, rows: Rows, as_of: int, places: Numbers | None = None) -> Numbers:
        """Counts of rows in a window, as of the head or one of the last few minutes before it.

        Callers that ask for the same rows again and again pass their places (`places_of`) as well.
        """
        found = self.cells.look(place, places_of(rows) if places is None else places)
        if as_of == self.head:
            return found
        self.recent.fold()
        found -= self._look_between(as_of, self.head, rows)
        length = LENGTHS[place]
        if length is not None:
            found += self._look_between(as_of - length, self.head - length, rows)
        return found

    def keep(self, rows: Rows, minutes: Numbers, counts: Numbers) -> None:
        """Keep recent minutes that are counted already, as the tables have them."""
        self.recent.add(rows, minutes, counts)

    def _starts(self) -> Numbers:
        """Where each window begins, shortest first; in the place of `all`, where all of them end."""
        return np.array([self.head - (length or 0) for length in LENGTHS], np.int64)

    def _count_cold(
        self, cold: Numbers, rows: Rows, minutes: Numbers, counts: Numbers, shard: int, epochs: Numbers | None
    ) -> None:
        """Count in minutes that are not hot, at those places: recent ones, and ones that only the rollups have."""
        is_recent = minutes[cold] >= self.first_recent
        kept, late = cold[is_recent], cold[~is_recent]
        if epochs is None:
            self.recent.add(rows[kept], minutes[kept], counts[kept])
            return
        if len(late):
            late = late[minutes[late] >= self.head - LONGEST - FEW]
            self.recent.fold()
            # Not covered yet, and therefore still in memory.
            is_recent = np.array([self.recent.holds(minute) for minute in minutes[late].tolist()], dtype=np.bool_)
            kept, late = np.concatenate((kept, late[is_recent])), late[~is_recent]
        if len(kept):
            self.recent.add(rows[kept], minutes[kept], counts[kept], Stamp(shard, int(epochs[kept].max())))
        if len(late):
            self.late.add(rows[late], minutes[late], counts[late], np.full(len(late), shard), epochs[late])

    def _take_back(self, taken: Taken) -> None:
        self.cells.add_up(taken.rows, taken.minutes, -taken.counts, self._starts())
        is_recent = np.array(
            [minute >= self.first_recent or self.recent.holds(minute) for minute in taken.minutes.tolist()],
            dtype=np.bool_,
        )
        if is_recent.any():
            self.recent.add(taken.rows[is_recent], taken.minutes[is_recent], -taken.counts[is_recent])
            self.recent.fold()
        if not is_recent.all():
            rest = ~is_recent
            self.late.add(
                taken.rows[rest], taken.minutes[rest], -taken.counts[rest], taken.shards[rest], taken.epochs[rest]
            )

    def _buckets(self, start: int, end: int) -> Iterator[Bucket]:
        """All counts in a range of minutes."""
        for minute in self.recent.between(start, end):
            yield self.recent.get(minute, self.rows)
        for minute in self._in_rollups(start, end):
            yield self.edges[minute // 60 * 60][minute]
        for _, bucket in self.late.between(start, end):
            yield bucket

    def _look_between(self, start: int, end: int, rows: Rows) -> Numbers:
        found = np.zeros(len(rows), np.int64)
        for minute in self.recent.between(start, end):
            found += self.recent.look(minute, rows)
        for minute in self._in_rollups(start, end):
            found += look_up(self.edges[minute // 60 * 60][minute], rows)
        for _, bucket in self.late.between(start, end):
            found += look_up(bucket, rows)
        return found

    def _in_rollups(self, start: int, end: int) -> Iterator[int]:
        """Minutes of a range that only the rollups have; their hours are read if they have not been."""
        if self.rollups is None:
            return
        end = min(end, self.first_recent)
        for hour in hours_of(start, end):
            if hour not in self.edges:
                self.edges[hour] = by_minute(*self.rollups.hour(hour, self.names))
            for minute in self.edges[hour]:
                if start <= minute < end and not self.recent.holds(minute):
                    yield minute

    def _forget(self) -> None:
        """Drop minutes that are before every window, or that the rollups have."""
        for minute in self.recent.between(self.head - (1 << 40), self.first_recent):
            if minute < self.head - LONGEST - FEW:
                self.recent.drop(minute)
            elif self.rollups is not None and self.recent.is_covered(minute, self.covered):
                edge = self.edges.get(minute // 60 * 60)
                if edge is not None:  # the hour was read without this minute's newer counts
                    edge[minute] = self.recent.get(minute, self.rows)
                self.recent.drop(minute)
        self.late.forget(self.head - LONGEST - FEW)
        self.edges = {hour: minutes for hour, minutes in self.edges.items() if self._is_edge(hour)}

    def _is_edge(self, hour: int) -> bool:
        """Whether a window begins in an hour, or will soon, or did a few minutes ago."""
        begins = (self.head - length for length in LENGTHS if length is not None)
        return any(hour - 60 <= begin < hour + 60 + FEW for begin in begins)


def _hot(head: int) -> range:
    return range(head - BEHIND, head + AHEAD)
