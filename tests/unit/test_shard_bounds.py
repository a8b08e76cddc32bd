"""A shard with little room: backpressure, refusals for good, a full disk, what a failure hands back (C3, C8, Q2)."""

import threading
import time
from pathlib import Path

import pytest

from chaos.disks import SYNCS, Fault, FaultyDisk
from tests.support.live import HeldDisk, new_home, open_platform, sealed_rows, signal
from tidemark.coordinator.engine import State
from tidemark.model.shard_errors import (
    BackpressureError,
    DiskSpaceError,
    OutcomeUnknownError,
    ShardStoppedError,
    WriteRefusedError,
    WriteTooLargeError,
)
from tidemark.storage.disk import RealDisk

SMALL = "[bounds]\ndeltas = 4\nbytes = 4_096"


def test_a_full_shard_gives_the_write_back_at_once_or_after_the_timeout_c8(tmp_path: Path) -> None:
    disk = HeldDisk()
    with open_platform(new_home(tmp_path, SMALL), disk=disk) as platform:
        producer = platform.producer("web")
        disk.hold_next_sync()
        producer.write([signal("a")])
        disk.is_held.wait()
        producer.write([signal("b"), signal("c"), signal("d")])
        deltas = [signal("e")]
        with pytest.raises(BackpressureError, match="Nothing was taken") as full:
            producer.try_write(deltas)
        assert full.value.write is deltas
        with pytest.raises(BackpressureError, match="Nothing was taken") as full:
            producer.write(deltas, timeout=0.01)
        assert full.value.write is deltas
        disk.let_go.set()
        assert producer.write(deltas).wait().epochs == {0: 3}, "the number of a write that was given back stays free"


def test_a_waiting_write_is_taken_as_soon_as_there_is_room_c8(tmp_path: Path) -> None:
    disk = HeldDisk()
    home = new_home(tmp_path, SMALL)
    with open_platform(home, disk=disk) as platform:
        producer = platform.producer("web")
        disk.hold_next_sync()
        producer.write([signal("a")])
        disk.is_held.wait()
        producer.write([signal(name) for name in "bcd"])
        waiting = threading.Thread(target=lambda: producer.write([signal("e")]).wait())
        waiting.start()
        disk.let_go.set()
        waiting.join()
        assert platform.shards[0].core.tracker.deltas == 0
    assert [row["delta_id"] for row in sealed_rows(home)] == list("abcde")


def test_a_write_refused_for_good_uses_its_number_up_also_after_a_restart_q2(tmp_path: Path) -> None:
    home = new_home(tmp_path, SMALL)
    for attempt in range(2):
        with open_platform(home) as platform:
            shard = platform.shards[0]
            instance, mark = shard.open_producer("web")
            if attempt == 0:
                shard.write("web", instance, 1, [signal("a")]).wait()
                with pytest.raises(WriteTooLargeError, match="4 fit into one") as refused:
                    shard.write("web", instance, 2, [signal(str(at)) for at in range(5)])
                assert len(refused.value.write) == 5  # type: ignore[arg-type]
                shard.write("web", instance, 3, [signal("b")]).wait()
            else:
                assert mark == 3
            with pytest.raises(WriteRefusedError, match="Write 2 of producer 'web' was refused for good"):
                shard.write("web", instance, 2, [signal("c")])
            assert shard.write("web", instance, 3, [signal("b")]).wait().is_retry
    assert [(row["sequence"], row["delta_id"]) for row in sealed_rows(home)] == [(1, "a"), (3, "b")]


def test_before_the_disk_is_full_nothing_is_taken_and_then_it_goes_on_by_itself_c8(tmp_path: Path) -> None:
    home, disk = new_home(tmp_path, "[bounds]\ndisk_keep_free_bytes = 1_000_000"), FaultyDisk(RealDisk())
    with open_platform(home, disk=disk) as platform:
        producer = platform.producer("web")
        producer.write([signal("a")]).wait()
        disk.set_free_bytes(999_999)
        producer.write([signal("b")]).wait()  # the writer notices with this one, and flushes it all the same
        with pytest.raises(DiskSpaceError, match="999,999 bytes are free") as low:
            producer.try_write([signal("c")])
        assert low.value.retry_after_s > 0
        platform.seal()
        disk.set_free_bytes(1_050_000)
        with pytest.raises(DiskSpaceError):
            producer.try_write([signal("c")])  # a little more than the mark is wanted, or it would flutter
        disk.set_free_bytes(2_000_000)
        producer.try_write([signal("c")]).wait()
    assert [row["delta_id"] for row in sealed_rows(home)] == ["a", "b", "c"]


def test_a_failed_flush_hands_every_unflushed_write_back_with_what_is_known_of_it_c3(tmp_path: Path) -> None:
    """One write is in a sync that fails, one behind it in the buffer."""

    class FailingHeldDisk(HeldDisk):
        def sync(self, fd: int) -> None:
            held = self._holds_next
            super().sync(fd)
            if held:
                raise OSError(5, "Input/output error")

    disk = FailingHeldDisk()
    platform = open_platform(new_home(tmp_path), disk=disk)
    producer = platform.producer("web")
    disk.hold_next_sync()
    unknown = producer.write([signal("a")])
    disk.is_held.wait()
    deltas = [signal("b")]
    untouched = producer.write(deltas)
    disk.let_go.set()
    with pytest.raises(OutcomeUnknownError, match="unknown until"):
        unknown.wait()
    with pytest.raises(ShardStoppedError, match="Nothing of this write was written") as refused:
        untouched.wait()
    assert refused.value.write == deltas
    assert platform.shards[0].core.engine.state is State.FAILED
    with pytest.raises(ShardStoppedError):
        platform.shutdown()


def test_a_reservation_that_cannot_be_written_stops_the_shard_and_gives_the_write_back_c7(tmp_path: Path) -> None:
    disk = FaultyDisk(RealDisk(), [])
    platform = open_platform(new_home(tmp_path), disk=disk)
    producer = platform.producer("web")
    disk.fail(Fault(SYNCS, nth=1, is_lasting=True))
    with pytest.raises(ShardStoppedError, match="Start it again") as refused:
        producer.write([signal("a")])
    assert refused.value.write == [signal("a")]
    with pytest.raises(ShardStoppedError):
        platform.shutdown()


def test_a_reader_of_its_own_writes_sees_what_is_applied_and_a_plain_one_what_is_flushed_c11(tmp_path: Path) -> None:
    disk = HeldDisk()
    with open_platform(new_home(tmp_path), disk=disk) as platform:
        shard, producer = platform.shards[0], platform.producer("web")
        producer.write([signal("a")]).wait()
        disk.hold_next_sync()
        producer.write([signal("b")])
        disk.is_held.wait()
        producer.write([signal("c")])
        view = shard.view()
        seen = view.snapshot.read()["delta_id"].to_pylist()
        seen += [delta["delta_id"] for part in view.frozen for write in part.writes for delta in write.deltas]  # type: ignore[call-overload,index]
        assert seen == ["a", "b", "c"]
        assert view.epoch == 3
        assert shard.snapshot().read()["delta_id"].to_pylist() == ["a"]
        disk.let_go.set()
        shard.flush()
        assert shard.snapshot().read()["delta_id"].to_pylist() == ["a", "b", "c"]
        assert view.snapshot.read()["delta_id"].to_pylist() == ["a"], "a snapshot never changes"
        platform.seal()
        assert view.snapshot.read()["delta_id"].to_pylist() == ["a"], "wherever its rows lie"


def test_states_of_a_shard_are_observed_in_order_c4(tmp_path: Path) -> None:
    with open_platform(new_home(tmp_path)) as platform:
        platform.producer("web").write([signal("a")]).wait()
        shard = platform.shards[0]
        while shard.core.engine.state is not State.IDLE:
            time.sleep(0.001)
        states = [transition.state for transition in shard.core.transitions]
    assert states[-3:] == [State.ACCUMULATING, State.FLUSHING, State.IDLE]
