"""How often something happened to an entity, over all windows, as of a minute.

Belongs here: asking, and the answer's form. How it is computed is in `tidemark/counts/lake.py`.
"""

import time
from typing import Any, NamedTuple

from tidemark.counts.lake import Counts, LakeCounts, Reach
from tidemark.counts.windows import shown
from tidemark.tables.tiers import Tier


class EntityCounts(NamedTuple):
    """The counts of one signal of an entity, or of all that it has."""

    entity: str
    namespace: str
    signal: str | None
    as_of_us: int
    found: dict[str, Counts]

    @property
    def is_empty(self) -> bool:
        """Whether nothing was found: mostly a name is wrong, or the time."""
        return all(each.first_us is None for each in self.found.values())


def ask_counts(
    lake: LakeCounts, entity: str, *, namespace: str, signal: str | None, as_of_us: int | None
) -> EntityCounts:
    """Count; an unknown namespace is refused. Without `as_of_us`: as of the start of the running minute."""
    as_of = this_minute() if as_of_us is None else as_of_us
    if signal is None:
        found = lake.signals(entity, as_of, namespace=namespace)
    else:
        found = {signal: lake.windows(entity, signal, as_of, namespace=namespace)}
    asked = EntityCounts(entity, namespace, signal, as_of, found)
    if asked.is_empty:
        lake.refuse_unknown(namespace)
    return asked


def this_minute() -> int:
    """The start of the running minute."""
    return Tier.MINUTE.floor(time.time_ns() // 1_000)


def counts_as_json(asked: EntityCounts) -> dict[str, Any]:
    """The counts of one signal, or a table by name of all of them."""
    start = {"namespace": asked.namespace, "entity": asked.entity}
    if asked.signal is not None:
        one = asked.found[asked.signal]
        return {**start, "signal": asked.signal, **_one(one), "reach": _reach(one.reach)}
    reach = next((_reach(each.reach) for each in asked.found.values()), None)
    signals = {name: _one(each) for name, each in asked.found.items()}
    return {**start, "as_of": shown(asked.as_of_us), "signals": signals, "reach": reach}


def _one(counted: Counts) -> dict[str, Any]:
    return {
        "as_of": shown(counted.as_of_us),
        "counts": {str(window): each.count for window, each in counted.windows.items()},
        "weights_millionths": {str(window): each.weight_sum for window, each in counted.windows.items()},
        "deltas": {str(window): each.deltas for window, each in counted.windows.items()},
        "velocity_per_hour": {str(window): speed for window, speed in counted.velocity.items()},
        "first_event": None if counted.first_us is None else shown(counted.first_us),
        "last_day": {"from": shown(counted.hours[0][0]), "hours": [count for _, count in counted.hours]},
    }


def _reach(reach: Reach) -> dict[str, Any]:
    return {
        "versions": reach.versions,
        "epochs": {str(shard): epoch for shard, epoch in reach.epochs.items()},
        "watermark": None if reach.watermark_us is None else shown(reach.watermark_us),
        "recounted_hours": [shown(hour) for hour in reach.recounted_hours],
    }
