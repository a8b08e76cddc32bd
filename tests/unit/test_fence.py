"""Two processes at one shard, where no lock keeps them apart (C7, C14)."""

from pathlib import Path
from random import Random
from typing import Any

import pytest

from chaos.disks import SimulatedDisk, Survival
from tests.support.live import signal
from tests.unit.test_core import FILES, Steps
from tidemark.coordinator.platform import Platform
from tidemark.model.shard_errors import OutcomeUnknownError, ShardFencedError, ShardStoppedError
from tidemark.shard_state.fence import Fence, Incarnation
from tidemark.shard_state.state import Reservation, read_reservation
from tidemark.storage.disk import RealDisk
from tidemark.storage.home import Home


def by(name: str) -> dict[str, Any]:
    """A start under a name of its own."""
    return {"token": name}


def without_lock(home: Home) -> None:
    """As after somebody removed the lock file, or on a file system that does not keep locks."""
    (home.log(0) / "writer.lock").unlink()


def test_an_older_process_acknowledges_nothing_after_a_take_over_c14() -> None:
    disk = SimulatedDisk()
    older = Steps(disk, **by("older"))
    older.send(signal("kept"))
    older.flush()
    in_flight = older.send(signal("late"))
    group = older.core.take()
    newer = Steps(disk, **by("newer"))
    with pytest.raises(ShardFencedError, match="Another process has taken over shard 0"):
        older.core.persist(group)
    assert in_flight.ticket is not None
    assert newer.rows("delta_id") == ["kept"]


def test_what_was_acknowledged_before_a_take_over_is_there_after_it_c14() -> None:
    disk = SimulatedDisk()
    for life in range(5):
        steps = Steps(disk, token=str(life))
        steps.send(signal(f"d{life}"))
        steps.flush()
    assert Steps(disk, **by("last")).rows("delta_id") == [f"d{life}" for life in range(5)]


def test_two_that_start_at_the_same_moment_are_told_apart_c14() -> None:
    disk = SimulatedDisk()
    disk.make_directory(FILES.log)
    one = Fence.take_over(disk, 0, FILES.log, "one")
    other = Fence(disk, 0, FILES.log, Incarnation(one.incarnation, "other"))
    one.check()
    with pytest.raises(ShardFencedError):
        other.check()


def test_a_process_that_was_fenced_out_cannot_take_reserved_epochs_back_c7() -> None:
    disk = SimulatedDisk()
    disk.make_directory(FILES.log)
    older = Fence.take_over(disk, 0, FILES.log, "older")
    newer = Fence.take_over(disk, 0, FILES.log, "newer")
    newer.reserve(20_000)
    older.reserve(15_000)
    assert read_reservation(disk, FILES.log).to_epoch == 20_000


def test_a_fenced_process_seals_nothing_c14() -> None:
    disk = SimulatedDisk()
    older = Steps(disk, **by("older"))
    older.send(signal("kept"))
    older.flush()
    older.core.ask_seal()
    group = older.core.take()
    older.core.persist(group)  # closes its file; the sealer has not begun
    newer = Steps(disk, **by("newer"))
    with pytest.raises(ShardFencedError):
        older.sealing.wait()
    newer.sealing.wait()
    assert newer.rows("delta_id") == ["kept"]
    after = Steps(disk.crash(Survival.NOTHING, Random(0)), **by("after"))
    assert after.rows("delta_id") == ["kept"]


def test_an_older_platform_without_its_lock_says_that_it_was_taken_over(tmp_path: Path) -> None:
    home = Home(tmp_path)
    older = Platform.open(home)
    producer = older.producer("web")
    producer.write([signal("first")]).wait()
    without_lock(home)
    with Platform.open(home) as newer:
        with pytest.raises((OutcomeUnknownError, ShardStoppedError), match="taken over"):
            producer.write([signal("second")]).wait()
        with pytest.raises(ShardStoppedError, match="Another process has taken over"):
            producer.write([signal("third")])
        newer.producer("api").write([signal("fourth")]).wait()
    with pytest.raises(ShardStoppedError):
        older.shutdown()
    with Platform.open(home) as again:
        assert again.shards[0].snapshot().read()["delta_id"].to_pylist() == ["first", "fourth"]


def test_a_log_file_that_lost_its_name_is_not_acknowledged_c14(tmp_path: Path) -> None:
    home = Home(tmp_path)
    platform = Platform.open(home)
    producer = platform.producer("web")
    producer.write([signal("first")]).wait()
    for path in home.log(0).glob("*.log"):
        path.rename(path.with_suffix(".moved"))
    with pytest.raises((OutcomeUnknownError, ShardStoppedError)):
        producer.write([signal("second")]).wait()
    with pytest.raises(ShardStoppedError):
        platform.shutdown()


def test_a_log_file_that_a_fenced_process_began_is_in_nobodys_way_c14() -> None:
    disk = SimulatedDisk()
    newer = Steps(disk, **by("newer"))
    newer.send(signal("kept"))
    newer.flush()
    disk.store(FILES.log / f"{newer.core.flusher.file_number + 1:010d}.log", b"begun by another")
    newer.core.ask_seal()
    newer.flush()
    newer.send(signal("later"))
    newer.flush()
    assert Steps(disk, **by("last")).rows("delta_id") == ["kept", "later"]


def test_a_fenced_process_leaves_the_log_files_of_its_successor_alone_c14() -> None:
    disk = SimulatedDisk()
    older = Steps(disk, **by("older"))
    older.send(signal("kept"))
    older.flush()
    newer = Steps(disk, **by("newer"))
    begun = FILES.log / f"{newer.core.flusher.file_number:010d}.log"
    with pytest.raises(ShardFencedError):
        older.core.flusher._begin_file()
    newer.send(signal("new"))
    newer.flush()
    assert begun.name in disk.list(FILES.log)
    assert Steps(disk, **by("last")).rows("delta_id") == ["kept", "new"]


def test_a_reservation_that_a_start_replaces_while_it_is_read_is_read_from_its_successor_c7(tmp_path: Path) -> None:
    """`status` looks without a lock: between the list of files and the read a start may remove what was listed."""

    class Racing(RealDisk):
        is_first = True

        def list(self, path: Path) -> list[str]:
            found = super().list(path)
            if self.is_first:
                self.is_first = False
                start("newer", 2_000)
            return found

    def start(name: str, to_epoch: int) -> None:
        fence = Fence.take_over(RealDisk(), 0, tmp_path, name)
        fence.reserve(to_epoch)
        fence.forget_others()

    start("older", 1_000)
    assert read_reservation(Racing(), tmp_path) == Reservation(2_000, 2)
