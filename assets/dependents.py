"""Which partitions depend on given partitions of their inputs: the ones that a wrong input blocks.

Belongs here: following the graph from given partitions of inputs to the partitions made from them; by receipt, by stamp
and by batch, the log says which. No Spark, no Dagster.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping

from assets.graph import By, Derived
from assets.stale import look_back
from tidemark.model.timegrid import HOUR_US, floor_to
from tidemark.observe.log_index import hours_of
from tidemark.observe.sealed_log import Log
from tidemark.storage.home import Home


def dependent_partitions(home: Home, derived: Derived, inputs: Mapping[str, set[int]]) -> set[int]:
    """Starts of the partitions that are made from any of the given input partitions (table → starts)."""
    found: set[int] = set()
    for need in derived.needs:
        starts = inputs.get(need.table.name, set())
        if not starts:
            continue
        if need.by is By.CARRY:
            found |= {start + HOUR_US for start in starts}
            continue
        if need.by is By.MEETING:
            back = look_back(home.lake / (need.partner or need.table).name, need.partner or need.table)
            found |= starts | {start for start, first in back.items() if any(first <= each <= start for each in starts)}
            continue
        if need.by is By.EVENT:
            for start in starts:
                found.update(need.partitions_of(derived.spec, start, need.table.grain.width_us(start)))
            continue
        log = Log(home)
        for hour in _batch_hours(log, starts) if need.by is By.BATCH else _hours_by_the_log(log, need.by, starts):
            found.update(need.partitions_of(derived.spec, hour, HOUR_US))
    return found


def _hours_by_the_log(log: Log, by: By, starts: set[int]) -> set[int]:
    """Hours, by receipt or stamp, of the segments that have deltas of the given event hours."""
    touched = (entry for entry in log.beyond({}) if starts.intersection(hours_of(entry, By.EVENT)))
    return {hour for entry in touched for hour in hours_of(entry, by)}


def _batch_hours(log: Log, starts: set[int]) -> set[int]:
    """Hours of closing of the batches that hold epochs of the segments with deltas of the given event hours.

    The record of a batch may be in a later entry than its deltas, but never in an earlier one. So batches are matched
    by epochs, and only the segments that record such batches are opened.
    """
    touched = defaultdict[int, list[tuple[int, int]]](list)  # per shard, in order, without overlap
    batched_to = defaultdict[int, int](lambda: 1)
    found: set[int] = set()
    for entry in log.beyond({}):
        mine = touched[entry.shard]
        if starts.intersection(hours_of(entry, By.EVENT)):
            mine.append((entry.from_epoch, entry.to_epoch))
        first = batched_to[entry.shard]
        batched_to[entry.shard] = entry.totals.batched_to if entry.totals else first
        if entry.batches_sha256 and not _overlaps(mine, first, batched_to[entry.shard]):
            continue
        found |= {
            floor_to(batch.closed_us, HOUR_US)
            for batch in log.batches_of(entry)
            if _overlaps(mine, batch.from_epoch, batch.to_epoch)
        }
    return found


def _overlaps(ranges: list[tuple[int, int]], first: int, end: int) -> bool:
    place = bisect_right(ranges, first, key=lambda each: each[1])
    return place < len(ranges) and ranges[place][0] < end
