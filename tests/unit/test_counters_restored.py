"""Counters restored from tables equal the tables, whatever of them is behind, and stay equal as time goes on (R3)."""

from datetime import UTC, datetime
from pathlib import Path
from random import Random

import pytest

from tests.support.counting import restored
from tests.support.live import HandClock
from tests.support.small_lake import Event, SmallLake
from tidemark.counts.lake import LakeCounts
from tidemark.counts.warm.counters import Counters
from tidemark.counts.windows import Window
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, to_us
from tidemark.storage.home import Home
from tidemark.tables.tiers import Tier

NOW = to_us(datetime(2024, 3, 31, 10, 37, tzinfo=UTC))  # a leap day is 31 days ago, and Monday is tomorrow
ENTITIES, SIGNALS = ("item-1", "item-2", "käse/7"), ("view", "buy")
SMALL = 256


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return SmallLake(Home(tmp_path / "home").create())


def some_events(random: Random, number: int) -> list[Event]:
    """Around the borders of every window, some of them ahead, some of them retractions."""
    borders = [NOW, *(NOW - window.length_us for window in Window if window.length_us), NOW - 400 * DAY_US]
    return [
        Event(
            random.choice(borders) + random.choice((-1, 0, 1, random.randrange(-3 * HOUR_US, 3 * HOUR_US))),
            random.choice(ENTITIES),
            random.choice(SIGNALS),
            random.choice((1, 1, 5, -2)),
        )
        for _ in range(number)
    ]


def assert_equal(counters: Counters, lake: SmallLake, as_of_us: int) -> None:
    """To the tables, and to a loop over all that ever happened."""
    tables = LakeCounts(lake.home)
    for entity in ENTITIES:
        for signal in SIGNALS:
            expected = tables.windows(entity, signal, as_of_us, namespace="shop")
            for window in Window:
                start_us = window.start_us(as_of_us)
                counted = sum(
                    event.count
                    for event in lake.events
                    if (event.entity, event.signal) == (entity, signal)
                    and (start_us is None or start_us <= event.at_us)
                    and event.at_us < as_of_us
                )
                assert counters.count("shop", entity, signal, window, as_of_us) == counted
                assert expected.windows[window].count == counted
                assert counters.velocity("shop", entity, signal, window, as_of_us) == expected.velocity[window]


def test_r3_at_equal_epochs_restored_counters_equal_the_tables_minute_by_minute(lake: SmallLake) -> None:
    random = Random(3)
    lake.send(some_events(random, 300))
    lake.roll_up_everything()
    clock = HandClock(NOW)
    counters = restored(lake.home, clock, SMALL)
    assert_equal(counters, lake, NOW)
    for minutes in (1, 2, 24, 90):  # over the ends of hours, and with a pause
        clock.now_us = NOW + minutes * MINUTE_US
        assert_equal(counters, lake, clock.now_us)
        assert_equal(counters, lake, clock.now_us - MINUTE_US * min(minutes, 3))


@pytest.mark.parametrize("seed", range(3))
def test_rollups_that_are_behind_are_not_relied_on(lake: SmallLake, seed: int) -> None:
    random = Random(seed)
    lake.send(some_events(random, 120))
    for tier in (Tier.MINUTE, Tier.HOUR, Tier.DAY, Tier.WEEK)[: random.randrange(5)]:
        lake.roll_up(tier)
    lake.send(some_events(random, 40))
    lake.roll_up(Tier.MINUTE, {event.at_us // HOUR_US * HOUR_US for event in random.sample(lake.events, 20)})
    clock = HandClock(NOW)
    counters = restored(lake.home, clock, SMALL)
    assert_equal(counters, lake, NOW)
    clock.advance(40 * 60)
    assert_equal(counters, lake, NOW + 40 * MINUTE_US)
