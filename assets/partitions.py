"""The partitions of time: hours, days, weeks and months, from the first moment that a window may begin at; and buckets.

Belongs here: the partition definitions that all assets share, and which partitions there are by now. A window may begin
before the first event that the platform takes, and so do partitions. All hourly assets have the same start, or a range
over several of them would not be one run. The home is the one of `TIDEMARK_HOME` when definitions are loaded.
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
# The running partition is one, and so is the next, which a producer's clock may be in (O3).
END_OFFSET = 2


# How the orchestrator knows each.
_DEFINITIONS: dict[Grain, Callable[..., TimePartitions]] = {
    HOUR: dg.HourlyPartitionsDefinition,
    DAY: dg.DailyPartitionsDefinition,
    WEEK: partial(dg.WeeklyPartitionsDefinition, day_offset=1),  # from Monday
    MONTH: dg.MonthlyPartitionsDefinition,
}


def partitions_of(grain: Grain, settings: Settings, streams: Streams | None = None) -> TimePartitions:
    """Every partition since the earliest moment, the running one, and the next."""
    start = grain.key(earliest_us(settings, streams))
    return _DEFINITIONS[grain](start_date=start, fmt=grain.key_format, timezone="UTC", end_offset=END_OFFSET)


PARTITIONS = {grain: partitions_of(grain, Home.locate().settings) for grain in _DEFINITIONS}
HOURLY = PARTITIONS[HOUR]

# The tables that are divided by a hash. A bucket is made of deltas of any hour, and the index of all buckets.
BUCKETED = dg.StaticPartitionsDefinition(bucket_keys(BUCKETS))
FROM_ANY = dg.AllPartitionMapping()


def existing(settings: Settings, grain: Grain, keys: Iterable[str], now_us: int) -> list[str]:
    """Those of the keys that are partitions by now, in order."""
    partitions = partitions_of(grain, settings)
    with dg.partition_loading_context(effective_dt=from_us(now_us)):
        return sorted(key for key in keys if partitions.has_partition_key(key))


def starts_in(window: Range, grain: Grain) -> list[int]:
    """Starts of the partitions of a range, in microseconds."""
    return list(grain.starts(window.start_us, window.end_us))


def partitions_in(windows: Sequence[Range], grain: Grain) -> Range | list[int]:
    """The partitions of some ranges as a table is told of them: one range, or each partition by its start."""
    return windows[0] if len(windows) == 1 else [start for each in windows for start in starts_in(each, grain)]
