"""The report's numbers about a home, by name; not how they are found or how they look.

Belongs here: frozen dataclasses. Times are microseconds since 1970, UTC.
"""

from dataclasses import dataclass

from orchestration.snapshot import Snapshot
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, SECOND_US
from tidemark.observe.account import Account

# Ranges of lateness: each starts where the one before ends. Below the first are events of the future.
LATENESS_RANGES: tuple[tuple[str, int], ...] = (
    ("under 1 s", 0),
    ("1–10 s", SECOND_US),
    ("10–60 s", 10 * SECOND_US),
    ("1–10 min", MINUTE_US),
    ("10–60 min", 10 * MINUTE_US),
    ("1–6 h", HOUR_US),
    ("6–24 h", 6 * HOUR_US),
    ("1–7 days", DAY_US),
    ("over 7 days", 7 * DAY_US),
)
AHEAD = "ahead of time"

# Start of an hour and name of a series → number.
Hourly = dict[tuple[int, str], int]


@dataclass(frozen=True)
class Lateness:
    """How long after its event a delta was received: the accepted ones, whether drained yet or not."""

    ranges: dict[str, int]  # every range by its name, `AHEAD` first
    median_us: int
    p99_us: int
    most_us: int
    hours: Hourly  # by hour of the event; series "in time" and "late" for its hour (T4)

    @property
    def deltas(self) -> int:
        """All deltas that were counted."""
        return sum(self.ranges.values())

    @property
    def late(self) -> int:
        """Deltas of hours that the watermark in force had already passed."""
        return sum(number for (_, series), number in self.hours.items() if series == "late")


@dataclass(frozen=True)
class LagPoint:
    """How far the watermark was behind the clock, for the deltas of one stream in one stretch of time."""

    start_us: int
    stream: str
    median_us: int
    p95_us: int


@dataclass(frozen=True)
class Lag:
    """The lag over time. Quantiles cannot be added up, so the width of a stretch is chosen before they are taken."""

    width_us: int
    points: tuple[LagPoint, ...]


@dataclass(frozen=True)
class Figures:
    """Everything on the page."""

    snapshot: Snapshot  # shards, tables and check results, as `status` shows them
    account: Account
    arrivals: Hourly  # by hour of receipt; series are the verdicts at arrival
    lateness: Lateness | None  # None while nothing was accepted
    lag: Lag
    counts: Hourly  # by hour of the event; series are signals
    details: dict[str, str]  # reason → one of the sentences with which deltas were refused

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to show yet."""
        return not self.account.outcomes.received and not self.snapshot.tables
