"""A shard without threads, step by step, on a simulated disk: what the simulation has found, as small as it gets."""

from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from chaos.disks import CallKind, Fault, FaultyDisk, SimulatedDisk, Survival
from chaos.watching import StepSealing
from tests.support.live import TEN_O_CLOCK, signal
from tidemark.coordinator import flusher
from tidemark.coordinator.core import ShardCore
from tidemark.coordinator.handles import Sending
from tidemark.log.manifest import Manifest
from tidemark.model.settings import BoundSettings, Settings
from tidemark.model.shard_errors import EpochLostError, OutcomeUnknownError, ShardStoppedError, WriteTooLargeError
from tidemark.model.timegrid import SECOND_US
from tidemark.shard_state.recovery import ShardFiles

FILES = ShardFiles(0, Path("/home/log"), Path("/home/segments"))
SMALL = Settings(recent_identities=4, disorder_ms=1_000, watermark_events=1)


class Steps:
    """A shard with a clock that is set by hand."""

    def __init__(self, disk: SimulatedDisk | FaultyDisk, settings: Settings = SMALL, **options: Any) -> None:
        self.disk, self.now_us = disk, TEN_O_CLOCK
        self.sealing = StepSealing()
        self.core = ShardCore(FILES, settings, lambda: self.now_us, disk, self.sealing, **options)
        self.instance, self.sequence = self.core.open_producer("p")

    def send(self, *deltas: dict[str, Any]) -> Sending:
        self.sequence += 1
        return self.core.submit("p", self.instance, self.sequence, list(deltas), size=100)

    def flush(self) -> None:
        group = self.core.take()
        self.core.publish(group, self.core.persist(group))

    def rows(self, column: str) -> list[Any]:
        found: list[Any] = self.core.engine.snapshot.read()[column].to_pylist()
        return found


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def test_nothing_is_written_or_published_after_the_door_has_failed_c3(disk: SimulatedDisk) -> None:
    # The reservation of the second epoch fails, at the door, while the writer is at the disk with the first.
    faulty = FaultyDisk(disk)
    steps = Steps(faulty, reserved_ahead=1)
    first = steps.send(signal("first"))
    group = steps.core.take()
    snapshot = steps.core.persist(group)
    steps.core.ask_seal()
    faulty.fail(Fault(frozenset({CallKind.RENAME}), nth=1))
    with pytest.raises(ShardStoppedError):
        steps.send(signal("second"))
    assert first.ticket is not None
    assert isinstance(first.ticket.error, OutcomeUnknownError)
    for step in (lambda: steps.core.publish(group, snapshot), steps.core.take, steps.core.close):
        with pytest.raises(ShardStoppedError):
            step()
    assert steps.core.engine.flushed_epoch == 0
    assert set(steps.core.tracker.bytes.values()) == {0}


def test_a_write_that_was_given_back_is_not_logged_by_a_writer_that_goes_on_c3(disk: SimulatedDisk) -> None:
    faulty = FaultyDisk(disk)
    steps = Steps(faulty, reserved_ahead=1)
    given_back = steps.send(signal("first"))
    faulty.fail(Fault(frozenset({CallKind.RENAME}), nth=1))
    with pytest.raises(ShardStoppedError):
        steps.send(signal("second"))
    assert given_back.ticket is not None
    assert isinstance(given_back.ticket.error, ShardStoppedError)
    with pytest.raises(ShardStoppedError):
        steps.flush()
    assert Steps(disk.crash(Survival.CACHE, Random(0))).rows("epoch") == []


def test_nothing_is_durable_before_it_is_flushed_however_quick_the_lake_is_c2(disk: SimulatedDisk) -> None:
    committed = [0]
    steps = Steps(disk, durable_epoch=lambda: committed[0])
    steps.send(signal("first"))
    steps.core.ask_seal()
    group = steps.core.take()
    snapshot = steps.core.persist(group)
    steps.sealing.wait()
    committed[0] = steps.core.sealed_epoch
    assert (committed[0], steps.core.durable_epoch(), steps.core.engine.flushed_epoch) == (1, 0, 0)
    steps.core.publish(group, snapshot)
    assert steps.core.durable_epoch() == 1


@pytest.mark.parametrize("has_restart", [False, True])
def test_what_is_a_copy_does_not_depend_on_restarts_q3(disk: SimulatedDisk, *, has_restart: bool) -> None:
    steps = Steps(disk)
    copied = signal("copied")
    # The memory holds four. The last copy finds the copy in it, but no longer the first, which alone was accepted.
    for delta in (copied, signal("b"), signal("c"), signal("d"), copied):
        steps.send(delta)
        steps.core.ask_seal()
        steps.flush()
    if has_restart:
        steps.sealing.wait()
        steps = Steps(disk.crash(Survival.CACHE, Random(0)))
    steps.send(copied)
    steps.flush()
    assert steps.rows("verdict") == [*["accepted"] * 4, "duplicate", "accepted"]


@pytest.mark.parametrize("has_restart", [False, True])
def test_no_stamp_is_ahead_of_its_receipt_when_the_clock_goes_back_t2(
    disk: SimulatedDisk, *, has_restart: bool
) -> None:
    steps = Steps(disk)
    steps.send(signal("first", event_ts=TEN_O_CLOCK + 60 * SECOND_US))
    steps.flush()
    # A tick without writes lets the watermark follow the clock, which is then set back.
    steps.now_us += 20 * SECOND_US
    steps.flush()
    if has_restart:
        steps = Steps(disk.crash(Survival.CACHE, Random(0)))
    steps.now_us = TEN_O_CLOCK
    steps.send(signal("second"))
    steps.flush()
    received, stamp = steps.rows("received_ts")[1], steps.rows("watermark_ts")[1]
    assert (received - stamp).total_seconds() >= 1


def test_a_segment_says_nothing_of_the_group_that_came_after_it_t2(disk: SimulatedDisk) -> None:
    steps = Steps(disk, Settings(segment_bytes=4_096, disorder_ms=1_000, watermark_events=1, clock_skew_ms=10**6))
    steps.now_us += 1_000 * SECOND_US
    for minute in range(8):
        steps.send(signal(f"d{minute}", event_ts=TEN_O_CLOCK + minute * 60 * SECOND_US))
        steps.flush()
    steps.sealing.wait()
    entries = list(Manifest(FILES.segments, disk).all())
    assert len(entries) > 1
    for entry in entries:
        last_event_us = TEN_O_CLOCK + (entry.to_epoch - 2) * 60 * SECOND_US
        assert entry.watermarks == {"shop/signal": last_event_us - SECOND_US}


def test_a_final_refusal_is_not_logged_before_the_writes_that_it_came_behind_q2(disk: SimulatedDisk) -> None:
    steps = Steps(disk, Settings(bounds=BoundSettings(deltas=3)), group_bytes=100)
    steps.send(signal("in the buffer"))
    steps.send(signal("in line"))
    with pytest.raises(WriteTooLargeError):
        steps.send(*[signal("never")] * 4)
    steps.flush()
    again = Steps(disk.crash(Survival.NOTHING, Random(0)))
    assert again.sequence == 1  # the one in line was lost, so it is expected again

    steps = Steps(disk.crash(Survival.CACHE, Random(0)), Settings(bounds=BoundSettings(deltas=3)))
    steps.send(signal("in the buffer, with the refusal in the same frame"))
    with pytest.raises(WriteTooLargeError):
        steps.send(*[signal("never")] * 4)
    steps.flush()
    assert isinstance(steps.disk, SimulatedDisk)
    again = Steps(steps.disk.crash(Survival.NOTHING, Random(0)))
    assert again.sequence == 3


# Restarts: what the lives before have left is sealed behind the back of the one that goes on.


def crashed_lives(disk: SimulatedDisk, lives: int, survival: Survival = Survival.NOTHING) -> SimulatedDisk:
    """So many lives with a write of their own, of which each has lost an epoch, and none has sealed anything."""
    for life in range(lives):
        steps = Steps(disk, reserved_ahead=2)
        steps.send(signal(f"kept-{life}"))
        steps.flush()
        steps.send(signal(f"lost-{life}"))
        disk = disk.crash(survival, Random(0))
    return disk


def log_files(disk: SimulatedDisk) -> list[str]:
    return [name for name in disk.list(FILES.log) if name.endswith(".log")]


def test_a_start_takes_writes_before_the_files_that_it_found_are_sealed_c7(disk: SimulatedDisk) -> None:
    disk = crashed_lives(disk, 3)
    steps = Steps(disk, reserved_ahead=2)
    steps.send(signal("new"))
    steps.flush()
    assert steps.sealing.has_job
    assert Manifest(FILES.segments, disk).last is None
    assert len(log_files(disk)) == 4
    assert steps.rows("delta_id") == ["kept-0", "kept-1", "kept-2", "new"]


def test_files_of_several_lives_are_sealed_in_their_order_with_what_was_lost_between_them_c7(
    disk: SimulatedDisk,
) -> None:
    disk = crashed_lives(disk, 3)
    steps = Steps(disk, reserved_ahead=2)
    assert [steps.core.sealed_epoch, steps.core.engine.flushed_epoch] == [0, 6]
    steps.sealing.step()
    entries = list(Manifest(FILES.segments, disk).all())
    assert [(entry.from_epoch, entry.to_epoch, entry.lost) for entry in entries] == [
        (1, 2, []),
        (2, 4, [(2, 3)]),
        (4, 6, [(4, 5)]),
    ]
    assert [steps.core.sealed_epoch, len(log_files(disk))] == [5, 1]
    assert steps.rows("delta_id") == ["kept-0", "kept-1", "kept-2"]


def test_epochs_that_were_lost_between_files_that_are_not_sealed_are_answered_as_lost_c6(disk: SimulatedDisk) -> None:
    core = Steps(crashed_lives(disk, 3), reserved_ahead=2).core
    for epoch in range(1, 7):
        if epoch % 2:
            core.check_epoch(epoch)
        else:
            with pytest.raises(EpochLostError):
                core.check_epoch(epoch)


def test_whoever_wants_everything_sealed_gets_what_was_found_sealed_too(disk: SimulatedDisk) -> None:
    steps = Steps(crashed_lives(disk, 2))
    steps.core.ask_seal()
    steps.flush()
    steps.sealing.wait()  # as `Shard.seal` does, though this life has written nothing that could be sealed
    assert steps.core.sealed_epoch == 3


def test_a_stop_seals_what_was_found_before_its_own_file_c10(disk: SimulatedDisk) -> None:
    disk = crashed_lives(disk, 2)
    steps = Steps(disk)
    steps.send(signal("new"))
    steps.core.stop()
    while not steps.core.is_drained():
        steps.flush()
        while (batch := steps.core.close_batch()) is not None:
            steps.core.settle(batch)
            steps.core.release(batch.bytes)
    steps.core.close()
    assert log_files(disk) == []
    assert [entry.rows for entry in Manifest(FILES.segments, disk).all()] == [1, 1, 1]


def test_an_error_while_what_was_found_is_sealed_stops_the_shard_c7(disk: SimulatedDisk) -> None:
    faulty = FaultyDisk(crashed_lives(disk, 1))
    steps = Steps(faulty)
    steps.send(signal("new"))
    steps.flush()
    faulty.fail(Fault(frozenset({CallKind.FSYNC}), nth=1))
    steps.sealing.step()
    steps.core.ask_seal()
    with pytest.raises(OSError, match="Input/output error"):
        steps.flush()


def test_a_retry_of_any_write_in_a_file_that_is_not_sealed_gets_its_first_epoch_q2(disk: SimulatedDisk) -> None:
    steps = Steps(disk)
    for number in range(4):
        steps.send(signal(str(number)))
        steps.flush()
    steps = Steps(disk.crash(Survival.NOTHING, Random(0)))
    for is_sealed in (False, True):
        epochs = [steps.core.submit("p", steps.instance, number, [signal("x")], size=9).epoch for number in (1, 4)]
        assert epochs == [1, 4], is_sealed
        steps.sealing.step()


def test_rows_in_no_batch_are_gathered_once_while_their_file_is_sealed_c5(disk: SimulatedDisk) -> None:
    disk = crashed_lives(disk, 2)

    class AtOnce(StepSealing):
        def submit(self, job: Any) -> None:
            super().submit(job)
            self.step()

    core = ShardCore(FILES, SMALL, lambda: TEN_O_CLOCK, disk, AtOnce())
    assert Manifest(FILES.segments, disk).count == 2
    assert core.batcher.pending_deltas == 2


def test_a_reader_misses_nothing_that_is_sealed_while_it_looks_c6(disk: SimulatedDisk) -> None:
    steps = Steps(crashed_lives(disk, 2))

    def read(*arguments: Any) -> Manifest:
        manifest = Manifest(*arguments)
        steps.sealing.step()
        return manifest

    with patch.object(flusher, "Manifest", read):
        assert steps.rows("delta_id") == ["kept-0", "kept-1"]
