"""The grids of event time: minutes, hours, days, weeks, months, and the text keys by which the orchestrator knows them.

Belongs here: pure arithmetic on microseconds since the Unix epoch, UTC. The grids of fixed width are anchored there and
use floor division, so times before 1970 get the right bucket; weeks start on Monday 00:00, and months are those of the
calendar.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
WEEK_US = 7 * DAY_US
# 1970-01-01 was a Thursday; the Monday of its week is three days earlier.
MONDAY_ANCHOR_US = -3 * DAY_US
SHORTEST_MONTH_US = 28 * DAY_US

HOUR_KEY_FORMAT = "%Y-%m-%d-%H:%M"
DAY_KEY_FORMAT = "%Y-%m-%d"
WEEK_KEY_FORMAT = DAY_KEY_FORMAT  # of its Monday
MONTH_KEY_FORMAT = DAY_KEY_FORMAT  # of its first
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def floor_to(time_us: int, step_us: int, anchor_us: int = 0) -> int:
    """Start of the bucket of width `step_us` that holds `time_us`."""
    return (time_us - anchor_us) // step_us * step_us + anchor_us


def to_us(moment: datetime) -> int:
    """Microseconds since the Unix epoch, exactly (no detour over floats)."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def from_us(time_us: int) -> datetime:
    """The time as an aware UTC datetime."""
    return EPOCH + timedelta(microseconds=time_us)


@dataclass(frozen=True)
class Grain(ABC):
    """How time is divided into partitions or buckets: where they begin, and their keys.

    Days, weeks and months have keys of the same form. Their length may vary, so no code outside of this module computes
    with a width: it asks the grain for neighbours.
    """

    name: str
    key_format: str  # of the start, as Python writes it
    sql_format: str  # the same, as Spark writes it

    @abstractmethod
    def floor(self, time_us: int) -> int:
        """Start of the one that holds `time_us`."""

    @abstractmethod
    def next(self, time_us: int) -> int:
        """Start of the one after the one that holds `time_us`: where that one ends."""

    @abstractmethod
    def starts(self, start_us: int, end_us: int) -> Sequence[int]:
        """Starts of all that overlap the time from `start_us` (inclusive) to `end_us` (exclusive), in order."""

    @abstractmethod
    def reach(self, time_us: int) -> int:
        """How many of them a span of this length may reach into, starting at a border."""

    def ceil(self, time_us: int) -> int:
        """Start of the first that begins at or after `time_us`."""
        return self.next(time_us - 1)

    def width_us(self, time_us: int) -> int:
        """Length of the one that holds `time_us`."""
        return self.next(time_us) - self.floor(time_us)

    def key(self, time_us: int) -> str:
        """Key of the partition that holds `time_us`, as the orchestrator writes it."""
        return from_us(self.floor(time_us)).strftime(self.key_format)

    def start(self, key: str) -> int:
        """Start of the partition `key`, in microseconds."""
        return to_us(datetime.strptime(key, self.key_format).replace(tzinfo=UTC))


@dataclass(frozen=True)
class FixedGrain(Grain):
    """A grain whose buckets all have the same length."""

    length_us: int
    anchor_us: int = 0

    def floor(self, time_us: int) -> int:
        return floor_to(time_us, self.length_us, self.anchor_us)

    def next(self, time_us: int) -> int:
        return self.floor(time_us) + self.length_us

    def starts(self, start_us: int, end_us: int) -> range:
        return range(self.floor(start_us), end_us, self.length_us) if start_us < end_us else range(0)

    def reach(self, time_us: int) -> int:
        return -(-time_us // self.length_us)


@dataclass(frozen=True)
class MonthGrain(Grain):
    """Months of the calendar, from the first at 00:00 UTC."""

    def floor(self, time_us: int) -> int:
        return _month_start(_month_of(time_us))

    def next(self, time_us: int) -> int:
        return _month_start(_month_of(time_us) + 1)

    def starts(self, start_us: int, end_us: int) -> list[int]:
        if start_us >= end_us:
            return []
        return [_month_start(month) for month in range(_month_of(start_us), _month_of(end_us - 1) + 1)]

    def reach(self, time_us: int) -> int:
        return -(-time_us // SHORTEST_MONTH_US)


def _month_of(time_us: int) -> int:
    """Months since the year 0."""
    moment = from_us(time_us)
    return moment.year * 12 + moment.month - 1


def _month_start(month: int) -> int:
    year, place = divmod(month, 12)
    return to_us(datetime(year, place + 1, 1, tzinfo=UTC))


MINUTE = FixedGrain("minute", HOUR_KEY_FORMAT, "yyyy-MM-dd-HH:mm", MINUTE_US)
HOUR = FixedGrain("hour", HOUR_KEY_FORMAT, "yyyy-MM-dd-HH:mm", HOUR_US)
DAY = FixedGrain("day", DAY_KEY_FORMAT, "yyyy-MM-dd", DAY_US)
WEEK = FixedGrain("week", WEEK_KEY_FORMAT, "yyyy-MM-dd", WEEK_US, MONDAY_ANCHOR_US)
MONTH = MonthGrain("month", MONTH_KEY_FORMAT, "yyyy-MM-dd")
# Every grain that a table's partitions may have, from fine to coarse.
GRAINS: dict[str, Grain] = {grain.name: grain for grain in (MINUTE, HOUR, DAY, WEEK, MONTH)}
# The key of a table that is not divided by time: it stands for the whole table.
WHOLE = "whole"


def hour_key(time_us: int) -> str:
    """Key of the hourly partition that holds `time_us`, as the orchestrator writes it."""
    return HOUR.key(time_us)


def hour_start(key: str) -> int:
    """Start of the hourly partition `key`, in microseconds."""
    return HOUR.start(key)
