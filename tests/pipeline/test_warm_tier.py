"""The warm tier beside real tables: at equal epochs they are equal, also where the drain found copies (R3, Q3)."""

from typing import Any

from assets.ingest.drain import drain
from assets.rollups.schema import CHAIN
from assets.rollups.transform import count_tier
from resources.lake import Lake
from tests.support.counting import restored
from tests.support.live import TEN_O_CLOCK, HandClock, open_platform, signal
from tidemark.counts.lake import LakeCounts
from tidemark.counts.warm.counters import Counters
from tidemark.counts.warm.follower import Follower
from tidemark.counts.windows import Window
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.lineage import Input
from tidemark.tables.tiers import Tier

TRANSFORMS = tuple(count_tier(tier) for tier in Tier)
ENTITIES = ("item-1", "item-2", "item-3")
SIGNALS = ("view", "like")
SMALL = 256
# Around every border as of 10:00 and the minutes after it.
BORDERS = [0, HOUR_US, DAY_US, 7 * DAY_US, 30 * DAY_US]
AGES = [border + shift for border in BORDERS for shift in (0, 1, -MINUTE_US, -2 * MINUTE_US, -3 * MINUTE_US - 1)]


def roll_up(lake: Lake) -> None:
    """All tiers from what `deltas` has now."""
    for (source, target), transform in zip(CHAIN, TRANSFORMS, strict=True):
        lake.settle(target)
        version = lake.version(source.name)
        assert version is not None
        rows = lake.read(source.name, version).transform(transform)
        starts = {target.grain.floor(start) for start in lake_files.partitions(lake.path(source.name))}
        made_from = Input(version, lake.known(source.name).generation)
        lake.replace(target, rows, hours=sorted(starts), made_from=made_from)


def some(name: str, **more: Any) -> list[dict[str, Any]]:
    return [
        signal(f"{name}-{number}", at=TEN_O_CLOCK - age, entity=ENTITIES[number % 3], count=1 + number % 2, **more)
        for number, age in enumerate(AGES)
    ]


def under_another_signal(delta: dict[str, Any]) -> dict[str, Any]:
    return {**delta, "signal": {**delta["signal"], "signal": "like"}}


def assert_equal_to_the_tables(counters: Counters, home: Home, as_of_us: int) -> None:
    tables = LakeCounts(home)
    for entity in ENTITIES:
        for name in SIGNALS:
            expected = tables.windows(entity, name, as_of_us, namespace="shop")
            for window in Window:
                assert counters.count("shop", entity, name, window, as_of_us) == expected.windows[window].count
                assert counters.velocity("shop", entity, name, window, as_of_us) == expected.velocity[window]


def test_r3_through_drains_copies_and_restarts_the_warm_tier_equals_the_tables(tiny_home: Home, lake: Lake) -> None:
    clock = HandClock()
    first, second, third = some("a"), some("b"), some("c")
    reused = under_another_signal(first[7])  # the only `like` there is, and the drain will not have it
    with open_platform(tiny_home, clock) as platform:
        producer = platform.producer("web")
        with Follower(platform, tiny_home, clock=clock, capacity=SMALL, look_seconds=3600) as follower:
            counters = follower.counters

            def write(*deltas: dict[str, Any]) -> None:
                epochs = producer.write(list(deltas)).wait().epochs
                platform.shards[0].close_batch()
                assert follower.wait(epochs, timeout=60)

            def drained(*, with_rollups: bool) -> None:
                platform.seal()
                drain(lake)
                if with_rollups:
                    roll_up(lake)
                follower.look()
                assert counters.covered == counters.applied
                assert_equal_to_the_tables(counters, tiny_home, clock.now_us // MINUTE_US * MINUTE_US)

            write(*first)
            drained(with_rollups=True)
            # Copies are counted until the drain has found them.
            before = counters.count("shop", "item-1", "view", Window.ALL)
            write(*second, *first)
            assert counters.count("shop", "item-1", "view", Window.ALL) > before + sum(
                delta["signal"]["count"] for delta in second if delta["signal"]["entity_id"] == "item-1"
            )
            drained(with_rollups=False)
            # Minutes expire while the rollups are behind, and while they are not.
            clock.advance(3 * 60)
            assert_equal_to_the_tables(counters, tiny_home, TEN_O_CLOCK + 3 * MINUTE_US)
            assert_equal_to_the_tables(counters, tiny_home, TEN_O_CLOCK + 2 * MINUTE_US)
            write(reused, *third)
            assert counters.count("shop", "item-2", "like", Window.ALL) == first[7]["signal"]["count"]
            drained(with_rollups=False)
            assert counters.velocity("shop", "item-2", "like", Window.ALL) == 0.0
            clock.advance(61 * 60)
            assert_equal_to_the_tables(counters, tiny_home, TEN_O_CLOCK + 64 * MINUTE_US)
        # Another process, from the tables alone, and from the snapshot that the first one left.
        assert_equal_to_the_tables(restored(tiny_home, clock, SMALL), tiny_home, clock.now_us)
        with Follower(platform, tiny_home, clock=clock, capacity=SMALL, look_seconds=3600) as follower:
            assert_equal_to_the_tables(follower.counters, tiny_home, clock.now_us)


def test_a_table_that_was_put_back_is_noticed_and_nothing_is_counted_twice(tiny_home: Home, lake: Lake) -> None:
    clock = HandClock()
    with (
        open_platform(tiny_home, clock) as platform,
        Follower(platform, tiny_home, clock=clock, capacity=SMALL, look_seconds=3600) as follower,
    ):
        producer = platform.producer("web")
        for name in ("a", "b"):
            epochs = producer.write(some(name)).wait().epochs
            platform.shards[0].close_batch()
            assert follower.wait(epochs, timeout=60)
            platform.seal()
            drain(lake)
            follower.look()
        expected = [follower.counters.count("shop", "item-1", "view", window) for window in Window]
        table = lake_files.open_table(lake.path("deltas"))
        assert table is not None
        table.restore(table.version() - 1)
        follower.look()
        assert [follower.counters.count("shop", "item-1", "view", window) for window in Window] == expected
        drain(lake)
        follower.look()
        assert [follower.counters.count("shop", "item-1", "view", window) for window in Window] == expected
        assert_equal_to_the_tables(follower.counters, tiny_home, TEN_O_CLOCK)
