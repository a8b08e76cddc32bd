"""The grids of event time: minutes, hours, days, weeks, and the text keys by which the orchestrator knows them.

Belongs here: pure arithmetic on microseconds since the Unix epoch, UTC. All grids are anchored there and use
floor division, so times before 1970 fall where they should; weeks start on Monday 00:00.
"""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US
DAY_US = 24 * HOUR_US
WEEK_US = 7 * DAY_US
# 1970-01-01 was a Thursday; the Monday of its week is three days earlier.
MONDAY_ANCHOR_US = -3 * DAY_US

HOUR_KEY_FORMAT = "%Y-%m-%d-%H:%M"
DAY_KEY_FORMAT = "%Y-%m-%d"
WEEK_KEY_FORMAT = DAY_KEY_FORMAT  # of its Monday
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def floor_to(time_us: int, step_us: int, anchor_us: int = 0) -> int:
    """Start of the bucket of width `step_us` that holds `time_us`."""
    return (time_us - anchor_us) // step_us * step_us + anchor_us


def floor_to_week(time_us: int) -> int:
    """Monday 00:00 of the week that holds `time_us`."""
    return floor_to(time_us, WEEK_US, MONDAY_ANCHOR_US)


def to_us(moment: datetime) -> int:
    """Microseconds since the Unix epoch, exactly (no detour over floats)."""
    return (moment - EPOCH) // timedelta(microseconds=1)


def from_us(time_us: int) -> datetime:
    """The moment as an aware UTC datetime."""
    return EPOCH + timedelta(microseconds=time_us)


@dataclass(frozen=True)
class Grain:
    """A width of partitions: where they begin, and what they are called. Days and weeks are called alike."""

    name: str
    length_us: int
    key_format: str  # of the start, as Python writes it
    sql_format: str  # the same, as Spark does
    anchor_us: int = 0

    def floor(self, time_us: int) -> int:
        """Start of the partition that holds `time_us`."""
        return floor_to(time_us, self.length_us, self.anchor_us)

    def key(self, time_us: int) -> str:
        """Key of the partition that holds `time_us`, as the orchestrator writes it."""
        return from_us(self.floor(time_us)).strftime(self.key_format)

    def start(self, key: str) -> int:
        """Start of the partition `key`, in microseconds."""
        return to_us(datetime.strptime(key, self.key_format).replace(tzinfo=UTC))


MINUTE = Grain("minute", MINUTE_US, HOUR_KEY_FORMAT, "yyyy-MM-dd-HH:mm")
HOUR = Grain("hour", HOUR_US, HOUR_KEY_FORMAT, "yyyy-MM-dd-HH:mm")
DAY = Grain("day", DAY_US, DAY_KEY_FORMAT, "yyyy-MM-dd")
WEEK = Grain("week", WEEK_US, WEEK_KEY_FORMAT, "yyyy-MM-dd", MONDAY_ANCHOR_US)
# Every grain that a table's partitions may have, from fine to coarse.
GRAINS = {grain.name: grain for grain in (MINUTE, HOUR, DAY, WEEK)}
# Instead of one, for a table that is not divided by time: it is spoken of as a whole, and this stands for it.
WHOLE = "whole"


def grain_of(length_us: int) -> Grain:
    """The grain of this width."""
    return next(grain for grain in GRAINS.values() if grain.length_us == length_us)


def hour_key(time_us: int) -> str:
    """Key of the hourly partition that holds `time_us`, as the orchestrator writes it."""
    return HOUR.key(time_us)


def hour_start(key: str) -> int:
    """Start of the hourly partition `key`, in microseconds."""
    return HOUR.start(key)


def week_key(time_us: int) -> str:
    """Key of the weekly partition that holds `time_us`: the date of its Monday."""
    return WEEK.key(time_us)


def week_start(key: str) -> int:
    """Start of the weekly partition `key`, in microseconds."""
    return WEEK.start(key)
