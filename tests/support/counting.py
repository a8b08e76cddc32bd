"""A definition of windowed counts that is too simple to be wrong, and times at which mistakes would show."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tidemark.counts.warm.counters import Counters
from tidemark.counts.warm.restore import restored_state
from tidemark.counts.windows import Window
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, WEEK_US
from tidemark.storage.home import Home

WINDOWS = tuple(Window)


@dataclass(frozen=True)
class Event:
    """A raw delta."""

    entity: str
    signal: str
    at_us: int
    count: int


def count_of(events: list[Event], entity: str, signal: str, window: Window, as_of_us: int) -> int:
    """R2, word by word."""
    start_us = window.start_us(as_of_us)
    return sum(
        event.count
        for event in events
        if (event.entity, event.signal) == (entity, signal)
        and (start_us is None or start_us <= event.at_us)
        and event.at_us < as_of_us
    )


def top_of(events: list[Event], signal: str, window: Window, as_of_us: int, n: int) -> list[tuple[str, int]]:
    """The busiest entities."""
    entities = {event.entity for event in events if event.signal == signal}
    counts = [(entity, count_of(events, entity, signal, window, as_of_us)) for entity in entities]
    return sorted([each for each in counts if each[1] > 0], key=lambda each: (-each[1], each[0]))[:n]


def first_of(events: list[Event], entity: str, signal: str) -> int | None:
    """The minute of the first event."""
    times = [event.at_us for event in events if (event.entity, event.signal) == (entity, signal)]
    return min(times) // MINUTE_US * MINUTE_US if times else None


def restored(home: Home, clock: Callable[[], int], capacity: int) -> Counters:
    """Counters as of everything that the tables and the log of a home have."""
    return Counters(clock, state=restored_state(home, clock() // MINUTE_US, capacity=capacity))


# Distances at which something begins or ends, and a microsecond or a minute beside each of them.
_EDGES = [0, MINUTE_US, HOUR_US, DAY_US, WEEK_US, 30 * DAY_US]
_BESIDE = [-MINUTE_US, -1, 0, 1, MINUTE_US]


def ages() -> st.SearchStrategy[int]:
    """How long ago an event happened, in microseconds; negative if it is ahead."""
    near_edges = st.builds(int.__add__, st.sampled_from(_EDGES), st.sampled_from(_BESIDE))
    return st.one_of(
        near_edges,
        st.integers(-6 * MINUTE_US, 70 * MINUTE_US),
        st.integers(-6 * MINUTE_US, 40 * DAY_US),
        st.integers(0, 60 * 365 * DAY_US),  # before 1970, too
    )


def steps() -> st.SearchStrategy[int]:
    """How long nothing happens, in microseconds: seconds, a day, months."""
    return st.one_of(
        st.integers(0, 3 * MINUTE_US),
        st.builds(int.__add__, st.sampled_from(_EDGES), st.sampled_from([0, 1, MINUTE_US])),
        st.integers(0, 100 * DAY_US),
    )


def moments() -> st.SearchStrategy[int]:
    """Moments to begin at: any, a leap day, the borders of weeks and years, the Unix epoch."""
    borders = [
        0,
        951_782_400_000_000,  # 29 February 2000
        1_709_251_199_999_999,  # the last microsecond of 29 February 2024
        1_767_225_600_000_000,  # 1 January 2026
        1_772_409_600_000_000,  # Monday, 2 March 2026
        -1_000_000_000_000_001,
    ]
    return st.one_of(st.sampled_from(borders), st.integers(-60 * 365 * DAY_US, 60 * 365 * DAY_US))


def events_at(now_us: int, *, entities: int = 3) -> st.SearchStrategy[Any]:
    """Events around a moment, in any order; negative counts are retractions."""
    return st.builds(
        lambda entity, signal, age, count: Event(f"e{entity}", signal, now_us - age, count),
        st.integers(0, entities - 1),
        st.sampled_from(["view", "like"]),
        ages(),
        st.one_of(st.just(1), st.integers(-3, 3), st.integers(-(10**12), 10**12)),
    )
