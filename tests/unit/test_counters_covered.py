"""The warm tier with tables behind it: late deltas, drains, copies found late, restarts at any point (R3, Q3)."""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.support.counting import WINDOWS, Event, ages, count_of, moments, steps
from tests.support.live import TEN_O_CLOCK, HandClock
from tidemark.counts.errors import BehindError, FollowsLogError, SnapshotDamageError
from tidemark.counts.warm.buckets import Numbers, Rows
from tidemark.counts.warm.counters import Counters
from tidemark.counts.warm.names import Names
from tidemark.counts.warm.restore import begin_with
from tidemark.counts.warm.rollups import Beginning
from tidemark.counts.warm.snapshot import load_state, save_state
from tidemark.counts.warm.state import FEW, LENGTHS, State, Taken
from tidemark.counts.windows import Window
from tidemark.model.timegrid import MINUTE_US

SHARDS = (0, 1)
ENTITIES = {0: ("a", "b"), 1: ("c",)}
SMALL = 16


@dataclass(frozen=True)
class Logged:
    """A delta in the log; a copy is one that only the drain will find."""

    shard: int
    epoch: int
    entity: str
    minute: int
    count: int
    is_copy: bool


class ModelTables:
    """What the tables would have, from the log: too simple to be wrong."""

    def __init__(self, log: list[Logged], covered: Mapping[int, int]) -> None:
        self.covered = dict(covered)
        self._deltas = [d for d in log if d.epoch <= covered.get(d.shard, 0) and not d.is_copy]

    def hour(self, hour: int, names: Names) -> tuple[Rows, Numbers, Numbers]:
        found = [delta for delta in self._deltas if hour <= delta.minute < hour + 60]
        return (
            rows_of(names, found),
            np.array([d.minute for d in found], np.int64),
            np.array([d.count for d in found], np.int64),
        )

    def hours_from(self, minute: int) -> list[int]:
        return sorted({delta.minute // 60 * 60 for delta in self._deltas if delta.minute // 60 * 60 + 60 > minute})

    def beginning(self, head: int, names: Names) -> Beginning:
        found = [delta for delta in self._deltas if delta.minute < head]
        ranges = [
            next(place for place, length in enumerate(LENGTHS) if length is None or delta.minute >= head - length)
            for delta in found
        ]
        minutes = np.array([delta.minute for delta in found], np.int64)
        counts = np.array([delta.count for delta in found], np.int64)
        return Beginning(rows_of(names, found), np.array(ranges, np.int64), counts, minutes)


def rows_of(names: Names, deltas: list[Logged]) -> Rows:
    return names.take(names.open("shop", "view"), [delta.entity for delta in deltas])


def count(state: State, deltas: list[Logged], shard: int, last_epoch: int) -> None:
    mine = [d for d in deltas if d.shard == shard and state.applied.get(shard, 0) < d.epoch <= last_epoch]
    columns = [np.array([getattr(d, name) for d in mine], np.int64) for name in ("minute", "count", "epoch")]
    state.count(rows_of(state.names, mine), columns[0], columns[1], shard, columns[2])
    state.applied[shard] = max(state.applied.get(shard, 0), last_epoch)


def settle(state: State, log: list[Logged], covered: Mapping[int, int]) -> None:
    aside = [d for d in log if d.is_copy and state.covered.get(d.shard, 0) < d.epoch <= covered.get(d.shard, 0)]
    columns = [np.array([getattr(d, name) for d in aside], np.int64) for name in ("minute", "count", "shard", "epoch")]
    state.settle(covered, ModelTables(log, covered), Taken(rows_of(state.names, aside), *columns))


class Machine(RuleBasedStateMachine):
    """Two shards, a drain that is sometimes late, and a process that dies at any moment."""

    @initialize(now_us=moments())
    def begin(self, now_us: int) -> None:
        self.clock = HandClock(now_us)
        self.log: list[Logged] = []
        self.last = dict.fromkeys(SHARDS, 0)
        self.counters = self.fresh(dict.fromkeys(SHARDS, 0))

    def fresh(self, covered: Mapping[int, int]) -> Counters:
        tables = ModelTables(self.log, covered)
        state = State(SMALL, self.clock.now_us // MINUTE_US, tables)
        begin_with(state, tables)
        for shard in SHARDS:
            count(state, self.log, shard, self.last[shard])
        return Counters(self.clock, state=state)

    @rule(
        shard=st.sampled_from(SHARDS),
        deltas=st.lists(
            st.tuples(st.integers(0, 1), ages(), st.sampled_from([1, 1, 2, -1]), st.booleans()), max_size=6
        ),
    )
    def arrive(self, shard: int, deltas: list[tuple[int, int, int, bool]]) -> None:
        """One write; the batch that brings it comes twice, and with what was there before."""
        self.last[shard] += 1
        for entity, age, number, is_copy in deltas:
            name = ENTITIES[shard][entity % len(ENTITIES[shard])]
            minute = (self.clock.now_us - age) // MINUTE_US
            self.log.append(Logged(shard, self.last[shard], name, minute, number, is_copy))
        for _ in range(2):
            with self.counters.changing() as state:
                count(state, self.log, shard, self.last[shard])

    @rule(step=steps())
    def wait(self, step: int) -> None:
        self.clock.now_us += step

    @rule(data=st.data())
    def drain(self, data: Any) -> None:
        before = self.counters.covered
        covered = {shard: data.draw(st.integers(before.get(shard, 0), self.last[shard])) for shard in SHARDS}
        with self.counters.changing() as state:
            settle(state, self.log, covered)

    @rule(is_snapshot=st.booleans(), data=st.data())
    def die(self, is_snapshot: bool, data: Any) -> None:
        """Start again from the tables and the log, or from a snapshot and what came after it."""
        covered = self.counters.covered
        if not is_snapshot:
            self.counters = self.fresh(covered)
            return
        with tempfile.TemporaryDirectory() as folder:
            with self.counters.unchanged() as state:
                save_state(state, Path(folder) / "snapshot")
            self.arrive(0, [(0, 0, 1, False), (1, 90 * MINUTE_US, 5, True)])
            loaded = load_state(Path(folder) / "snapshot", SMALL)
        later = {shard: data.draw(st.integers(covered.get(shard, 0), self.last[shard])) for shard in SHARDS}
        loaded.rollups = ModelTables(self.log, later)
        for shard in SHARDS:
            count(loaded, self.log, shard, self.last[shard])
        settle(loaded, self.log, later)
        self.counters = Counters(self.clock, state=loaded)

    @precondition(lambda self: self.log)
    @rule(back=st.integers(0, FEW))
    def ask(self, back: int) -> None:
        self.counters.advance()
        covered, applied = self.counters.covered, self.counters.applied
        as_of_us = (self.clock.now_us // MINUTE_US - back) * MINUTE_US
        counted = [
            Event(d.entity, "view", d.minute * MINUTE_US, d.count)
            for d in self.log
            if d.epoch <= applied.get(d.shard, 0) and not (d.is_copy and d.epoch <= covered.get(d.shard, 0))
        ]
        for window in WINDOWS:
            found = self.counters.count_many("shop", "view", ["a", "b", "c"], window, as_of_us)
            assert found.tolist() == [count_of(counted, entity, "view", window, as_of_us) for entity in "abc"]


Machine.TestCase.settings = settings(max_examples=80, stateful_step_count=20, deadline=None)
TestAnyOrderOfWritesDrainsAndDeaths = Machine.TestCase


def following() -> Counters:
    state = State(SMALL, TEN_O_CLOCK // MINUTE_US, ModelTables([], {}))
    return Counters(HandClock(), state=state)


def test_counters_that_follow_the_log_take_no_counts_from_elsewhere() -> None:
    with pytest.raises(FollowsLogError, match="send a delta to the coordinator"):
        following().increment("shop", "a", "view", TEN_O_CLOCK)


def test_tables_that_are_ahead_are_not_settled_with_before_the_log_is_counted() -> None:
    counters = following()
    with counters.unchanged() as state, pytest.raises(BehindError, match=r"epochs \{0: 3\}"):
        settle(state, [], {0: 3})


def test_late_counts_are_kept_until_they_are_covered_and_no_longer() -> None:
    counters = following()
    minute = TEN_O_CLOCK // MINUTE_US - 2000
    log = [Logged(0, epoch, "a", minute, 1, is_copy=False) for epoch in (1, 2)]
    with counters.changing() as state:
        count(state, log, 0, 2)
        assert len(state.late) == 2
        settle(state, log, {0: 1})
        assert len(state.late) == 1
        settle(state, log, {0: 2})
        assert len(state.late) == 0
    assert counters.count("shop", "a", "view", Window.WEEK) == 2


def saved(path: Path) -> bytes:
    counters = following()
    with counters.changing() as state:
        count(state, [Logged(0, 1, "a", TEN_O_CLOCK // MINUTE_US - 1, 1, is_copy=False)], 0, 1)
        save_state(state, path)
    return path.read_bytes()


def test_a_snapshot_with_any_byte_changed_or_cut_is_refused(tmp_path: Path) -> None:
    whole = saved(tmp_path / "snapshot")
    load_state(tmp_path / "snapshot", SMALL)
    for place in range(len(whole)):
        for damaged in (whole[:place], whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]):
            (tmp_path / "damaged").write_bytes(damaged)
            with pytest.raises(SnapshotDamageError, match="Delete it: tables and log have everything"):
                load_state(tmp_path / "damaged", SMALL)


def test_a_snapshot_of_another_version_is_refused_by_name(tmp_path: Path) -> None:
    whole = bytearray(saved(tmp_path / "snapshot"))
    whole[8] = 9
    (tmp_path / "snapshot").write_bytes(whole)
    with pytest.raises(SnapshotDamageError, match="is of version 9, and this is version 1"):
        load_state(tmp_path / "snapshot", SMALL)
