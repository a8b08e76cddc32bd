"""How far a run of open sessions goes on by itself (N2): over which hours, and how many of them at a time. No Spark."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dagster as dg
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from assets.ingest.schema import DELTAS
from assets.records import Writing
from assets.windows import session_assets
from assets.windows.catalog import session_tables
from resources.lake import Lake
from resources.record import Record
from tests.support.live import TEN_O_CLOCK
from tests.support.orchestrator import record_of, tell
from tests.support.small_lake import table_rows
from tests.support.windows import stream
from tidemark.model.ranges import Range
from tidemark.model.timegrid import DAY_US, HOUR, HOUR_US, MINUTE_US
from tidemark.storage.home import Home
from tidemark.streams import WindowSpec, WindowType
from tidemark.tables import lake_files
from tidemark.tables.table_spec import TIMESTAMP

WEEK_LONG = stream(WindowSpec(WindowType.SESSION, gap_us=7 * DAY_US), name="visits")
OPEN = session_tables(WEEK_LONG)[0]


def hours(first: int, end: int) -> Range:
    """From an hour after ten o'clock to another."""
    return Range(TEN_O_CLOCK + first * HOUR_US, TEN_O_CLOCK + end * HOUR_US)


class Platform:
    """The hours that were made, what is carried out of each, and which ranges are written on the way."""

    def __init__(self, root: Path, instance: dg.DagsterInstance) -> None:
        self.instance, self.now_us = instance, TEN_O_CLOCK
        self.lake = Lake(Home(root).create(), lambda: pytest.fail("no JVM is needed for this"))
        self.written: list[Range] = []
        self.carried = "something"

    def records(self, of: Range) -> list[Record]:
        """What is open is carried through, and nothing comes to it."""
        return [
            record_of(OPEN.spec.name, HOUR.key(start), carried_in=self.carried, carried_out=self.carried)
            for start in range(of.start_us, of.end_us, HOUR_US)
        ]

    def write(self, run: Any, stream: Any, derived: Any, of: Range) -> list[Record]:
        self.written.append(of)
        return self.records(of)

    def go_forward(self, of: Range) -> list[Range]:
        """What is written after a range that was asked for."""
        run = Writing(dg.build_asset_context(instance=self.instance), self.lake, lambda: self.now_us)
        session_assets._go_forward(run, WEEK_LONG, OPEN, of, self.records(of)[-1])
        return self.written


@pytest.fixture
def with_deltas() -> set[int]:
    """Hours that have deltas of their own."""
    return {TEN_O_CLOCK}


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, with_deltas: set[int]) -> Iterator[Platform]:
    with dg.DagsterInstance.ephemeral() as instance:
        found = Platform(tmp_path / "home", instance)
        monkeypatch.setattr(session_assets, "_write_open", found.write)
        monkeypatch.setattr(session_assets, "report_now", lambda context, record: tell(found.instance, record))
        # The last event of all that is open was at twenty past ten.
        monkeypatch.setattr(session_assets, "last_event_us", lambda *_: TEN_O_CLOCK + 20 * MINUTE_US)
        tables = {found.lake.path(DELTAS.name): with_deltas}
        monkeypatch.setattr(lake_files, "partitions", lambda path: dict.fromkeys(tables[path]))
        yield found


def test_hours_that_were_never_made_are_one_step_up_to_the_hour_in_which_the_last_session_closes(
    platform: Platform,
) -> None:
    """An hour a step, and so an hour a look of the sensor, is a week of steps."""
    platform.now_us = TEN_O_CLOCK + 30 * DAY_US
    assert platform.go_forward(hours(0, 1)) == [hours(1, 7 * 24 + 1)]


def test_hours_that_lie_ahead_are_not_made(platform: Platform) -> None:
    """The running hour is a partition, and the next."""
    platform.now_us = TEN_O_CLOCK + 3 * HOUR_US
    assert platform.go_forward(hours(0, 1)) == [hours(1, 5)]
    assert platform.go_forward(hours(4, 5)) == [hours(1, 5)], "and not when it is asked again"


def test_an_hour_with_deltas_of_its_own_is_left_to_the_run_that_is_asked_for_it(
    platform: Platform, with_deltas: set[int]
) -> None:
    """O4: it may have been found wrong."""
    platform.now_us = TEN_O_CLOCK + 30 * DAY_US
    with_deltas.add(TEN_O_CLOCK + 4 * HOUR_US)
    assert platform.go_forward(hours(0, 1)) == [hours(1, 4)]


def test_an_hour_that_was_made_is_made_again_only_if_something_else_is_carried_to_it(platform: Platform) -> None:
    platform.now_us = TEN_O_CLOCK + 30 * DAY_US
    platform.carried = "something else"
    for record in platform.records(hours(4, 6)):
        tell(platform.instance, record)
    platform.carried = "something"
    for record in platform.records(hours(6, 7)):
        tell(platform.instance, record)
    assert platform.go_forward(hours(0, 1)) == [hours(1, 4), hours(4, 5), hours(5, 6)]


def test_where_nothing_is_carried_nothing_is_made(platform: Platform) -> None:
    platform.now_us = TEN_O_CLOCK + 30 * DAY_US
    platform.carried = None  # type: ignore[assignment]
    assert platform.go_forward(hours(0, 1)) == []


def test_the_last_event_of_what_is_open_is_read_from_the_table(tmp_path: Path) -> None:
    lake = Lake(Home(tmp_path / "home").create(), lambda: pytest.fail("no JVM is needed for this"))
    lake.ensure(OPEN.spec)
    ends = [TEN_O_CLOCK + 20 * MINUTE_US, TEN_O_CLOCK + 40 * MINUTE_US + 1]
    values = {TIMESTAMP: TEN_O_CLOCK, pa.string(): "any"}
    row = {column.name: values.get(column.type, 1) for column in OPEN.spec.columns}
    rows = [{**row, "last_event_ts": end_us} for end_us in ends]
    write_deltalake(lake.path(OPEN.spec.name), table_rows(OPEN.spec, rows), mode="append")
    assert session_assets.last_event_us(lake, OPEN.spec, TEN_O_CLOCK) == ends[1]
    assert session_assets.last_event_us(lake, OPEN.spec, TEN_O_CLOCK + HOUR_US) == TEN_O_CLOCK + HOUR_US
