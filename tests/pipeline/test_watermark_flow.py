"""Watermarks flow from the log through real tables to the platform, and windows are final by them (T3, T6)."""

from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest

from assets.graph import Derived
from assets.ingest import asset as ingest
from assets.windows.catalog import pane_needs
from assets.windows.factory import hourly_asset, pane_windows
from assets.windows.schema import window_table
from resources.platform import TidemarkResource
from resources.spark import SparkResource
from tests.support.batch import FORGETFUL, send
from tests.support.live import TEN_O_CLOCK, HandClock, sample, signal
from tidemark.model.deltas import Kind
from tidemark.model.timegrid import HOUR_US, MINUTE_US, SECOND_US, hour_key
from tidemark.observe.status import read_status
from tidemark.observe.watermark_tree import read_watermark_tree
from tidemark.storage.home import Home
from tidemark.streams import Stream, Streams, WindowSpec, WindowType
from tidemark.streams.latest import WindowState, latest_windows
from tidemark.tables.table_watermarks import read_table_watermarks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZE_US = 10 * MINUTE_US
VIEWS = Stream("views", "shop", Kind.SIGNAL, WindowSpec(WindowType.TUMBLING, SIZE_US, SIZE_US), key=("entity_id",))
STREAMS = Streams({VIEWS.name: VIEWS})
WINDOWS = hourly_asset(Derived(window_table(VIEWS), pane_needs(VIEWS)), pane_windows(VIEWS), sources=[VIEWS.source])
ASSETS = [
    ingest.drain_asset(lambda *_: None),
    ingest.deltas,
    ingest.dead_letters,
    hourly_asset(
        Derived(window_table(VIEWS), pane_needs(VIEWS)), pane_windows(VIEWS), sources=[VIEWS.source]
    ).definition,
]


def run(home: Home, instance: dg.DagsterInstance, asset: str, key: str | None = None) -> None:
    tags = {"dagster/asset_partition_range_start": key, "dagster/asset_partition_range_end": key} if key else {}
    spark = SparkResource(home=str(home.root), is_fast_start=True)
    resources = {
        "tidemark": TidemarkResource(spark=spark, root=str(home.root)),
        "spark": spark,
    }
    assert dg.materialize(ASSETS, selection=[asset], instance=instance, tags=tags, resources=resources).success


def states(home: Home) -> list[tuple[WindowState, int]]:
    windows = latest_windows(home, "views", streams=STREAMS).windows
    return [(window.state, window.statistics["revision"]) for window in windows]


@pytest.mark.slow
def test_a_table_has_got_as_far_as_its_source_and_a_late_delta_reopens_its_window_t3_t6(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    home, instance = Home(tmp_path / "home").create(FORGETFUL), dg.DagsterInstance.ephemeral()
    clock, hour = HandClock(TEN_O_CLOCK + HOUR_US), hour_key(TEN_O_CLOCK)
    first = [signal(f"a{minutes}", at=TEN_O_CLOCK + minutes * MINUTE_US) for minutes in (5, 15, 45)]
    send(home, first, producer="checkout", clock=clock)
    run(home, instance, "drain")
    run(home, instance, "views", hour)
    reached = TEN_O_CLOCK + 45 * MINUTE_US - 5 * SECOND_US
    marks = read_table_watermarks(home.plans, ["deltas", "dead_letters", "views"])
    assert [mark.watermark_us for mark in marks.values()] == [reached] * 3
    assert marks["views"].held_by == "shard 0, shop/signal"
    tree = read_watermark_tree(home, read_status(home), now_us=clock.now_us)
    assert (tree.watermark_us, tree.nodes["deltas"].inputs) == (reached, ("shop/signal",))
    assert states(home) == [(WindowState.OPEN, 1), (WindowState.CLOSED, 1), (WindowState.CLOSED, 1)]

    send(home, [signal("late", at=TEN_O_CLOCK + 6 * MINUTE_US)], producer="checkout", clock=clock)
    run(home, instance, "drain")
    run(home, instance, "views", hour)
    assert states(home) == [(WindowState.OPEN, 1), (WindowState.CLOSED, 1), (WindowState.REOPENED, 2)]
    assert (read_table_watermarks(home.plans, ["views"])["views"].watermark_us or 0) >= reached


def test_a_source_that_falls_silent_is_idle_after_its_timeout_and_the_platform_goes_on_without_it_t3(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    home, instance = Home(tmp_path / "home").create(FORGETFUL), dg.DagsterInstance.ephemeral()
    clock, disorder_us = HandClock(TEN_O_CLOCK), 5 * SECOND_US
    send(home, [sample("a", 1.0)], producer="vans", clock=clock)
    send(home, [signal("b")], producer="checkout", clock=clock)
    run(home, instance, "drain")
    both = read_watermark_tree(home, read_status(home), now_us=clock.now_us)
    assert [both.nodes[name].is_idle for name in ("fleet/sample", "shop/signal")] == [False, False]
    assert both.watermark_us == TEN_O_CLOCK - disorder_us

    # The vans stop; the shop goes on, longer than their idle timeout of half a minute.
    for number in range(4):
        clock.advance(20)
        send(home, [signal(f"c{number}", at=clock.now_us)], producer="checkout", clock=clock)
    sealed = read_watermark_tree(home, read_status(home), now_us=clock.now_us)
    assert sealed.watermark_us == both.watermark_us, "the tables have not heard of it"
    run(home, instance, "drain")
    drained = read_watermark_tree(home, read_status(home), now_us=clock.now_us)
    for tree in (sealed, drained):
        assert tree.nodes["fleet/sample"].is_idle
        assert tree.nodes["fleet/sample"].watermark_us == TEN_O_CLOCK - disorder_us
        assert tree.nodes["fleet/sample"].idle_from_us == TEN_O_CLOCK + 30 * SECOND_US
        assert not tree.nodes["shop/signal"].is_idle
        assert tree.nodes["deltas"].waits_for == "shop/signal"
    assert drained.watermark_us == drained.nodes["shop/signal"].watermark_us
    assert (drained.watermark_us or 0) > TEN_O_CLOCK + 30 * SECOND_US, "further than when the vans fell idle"

    # Back again, with events of now, it counts as before.
    send(home, [sample("d", 1.0, at=clock.now_us)], producer="vans", clock=clock)
    back = read_watermark_tree(home, read_status(home), now_us=clock.now_us)
    assert not back.nodes["fleet/sample"].is_idle
