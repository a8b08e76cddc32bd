"""Hours grouped for a plot: few enough bars to tell apart, and no space lost to stragglers.

Belongs here: pure arithmetic on hourly numbers. Hours left out of the plot are reported, never dropped silently.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from orchestration.report.figures import Hourly
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, MONDAY_ANCHOR_US, WEEK_US, floor_to

# A bar narrower than four pixels cannot be read; a line through quantiles of a few deltas each is only noise.
MOST_BARS = 200
MOST_STRETCHES = 60
HOUR_WIDTHS_US = (HOUR_US, 6 * HOUR_US, DAY_US, WEEK_US, 4 * WEEK_US, 52 * WEEK_US)
LAG_WIDTHS_US = (MINUTE_US, 5 * MINUTE_US, 15 * MINUTE_US, *HOUR_WIDTHS_US)
# The oldest hundredth of all numbers may be cut off, if the rest gets at least twice the space.
STRAGGLERS = 0.01

WIDTH_NAMES = {
    MINUTE_US: "minute",
    5 * MINUTE_US: "five minutes",
    15 * MINUTE_US: "quarter of an hour",
    HOUR_US: "hour",
    6 * HOUR_US: "six hours",
    DAY_US: "day",
    WEEK_US: "week",
    4 * WEEK_US: "four weeks",
    52 * WEEK_US: "year of 52 weeks",
}


@dataclass(frozen=True)
class Timeline:
    """Numbers by bucket and series, from `start_us` on; older hours were left out."""

    width_us: int
    start_us: int
    buckets: Hourly
    earlier: int  # hours that were left out
    earlier_total: int  # and their sum

    @property
    def per(self) -> str:
        """The name of one bucket."""
        return WIDTH_NAMES[self.width_us]

    @property
    def totals(self) -> dict[int, int]:
        """Start of each bucket → sum over its series, in order."""
        return _totals(self.buckets)

    @property
    def length(self) -> int:
        """Buckets from the first to the last, including empty ones."""
        starts = self.totals
        return (max(starts) - min(starts)) // self.width_us + 1 if starts else 0

    @property
    def is_constant(self) -> bool:
        """Whether a plot would show one bar, or the same bar again and again: a sentence says that in less room."""
        if self.length <= 1:
            return True
        return len(self.series()) == 1 and len(self.totals) == self.length and len(set(self.totals.values())) == 1

    def series(self) -> list[str]:
        """Names, the largest first."""
        sums: Counter[str] = Counter()
        for (_, name), number in self.buckets.items():
            sums[name] += abs(number)
        return sorted(sums, key=lambda name: (-sums[name], name))


def timeline(hourly: Hourly, *, start_us: int | None = None) -> Timeline:
    """The hours of a plot, which begins at the given time or else where that suits the plot best."""
    totals = {start: abs(number) for start, number in _totals(hourly).items()}
    start_us = _start(totals) if start_us is None else start_us
    width_us = width_for(max(totals, default=0) - start_us, HOUR_WIDTHS_US, most=MOST_BARS)
    buckets: Counter[tuple[int, str]] = Counter()
    for (start, name), number in hourly.items():
        if start >= start_us:
            buckets[floor_to(start, width_us, MONDAY_ANCHOR_US), name] += number
    older = {key: number for key, number in hourly.items() if key[0] < start_us}
    return Timeline(
        width_us=width_us,
        start_us=start_us,
        buckets=dict(sorted(buckets.items())),
        earlier=len({start for start, _ in older}),
        earlier_total=sum(older.values()),
    )


def width_for(span_us: int, widths_us: Sequence[int], *, most: int) -> int:
    """The smallest width for which `most` buckets are enough."""
    return next((width for width in widths_us if span_us // width < most), widths_us[-1])


def _start(totals: Mapping[int, int]) -> int:
    """Where the plot begins: at the first hour, or after the stragglers if they would squeeze everything else."""
    first, last = min(totals, default=0), max(totals, default=0)
    allowance, kept = sum(totals.values()) * STRAGGLERS, first
    for start, number in sorted(totals.items()):
        kept = start
        allowance -= number
        if allowance < 0:
            break
    return kept if (last - kept) * 2 <= last - first and kept < last else first


def _totals(hourly: Hourly) -> dict[int, int]:
    totals: Counter[int] = Counter()
    for (start, _), number in hourly.items():
        totals[start] += number
    return dict(sorted(totals.items()))
