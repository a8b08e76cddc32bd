"""The coordinator as a producer meets it: epochs, levels, retries, restarts (C1, C2, C3, C6, C7, C10, Q2, Q3, T4)."""

import threading
from pathlib import Path

import pytest

from tests.support.live import (
    FailingDisk,
    HandClock,
    HeldDisk,
    new_home,
    open_platform,
    sample,
    sealed_rows,
    signal,
    vector,
)
from tidemark import Level
from tidemark.log.manifest import Manifest
from tidemark.model.shard_errors import (
    EmptyWriteError,
    EpochNotAssignedError,
    ProducerFencedError,
    ShardBusyError,
    ShardStoppedError,
    WaitTimeoutError,
    WriteFormatError,
    WriteTooLargeError,
)
from tidemark.observe.status import read_status
from tidemark.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return new_home(tmp_path / "home")


def test_epochs_start_at_one_and_rise_by_one(home: Home) -> None:
    with open_platform(home) as platform:
        producer = platform.producer("web")
        epochs = [producer.write([signal(str(number))]).wait().epochs[0] for number in range(5)]
    assert epochs == [1, 2, 3, 4, 5]


def test_epochs_go_on_after_a_clean_stop_and_none_is_lost(home: Home) -> None:
    for start in range(3):
        with open_platform(home) as platform:
            assert platform.producer("web").write([signal(str(start))]).wait().epochs == {0: start + 1}
    entries = list(Manifest(home.segments(0)).all())
    assert [(entry.from_epoch, entry.to_epoch, entry.lost) for entry in entries] == [(1, 2, []), (2, 3, []), (3, 4, [])]


def test_a_write_is_kept_whole_and_in_order_with_a_verdict_on_each_delta(home: Home) -> None:
    with open_platform(home) as platform:
        receipt = platform.producer("web").write([signal("a"), {"x": 1}, signal("a"), sample("s", 1.0)]).wait()
    assert (receipt.accepted, receipt.duplicate, receipt.refused) == (2, 1, 1)
    rows = sealed_rows(home)
    assert [(row["epoch"], row["ordinal"], row["verdict"]) for row in rows] == [
        (1, 0, "accepted"),
        (1, 1, "refused"),
        (1, 2, "duplicate"),
        (1, 3, "accepted"),
    ]


def test_a_row_of_the_log_has_its_whole_envelope_and_one_payload_d1(home: Home) -> None:
    sent = signal("a", priority="high", source="import", origin="till")
    clock = HandClock()
    clock.advance(60)
    with open_platform(home, clock=clock) as platform:
        platform.producer("web").write([sent]).wait()
    [row] = sealed_rows(home)
    envelope = {name: row[name] for name in ("namespace", "kind", "delta_id", "priority", "source", "origin")}
    assert envelope == {name: sent[name] for name in envelope}
    assert (row["producer"], row["sequence"], row["shard"], row["epoch"], row["ordinal"]) == ("web", 1, 0, 1, 0)
    times_us = [round(row[name].timestamp() * 1_000_000) for name in ("event_ts", "received_ts")]
    assert times_us == [sent["event_ts"], clock()]
    assert (row["watermark_ts"], row["verdict"], row["key"]) == (None, "accepted", "item-1")
    assert [name for name in ("vector", "sample", "signal") if row[name] is not None] == ["signal"]


def test_a_retry_is_answered_with_its_first_epoch_and_changes_nothing(home: Home) -> None:
    with open_platform(home) as platform:
        producer = platform.producer("web")
        first = producer.write([signal("a")])
        producer.write([signal("b")]).wait()
        again = producer.resend(first).wait()
        assert again.is_retry
        assert again.epochs == first.wait().epochs == {0: 1}
    assert [row["delta_id"] for row in sealed_rows(home)] == ["a", "b"]


def test_retries_are_answered_with_their_first_epoch_after_a_restart_too(home: Home) -> None:
    with open_platform(home) as platform:
        producer = platform.producer("web")
        for number in range(5):
            producer.write([signal(str(number))]).wait()
            platform.seal()
    with open_platform(home) as platform:
        producer = platform.producer("web", from_start=True)
        receipts = [producer.write([signal(str(number))]).wait() for number in range(6)]
    assert [(receipt.epochs[0], receipt.is_retry) for receipt in receipts] == [
        (1, True),
        (2, True),
        (3, True),
        (4, True),
        (5, True),
        (6, False),
    ]


def test_a_newer_instance_of_a_producer_fences_the_older(home: Home) -> None:
    with open_platform(home) as platform:
        old = platform.producer("web")
        old.write([signal("a")]).wait()
        new = platform.producer("web")
        with pytest.raises(ProducerFencedError):
            old.write([signal("b")])
        assert new.write([signal("b")]).wait().epochs == {0: 2}


def test_a_copy_under_another_number_is_a_duplicate_and_another_content_is_id_reuse(home: Home) -> None:
    with open_platform(home) as platform:
        producer, other = platform.producer("web"), platform.producer("app")
        producer.write([signal("a"), vector("v", "scale", factor=1.0)]).wait()
        other.write([signal("a"), signal("a", count=2), vector("v", "scale", factor=2.0)]).wait()
    assert [(row["verdict"], row["reason"]) for row in sealed_rows(home)[2:]] == [
        ("duplicate", None),
        ("refused", "id_reuse"),
        ("refused", "id_reuse"),
    ]


def test_identities_are_remembered_across_a_restart(home: Home) -> None:
    for _ in range(2):
        with open_platform(home) as platform:
            platform.producer("web").write([signal("a")]).wait()
    assert [row["verdict"] for row in sealed_rows(home)] == ["accepted", "duplicate"]


def test_what_lies_beyond_the_memory_is_left_to_the_drain(tmp_path: Path) -> None:
    home = new_home(tmp_path, "recent_identities = 2")
    with open_platform(home) as platform:
        producer = platform.producer("web")
        for name in ("a", "b", "c", "a"):
            producer.write([signal(name)]).wait()
    assert [row["verdict"] for row in sealed_rows(home)] == ["accepted"] * 4


def test_a_write_is_stamped_with_the_watermark_before_it_also_after_a_restart(home: Home) -> None:
    clock = HandClock()
    expected = []
    for number in range(4):
        with open_platform(home, clock) as platform:
            platform.producer("web").write([signal(str(number), at=clock.now_us), signal("", at=clock.now_us)]).wait()
        expected.append(clock.now_us - 5_000_000)
        clock.advance(1)
    stamps = [row["watermark_ts"] and round(row["watermark_ts"].timestamp() * 1e6) for row in sealed_rows(home)]
    assert stamps == [None, None, expected[0], None, expected[1], None, expected[2], None]


def test_waiting_for_an_epoch_that_nobody_has_is_an_error_and_never_hangs(home: Home) -> None:
    with open_platform(home) as platform, pytest.raises(EpochNotAssignedError, match="the last one is 0"):
        platform.shards[0].flush(1)


def test_durable_is_what_the_lake_says_and_waiting_for_it_seals_at_once(home: Home) -> None:
    in_lake = {0: 0}
    with open_platform(home, durable_epochs=lambda: in_lake) as platform:
        handle = platform.producer("web").write([signal("a")])
        handle.wait(Level.FLUSHED)
        with pytest.raises(WaitTimeoutError, match="not lost"):
            handle.wait(Level.DURABLE, timeout=0.01)
        assert Manifest(home.segments(0)).to_epoch == 2
        in_lake[0] = 1
        assert handle.wait(Level.DURABLE).level is Level.DURABLE
        in_lake[0] = 2
        receipt = platform.producer("web").write_durable([signal("b")])
        assert (receipt.epochs, receipt.level) == ({0: 2}, Level.DURABLE)
        with pytest.raises(WaitTimeoutError, match="not lost"):
            platform.producer("web").write_durable([signal("c")], timeout=0.01)


def test_epochs_continue_after_what_the_lake_has(home: Home) -> None:
    with open_platform(home, durable_epochs=lambda: {0: 500}) as platform:
        assert platform.producer("web").write([signal("a")]).wait().epochs == {0: 501}


def test_a_log_is_sealed_by_size(tmp_path: Path) -> None:
    home = new_home(tmp_path, "segment_bytes = 8_000")
    with open_platform(home) as platform:
        producer = platform.producer("web")
        for number in range(20):
            producer.write([signal(f"{number}-{at}") for at in range(20)]).wait()
    assert Manifest(home.segments(0)).count > 3
    assert len(sealed_rows(home)) == 400


@pytest.mark.parametrize(("deltas", "age_s"), [(1, 600), (500, 60)])
def test_a_log_is_sealed_by_age_and_one_with_little_in_it_later_c5(home: Home, deltas: int, age_s: int) -> None:
    clock = HandClock()
    with open_platform(home, clock) as platform:
        producer = platform.producer("web")
        for number, seconds in enumerate((0, age_s - 1, 1)):
            clock.advance(seconds)
            producer.write([signal(f"{number}-{at}") for at in range(deltas)]).wait()
    assert [entry.rows for entry in Manifest(home.segments(0)).all()] == [2 * deltas, deltas]


def test_one_write_larger_than_a_segment_is_still_one_write(tmp_path: Path) -> None:
    home = new_home(tmp_path, "segment_bytes = 4096")
    with open_platform(home) as platform:
        platform.producer("web").write([signal(str(at)) for at in range(500)]).wait()
    assert [entry.rows for entry in Manifest(home.segments(0)).all()] == [500]


def test_copies_fall_into_one_shard_and_shards_number_for_themselves(tmp_path: Path) -> None:
    home = new_home(tmp_path, "shards = 3")
    with open_platform(home) as platform:
        producer = platform.producer("web")
        for number in range(3):
            producer.write([signal(f"d{at}", entity=f"item-{at}") for at in range(50)]).wait()
            assert number < 3
    rows = {shard: sealed_rows(home, shard) for shard in range(3)}
    assert sum(len(found) for found in rows.values()) == 150
    for shard, found in rows.items():
        keys = {row["key"] for row in found}
        assert keys
        assert all(keys.isdisjoint({row["key"] for row in rows[other]}) for other in range(3) if other != shard)
        assert [row["verdict"] for row in found].count("accepted") == len(found) // 3
        assert sorted({row["epoch"] for row in found}) == [1, 2, 3]


def test_many_threads_may_write_at_once_and_share_a_sync(home: Home) -> None:
    disk = FailingDisk(fail_at=10**9)
    with open_platform(home, disk=disk) as platform:
        producers = [platform.producer(f"p{number}") for number in range(8)]

        def send(number: int) -> None:
            handles = [producers[number].write([signal(f"{number}-{at}")]) for at in range(50)]
            for handle in handles:
                handle.wait()

        threads = [threading.Thread(target=send, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    rows = sealed_rows(home)
    assert [row["epoch"] for row in rows] == list(range(1, 401))
    for number in range(8):
        mine = [row["sequence"] for row in rows if row["producer"] == f"p{number}"]
        assert mine == list(range(1, 51))
    assert disk.syncs < 400


def test_one_process_at_a_time_may_write(home: Home) -> None:
    with open_platform(home), pytest.raises(ShardBusyError, match="stop that one first"):
        open_platform(home)


def test_another_thread_may_shut_the_platform_down(home: Home) -> None:
    platform = open_platform(home)
    stopping = threading.Thread(target=platform.shutdown)
    stopping.start()
    stopping.join()
    with open_platform(home):
        pass


def test_after_shutdown_nothing_is_taken(home: Home) -> None:
    platform = open_platform(home)
    producer = platform.producer("web")
    platform.shutdown()
    with pytest.raises(ShardStoppedError, match="shutting down"):
        producer.write([signal("a")])


def test_a_shutdown_drains_what_is_queued_also_when_the_log_is_due_to_be_sealed(home: Home) -> None:
    """The writer is held in a sync while another write is queued, the shutdown begins, and the log's age is reached."""
    disk, clock = HeldDisk(), HandClock()
    platform = open_platform(home, clock, disk=disk)
    producer = platform.producer("web")
    producer.write([signal("a")]).wait()
    disk.hold_next_sync()
    producer.write([signal("b")])
    disk.is_held.wait()
    producer.write([signal("c")])
    stopping = threading.Thread(target=platform.shutdown)
    stopping.start()
    while not platform.shards[0].core.is_stopping:
        pass
    clock.advance(60)
    disk.let_go.set()
    stopping.join()
    assert [row["delta_id"] for row in sealed_rows(home)] == ["a", "b", "c"]


def test_an_empty_write_and_a_bad_producer_name_are_refused(home: Home) -> None:
    with open_platform(home) as platform:
        with pytest.raises(EmptyWriteError):
            platform.producer("web").write([])
        with pytest.raises(WriteFormatError, match="no name for a producer"):
            platform.producer("a/b")


def test_a_write_that_could_never_fit_is_handed_back_and_the_next_one_follows_c8(home: Home) -> None:
    with open_platform(home) as platform:
        producer = platform.producer("web")
        with pytest.raises(WriteTooLargeError, match="in several writes"):
            producer.write([b"x" * 3_000_000] * 23)
        assert producer.write([signal("a")]).wait().epochs == {0: 1}


def test_the_largest_write_that_fits_is_taken_and_read_back(home: Home) -> None:
    values = [1.5] * 65_536
    with open_platform(home) as platform:
        producer = platform.producer("web")
        receipt = producer.write([vector(str(at), "create", values=values) for at in range(190)]).wait()
        assert receipt.accepted == 190
    assert len(sealed_rows(home)) == 190


def test_the_status_is_read_without_disturbing_the_writer(home: Home) -> None:
    with open_platform(home) as platform:
        producer = platform.producer("web")
        producer.write([signal("a")]).wait()
        platform.seal()
        producer.write([signal("b")]).wait()
        (status,) = read_status(home)
        assert (status.flushed_epoch, status.sealed_epoch, status.segments) == (2, 1, 1)
        assert status.log_bytes > 0
    (status,) = read_status(home)
    assert (status.flushed_epoch, status.sealed_epoch, status.log_bytes) == (2, 2, 0)
