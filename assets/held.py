"""Which partitions hang on partitions of their inputs: what a wrong one holds back.

Belongs here: following the graph from given partitions of inputs to those that are made of them; by receipt, by stamp
and by batch, the log says which. No Spark, no Dagster.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping

from assets.graph import By, Derived
from assets.ingest.log import Log
from assets.stale import hours_of, reach_back
from resources.coordinator.manifest import Entry
from resources.home import Home
from resources.timegrid import HOUR_US, floor_to


def hang_on(home: Home, derived: Derived, inputs: Mapping[str, set[int]]) -> set[int]:
    """Starts of the partitions that are made of any of the given ones: table → starts."""
    found: set[int] = set()
    for need in derived.needs:
        starts = inputs.get(need.table.name, set())
        if not starts:
            continue
        if need.by is By.CARRY:
            found |= {start + HOUR_US for start in starts}
            continue
        if need.by is By.MEETING:
            back = reach_back(home.lake / (need.partner or need.table).name, need.partner or need.table)
            found |= starts | {start for start, first in back.items() if any(first <= each <= start for each in starts)}
            continue
        if need.by is By.EVENT:
            for start in starts:
                found.update(need.partitions_of(derived.spec, start, need.table.partition_us))
            continue
        for hour in _hours_by_the_log(Log(home).beyond({}), need.by, starts):
            found.update(need.partitions_of(derived.spec, hour, HOUR_US))
    return found


def _hours_by_the_log(entries: Iterable[Entry], by: By, starts: set[int]) -> set[int]:
    """Hours, by receipt, stamp or batch, of the segments that have deltas of the given event hours."""
    known = list(entries)
    touched = [entry for entry in known if starts.intersection(hours_of(entry, By.EVENT))]
    if by is By.BATCH:
        return _batch_hours(known, touched)
    return {hour for entry in touched for hour in hours_of(entry, by)}


def _batch_hours(entries: Iterable[Entry], touched: Iterable[Entry]) -> set[int]:
    """Hours in which batches were closed that hold epochs of the touched segments.

    The record of a batch may stand in a later entry than its deltas, so they are matched by epochs.
    """
    by_shard = defaultdict[int, list[Entry]](list)
    for entry in touched:  # of one shard, segments are in order and do not overlap
        by_shard[entry.shard].append(entry)
    found: set[int] = set()
    for entry in entries:
        mine = by_shard[entry.shard]
        for batch in entry.batches:
            place = bisect_right(mine, batch.from_epoch, key=lambda each: each.to_epoch)
            if place < len(mine) and mine[place].from_epoch < batch.to_epoch:
                found.add(floor_to(batch.closed_us, HOUR_US))
    return found
