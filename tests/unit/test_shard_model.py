"""A shard against a model that is small enough to be obviously right (C2, C6, C7, C11, Q2).

Hypothesis chooses the steps: writes, retries, gaps, the writer's steps one by one, seals, reads, crashes of every kind.
"""

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from chaos.disks import Moment, PowerCut, SimulatedDisk, Survival
from chaos.watching import StepSealing
from tests.support.live import TEN_O_CLOCK, signal
from tidemark.coordinator.core import ShardCore
from tidemark.model.settings import Settings
from tidemark.model.shard_errors import SequenceGapError
from tidemark.shard_state.recovery import ShardFiles

FILES = ShardFiles(0, Path("/home/log"), Path("/home/segments"))
SMALL = Settings(segment_bytes=4_096, recent_identities=8)
PRODUCERS = ("a", "b")
SENDERS = st.lists(st.sampled_from(PRODUCERS), max_size=3)

Write = tuple[str, int]  # producer, sequence
Cut = tuple[int, Moment, Survival]  # at which call from now, when, and what is left
T = TypeVar("T")
NEVER = 10**9


def cuts(calls: int) -> st.SearchStrategy[Cut | None]:
    """Half of the time none."""
    return st.none() | st.tuples(st.integers(1, calls), st.sampled_from(Moment), st.sampled_from(Survival))


class Model:
    """What must be there: everything flushed, and of the rest any beginning."""

    def __init__(self) -> None:
        self.flushed: dict[int, Write] = {}  # epoch → write
        self.pending: dict[int, Write] = {}  # has an epoch, and is not flushed
        self.last = 0  # the last epoch that anybody was given

    def mark(self, producer: str) -> int:
        """How many writes of a producer were taken."""
        return sum(name == producer for name, _ in (self.flushed | self.pending).values())

    def take(self, epoch: int, write: Write) -> None:
        """A write was given an epoch."""
        assert epoch == self.last + 1
        self.last, self.pending[epoch] = epoch, write

    def flush(self, upto: int) -> None:
        """The watermark has moved."""
        for epoch in [epoch for epoch in self.pending if epoch <= upto]:
            self.flushed[epoch] = self.pending.pop(epoch)

    def restart(self, found: dict[int, Write], last: int) -> None:
        """After a crash: all that was flushed, then perhaps a beginning of what was not; no epoch is given twice."""
        known = self.flushed | self.pending
        assert found == dict(list(known.items())[: len(found)])
        assert len(found) >= len(self.flushed)
        assert last >= self.last
        self.flushed, self.pending, self.last = found, {}, last


class ShardAgainstModel(RuleBasedStateMachine):
    """The steps."""

    @initialize()
    def begin(self) -> None:
        self.disk, self.model = SimulatedDisk(), Model()
        self.start()

    def start(self) -> None:
        self.sealing = StepSealing()
        self.core = ShardCore(FILES, SMALL, lambda: TEN_O_CLOCK, self.disk, self.sealing, reserved_ahead=3)
        self.writes = 0  # since the start
        self.model.restart(self.stored(), self.core.engine.applied_epoch)
        for producer in PRODUCERS:
            assert self.core.open_producer(producer)[1] == self.model.mark(producer)

    def stored(self) -> dict[int, Write]:
        rows = self.core.engine.snapshot.read().select(["epoch", "producer", "sequence"]).to_pylist()
        return {row["epoch"]: (row["producer"], row["sequence"]) for row in rows}

    def submit(self, producer: str, sequence: int) -> tuple[bool, int]:
        instance = self.core._producers._of(producer).instance
        deltas = [signal(f"{producer}-{sequence}-{place}", entity=producer) for place in range(2)]
        sending = self.core.submit(producer, instance, sequence, deltas, size=100)
        return sending.is_retry, sending.epoch or (sending.ticket.epoch if sending.ticket else 0)

    @rule(producers=SENDERS)
    def write(self, producers: list[str]) -> None:
        for producer in producers:
            sequence = self.model.mark(producer) + 1
            is_retry, epoch = self.submit(producer, sequence)
            assert not is_retry
            self.model.take(epoch, (producer, sequence))
            self.writes += 1

    @rule(data=st.data())
    def retry(self, data: st.DataObject) -> None:
        known = self.model.flushed | self.model.pending
        if known:
            epoch = data.draw(st.sampled_from(sorted(known)))
            assert self.submit(*known[epoch]) == (True, epoch)

    @rule(producer=st.sampled_from(PRODUCERS), skipped=st.integers(1, 3))
    def leave_a_gap(self, producer: str, skipped: int) -> None:
        expected = self.model.mark(producer) + 1
        with pytest.raises(SequenceGapError) as refused:
            self.submit(producer, expected + skipped)
        assert refused.value.expected == expected

    def on_unsafe_power(self, work: Callable[[], T], cut: Cut | None) -> T | None:
        """Do something during which the power goes, at a call from now and in some way; None if it did."""
        if cut is not None:
            self.disk.cut_power(len(self.disk.trace) + cut[0], cut[1])
        try:
            done = work()
        except PowerCut:
            assert cut is not None
            self.crash(cut[2], cut[0])
            return None
        self.disk.cut_power(NEVER, Moment.BEFORE)
        return done

    @rule(between=SENDERS, wants_seal=st.booleans(), cut=cuts(4))
    def flush(self, between: list[str], wants_seal: bool, cut: Cut | None) -> None:
        if wants_seal:
            self.core.ask_seal()
        group = self.core.take()
        self.write(between)
        self.read_own_writes()
        snapshot = self.on_unsafe_power(lambda: self.core.persist(group), cut)
        if snapshot is not None:
            self.read_own_writes()
            self.core.publish(group, snapshot)
            self.model.flush(group.last_epoch)

    @precondition(lambda self: self.sealing.has_job)
    @rule(cut=cuts(30))
    def seal(self, cut: Cut | None) -> None:
        self.on_unsafe_power(self.sealing.step, cut)

    @precondition(lambda self: self.writes)  # else most of the time would go into starting again
    @rule(mode=st.sampled_from(Survival), fate=st.integers(0, 5))
    def crash(self, mode: Survival, fate: int) -> None:
        self.disk = self.disk.crash(mode, Random(fate))
        self.start()

    @rule()
    def read_own_writes(self) -> None:
        view = self.core.view()
        seen = {write.epoch: (write.producer, write.sequence) for part in view.frozen for write in part.writes}
        assert seen == self.model.pending
        assert view.epoch == self.model.last

    @invariant()
    def watermarks_are_in_order(self) -> None:
        engine = self.core.engine
        assert engine.applied_epoch == self.model.last
        assert engine.applied_epoch >= engine.flushed_epoch >= max(self.model.flushed, default=0)
        assert all(epoch > engine.flushed_epoch for epoch in self.model.pending)

    @rule()
    def read_what_is_flushed(self) -> None:
        assert self.stored() == self.model.flushed


ShardAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
test_a_shard_does_what_the_model_says = ShardAgainstModel.TestCase
