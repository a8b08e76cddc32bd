"""Watermarks flow from the log through real tables to the platform, and windows are final by them (T3, T6)."""

from pathlib import Path

from orchestration.testing import TinyPlatform
from orchestration.watermark_tree import read_watermark_tree
from resources.coordinator.status import read_status
from resources.marks import read_marks
from resources.streams.latest import WindowState, latest_windows
from resources.timegrid import SECOND_US
from tests.support.live import TEN_O_CLOCK, hour_of


def test_a_table_has_got_as_far_as_its_source_and_a_late_delta_reopens_its_window_t3_t6(tmp_path: Path) -> None:
    platform = TinyPlatform(tmp_path)
    home = platform.home
    platform.given("""
        | event_ts             | signal.entity_id | signal.signal | signal.count |
        | 2026-03-02T10:05:00Z | item-1           | view          | 2            |
        | 2026-03-02T10:15:00Z | item-1           | view          | 1            |
        | 2026-03-02T12:00:00Z | item-1           | view          | 3            |
    """)
    platform.materialize("item_views")
    noon = hour_of(2) - 5 * SECOND_US
    marks = read_marks(home.plans, ["deltas", "dead_letters", "item_views"])
    assert [mark.watermark_us for mark in marks.values()] == [noon] * 3
    assert marks["item_views"].held_by == "shard 0, shop/signal"
    tree = read_watermark_tree(home, read_status(home), now_us=hour_of(2))
    assert (tree.watermark_us, tree.nodes["item_views"].inputs) == (noon, ("shop/signal",))

    states = [window.state for window in latest_windows(home, "item_views").windows]
    assert states == [WindowState.OPEN, WindowState.CLOSED, WindowState.CLOSED]
    platform.given("""
        | event_ts             | signal.entity_id | signal.signal | signal.count |
        | 2026-03-02T10:06:00Z | item-1           | view          | 5            |
    """)
    platform.materialize("item_views")
    windows = latest_windows(home, "item_views").windows
    assert [(window.state, window.aggregates["views"]) for window in windows] == [
        (WindowState.OPEN, 3),
        (WindowState.CLOSED, 1),
        (WindowState.REOPENED, 7),
    ]
    assert TEN_O_CLOCK < noon <= (read_marks(home.plans, ["item_views"])["item_views"].watermark_us or 0)
