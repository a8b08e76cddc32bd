"""What a shard delivers and shows beside its log: batches, subscribers, metrics, watermarks of shards (C5, C9, T2)."""

import shutil
import threading
from pathlib import Path

import pytest

from tests.support.live import (
    FailingDisk,
    HandClock,
    look,
    new_home,
    open_platform,
    sealed_batches,
    sealed_rows,
    signal,
)
from tidemark.delivery.batching import Batch
from tidemark.delivery.queues import Missed
from tidemark.log.batch_record import BatchRecord, Trigger
from tidemark.model.shard_errors import SubscriptionEndedError
from tidemark.observe.status import read_status
from tidemark.shard_state.state import STATE_FILE, ShardState, load
from tidemark.storage.disk import RealDisk
from tidemark.storage.home import Home


def recorded(home: Home) -> list[BatchRecord]:
    """In the segments, and those that wait for the next segment."""
    state = load(RealDisk(), home.log(0) / STATE_FILE, ShardState)
    assert state is not None
    return sealed_batches(home) + state.batches


def batch_of(found: Batch | Missed | None) -> Batch:
    assert isinstance(found, Batch)
    return found


def test_a_subscriber_gets_what_was_flushed_without_copies_sorted_by_time_c5(tmp_path: Path) -> None:
    clock = HandClock()
    with open_platform(new_home(tmp_path), clock) as platform:
        producer = platform.producer("web")
        with platform.shards[0].subscribe() as subscription:
            producer.write([signal("late", at=clock.now_us + 2), signal("early", at=clock.now_us)]).wait()
            producer.write(
                [signal("early", at=clock.now_us), {"no": "delta"}, signal("mid", at=clock.now_us + 1)]
            ).wait()
            platform.shards[0].close_batch()
            batch = batch_of(subscription.get(timeout=10))
        assert batch.deltas()["delta_id"].to_pylist() == ["early", "mid", "late"]
        record = batch.record
    assert (record.trigger, record.from_epoch, record.to_epoch) == (Trigger.EXPLICIT, 1, 3)
    assert (record.writes, record.deltas, record.duplicates, record.refused, record.keys) == (2, 3, 1, 1, 1)


def test_asking_for_a_batch_when_nothing_is_pending_returns_at_once_and_makes_none_c5(tmp_path: Path) -> None:
    home = new_home(tmp_path)
    with open_platform(home) as platform:
        platform.shards[0].close_batch()
        platform.producer("web").write([signal("a")]).wait()
        platform.shards[0].close_batch()
        platform.shards[0].close_batch()
    assert [record.trigger for record in recorded(home)] == [Trigger.EXPLICIT]


def test_a_flush_never_waits_for_a_batch_and_a_batch_comes_by_time_c5(tmp_path: Path) -> None:
    clock = HandClock()
    with open_platform(new_home(tmp_path), clock) as platform:
        shard = platform.shards[0]
        with shard.subscribe() as subscription:
            platform.producer("web").write([signal("a")]).wait()
            assert subscription.get(timeout=0.01) is None
            clock.advance(5)
            look(shard)
            assert batch_of(subscription.get(timeout=10)).trigger is Trigger.TIME


def test_every_batch_is_recorded_in_the_manifest_also_the_one_of_the_shutdown_c5(tmp_path: Path) -> None:
    home = new_home(tmp_path, "[batch]\ncount = 2")
    with open_platform(home) as platform:
        producer = platform.producer("web")
        producer.write([signal("a"), signal("b")]).wait()
        producer.write([signal("c")]).wait()
        platform.shards[0].close_batch()
        producer.write([signal("d")]).wait()
    records = recorded(home)
    assert [record.trigger for record in records] == [Trigger.COUNT, Trigger.EXPLICIT, Trigger.SHUTDOWN]
    assert [(record.from_epoch, record.to_epoch) for record in records] == [(1, 2), (2, 3), (3, 4)]
    assert [record.number for record in records] == [1, 2, 3]


def test_what_a_crash_left_without_a_batch_is_in_one_after_the_restart_c5(tmp_path: Path) -> None:
    home = new_home(tmp_path / "home")
    with open_platform(home) as platform:
        producer = platform.producer("web")
        producer.write([signal("a")]).wait()
        platform.shards[0].close_batch()
        producer.write([signal("b")]).wait()  # carries the record of the first batch into the log
        producer.write([signal("c")]).wait()
        shutil.copytree(home.root, tmp_path / "crashed")
    crashed = Home(tmp_path / "crashed")
    with open_platform(crashed):
        pass
    assert [(record.from_epoch, record.to_epoch, record.deltas) for record in recorded(crashed)] == [
        (1, 2, 1),
        (2, 4, 2),
    ]


def test_a_predicate_of_the_users_own_closes_a_batch_and_one_that_raises_harms_nobody_c5(tmp_path: Path) -> None:
    home = new_home(tmp_path)
    with open_platform(home, close_batch_when=lambda pending: pending.deltas >= 3) as platform:
        producer = platform.producer("web")
        for name in "abcd":
            producer.write([signal(name)]).wait()
            look(platform.shards[0])
    assert recorded(home)[0].trigger is Trigger.PREDICATE

    def broken(pending: object) -> bool:
        raise ZeroDivisionError(pending)

    with open_platform(home, close_batch_when=broken) as platform:
        platform.producer("web").write([signal("e")]).wait()
    assert len(sealed_rows(home)) == 5


def test_a_subscriber_that_sleeps_is_told_what_it_missed_and_holds_up_nobody_c9(tmp_path: Path) -> None:
    home = new_home(tmp_path, "[batch]\nqueue_batches = 2\ncount = 1")
    with open_platform(home) as platform:
        producer = platform.producer("web")
        with platform.shards[0].subscribe() as sleeper:
            for number in range(6):
                producer.write([signal(str(number))]).wait()
                platform.shards[0].close_batch()
            found = [sleeper.get(timeout=10) for _ in range(3)]
            assert [batch_of(each).from_epoch for each in found[:2]] == [1, 2]
            assert found[2] == Missed(3, 7)
            snapshot = platform.shards[0].snapshot().read()
            assert snapshot["epoch"].to_pylist() == list(range(1, 7)), "what was missed is read from the snapshot"
            assert platform.shards[0].core.tracker.total_bytes == 0


def test_at_the_shutdown_subscribers_get_the_rest_and_then_the_end_c10(tmp_path: Path) -> None:
    platform = open_platform(new_home(tmp_path))
    subscription = platform.shards[0].subscribe()
    platform.producer("web").write([signal("a")])
    platform.shutdown()
    assert [batch_of(item).trigger for item in subscription] == [Trigger.SHUTDOWN]


def test_a_subscriber_hears_of_a_failure_and_why_c9(tmp_path: Path) -> None:
    disk = FailingDisk(fail_at=10**9)
    platform = open_platform(new_home(tmp_path), disk=disk)
    producer = platform.producer("web")
    subscription = platform.shards[0].subscribe()
    disk._fail_at = 1
    producer.write([signal("a")])
    with pytest.raises(SubscriptionEndedError, match="Input/output error"):
        subscription.get(timeout=10)
    with pytest.raises(Exception, match="failed before it was shut down"):
        platform.shutdown()


def test_under_high_water_a_batch_is_closed_early_c8(tmp_path: Path) -> None:
    """What waits for a batch is memory too: a flood closes it long before its time."""
    home = new_home(tmp_path, "[bounds]\nbytes = 60_000\n[batch]\nheld_bytes = 4_096")
    with open_platform(home) as platform:
        producer = platform.producer("web")
        for number in range(3):
            producer.write([signal(f"{number}-{at}") for at in range(10)]).wait()
            look(platform.shards[0])
    assert Trigger.MEMORY_PRESSURE in {
        trigger for record in recorded(home) for trigger in (record.trigger, *record.also)
    }


def test_metrics_say_what_happened_and_name_no_producer_and_no_key_c13(tmp_path: Path) -> None:
    with open_platform(new_home(tmp_path), durable_epochs=lambda: {0: 0}) as platform:
        platform.producer("a_producer").write([signal("a", entity="an-entity"), {"x": 1}]).wait()
        platform.shards[0].close_batch()
        text = platform.metrics()
    assert 'tidemark_epoch{level="flushed",shard="0"} 1.0' in text
    assert 'trigger="explicit"' in text
    assert "a_producer" not in text
    assert "an-entity" not in text


def test_a_running_shard_shows_itself_to_other_processes_and_a_stopped_one_does_not_c13(tmp_path: Path) -> None:
    home = new_home(tmp_path)
    shown = threading.Event()
    with open_platform(home) as platform:
        platform.producer("web").write([signal("a")]).wait()
        platform.shards[0].close_batch()
        for _ in range(100):
            look(platform.shards[0])
            (status,) = read_status(home)
            if status.live and status.live.last_batch_trigger:
                break
            shown.wait(0.05)
        assert status.live is not None
        assert (status.live.applied_epoch, status.live.last_batch_trigger) == (1, "explicit")
        assert sum(status.live.bytes.values()) == 0
    assert read_status(home)[0].live is None


def test_a_quiet_shard_follows_the_watermark_of_the_active_ones_t2(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path, "shards = 2"), HandClock()
    with open_platform(home, clock, disk=RealDisk()) as platform:
        producer = platform.producer("web")
        entity = next(
            f"item-{at}" for at in range(100) if set(platform.split([signal("x", entity=f"item-{at}")])) == {0}
        )
        producer.write([signal("a", entity=entity, at=clock.now_us)]).wait()
        clock.advance(10)
        look(platform.shards[0])
        producer.write([signal("b", entity=entity, at=clock.now_us)]).wait()
        assert platform.watermarks() == {}, "a stream has none until every shard has one"
        platform.align()
        for shard in platform.shards.values():
            shard.seal()
        assert platform.watermarks()["shop/signal"] > 0
        assert platform.watermarks()["shop/signal"] <= clock.now_us - 5_000_000
