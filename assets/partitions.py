"""The partitions of time: hours, days and weeks, from the first moment that the platform takes events from.

Belongs here: the partition definitions that all assets share, and how they map to each other. All hourly assets have
the same start, or a range over several of them would not be one run. The home is the one of `TIDEMARK_HOME` when
definitions are loaded.
"""

from collections.abc import Sequence

import dagster as dg

from resources.home import Home
from resources.lake import Range
from resources.settings import Settings
from resources.timegrid import DAY, HOUR, WEEK

# The running partition is one, and so is the next, which a producer's clock may be in (O3).
END_OFFSET = 2


def hourly_partitions(settings: Settings) -> dg.HourlyPartitionsDefinition:
    """Every hour since the earliest event, the running one, and the next, which a producer's clock may be in (O3)."""
    start = HOUR.key(settings.earliest_event_us)
    return dg.HourlyPartitionsDefinition(start_date=start, fmt=HOUR.key_format, timezone="UTC", end_offset=END_OFFSET)


def daily_partitions(settings: Settings) -> dg.DailyPartitionsDefinition:
    """Every day since the earliest event, the running one, and the next."""
    start = DAY.key(settings.earliest_event_us)
    return dg.DailyPartitionsDefinition(start_date=start, fmt=DAY.key_format, timezone="UTC", end_offset=END_OFFSET)


def weekly_partitions(settings: Settings) -> dg.WeeklyPartitionsDefinition:
    """Every week since the earliest event, from Monday; the running week, and the next."""
    start = WEEK.key(settings.earliest_event_us)
    return dg.WeeklyPartitionsDefinition(
        start_date=start, fmt=WEEK.key_format, timezone="UTC", day_offset=1, end_offset=END_OFFSET
    )


HOURLY = hourly_partitions(Home.locate().settings)
DAILY = daily_partitions(Home.locate().settings)
WEEKLY = weekly_partitions(Home.locate().settings)

# A running day or week has hours that do not exist yet; without this its update would fail, and be lost.
SAME_TIME = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)


def starts_in(window: Range, step_us: int) -> list[int]:
    """Starts of the partitions of a range, in microseconds."""
    return list(range(window.start_us, window.end_us, step_us))


def partitions_in(windows: Sequence[Range], step_us: int) -> Range | list[int]:
    """The partitions of some ranges as a table is told of them: one range, or each partition by its start."""
    return windows[0] if len(windows) == 1 else [start for each in windows for start in starts_in(each, step_us)]
