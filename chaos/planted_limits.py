"""Planted bugs of the log's limits: the earliest event time, and the cut of vectors.

Belongs here: the patches. The list of all of them, with their rules, is in `planted.py`.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from tidemark.coordinator import flusher
from tidemark.coordinator.core import ShardCore
from tidemark.log.control import VectorsCut
from tidemark.shard_state import recovery
from tidemark.shard_state.state import ShardState
from tidemark.verdicts.arrival import Arrivals


def earliest_forgotten() -> AbstractContextManager[Any]:
    """A raised limit is known from the log alone, and goes with the log file."""
    return patch.object(flusher, "ShardState", lambda **fields: ShardState(**{**fields, "earliest_us": None}))


def cut_forgotten() -> AbstractContextManager[Any]:
    """A cut is skipped when the log is read again."""
    apply = recovery._apply

    def without_cuts(message: Any, *memory: Any) -> None:
        if not isinstance(message, VectorsCut):
            apply(message, *memory)

    return patch.object(recovery, "_apply", without_cuts)


def cut_for_all() -> AbstractContextManager[Any]:
    """A cut of vectors counts as the earliest time of any event."""
    cut_vectors = Arrivals.cut_vectors

    def for_all(self: Arrivals, cut: VectorsCut | None) -> None:
        cut_vectors(self, cut)
        self.raise_earliest(None if cut is None else cut.cut_us)

    return patch.object(Arrivals, "cut_vectors", for_all)


def cut_behind_flushed() -> AbstractContextManager[Any]:
    """A cut names the last flushed write, though others are on their way to the disk without it."""
    return _cut_behind(lambda core: core.engine.flushed_epoch)


def cut_behind_lost() -> AbstractContextManager[Any]:
    """A cut names the last epoch before this life, though nothing was ever written under it."""
    return _cut_behind(lambda core: core.engine.applied_epoch)


def _cut_behind(epoch: Callable[[ShardCore], int]) -> AbstractContextManager[Any]:
    def cut_vectors(self: ShardCore, cut_us: int) -> None:
        self._refuse_if_stopped()
        self._buffer.note(VectorsCut(cut_us, epoch(self)))

    return patch.object(ShardCore, "cut_vectors", cut_vectors)
