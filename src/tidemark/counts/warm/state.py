"""The counters themselves: sums of five windows for every row, kept exact while time goes on (R3).

Belongs here: what a count changes, what the next minute changes, and what becomes of it all when the tables cover more
epochs. It has no lock, no clock and no disk; `counters.py` is what threads use.

The sums stand at one moment, the *head*: `[head - window, head)`. When the head moves, each window gains the minutes
that have come and loses those that are too old. What most counts do is the same for all windows, so it is done once:
a window is kept as `all` and what it lacks of that. Minutes near the head are held in memory. What a window of a day or
more loses is so old that the rollups have it: it is asked of them, an hour at a time, as of the epochs that they
cover. What arrived later than those for such a minute is *late*, and kept beside until it is covered. Without rollups
every minute of the last 30 days is held.
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

# In minutes; none for everything there ever was.
LENGTHS = tuple(None if window.length_us is None else window.length_us // MINUTE_US for window in WINDOWS)
SHORTEST, LONGEST = LENGTHS[0] or 0, LENGTHS[PLACES[Window.MONTH]] or 0
# Questions may be so many minutes old: whoever asks may have looked at the clock a while ago.
FEW = 5
# Minutes that are gathered densely: the running one, some before it, and those that a producer's clock may be ahead.
BEHIND, AHEAD = HOT - 6, 6


class Rollups(Protocol):
    """The tables as of the epochs that they cover."""

    def hour(self, hour: int, names: Names) -> tuple[Rows, Numbers, Numbers]:
        """Rows, minutes and counts of an hour, which is given by its first minute."""


class Taken(NamedTuple):
    """Counts that are to be taken back: copies that only the drain found (Q3)."""

    rows: Rows
    minutes: Numbers
    counts: Numbers  # as they were counted
    shards: Numbers
    epochs: Numbers


class Change(NamedTuple):
    """A minute that a window gains or loses; of `all`, or of what another window lacks."""

    place: int
    sign: int
    bucket: Bucket


class Move(NamedTuple):
    """The head moves on to a minute."""

    to: int
    changes: list[Change]


class State:
    """Everything that is counted. `rollups` is none for counters that nobody's tables stand behind."""

    def __init__(self, capacity: int, head: int, rollups: Rollups | None = None) -> None:
        self.names = Names(capacity)
        self.head = head
        self.rollups = rollups
        self.cells = Cells(capacity)
        self.held = RecentMinutes(self.cells.ring)
        self.late = LateCounts()
        self.edges: dict[int, dict[int, Bucket]] = {}  # by hour, as of what is covered
        self.applied: dict[int, int] = {}  # shard → last epoch that was counted
        self.covered: dict[int, int] = {}  # shard → last epoch that the rollups have
        self.weight = 0  # all that was ever counted, without its signs

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return self.names.rows

    @property
    def first_held(self) -> int:
        """From here on every minute is held."""
        return self.head - (LONGEST if self.rollups is None else SHORTEST) - FEW

    def weigh(self, added: int) -> int:
        """What the weight would be with so much more; refused if a sum might leave 64 bits."""
        weight = self.weight + added
        if weight >= HEAVIEST:
            raise FullError(
                f"Counts of {weight:,} or more in all could leave 64 bits. Send less; the lake stops at the same."
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
        """Count; with rollups behind it, each count says of which epoch of a shard it is.

        Who has weighed the counts before, to be refused in time, gives the weight.
        """
        if not len(rows):
            return
        rows, minutes, counts = plain(rows), plain(minutes), plain(counts)
        self.weight = self.weigh(weight_of(counts)) if weight is None else weight
        touched, rest = self.cells.count(rows, minutes, counts, self._starts(), _hot(self.head))
        self.held.were_added(touched, None if epochs is None else Stamp(shard, int(epochs.max())))
        if len(rest):
            self._count_cold(rest, rows, minutes, counts, shard, epochs)

    def tidy(self) -> None:
        """Do what is left over from counting and is not seen by whoever asks as of the head."""
        if self.held.is_untidy:
            self.held.fold()

    def prepare(self, to: int) -> Move:
        """Everything about moving the head there that nobody sees who asks as of the head: nearly all of the work."""
        self.held.fold()
        changes = [Change(ALL, 1, bucket) for bucket in self._buckets(self.head, to)]
        for place, length in enumerate(LENGTHS):
            if length is not None:
                gone = self._buckets(self.head - length, to - length)
                changes += [Change(place, -1, bucket) for bucket in gone]
        self.held.cool(_hot(to), self.rows)
        return Move(to, changes)

    def advance(self, move: Move) -> None:
        """Let the head move on, as was prepared; nothing may have been counted since."""
        for place, sign, bucket in move.changes:
            self.cells.sums[place][bucket.rows] += sign * bucket.counts.astype(np.int64)
        self.head = move.to
        self._forget()

    def advance_to(self, head: int) -> None:
        """Both at once, where nobody asks meanwhile; a minute that is over already is no move."""
        if head > self.head:
            self.advance(self.prepare(head))

    def settle(self, covered: Mapping[int, int], rollups: Rollups, taken: Taken | None) -> None:
        """The rollups cover more: what was kept for that is let go, and what the drain set aside is taken back."""
        behind = {shard: epoch for shard, epoch in covered.items() if epoch > self.applied.get(shard, 0)}
        if behind:
            raise BehindError(f"The tables cover epochs {behind} (by shard), and only {self.applied} are counted yet.")
        self.held.fold()
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

        Who asks for the same rows again and again gives their places (`places_of`) as well.
        """
        found = self.cells.look(place, places_of(rows) if places is None else places)
        if as_of == self.head:
            return found
        self.held.fold()
        found -= self._look_between(as_of, self.head, rows)
        length = LENGTHS[place]
        if length is not None:
            found += self._look_between(as_of - length, self.head - length, rows)
        return found

    def hold(self, rows: Rows, minutes: Numbers, counts: Numbers) -> None:
        """Hold minutes that are counted already, as the tables have them."""
        self.held.add(rows, minutes, counts)

    def _starts(self) -> Numbers:
        """Where each window begins, shortest first; in the place of `all`, where all of them end."""
        return np.array([self.head - (length or 0) for length in LENGTHS], np.int64)

    def _count_cold(
        self, cold: Numbers, rows: Rows, minutes: Numbers, counts: Numbers, shard: int, epochs: Numbers | None
    ) -> None:
        """For minutes that are not hot, at those places: held ones; and ones that only the rollups have, if they do."""
        is_held = minutes[cold] >= self.first_held
        kept, late = cold[is_held], cold[~is_held]
        if epochs is None:
            self.held.add(rows[kept], minutes[kept], counts[kept])
            return
        if len(late):
            late = late[minutes[late] >= self.head - LONGEST - FEW]
            self.held.fold()
            # Not covered yet, and therefore still held.
            is_held = np.array([self.held.holds(minute) for minute in minutes[late].tolist()], dtype=np.bool_)
            kept, late = np.concatenate((kept, late[is_held])), late[~is_held]
        if len(kept):
            self.held.add(rows[kept], minutes[kept], counts[kept], Stamp(shard, int(epochs[kept].max())))
        if len(late):
            self.late.add(rows[late], minutes[late], counts[late], np.full(len(late), shard), epochs[late])

    def _take_back(self, taken: Taken) -> None:
        self.cells.add_up(taken.rows, taken.minutes, -taken.counts, self._starts())
        is_held = np.array(
            [minute >= self.first_held or self.held.holds(minute) for minute in taken.minutes.tolist()], dtype=np.bool_
        )
        if is_held.any():
            self.held.add(taken.rows[is_held], taken.minutes[is_held], -taken.counts[is_held])
            self.held.fold()
        if not is_held.all():
            rest = ~is_held
            self.late.add(
                taken.rows[rest], taken.minutes[rest], -taken.counts[rest], taken.shards[rest], taken.epochs[rest]
            )

    def _buckets(self, start: int, end: int) -> Iterator[Bucket]:
        """All that was counted in a range of minutes."""
        for minute in self.held.between(start, end):
            yield self.held.get(minute, self.rows)
        for minute in self._not_held(start, end):
            yield self.edges[minute // 60 * 60][minute]
        for _, bucket in self.late.between(start, end):
            yield bucket

    def _look_between(self, start: int, end: int, rows: Rows) -> Numbers:
        found = np.zeros(len(rows), np.int64)
        for minute in self.held.between(start, end):
            found += self.held.look(minute, rows)
        for minute in self._not_held(start, end):
            found += look_up(self.edges[minute // 60 * 60][minute], rows)
        for _, bucket in self.late.between(start, end):
            found += look_up(bucket, rows)
        return found

    def _not_held(self, start: int, end: int) -> Iterator[int]:
        """Minutes of a range that the rollups have to answer for; their hours are read if they have not been."""
        if self.rollups is None:
            return
        end = min(end, self.first_held)
        for hour in hours_of(start, end):
            if hour not in self.edges:
                self.edges[hour] = by_minute(*self.rollups.hour(hour, self.names))
            for minute in self.edges[hour]:
                if start <= minute < end and not self.held.holds(minute):
                    yield minute

    def _forget(self) -> None:
        """Let go of minutes that no window will ask for, or that the rollups have."""
        for minute in self.held.between(self.head - (1 << 40), self.first_held):
            if minute < self.head - LONGEST - FEW:
                self.held.drop(minute)
            elif self.rollups is not None and self.held.is_covered(minute, self.covered):
                edge = self.edges.get(minute // 60 * 60)
                if edge is not None:  # what was read before lacks what was held here
                    edge[minute] = self.held.get(minute, self.rows)
                self.held.drop(minute)
        self.late.forget(self.head - LONGEST - FEW)
        self.edges = {hour: minutes for hour, minutes in self.edges.items() if self._is_edge(hour)}

    def _is_edge(self, hour: int) -> bool:
        """Whether a window begins in an hour, or will soon, or did a few minutes ago."""
        begins = (self.head - length for length in LENGTHS if length is not None)
        return any(hour - 60 <= begin < hour + 60 + FEW for begin in begins)


def _hot(head: int) -> range:
    return range(head - BEHIND, head + AHEAD)
