"""The partitions of time: hours, days and weeks, from the first moment that a window may begin at.

Belongs here: the partition definitions that all assets share, how they map to each other, and which partitions there
are by now. A window may begin before the first event that the platform takes, and so do partitions. All hourly assets
have the same start, or a range over several of them would not be one run. The home is the one of `TIDEMARK_HOME` when
definitions are loaded.
"""

from collections.abc import Iterable, Sequence

import dagster as dg

from assets.windows.catalog import earliest_us
from tidemark.model.ranges import Range
from tidemark.model.settings import Settings
from tidemark.model.timegrid import DAY, HOUR, WEEK, Grain, from_us
from tidemark.storage.home import Home
from tidemark.streams import Streams

# The running partition is one, and so is the next, which a producer's clock may be in (O3).
END_OFFSET = 2


def hourly_partitions(settings: Settings, streams: Streams | None = None) -> dg.HourlyPartitionsDefinition:
    """Every hour since the earliest moment, the running one, and the next, which a producer's clock may be in (O3)."""
    start = HOUR.key(earliest_us(settings, streams))
    return dg.HourlyPartitionsDefinition(start_date=start, fmt=HOUR.key_format, timezone="UTC", end_offset=END_OFFSET)


def daily_partitions(settings: Settings, streams: Streams | None = None) -> dg.DailyPartitionsDefinition:
    """Every day since the earliest moment, the running one, and the next."""
    start = DAY.key(earliest_us(settings, streams))
    return dg.DailyPartitionsDefinition(start_date=start, fmt=DAY.key_format, timezone="UTC", end_offset=END_OFFSET)


def weekly_partitions(settings: Settings, streams: Streams | None = None) -> dg.WeeklyPartitionsDefinition:
    """Every week since the earliest moment, from Monday; the running week, and the next."""
    start = WEEK.key(earliest_us(settings, streams))
    return dg.WeeklyPartitionsDefinition(
        start_date=start, fmt=WEEK.key_format, timezone="UTC", day_offset=1, end_offset=END_OFFSET
    )


HOURLY = hourly_partitions(Home.locate().settings)
DAILY = daily_partitions(Home.locate().settings)
WEEKLY = weekly_partitions(Home.locate().settings)

# A running day or week has hours that do not exist yet; without this its update would fail, and be lost.
SAME_TIME = dg.TimeWindowPartitionMapping(allow_nonexistent_upstream_partitions=True)


def existing(settings: Settings, grain: Grain, keys: Iterable[str], now_us: int) -> list[str]:
    """Those of the keys that are partitions by now, in order."""
    partitions = {HOUR: hourly_partitions, DAY: daily_partitions, WEEK: weekly_partitions}[grain](settings)
    with dg.partition_loading_context(effective_dt=from_us(now_us)):
        return sorted(key for key in keys if partitions.has_partition_key(key))


def starts_in(window: Range, step_us: int) -> list[int]:
    """Starts of the partitions of a range, in microseconds."""
    return list(range(window.start_us, window.end_us, step_us))


def partitions_in(windows: Sequence[Range], step_us: int) -> Range | list[int]:
    """The partitions of some ranges as a table is told of them: one range, or each partition by its start."""
    return windows[0] if len(windows) == 1 else [start for each in windows for start in starts_in(each, step_us)]
