"""Counters for threads: any number of readers beside one writer (R3, R4).

Belongs here: the public calls, and the lock of each. What is counted, and how it expires, is in `state.py`.

A reader takes no lock. Before and after looking it reads a number that is odd while the state is being changed: if the
number has moved, it looks again, and after a few times it waits for the writer. So it always sees one state, with every
batch whole or not at all. A reader that asks as of a minute that has come since moves the head, under the lock.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from tidemark.arrays.compiled import load_loops
from tidemark.counts.errors import CountersError, FollowsLogError, ForeignHandlesError, NotYetError, TooFarBackError
from tidemark.counts.warm.buckets import Numbers, Rows, minutes_of, ones
from tidemark.counts.warm.cells import PLACES, places_of, weight_of
from tidemark.counts.warm.names import NOBODY, Entities, Names
from tidemark.counts.warm.state import FEW, State
from tidemark.counts.windows import Window, on_a_minute, velocity
from tidemark.model.timegrid import MINUTE_US

# The default number of pairs of entity and signal that fit: 3 GB of addresses, of which only touched pages take
# memory.
CAPACITY = 1 << 24
# How often a reader looks again before it waits for the writer.
TRIES = 4

T = TypeVar("T")


class Handles(NamedTuple):
    """Entities that were looked up once. One that was unknown then counts 0; resolve it again to see it."""

    names: Names
    rows: Rows
    places: Numbers  # where their numbers are


@dataclass(frozen=True)
class Ranked:
    """A place in a ranking."""

    entity: str
    count: int


class Counters:
    """Exact counts of the last hour, day, week, 30 days and of all, as of the running minute and the last few.

    Times are in microseconds since 1970; `clock` says which minute is running. Without a state these are counters of
    your own, in memory alone; `restore.py` makes those that equal the platform's tables.
    """

    def __init__(self, clock: Callable[[], int], *, capacity: int = CAPACITY, state: State | None = None) -> None:
        self._clock = clock
        self._state = state or State(capacity, clock() // MINUTE_US)
        self._lock = threading.RLock()
        self._turn = 0  # odd while the state is being changed
        self._failure: BaseException | None = None
        load_loops()

    @property
    def applied(self) -> dict[int, int]:
        """Shard → last epoch that is counted."""
        return dict(self._state.applied)

    @property
    def covered(self) -> dict[int, int]:
        """Shard → last epoch in the tables behind these counters."""
        return dict(self._state.covered)

    @property
    def rows(self) -> int:
        """How many pairs of entity and signal there are."""
        return self._state.rows

    # Counting.

    def increment(self, namespace: str, entity: str, signal: str, at_us: int, count: int = 1) -> None:
        """Count one event."""
        self.increment_many(namespace, signal, [entity], at_us, [count])

    def increment_many(
        self,
        namespace: str,
        signal: str,
        entities: Entities,
        at_us: int | Sequence[int] | Numbers,
        counts: Sequence[int] | Numbers | None = None,
    ) -> None:
        """Count events of one signal: when each happened (or all), and how often (or once). All of them, or none."""
        if self._state.rollups is not None:
            raise FollowsLogError
        minutes = minutes_of(np.asarray(at_us, np.int64))
        if not minutes.ndim:
            minutes = np.full(len(entities), minutes)
        numbers = ones(len(entities)) if counts is None else np.asarray(counts, np.int64)
        if not len(numbers) == len(minutes) == len(entities):
            raise CountersError(
                f"{len(entities)} entities came with {len(minutes)} times and {len(numbers)} counts. Send one for each."
            )
        with self._lock:
            state = self._state
            self._refuse_if_failed()
            weight = state.weigh(len(numbers) if counts is None else weight_of(numbers))
            names = state.names
            rows = names.take(names.open(namespace, signal), entities)
            if self._clock() // MINUTE_US > state.head:
                self.advance()
            with self.changing():
                state.count(rows, minutes, numbers, weight=weight)
            state.tidy()

    # Questions.

    def count(self, namespace: str, entity: str, signal: str, window: Window, as_of_us: int | None = None) -> int:
        """The sum of the counts with `as_of - window <= time < as_of`."""
        return int(self.count_many(namespace, signal, [entity], window, as_of_us)[0])

    def count_many(
        self, namespace: str, signal: str, entities: Entities, window: Window, as_of_us: int | None = None
    ) -> Numbers:
        """The same for many entities at once, as of one state; 0 for unknown ones."""
        place = PLACES[Window(window)]

        def look(state: State, as_of: int) -> Numbers:
            group = state.names.group(namespace, signal)
            if group is None:
                return np.zeros(len(entities), np.int64)
            return state.look(place, group.find(entities), as_of)

        return self._ask(look, as_of_us)

    def resolve(self, namespace: str, signal: str, entities: Entities) -> Handles:
        """Look entities up once, for callers that ask for the same ones again and again."""
        names = self._state.names
        group = names.group(namespace, signal)
        rows = np.full(len(entities), NOBODY, np.int64) if group is None else group.find(entities)
        return Handles(names, rows, places_of(rows))

    def count_resolved(self, handles: Handles, window: Window, as_of_us: int | None = None) -> Numbers:
        """`count_many` for entities that were resolved before."""
        place = PLACES[window]
        names, rows, places = handles

        def look(state: State, as_of: int) -> Numbers:
            if state.names is not names:
                raise ForeignHandlesError
            return state.look(place, rows, as_of, places)

        return self._ask(look, as_of_us)

    def velocity(self, namespace: str, entity: str, signal: str, window: Window, as_of_us: int | None = None) -> float:
        """Counts per hour over the window, or over the time since the first event where that is shorter (R4)."""
        place = PLACES[Window(window)]

        def look(state: State, as_of: int) -> float:
            group = state.names.group(namespace, signal)
            rows = np.array([NOBODY]) if group is None else group.find([entity])
            count = int(state.look(place, rows, as_of)[0])
            first = state.cells.first(int(rows[0]))
            return velocity(count, Window(window), as_of * MINUTE_US, None if first is None else first * MINUTE_US)

        return self._ask(look, as_of_us)

    def top(self, namespace: str, signal: str, window: Window, n: int, as_of_us: int | None = None) -> list[Ranked]:
        """The entities with the highest counts above 0; ties in the order of their names."""
        place = PLACES[Window(window)]

        def look(state: State, as_of: int) -> list[Ranked]:
            return ranking(state, namespace, signal, place, n, as_of)

        return self._ask(look, as_of_us)

    # For writers.

    @contextmanager
    def changing(self) -> Iterator[State]:
        """The state, to be changed; readers see all changes made here, or none of them.

        A change that fails in the middle leaves half of it: from then on every question is refused.
        """
        with self._lock:
            self._refuse_if_failed()
            self._turn += 1
            try:
                yield self._state
            except BaseException as error:
                self._failure = error
                raise
            finally:
                self._turn += 1

    @contextmanager
    def unchanged(self) -> Iterator[State]:
        """The state, which no other thread changes meanwhile; readers go on."""
        with self._lock:
            self._refuse_if_failed()
            yield self._state

    def exchange(self, state: State) -> None:
        """Go on with another state, even if this one has failed."""
        with self._lock:
            self._turn += 1
            self._state, self._failure = state, None
            self._turn += 1

    def fail(self, error: BaseException) -> None:
        """Refuse every question from now on: these counters are no longer kept up to date."""
        with self._lock:
            self._turn += 1
            self._failure = self._failure or error
            self._turn += 1

    def advance(self) -> None:
        """Move the head to the running minute; every count and question does it by itself."""
        with self.unchanged() as state:
            to = self._clock() // MINUTE_US
            if to > state.head:
                move = state.prepare(to)
                with self.changing():
                    state.advance(move)

    def _ask(self, look: Callable[[State, int], T], as_of_us: int | None) -> T:
        as_of = self._minute(as_of_us)
        for _ in range(TRIES):
            turn, state = self._turn, self._state
            if turn % 2 or state.head != as_of or self._failure is not None:
                break
            try:
                found = look(state, as_of)
            except Exception:
                if self._turn == turn:
                    raise
                continue  # it was changed during the look: the result means nothing
            if self._turn == turn:
                return found
        with self._lock:
            self._refuse_if_failed()
            if as_of_us is None:
                as_of = self._minute(None)  # it may have moved on while this waited
            if as_of > self._state.head:
                self.advance()
            if as_of < self._state.head - FEW:
                head = self._state.head
                raise TooFarBackError(as_of * MINUTE_US, (head - FEW) * MINUTE_US, head * MINUTE_US)
            return look(self._state, as_of)

    def _minute(self, as_of_us: int | None) -> int:
        now_us = self._clock()
        if as_of_us is None:
            return max(now_us // MINUTE_US, self._state.head)  # if the clock was set back, the head stays
        if on_a_minute(as_of_us) > now_us and as_of_us > self._state.head * MINUTE_US:
            raise NotYetError(as_of_us, now_us)
        return as_of_us // MINUTE_US

    def _refuse_if_failed(self) -> None:
        if self._failure is not None:
            raise CountersError(
                f"These counters are no longer kept up to date: {self._failure}. Restore them."
            ) from self._failure


def ranking(state: State, namespace: str, signal: str, place: int, n: int, as_of: int) -> list[Ranked]:
    """The entities with the highest counts in the window at that place of the list."""
    group = state.names.group(namespace, signal)
    if group is None or n < 1:
        return []
    places = group.texts.places()
    counts = state.look(place, group.texts.rows_at(places), as_of)
    least = 1
    if len(counts) > n:  # ties with the last one are ranked by name
        least = max(least, int(np.partition(counts, len(counts) - n)[len(counts) - n]))
    ranked = [Ranked(group.texts.text_at(places[at]), int(counts[at])) for at in np.flatnonzero(counts >= least)]
    return sorted(ranked, key=lambda each: (-each.count, each.entity))[:n]
