"""The latest windows of a stream are read without a JVM, and whether each is final follows from the watermark (T6)."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from assets.windows.schema import window_table
from orchestration.cli.app import main
from tests.support.live import TEN_O_CLOCK, new_home
from tidemark.answers.windows import parse_key
from tidemark.model.timegrid import HOUR_US, MINUTE_US, floor_to, from_us
from tidemark.storage.home import Home
from tidemark.streams import Stream, load_streams
from tidemark.streams.latest import LatestWindow, WindowsError, WindowState, latest_windows, state_of
from tidemark.tables.table_spec import create_table
from tidemark.tables.table_watermarks import TableWatermark, TableWatermarkFile

DEFINITION = """\
namespace: shop
kind: signal
key: [entity_id]
window: {tumbling: 10m}
aggregates: {views: {sum: count}}
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    monkeypatch.delenv("TIDEMARK_STREAMS", raising=False)  # it comes before the home's own
    made = new_home(tmp_path / "home")
    (made.root / "streams").mkdir()
    (made.root / "streams" / "item_views.yaml").write_text(DEFINITION)
    (made.root / "streams" / "item_buys.yaml").write_text(DEFINITION)
    (made.root / "streams" / "both.yaml").write_text("left: item_views\nright: item_buys\n")
    return made


def stream_of(home: Home) -> Stream:
    return load_streams(home.root / "streams").streams["item_views"]


def fill(home: Home, *windows: tuple[int, str, int]) -> None:
    """Windows as (minutes since ten o'clock, entity, late ones) in a real table, written by delta-rs."""
    spec = window_table(stream_of(home))
    create_table(home.lake / spec.name, spec)
    schema = pa.schema([(column.name, column.type) for column in spec.columns])
    rows = [_row(TEN_O_CLOCK + minutes * MINUTE_US, entity, late) for minutes, entity, late in windows]
    write_deltalake(home.lake / spec.name, pa.Table.from_pylist(rows, schema), mode="append")


def _row(start_us: int, entity: str, late: int) -> dict[str, Any]:
    start, end = from_us(start_us), from_us(start_us + 10 * MINUTE_US)
    return {
        "window_id": f"{entity}/{start_us}", "entity_id": entity, "window_start": start, "window_end": end,
        "deltas": 2, "revision": 2, "late": late, "keys": 1, "bytes": 90, "mean_bytes": 45.0, "min_event_ts": start,
        "max_event_ts": start, "epochs": [{"shard": 0, "first": 1, "last": 2}], "close_reason": "end", "views": 3,
        "window_hour": from_us(floor_to(start_us, HOUR_US)),
    }  # fmt: skip


def seen(windows: list[LatestWindow]) -> list[tuple[str, int, WindowState]]:
    started = [round(each.statistics["window_start"].timestamp()) - TEN_O_CLOCK // 1_000_000 for each in windows]
    return [(each.key["entity_id"], at // 60, each.state) for each, at in zip(windows, started, strict=True)]


def test_the_newest_come_first_over_the_borders_of_partitions_and_only_of_the_key_that_was_asked_for(
    home: Home,
) -> None:
    fill(home, (-70, "a", 0), (-10, "a", 0), (-10, "b", 0), (0, "a", 0), (50, "b", 0), (60, "a", 0))
    TableWatermarkFile(home.plans, "item_views").advance([TableWatermark(TEN_O_CLOCK + HOUR_US)])
    found = latest_windows(home, "item_views", last=3)
    assert [each[:2] for each in seen(found.windows)] == [("a", 60), ("b", 50), ("a", 0)]
    assert found.windows[0].aggregates == {"views": 3}
    of_b = latest_windows(home, "item_views", key={"": "b"})
    assert [each[:2] for each in seen(of_b.windows)] == [("b", 50), ("b", -10)]
    assert latest_windows(home, "item_views", key={"entity_id": "nobody"}).windows == []


def test_a_window_is_open_until_the_watermark_has_passed_its_end_and_then_closed_or_emitted_again_t6(
    home: Home,
) -> None:
    fill(home, (0, "a", 0), (10, "a", 1), (20, "a", 1))
    assert {each.state for each in latest_windows(home, "item_views").windows} == {WindowState.OPEN}
    TableWatermarkFile(home.plans, "item_views").advance([TableWatermark(TEN_O_CLOCK + 20 * MINUTE_US)])
    states = [state for _, _, state in seen(latest_windows(home, "item_views").windows)]
    assert states == [WindowState.OPEN, WindowState.REOPENED, WindowState.CLOSED], "equal to the watermark is closed"


@pytest.mark.parametrize(
    ("definition", "before_us", "is_open"),
    [
        ("window: {tumbling: 10m}\nallowed_lateness: 1m\n", MINUTE_US - 1, True),
        ("window: {tumbling: 10m}\nallowed_lateness: 1m\n", MINUTE_US, False),
        ("window: {session: 30m}\n", 30 * MINUTE_US, True),  # an event exactly at the gap still belongs
        ("window: {session: 30m}\n", 30 * MINUTE_US + 1, False),
        ("window: {fixed: 10m}\n", -HOUR_US, False),
    ],
)
def test_a_window_is_closed_when_every_further_delta_would_be_late_for_it_t4(
    tmp_path: Path, definition: str, before_us: int, is_open: bool
) -> None:
    (tmp_path / "s.yaml").write_text(f"namespace: shop\nkind: signal\n{definition}")
    stream = load_streams(tmp_path).streams["s"]
    state = state_of(stream, TEN_O_CLOCK, 0, TEN_O_CLOCK + before_us)
    assert (state is WindowState.OPEN) == is_open


def test_what_is_late_and_goes_into_the_next_window_reopens_nothing_t5(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text("namespace: shop\nkind: signal\nwindow: {tumbling: 10m}\nlate: next_window\n")
    stream = load_streams(tmp_path).streams["s"]
    assert state_of(stream, TEN_O_CLOCK, 1, TEN_O_CLOCK) is WindowState.CLOSED


def test_a_wrong_name_is_answered_with_the_right_ones(home: Home) -> None:
    with pytest.raises(WindowsError, match="Do you mean item_views"):
        latest_windows(home, "item_veiws")
    with pytest.raises(WindowsError, match="is a join"):
        latest_windows(home, "both")
    with pytest.raises(WindowsError, match="does not exist yet"):
        latest_windows(home, "item_buys")
    fill(home, (0, "a", 0))
    with pytest.raises(WindowsError, match="it is made of entity_id"):
        latest_windows(home, "item_views", key={"item": "a"})


def test_a_key_is_a_value_or_a_field_and_its_value() -> None:
    assert parse_key(("item-1",)) == {"": "item-1"}
    assert parse_key(("entity_id=a=b", "labels.van=7")) == {"entity_id": "a=b", "labels.van": "7"}


def test_the_command_prints_windows_and_json(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    fill(home, (0, "a", 0), (10, "a", 1))
    TableWatermarkFile(home.plans, "item_views").advance([TableWatermark(TEN_O_CLOCK + HOUR_US)])
    assert main(["--home", str(home.root), "windows", "item_views", "--last", "2"]) == 0
    page = capsys.readouterr().out
    assert "item_views: tumbling 10m" in page
    assert "reopened" in page
    assert main(["--home", str(home.root), "windows", "item_views", "--key", "a", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["state"] for each in found["windows"]] == ["reopened", "closed"]
    assert found["windows"][0]["aggregates"] == {"views": 3}
    assert found["windows"][0]["window_start"] == "2026-03-02T10:10:00+00:00"
    assert main(["--home", str(home.root), "windows", "item_veiws"]) == 1
    assert "Do you mean item_views?" in capsys.readouterr().err
