"""The warm tier beside a running coordinator: batches, retries, what was missed, restarts (R3, C9)."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.counting import WINDOWS, Event, count_of, restored
from tests.support.live import TEN_O_CLOCK, HandClock, new_home, open_platform, signal, vector
from tidemark import Platform
from tidemark.counts.errors import CountersError
from tidemark.counts.warm.counters import Counters
from tidemark.counts.warm.follower import Follower, snapshot_path
from tidemark.counts.windows import Window
from tidemark.delivery.queues import Missed
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US
from tidemark.storage.home import Home

SMALL = 1 << 12
ENTITIES = [f"item-{number}" for number in range(6)]


@contextmanager
def opened(home: Home, clock: HandClock, **options: Any) -> Iterator[tuple[Platform, Follower]]:
    """Nobody looks at the clock but the test."""
    with (
        open_platform(home, clock) as platform,
        Follower(platform, home, clock=clock, capacity=SMALL, look_seconds=3600, **options) as follower,
    ):
        yield platform, follower


def send(platform: Platform, follower: Follower, deltas: list[dict[str, Any]], producer: str = "web") -> None:
    epochs = platform.producer(producer).write(deltas).wait().epochs
    for number in epochs:
        platform.shards[number].close_batch()
    assert follower.wait(epochs, timeout=60)


def events_of(deltas: list[dict[str, Any]]) -> list[Event]:
    return [
        Event(delta["signal"]["entity_id"], "view", delta["event_ts"], delta["signal"]["count"]) for delta in deltas
    ]


def assert_counts(counters: Counters, events: list[Event], as_of_us: int) -> None:
    for window in WINDOWS:
        found = counters.count_many("shop", "view", ENTITIES, window, as_of_us).tolist()
        assert found == [count_of(events, entity, "view", window, as_of_us) for entity in ENTITIES], window


def spread(count: int, *, name: str = "d", ahead: bool = True) -> list[dict[str, Any]]:
    """Signals between forty days ago and some minutes ahead."""
    random = np.random.default_rng(count)
    ages = [*random.integers(-4 if ahead else 0, 90, count // 2), *random.integers(0, 40 * 1440, count - count // 2)]
    return [
        signal(
            f"{name}{number}",
            at=TEN_O_CLOCK - int(age) * MINUTE_US - number,
            entity=ENTITIES[number % 6],
            count=number % 4,
        )
        for number, age in enumerate(ages)
    ]


def test_every_accepted_signal_is_counted_with_its_batch(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path, "shards = 2"), HandClock()
    deltas = spread(300)
    with opened(home, clock) as (platform, follower):
        send(platform, follower, [*deltas[:150], vector("v", "create", values=[1.0]), {"namespace": "shop"}])
        send(platform, follower, deltas[100:])  # fifty of them are copies
        assert_counts(follower.counters, events_of(deltas), TEN_O_CLOCK)
        clock.advance(3 * 60)
        assert_counts(follower.counters, events_of(deltas), TEN_O_CLOCK + 3 * MINUTE_US)
        assert_counts(follower.counters, events_of(deltas), TEN_O_CLOCK + MINUTE_US)
        assert_counts(restored(home, clock, SMALL), events_of(deltas), TEN_O_CLOCK + 3 * MINUTE_US)


def test_every_write_sent_twice_changes_nothing(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path), HandClock()
    deltas = spread(100)
    with opened(home, clock) as (platform, follower):
        producer = platform.producer("web")
        for part in (deltas[:50], deltas[50:]):
            write = producer.write(part)
            write.wait()
            producer.resend(write).wait()
        platform.shards[0].close_batch()
        assert follower.wait({0: platform.shards[0].flushed_epoch}, timeout=60)
        assert_counts(follower.counters, events_of(deltas), TEN_O_CLOCK)


def test_a_batch_that_comes_again_changes_nothing(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path), HandClock()
    deltas = spread(60)
    with opened(home, clock) as (platform, follower), platform.shards[0].subscribe() as batches:
        send(platform, follower, deltas)
        batch = batches.get(timeout=60)
        assert batch is not None
        for _ in range(2):
            follower._count(0, batch)
        assert_counts(follower.counters, events_of(deltas), TEN_O_CLOCK)


def test_a_follower_that_missed_batches_reads_them_from_the_log(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path, "[batch]\nqueue_batches = 1\n"), HandClock()
    deltas = spread(90)
    with opened(home, clock) as (platform, follower):
        producer = platform.producer("web")
        with follower.counters.unchanged():  # it cannot count, and falls behind
            for start in range(0, 90, 10):
                producer.write(deltas[start : start + 10]).wait()
                platform.shards[0].close_batch()
            assert platform.shards[0]._writer.subscriptions.missed_batches
        assert follower.wait({0: 9}, timeout=60)
        assert_counts(follower.counters, events_of(deltas), TEN_O_CLOCK)


def test_being_told_of_a_miss_that_was_none_changes_nothing(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path), HandClock()
    deltas = spread(30)
    with opened(home, clock) as (platform, follower):
        send(platform, follower, deltas)
        follower._count(0, Missed(1, 2))
        assert_counts(follower.counters, events_of(deltas), TEN_O_CLOCK)


@pytest.mark.parametrize("has_snapshots", [False, True])
def test_a_restarted_process_counts_the_same_and_goes_on(tmp_path: Path, has_snapshots: bool) -> None:
    home, clock = new_home(tmp_path, "shards = 2"), HandClock()
    deltas = spread(200)
    with opened(home, clock, has_snapshots=has_snapshots) as (platform, follower):
        send(platform, follower, deltas[:120])
    assert snapshot_path(home).exists() == has_snapshots
    with open_platform(home, clock) as platform:  # nobody follows here
        platform.producer("web").write(deltas[120:160]).wait()
    clock.advance(2 * 3600 + 60)
    with opened(home, clock, has_snapshots=has_snapshots) as (platform, follower):
        as_of_us = TEN_O_CLOCK + 2 * HOUR_US + MINUTE_US
        assert_counts(follower.counters, events_of(deltas[:160]), as_of_us)
        send(platform, follower, deltas[160:])
        assert_counts(follower.counters, events_of(deltas), as_of_us)


def test_a_snapshot_that_is_damaged_old_or_of_another_log_is_not_used(tmp_path: Path) -> None:
    home, other, clock = new_home(tmp_path / "a"), new_home(tmp_path / "b"), HandClock()
    deltas = spread(40)
    with opened(home, clock) as (platform, follower):
        send(platform, follower, deltas)
    good = snapshot_path(home).read_bytes()
    snapshot_path(other).parent.mkdir()
    snapshot_path(other).write_bytes(good)  # it counts an epoch that is not there
    with opened(other, clock) as (_, follower):
        assert_counts(follower.counters, [], TEN_O_CLOCK)
    snapshot_path(home).write_bytes(good[:-1])
    with opened(home, clock) as (_, follower):
        assert_counts(follower.counters, events_of(deltas), TEN_O_CLOCK)
    clock.advance(10 * 86400)
    with opened(home, clock) as (_, follower):
        assert_counts(follower.counters, events_of(deltas), TEN_O_CLOCK + 10 * DAY_US)


def test_what_goes_wrong_is_told_to_whoever_asks_and_no_count_is_given(tmp_path: Path) -> None:
    home, clock = new_home(tmp_path), HandClock()
    with opened(home, clock, has_snapshots=False) as (platform, follower):
        names = [f"n{number}" for number in range(SMALL)]
        send(platform, follower, [signal("d", entity="a")])
        with pytest.raises(CountersError, match="room for 4,096"):
            send(platform, follower, [signal(name, entity=name) for name in names])
        with pytest.raises(CountersError, match="no longer kept up to date: There are 1 pairs"):
            follower.counters.count("shop", "a", "view", Window.HOUR)


def test_readers_see_every_batch_whole_or_not_at_all(tmp_path: Path) -> None:
    """Each batch counts every entity once, so that all of them are always equal."""
    clock = HandClock()
    counters = Counters(clock, capacity=SMALL)
    names = [f"e{number}" for number in range(500)]
    is_over, seen, wrong = threading.Event(), list[int](), list[Any]()

    def read(window: Window) -> None:
        last = 0
        while not is_over.is_set():
            found = counters.count_many("shop", "view", names, window)
            if len(set(found.tolist())) != 1 or found[0] < last:
                wrong.append(found)
            last = int(found[0])
        seen.append(last)

    readers = [threading.Thread(target=read, args=(window,)) for window in (Window.HOUR, Window.WEEK, Window.ALL)]
    for reader in readers:
        reader.start()
    for number in range(300):
        counters.increment_many("shop", "view", names, TEN_O_CLOCK - 1 - number % 2 * MINUTE_US)
        if number % 10 == 9:
            clock.advance(60)
    is_over.set()
    for reader in readers:
        reader.join()
    assert not wrong
    assert counters.count("shop", "e0", "view", Window.DAY) == 300
