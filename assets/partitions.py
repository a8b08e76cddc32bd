"""The partitions of time: hours, days, weeks and months, from the earliest time that a window may begin; and buckets.

Belongs here: the partition definitions that all assets share, and which partitions exist by now. A window may begin
before the first event that the platform takes, and so do partitions. All hourly assets have the same start; otherwise a
range over several of them would not be one run. The home is that of `TIDEMARK_HOME` when definitions are loaded.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

import dagster as dg

from assets.windows.catalog import earliest_us
from tidemark.model.buckets import bucket_keys
from tidemark.model.ranges import Range
from tidemark.model.settings import Settings
from tidemark.model.timegrid import DAY, HOUR, MONTH, WEEK, Grain, from_us
from tidemark.storage.home import Home
from tidemark.streams import Streams
from tidemark.vectors.tables import BUCKETS

TimePartitions: TypeAlias = dg.TimeWindowPartitionsDefinition
# The current partition exists, and so does the next one, because a producer's clock may be ahead (O3).
END_OFFSET = 2


# The orchestrator's definition of each.
_DEFINITIONS: dict[Grain, Callable[..., TimePartitions]] = {
    HOUR: dg.HourlyPartitionsDefinition,
    DAY: dg.DailyPartitionsDefinition,
    WEEK: partial(dg.WeeklyPartitionsDefinition, day_offset=1),  # from Monday
    MONTH: dg.MonthlyPartitionsDefinition,
}


def partitions_of(grain: Grain, settings: Settings, streams: Streams | None = None) -> TimePartitions:
    """Every partition since the earliest time, the current one, and the next."""
    start = grain.key(earliest_us(settings, streams))
    return _DEFINITIONS[grain](start_date=start, fmt=grain.key_format, timezone="UTC", end_offset=END_OFFSET)


PARTITIONS = {grain: partitions_of(grain, Home.locate().settings) for grain in _DEFINITIONS}

# The tables that are divided by a hash. A bucket is made from deltas of any hour, and the index from all buckets.
BUCKETED = dg.StaticPartitionsDefinition(bucket_keys(BUCKETS))
FROM_ANY = dg.AllPartitionMapping()


def existing(settings: Settings, grain: Grain, keys: Iterable[str], now_us: int) -> list[str]:
    """The keys whose partitions exist by now, in order."""
    partitions = partitions_of(grain, settings)
    with dg.partition_loading_context(effective_dt=from_us(now_us)):
        return sorted(key for key in keys if partitions.has_partition_key(key))


def starts_in(window: Range, grain: Grain) -> list[int]:
    """Starts of the partitions of a range, in microseconds."""
    return list(grain.starts(window.start_us, window.end_us))


def partitions_in(windows: Sequence[Range], grain: Grain) -> Range | list[int]:
    """The partitions of some ranges, in the form that a table takes: one range, or the start of each partition."""
    return windows[0] if len(windows) == 1 else [start for each in windows for start in starts_in(each, grain)]
