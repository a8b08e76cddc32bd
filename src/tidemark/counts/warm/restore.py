"""Counters that equal the tables and the log: made from both, and brought up to date with both (R3).

Belongs here: the order in which tables and log are read, so that every delta is counted once. The tables come first,
as of the epochs that `deltas` has; then the log above those, up to the last flushed epoch. `follower.py` does it with a
running coordinator.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from tidemark.counts.warm.arrivals import count_arrivals, rows_of
from tidemark.counts.warm.cells import ALL, weight_of
from tidemark.counts.warm.counters import CAPACITY, Counters
from tidemark.counts.warm.log_tail import last_epochs, read_tail
from tidemark.counts.warm.names import Names
from tidemark.counts.warm.rollups import Beginning, LakeRollups
from tidemark.counts.warm.snapshot import load_state
from tidemark.counts.warm.state import Rollups, State
from tidemark.delivery.flushed_log import EVERYTHING
from tidemark.storage.home import Home

# Minutes that a snapshot may be old: for each hour of it, an hour of three windows must be read from the tables.
OLDEST_SNAPSHOT = 6 * 60
# Shard → last epoch that may be counted.
Bounds = Mapping[int, int]


def restored_state(
    home: Home,
    head: int,
    *,
    capacity: int = CAPACITY,
    upto: Bounds | None = None,
    rollups: LakeRollups | None = None,
) -> State:
    """The state as of a minute, from the tables as they are, or as they were when `rollups` was opened."""
    rollups = rollups or LakeRollups(home)
    state = State(capacity, head, rollups)
    begin_with(state, rollups)
    _catch_up_all(state, home, upto)
    return state


def resumed_state(
    home: Home, snapshot: Path, head: int, *, capacity: int = CAPACITY, upto: Bounds | None = None
) -> State | None:
    """The state of a snapshot, brought up to date with the log and the tables; None if it is of no use.

    That is so if the snapshot is old, or ahead of them: then the home has another log or other tables.
    """
    rollups = LakeRollups(home)
    state = load_state(snapshot, capacity)
    state.rollups = rollups
    last = last_epochs(home) if upto is None else upto
    is_ahead = any(epoch > last.get(shard, 0) for shard, epoch in state.applied.items()) or any(
        epoch > rollups.covered.get(shard, 0) for shard, epoch in state.covered.items()
    )
    if is_ahead or not 0 <= head - state.head <= OLDEST_SNAPSHOT:
        return None
    _catch_up_all(state, home, upto)
    taken, is_reuse = rollups.taken_back(state.covered, state.names)
    if is_reuse:
        return None
    state.settle(rollups.covered, rollups, taken)
    state.advance_to(head)
    return state


def settle_with(counters: Counters, rollups: LakeRollups) -> bool:
    """Update counters with tables that cover more; false, and nothing done, if only a restore can give the right state.

    The caller has stopped all other threads from changing the counters.
    """
    with counters.unchanged() as state:
        taken, is_reuse = rollups.taken_back(state.covered, state.names)
        if is_reuse:
            return False
        with counters.changing():
            state.settle(rollups.covered, rollups, taken)
        return True


class Tables(Rollups, Protocol):
    """The part of the tables that a start needs."""

    @property
    def covered(self) -> Mapping[int, int]:
        """Shard → last epoch that they have."""

    def beginning(self, head: int, names: Names) -> Beginning:
        """Everything before a minute, over all rows."""

    def hours_from(self, minute: int) -> Sequence[int]:
        """The hours from a minute on that have counts, each by its first minute."""


def begin_with(state: State, rollups: Tables) -> None:
    """Count everything in the tables, in a state that is empty."""
    _begin_sums(state, rollups)
    for hour in rollups.hours_from(state.first_recent):
        rows, minutes, counts = rollups.hour(hour, state.names)
        is_recent = minutes >= state.first_recent
        if is_recent.any():
            state.cells.note_firsts(rows[is_recent], minutes[is_recent])
            state.keep(rows[is_recent], minutes[is_recent], counts[is_recent])
            state.weight = state.weigh(weight_of(counts[minutes >= state.head]))


def state_as_of(home: Home, as_of: int, *, namespace: str, signal: str) -> State:
    """One signal as of any minute, for questions as of that minute only: the tables, and the log above them."""
    rollups = LakeRollups(home, (namespace, signal))
    state = State(CAPACITY, as_of, rollups)
    _begin_sums(state, rollups)
    _catch_up_all(state, home, None)
    return state


def _begin_sums(state: State, rollups: Tables) -> None:
    found = rollups.beginning(state.head, state.names)
    state.weight = state.weigh(weight_of(found.counts))
    state.cells.note_firsts(found.rows, found.firsts)
    np.add.at(state.cells.sums[ALL], found.rows, found.counts)
    for place in range(ALL):
        is_out = found.ranges > place
        np.subtract.at(state.cells.sums[place], found.rows[is_out], found.counts[is_out])
    state.covered, state.applied = dict(rollups.covered), dict(rollups.covered)


def _catch_up_all(state: State, home: Home, upto: Bounds | None) -> None:
    for shard in range(home.settings.shards):
        catch_up(state, home, shard, EVERYTHING if upto is None else upto.get(shard, 0))


def catch_up(state: State, home: Home, shard: int, upto: int = EVERYTHING) -> None:
    """Count what is in a shard's log and not yet in the state, up to an epoch."""
    for piece in read_tail(home, shard, state.applied.get(shard, 0), upto):
        arrivals = piece.arrivals
        rows = rows_of(state.names, arrivals.namespaces, arrivals.signals, arrivals.entities)
        count_arrivals(state, rows, arrivals, shard, piece.last_epoch)
        state.tidy()
