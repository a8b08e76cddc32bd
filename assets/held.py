"""Which partitions hang on partitions of their inputs: what a wrong one holds back.

Belongs here: following the graph from given partitions of inputs to those that are made of them; by receipt and by
stamp, the log says which. No Spark, no Dagster.
"""

from collections.abc import Mapping

from assets.graph import By, Derived
from assets.ingest.log import Log
from assets.stale import hours_of, reach_back
from resources.home import Home
from resources.timegrid import HOUR_US


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
        for entry in Log(home).beyond({}):
            if starts.intersection(hours_of(entry, By.EVENT)):
                for hour in hours_of(entry, need.by):
                    found.update(need.partitions_of(derived.spec, hour, HOUR_US))
    return found
