"""The five windows, and how a range of time is cut into whole buckets (R2, R4).

Belongs here: pure arithmetic on microseconds, for the lake, for readers of its tables and for the warm tier.
All ranges are half-open. Grids are those of `tidemark/model/timegrid.py`: anchored at the Unix epoch, floor division,
Monday weeks, so that times before 1970 get the right bucket. Does not belong here: any table.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, floor_to, from_us
from tidemark.tables.tiers import TRAILING, Tier


class NotOnAMinuteError(TidemarkError):
    """A count was requested as of a time that is not on a minute; the error names the two nearest minutes."""

    def __init__(self, as_of_us: int) -> None:
        self.before_us = floor_to(as_of_us, MINUTE_US)
        self.after_us = self.before_us + MINUTE_US
        super().__init__(
            f"{shown(as_of_us)} is not on a minute, and counts are exact to the minute. "
            f"Ask as of {shown(self.before_us)} or {shown(self.after_us)}."
        )


class Window(StrEnum):
    """How far back a count reaches: the deltas with `as_of - length <= event_ts < as_of`."""

    HOUR = "1h"
    DAY = "24h"
    WEEK = "7d"
    MONTH = "30d"
    ALL = "all"

    @property
    def length_us(self) -> int | None:
        """Its length; None for the window without a start."""
        return _LENGTHS_US[self]

    def start_us(self, as_of_us: int) -> int | None:
        """Where it begins, as of a time; None for the window without a start."""
        length_us = self.length_us
        return None if length_us is None else as_of_us - length_us


_LENGTHS_US = {
    Window.HOUR: HOUR_US,
    Window.DAY: DAY_US,
    Window.WEEK: 7 * DAY_US,
    Window.MONTH: 30 * DAY_US,
    Window.ALL: None,
}


# Each grid is finer than the one before and has all of its borders, so the greedy cut below is the smallest one.
_COARSEST_FIRST = TRAILING[::-1]


class Span(NamedTuple):
    """Neighbouring buckets: those with `start_us <= bucket_start < end_us`. No start means: from the first one on."""

    start_us: int | None
    end_us: int

    def holds(self, bucket_us: int) -> bool:
        """Whether a bucket that starts there is one of them."""
        return (self.start_us is None or self.start_us <= bucket_us) and bucket_us < self.end_us


class Pieces(NamedTuple):
    """A range of time as whole buckets, each tier in order. Tiers do not overlap, and together they are the range."""

    weeks: tuple[Span, ...]
    days: tuple[Span, ...]
    hours: tuple[Span, ...]
    minutes: tuple[Span, ...]

    def by_tier(self) -> Iterator[tuple[Tier, Span]]:
        """All spans with their tier, coarsest tier first."""
        for tier, spans in zip(_COARSEST_FIRST, self, strict=True):
            for span in spans:
                yield tier, span


def on_a_minute(as_of_us: int) -> int:
    """The time itself, if counts can be answered as of it; an error with the two nearest if not (R2)."""
    if as_of_us % MINUTE_US:
        raise NotOnAMinuteError(as_of_us)
    return as_of_us


def pieces(start_us: int | None, end_us: int) -> Pieces:
    """The range from `start_us` to `end_us`, both on minutes, as the fewest whole buckets that cover it exactly.

    Without a start, weeks reach back to the first one there is. A range that ends before it starts is empty.
    """
    on_a_minute(end_us)
    if start_us is not None:
        on_a_minute(start_us)
    found: dict[Tier, list[Span]] = {tier: [] for tier in _COARSEST_FIRST}
    if start_us is None or start_us < end_us:
        _cut(start_us, end_us, 0, found)
    return Pieces(*(tuple(found[tier]) for tier in _COARSEST_FIRST))


def window_pieces(window: Window, as_of_us: int) -> Pieces:
    """A window as of a time, in whole buckets."""
    return pieces(window.start_us(as_of_us), as_of_us)


def _cut(start_us: int | None, end_us: int, depth: int, found: dict[Tier, list[Span]]) -> None:
    """Take the buckets of this tier out of the middle; the finer tiers get the rest at both ends."""
    tier = _COARSEST_FIRST[depth]
    first_us = None if start_us is None else tier.ceil(start_us)
    last_us = tier.floor(end_us)
    if first_us is not None and first_us >= last_us:
        _cut(start_us, end_us, depth + 1, found)
        return
    if start_us is not None and first_us is not None and start_us < first_us:
        _cut(start_us, first_us, depth + 1, found)
    found[tier].append(Span(first_us, last_us))
    if last_us < end_us:
        _cut(last_us, end_us, depth + 1, found)


def velocity(count: int, window: Window, as_of_us: int, first_us: int | None) -> float:
    """Counts per hour over the window, or over its part since the entity's first event where that is shorter (R4).

    `first_us` is the start of the minute of the first event before `as_of_us`; None if nothing has happened yet.
    Two divisions of 64-bit floats, in this order: so every other computation of it gets the same bits.
    """
    if first_us is None or first_us >= as_of_us:
        return 0.0
    age_us, length_us = as_of_us - first_us, window.length_us
    span_us = age_us if length_us is None else min(length_us, age_us)
    return float(count) / (float(span_us) / float(HOUR_US))


def shown(time_us: int) -> str:
    """A time as errors name it."""
    time = from_us(time_us)
    return time.strftime("%Y-%m-%dT%H:%M:%S") + (f".{time.microsecond:06d}" if time.microsecond else "") + "Z"
