"""What a crash or a disk that fails leaves of a shard's log, and how it goes on from there (C3, C7)."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.live import (
    FailingDisk,
    HandClock,
    crashed_copy,
    new_home,
    open_platform,
    sealed_rows,
    signal,
)
from tidemark import Level
from tidemark.coordinator.epochs import RESERVED_AHEAD
from tidemark.log.manifest import Manifest
from tidemark.model.shard_errors import (
    CoordinatorError,
    EpochLostError,
    LogDamageError,
    OutcomeUnknownError,
    ShardStoppedError,
)
from tidemark.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return new_home(tmp_path / "home")


def test_everything_flushed_is_there_after_a_crash_and_what_was_skipped_is_lost(home: Home, tmp_path: Path) -> None:
    with open_platform(home) as platform:
        producer = platform.producer("web")
        for number in range(3):
            producer.write([signal(str(number))]).wait(Level.FLUSHED)
        after_crash = crashed_copy(home, tmp_path / "crashed")
    with open_platform(after_crash) as platform:
        shard = platform.shards[0]
        assert shard.snapshot().read()["delta_id"].to_pylist() == ["0", "1", "2"]
        platform.seal()  # also where this process has written nothing yet
        assert [row["delta_id"] for row in sealed_rows(after_crash)] == ["0", "1", "2"]
        with pytest.raises(EpochLostError):
            shard.flush(4)
        shard.flush()  # of what this process has given out, nothing is missing
        again = platform.producer("web", from_start=True)
        receipts = [again.write([signal(str(number))]).wait() for number in range(4)]
        assert [receipt.is_retry for receipt in receipts] == [True, True, True, False]
        assert receipts[3].epochs == {0: RESERVED_AHEAD + 1}
    entry = Manifest(after_crash.segments(0)).last
    assert entry is not None
    assert (entry.from_epoch, entry.to_epoch) == (4, RESERVED_AHEAD + 2)
    assert entry.lost == [(4, RESERVED_AHEAD + 1)]


def test_a_torn_tail_is_cut_and_the_write_is_there_whole_or_not_at_all(home: Home, tmp_path: Path) -> None:
    with open_platform(home) as platform:
        producer = platform.producer("web")
        for number in range(3):
            producer.write([signal(f"{number}-{at}") for at in range(3)]).wait()
        crashed = crashed_copy(home, tmp_path / "crashed")
    (log,) = crashed.log(0).glob("*.log")
    end = len(log.read_bytes().rstrip(b"\0"))
    for number, size in enumerate(range(end - 400, end + 1, 37)):
        torn = Home(tmp_path / f"torn-{number}")
        shutil.copytree(crashed.root, torn.root)
        path = torn.log(0) / log.name
        path.write_bytes(path.read_bytes()[:size])
        with open_platform(torn):
            pass
        rows = sealed_rows(torn)
        assert len(rows) in {6, 9}
        assert [row["epoch"] for row in rows] == [1, 1, 1, 2, 2, 2, 3, 3, 3][: len(rows)]


def test_a_crash_changes_no_verdict_and_no_stamp(home: Home, tmp_path: Path) -> None:
    """Writes of two producers, some out of order, some copies; a crash after each of them, then all of them again."""

    def send(home: Home, after_each: Callable[[int], None] = lambda number: None) -> None:
        clock = HandClock()
        with open_platform(home, clock) as platform:
            producers = [platform.producer(name, from_start=True) for name in ("web", "app")]
            for number in range(8):
                clock.advance(7)
                back = (number % 3) * 9_000_000
                copy = signal(f"d{number - 3}", at=clock.now_us - 21_000_000 - ((number - 3) % 3) * 9_000_000)
                producers[number % 2].write([signal(f"d{number}", at=clock.now_us - back), copy]).wait()
                if number == 4:
                    platform.seal()
                after_each(number)

    def crash(number: int) -> None:
        shutil.copytree(home.root, tmp_path / f"crash-{number}")

    send(home, crash)
    columns = ("delta_id", "verdict", "reason", "watermark_ts", "received_ts")
    expected = [[row[name] for name in columns] for row in sealed_rows(home)]
    assert {row[1] for row in expected} == {"accepted", "duplicate"}
    for number in range(8):
        crashed = Home(tmp_path / f"crash-{number}")
        send(crashed)
        assert [[row[name] for name in columns] for row in sealed_rows(crashed)] == expected
        last, last_crashed = (Manifest(each.segments(0)).last for each in (home, crashed))
        assert last
        assert last_crashed
        assert last_crashed.watermarks == last.watermarks


def test_damage_in_the_middle_of_the_log_stops_the_start_and_changes_nothing(home: Home, tmp_path: Path) -> None:
    with open_platform(home) as platform:
        producer = platform.producer("web")
        for number in range(3):
            producer.write([signal(str(number))]).wait()
        crashed = crashed_copy(home, tmp_path / "crashed")
    (log,) = crashed.log(0).glob("*.log")
    damaged = bytearray(log.read_bytes())
    damaged[400] ^= 4
    log.write_bytes(damaged)
    for _ in range(2):
        with pytest.raises(LogDamageError, match="nothing was changed"):
            open_platform(crashed)
    assert log.read_bytes() == bytes(damaged)


def test_an_fsync_error_stops_the_shard_and_waiters_are_told_that_the_outcome_is_unknown(home: Home) -> None:
    # Synced before: the header of the log file, the rules of event time, the producer's opening.
    platform = open_platform(home, disk=FailingDisk(fail_at=5))
    producer = platform.producer("web")
    producer.write([signal("a")]).wait()
    doomed = producer.write([signal("b")])
    with pytest.raises(OutcomeUnknownError, match="unknown until") as refused:
        doomed.wait()
    assert refused.value.epoch == 2
    with pytest.raises(ShardStoppedError, match="Start it again"):
        producer.write([signal("c")])
    with pytest.raises(ShardStoppedError):
        platform.shutdown()
    with open_platform(home) as restarted:
        receipt = restarted.producer("web", from_start=True)
        assert receipt.write([signal("a")]).wait().is_retry
        receipt.write([signal("b")]).wait()
    assert [row["delta_id"] for row in sealed_rows(home)] == ["a", "b"]


def test_whichever_fsync_fails_nothing_acknowledged_is_lost_and_nothing_is_there_twice(tmp_path: Path) -> None:
    for fail_at in range(1, 12):
        home = new_home(tmp_path / str(fail_at))
        acknowledged = []
        try:
            with open_platform(home, disk=FailingDisk(fail_at)) as platform:
                producer = platform.producer("web")
                for number in range(6):
                    producer.write([signal(str(number))]).wait()
                    acknowledged.append(str(number))
                    if number == 2:
                        platform.seal()
        except (CoordinatorError, OSError):
            pass
        with open_platform(home) as platform:
            producer = platform.producer("web", from_start=True)
            for number in range(6):
                producer.write([signal(str(number))]).wait()
        found = [row["delta_id"] for row in sealed_rows(home)]
        assert found == [str(number) for number in range(6)], f"fsync {fail_at}"
        assert acknowledged == found[: len(acknowledged)]
