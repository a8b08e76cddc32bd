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
from orchestration.watermark_tree import read_watermark_tree
from resources.coordinator.model import Kind
from resources.coordinator.status import read_status
from resources.home import Home
from resources.marks import read_marks
from resources.spark import SparkResource
from resources.streams import Stream, Streams, WindowSpec, WindowType
from resources.streams.latest import WindowState, latest_windows
from resources.tidemark import TidemarkResource
from resources.timegrid import HOUR_US, MINUTE_US, SECOND_US, hour_key
from tests.support.batch import FORGETFUL, send
from tests.support.live import TEN_O_CLOCK, HandClock, signal

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SIZE_US = 10 * MINUTE_US
VIEWS = Stream("views", "shop", Kind.SIGNAL, WindowSpec(WindowType.TUMBLING, SIZE_US, SIZE_US), key=("entity_id",))
STREAMS = Streams({VIEWS.name: VIEWS})
ASSETS = [
    ingest.drain,
    ingest.deltas,
    ingest.dead_letters,
    hourly_asset(Derived(window_table(VIEWS), pane_needs(VIEWS)), pane_windows(VIEWS), sources=[VIEWS.source]),
]


def run(home: Home, instance: dg.DagsterInstance, asset: str, key: str | None = None) -> None:
    tags = {"dagster/asset_partition_range_start": key, "dagster/asset_partition_range_end": key} if key else {}
    spark = SparkResource(home=str(home.root), is_fast_start=True)
    resources = {
        "tidemark": TidemarkResource(spark=spark, root=str(home.root)),
        "spark": spark,
        "drain_observer": ingest.ignore_drain,
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
    marks = read_marks(home.plans, ["deltas", "dead_letters", "views"])
    assert [mark.watermark_us for mark in marks.values()] == [reached] * 3
    assert marks["views"].held_by == "shard 0, shop/signal"
    tree = read_watermark_tree(home, read_status(home), now_us=clock.now_us)
    assert (tree.watermark_us, tree.nodes["deltas"].inputs) == (reached, ("shop/signal",))
    assert states(home) == [(WindowState.OPEN, 1), (WindowState.CLOSED, 1), (WindowState.CLOSED, 1)]

    send(home, [signal("late", at=TEN_O_CLOCK + 6 * MINUTE_US)], producer="checkout", clock=clock)
    run(home, instance, "drain")
    run(home, instance, "views", hour)
    assert states(home) == [(WindowState.OPEN, 1), (WindowState.CLOSED, 1), (WindowState.REOPENED, 2)]
    assert (read_marks(home.plans, ["views"])["views"].watermark_us or 0) >= reached
