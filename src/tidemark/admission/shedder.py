"""Which priorities make room when writes wait too long for the disk (A3).

Belongs here: the choice, by time in the queue and not by its length, as CoDel does it. While writes wait longer than
the target, one more priority has to make room with each interval, the lowest first; when they wait for less, none has
to. `critical` never has to, and neither has the highest priority that is about: shedding is a choice between writes,
and where there is none producers are slowed down instead.
"""

from collections.abc import Mapping
from typing import NamedTuple

from tidemark.model.deltas import Priority

# In the order in which they make room.
LOWEST_FIRST = (Priority.LOW, Priority.NORMAL, Priority.HIGH, Priority.CRITICAL)
RANK = {priority: rank for rank, priority in enumerate(LOWEST_FIRST)}
# A priority counts as being about for so many intervals after its last write.
REMEMBERED_INTERVALS = 2


class Patience(NamedTuple):
    """How long writes may wait."""

    target_us: int  # 0: nothing is ever shed
    interval_us: int


class Shedder(NamedTuple):
    """What is remembered: since when writes have waited too long, and when each priority last came."""

    above_since_us: int | None = None
    seen_us: Mapping[Priority, int] = {}


def looked_at(shedder: Shedder, patience: Patience, waited_us: int, now_us: int) -> Shedder:
    """The shedder after a look at how long the next write has waited."""
    is_above = waited_us > patience.target_us > 0
    if is_above == (shedder.above_since_us is not None):
        return shedder
    return shedder._replace(above_since_us=now_us if is_above else None)


def seen(shedder: Shedder, patience: Patience, priority: Priority, now_us: int) -> Shedder:
    """The shedder after a write of this priority came; that it came again within an interval makes no difference."""
    if now_us - shedder.seen_us.get(priority, 0) < patience.interval_us:
        return shedder
    return shedder._replace(seen_us={**shedder.seen_us, priority: now_us})


def sheds(shedder: Shedder, patience: Patience, priority: Priority, now_us: int) -> bool:
    """Whether a write of this priority has to make room now."""
    since_us = shedder.above_since_us
    if since_us is None or priority is Priority.CRITICAL:
        return False
    if RANK[priority] >= (now_us - since_us) // patience.interval_us:
        return False
    recent_us = now_us - REMEMBERED_INTERVALS * patience.interval_us
    return any(at_us >= recent_us and RANK[other] > RANK[priority] for other, at_us in shedder.seen_us.items())
