"""The partitions of time: hours, days, weeks and months, from the first week with data on; and buckets.

Belongs here: the partition definitions that all assets share, and which partitions exist by now. A window may begin
before the first event, and so do partitions. All hourly assets have the same start; otherwise a range over several of
them would not be one run. The home is that of `TIDEMARK_HOME` when definitions are loaded; before its first drain they
begin with the earliest event that the platform takes. Rows that are older than all before them are drained and
refreshed at once, by steps without partitions; whatever loads the definitions then loads them again (decision 0058).
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeAlias

import dagster as dg

from assets.windows.catalog import earliest_us
from tidemark.model.buckets import bucket_keys
from tidemark.model.ranges import Range
from tidemark.model.settings import Settings
from tidemark.model.timegrid import DAY, HOUR, MONTH, SECOND_US, WEEK, Grain, from_us
from tidemark.storage.home import Home
from tidemark.streams import Streams
from tidemark.tables.first_hour import FirstHourFile
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


def partitions_of(
    grain: Grain, settings: Settings, streams: Streams | None = None, first_us: int | None = None
) -> TimePartitions:
    """Every partition since the first event, by default the earliest that is taken; the current one, and the next."""
    start = grain.key(earliest_us(settings, streams, first_us))
    return _DEFINITIONS[grain](start_date=start, fmt=grain.key_format, timezone="UTC", end_offset=END_OFFSET)


def shown_partitions(home: Home) -> dict[Grain, TimePartitions]:
    """The partitions of a home that has been drained, from its first week with data on; else all that there may be."""
    found = FirstHourFile(home).read()
    first_us = found.first_us if found else None
    return {grain: partitions_of(grain, home.settings, first_us=first_us) for grain in _DEFINITIONS}


PARTITIONS = shown_partitions(Home.locate())


def first_partition() -> str:
    """The key of the first hour that runs of this process know."""
    return HOUR.key(round(PARTITIONS[HOUR].start.timestamp() * SECOND_US))


# The tables that are divided by a hash. A bucket is made from deltas of any hour, and the index from all buckets.
BUCKETED = dg.StaticPartitionsDefinition(bucket_keys(BUCKETS))
FROM_ANY = dg.AllPartitionMapping()


def existing(settings: Settings, grain: Grain, keys: Iterable[str], now_us: int) -> list[str]:
    """The keys of which there may be partitions by now, in order; older ones than are shown, too."""
    wanted = sorted(keys)
    if not wanted:
        return wanted
    partitions = partitions_of(grain, settings)
    with dg.partition_loading_context(effective_dt=from_us(now_us)):
        return [key for key in wanted if partitions.has_partition_key(key)]


def starts_in(window: Range, grain: Grain) -> list[int]:
    """Starts of the partitions of a range, in microseconds."""
    return list(grain.starts(window.start_us, window.end_us))


def starts_of(windows: Iterable[Range], grain: Grain) -> list[int]:
    """The same of some ranges."""
    return [start for each in windows for start in starts_in(each, grain)]


def partitions_in(windows: Sequence[Range], grain: Grain) -> Range | list[int]:
    """The partitions of some ranges, in the form that a table takes: one range, or the start of each partition."""
    return windows[0] if len(windows) == 1 else starts_of(windows, grain)
