"""What a producer holds after a write: the epoch, and a way to wait until the write is as safe as it wants (C1, C2).

Belongs here: the promise and its receipt. Who keeps the promise is in `shard.py`.
"""

from collections.abc import Callable
from typing import NamedTuple

from resources.coordinator.arrival import Outcome
from resources.coordinator.model import Level

NOTHING_DECIDED = Outcome(0, 0, 0)


class Receipt(NamedTuple):
    """What is known of a write once it has reached the level that was asked for."""

    shard: int
    epoch: int
    level: Level
    is_retry: bool  # it had been taken before, under this epoch; nothing was taken twice (Q2)
    outcome: Outcome  # of its deltas; all zero for a retry


class WriteHandle:
    """A write that has its epoch."""

    __slots__ = ("_wait", "epoch", "is_retry", "outcome", "sequence", "shard")

    def __init__(
        self, shard: int, epoch: int, sequence: int, is_retry: bool, wait: Callable[[int, Level, float | None], None]
    ) -> None:
        self.shard = shard
        self.epoch = epoch
        self.sequence = sequence
        self.is_retry = is_retry
        self.outcome = NOTHING_DECIDED  # set by the shard when the write is flushed
        self._wait = wait

    def wait(self, level: Level = Level.FLUSHED, timeout: float | None = None) -> Receipt:
        """Return when the write has reached `level`; raise if it never will, or not in time."""
        self._wait(self.epoch, level, timeout)
        return Receipt(self.shard, self.epoch, level, self.is_retry, self.outcome)
