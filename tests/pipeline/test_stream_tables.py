"""Windows as tables (T6, N5, O2): the feed that consumers follow, and the same rows however the log was cut."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import duckdb_extension_delta
import polars as pl
import pytest

from assets.graph import By, Derived
from assets.ingest.drain import DrainResult, drain
from assets.ingest.schema import DELTAS
from assets.windows.catalog import late_needs, pane_needs
from assets.windows.factory import Compute, pane_windows, rows_of, write_hours
from assets.windows.late import late_deltas
from assets.windows.schema import LATE_DELTAS, window_table
from resources.lake import Lake
from tests.support.batch import FORGETFUL
from tests.support.live import TEN_O_CLOCK, HandClock, open_platform, signal
from tests.support.windows import TEN_MINUTES, Event, fixed, late_of, sliding, tumbling, windows_of
from tidemark.model.ranges import Range, contiguous
from tidemark.model.timegrid import HOUR, HOUR_US, MINUTE_US, SECOND_US, to_us
from tidemark.storage.home import Home
from tidemark.streams import Lateness, LatePolicy, Stream
from tidemark.tables import lake_files, table_checksums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STREAMS = [
    tumbling(TEN_MINUTES, Lateness(LatePolicy.NEXT_WINDOW), name="moved"),
    sliding(20 * MINUTE_US, TEN_MINUTES, Lateness(LatePolicy.SIDE_OUTPUT, MINUTE_US, channel="aside"), name="aside"),
    fixed(5 * MINUTE_US, name="arrivals"),
]
AGAIN = tumbling(TEN_MINUTES, name="emitted_again")
# Each write with the seconds that pass before it. Events go back and forth, over borders of hours and far behind.
WRITES: list[tuple[int, list[dict[str, Any]]]] = [
    (0, [signal("a", at=TEN_O_CLOCK - 400 * SECOND_US), signal("b", at=TEN_O_CLOCK - 1)]),
    (700, [signal("c", at=TEN_O_CLOCK + 650 * SECOND_US), signal("a", at=TEN_O_CLOCK - 400 * SECOND_US)]),
    (2, [signal("d", at=TEN_O_CLOCK + 599 * SECOND_US), signal("e", at=TEN_O_CLOCK - 3_000 * SECOND_US, count=5)]),
    (4_000, [signal("f", at=TEN_O_CLOCK + 4_600 * SECOND_US)]),
    (2, [signal("g", at=TEN_O_CLOCK), signal("h", at=TEN_O_CLOCK + 4_590 * SECOND_US, entity="item-2")]),
    (1, [signal("i", at=TEN_O_CLOCK - 400 * SECOND_US, entity="item-2")]),
]


def tables_of(streams: Sequence[Stream]) -> dict[str, tuple[Derived, Compute]]:
    """The tables of some streams, each with what it is made from and how."""
    by_event = [each for each in streams if not each.window.is_by_arrival]
    return {
        **{each.name: (Derived(window_table(each), pane_needs(each)), pane_windows(each)) for each in streams},
        LATE_DELTAS.name: (
            Derived(LATE_DELTAS, late_needs(by_event)),
            lambda deltas, hours: late_deltas(deltas, by_event, hours),
        ),
    }


def feed(home: Home, clock: HandClock, writes: Iterable[tuple[int, list[dict[str, Any]]]]) -> None:
    """Send writes, each at its time, and seal what was sent."""
    with open_platform(home, clock) as platform:
        sender = platform.producer("till")
        for seconds, deltas in writes:
            clock.advance(seconds)
            sender.write(deltas)


class Tables:
    """Where windows are written: the lake's own tables, or the same hours in memory, which costs no commit each."""

    def __init__(self, lake: Lake, streams: Sequence[Stream], *, is_in_lake: bool) -> None:
        self._lake, self._tables, self._is_in_lake = lake, tables_of(streams), is_in_lake
        self._hours: dict[str, dict[int, list[str]]] = {name: {} for name in self._tables}

    def write(self, name: str, *parts: Range) -> None:
        """Replace hours of a table by what they are made of now."""
        derived, compute = self._tables[name]
        if self._is_in_lake:
            write_hours(self._lake, derived, compute, *parts)
            return
        rows = rows_of(self._lake.read(DELTAS.name), derived, compute, parts).toArrow().to_pylist()
        for start in (start for part in parts for start in range(part.start_us, part.end_us, HOUR_US)):
            mine = [row for row in rows if to_us(row[derived.spec.partition_by]) == start]
            self._hours[name][start] = sorted(map(repr, mine))

    def refresh(self, result: DrainResult) -> None:
        """What a drain touched, and nothing else."""
        touched = {By.EVENT: result.touched.event, By.RECEIPT: result.touched.receipt, By.STAMP: result.touched.stamp}
        for name, (derived, _) in self._tables.items():
            hours = {
                own
                for need in derived.needs
                for hour in touched[need.by]
                for own in need.partitions_of(derived.spec, hour, HOUR_US)
            }
            if hours:
                self.write(name, *contiguous(hours, HOUR))

    def backfill_reversed(self) -> None:
        """Everything, the later hours first."""
        for name in self._tables:
            for start in (TEN_O_CLOCK, TEN_O_CLOCK - 2 * HOUR_US):
                self.write(name, Range(start, start + 2 * HOUR_US))

    def contents(self) -> dict[str, Any]:
        """Rows of every table, or what stands for them."""
        if self._is_in_lake:
            return checksums(self._lake, self._tables)
        return {name: sorted(row for rows in hours.values() for row in rows) for name, hours in self._hours.items()}

    def counts(self) -> dict[str, int]:
        """How many rows each table has."""
        return {name: found.rows if self._is_in_lake else len(found) for name, found in self.contents().items()}


def checksums(lake: Lake, tables: Iterable[str]) -> dict[str, table_checksums.Checksum]:
    return {name: table_checksums.checksum(lake.path(name)) for name in tables}


@pytest.mark.parametrize(
    ("streams", "is_in_lake"),
    [
        pytest.param(STREAMS[:1], False, id="moved_in_memory"),
        pytest.param(STREAMS, True, id="every_in_the_lake", marks=pytest.mark.slow),
    ],
)
def test_another_cut_of_the_log_reversed_partitions_and_a_run_a_year_later_give_the_same_rows(
    tmp_path: Path, spark: "SparkSession", streams: list[Stream], is_in_lake: bool
) -> None:
    """T4, N5, O2: lateness is a property of the log; run by run, and in one backfill, the tables are the same."""
    by_event = [each for each in streams if not each.window.is_by_arrival]
    live = Lake(Home(tmp_path / "live").create(FORGETFUL), lambda: spark)
    run_by_run = Tables(live, streams, is_in_lake=is_in_lake)
    clock = HandClock()
    for cut in (WRITES[:3], WRITES[3:]):
        feed(live.home, clock, cut)
        run_by_run.refresh(drain(live))
    later = Lake(
        Home(tmp_path / "later").create(FORGETFUL), lambda: spark, clock=lambda: TEN_O_CLOCK + 365 * 24 * HOUR_US
    )
    feed(later.home, HandClock(), WRITES)
    drain(later)
    assert table_checksums.checksum(live.path("deltas")) == table_checksums.checksum(later.path("deltas"))
    at_once = Tables(later, streams, is_in_lake=is_in_lake)
    at_once.backfill_reversed()
    assert run_by_run.contents() == at_once.contents()
    events = sent(live)
    assert any(event.stamp_us for event in events)
    expected = {each.name: len(windows_of(events, each)) for each in streams}
    late = sum(len(late_of(events, each)) for each in by_event)
    assert late
    assert run_by_run.counts() == {**expected, LATE_DELTAS.name: late}


def sent(lake: Lake) -> list[Event]:
    """What is in `deltas`, in the order of arrival, with the stamps that it got."""
    opened = lake_files.open_table(lake.path(DELTAS.name))
    assert opened is not None
    rows = sorted(opened.to_pyarrow_table().to_pylist(), key=lambda row: (row["epoch"], row["ordinal"]))
    return [
        Event(
            to_us(row["event_ts"]),
            to_us(row["watermark_ts"]) if row["watermark_ts"] else None,
            row["key"],
            row["signal"]["count"],
            to_us(row["received_ts"]),
            row["shard"],
        )
        for row in rows
    ]


@pytest.mark.slow
def test_a_consumer_that_upserts_and_deletes_along_the_feed_ends_up_with_the_table(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    """T6: the same key with a higher revision, and a delete where a window is gone."""
    lake = Lake(Home(tmp_path / "home").create(FORGETFUL), lambda: spark)
    derived, compute = Derived(window_table(AGAIN), pane_needs(AGAIN)), pane_windows(AGAIN)
    clock, held, revisions = HandClock(), dict[str, dict[str, Any]](), dict[str, list[int]]()
    seen = 0
    late = signal("late", at=TEN_O_CLOCK - 300 * SECOND_US)
    for write in (*WRITES[:2], (1, [late]), None):
        if write is None:
            # What was rebuilt with fewer rows: a window that is no more is a delete in the feed.
            lake.replace(
                derived.spec, lake.read("emitted_again").where("deltas > 1"), hours=Range(0, TEN_O_CLOCK + 5 * HOUR_US)
            )
        else:
            feed(lake.home, clock, [write])
            for hour in sorted(drain(lake).touched.event):
                write_hours(lake, derived, compute, Range(hour, hour + HOUR_US))
        version = lake.version("emitted_again")
        assert version is not None
        if version > seen:
            follow(changes(lake, "emitted_again", seen + 1), held, revisions)
            seen = version
        assert held == now(lake, "emitted_again")
    # Two deltas at first, then a late one; the other window was never emitted again.
    assert sorted(revisions.values()) == [[1], [2, 3]]
    assert len(held) == 1


def changes(lake: Lake, table: str, version: int) -> list[dict[str, Any]]:
    """The feed from a version on."""
    reader = lake.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", version)
    rows: list[dict[str, Any]] = reader.load(str(lake.path(table))).toArrow().to_pylist()
    return rows


def follow(feed: Sequence[dict[str, Any]], held: dict[str, dict[str, Any]], revisions: dict[str, list[int]]) -> None:
    """All that a consumer does: in each commit first what goes, then what comes, by the window's id."""
    own = ("_change_type", "_commit_version", "_commit_timestamp")
    order = {"delete": 0, "update_preimage": 0, "insert": 1, "update_postimage": 1}
    for row in sorted(feed, key=lambda row: (row["_commit_version"], order[row["_change_type"]])):
        if order[row["_change_type"]] == 0:
            held.pop(row["window_id"], None)
        else:
            held[row["window_id"]] = {name: value for name, value in row.items() if name not in own}
            numbers = revisions.setdefault(row["window_id"], [])
            if row["revision"] not in numbers:
                numbers.append(row["revision"])


def now(lake: Lake, table: str) -> dict[str, dict[str, Any]]:
    opened = lake_files.open_table(lake.path(table))
    assert opened is not None
    return {row["window_id"]: row for row in opened.to_pyarrow_table().to_pylist()}


@pytest.mark.slow
def test_windows_are_read_by_duckdb_polars_and_delta_rs_alike(tmp_path: Path, spark: "SparkSession") -> None:
    """The change feed asks nothing of readers."""
    lake = Lake(Home(tmp_path / "home").create(FORGETFUL), lambda: spark)
    feed(lake.home, HandClock(), WRITES)
    drain(lake)
    derived, compute = Derived(window_table(AGAIN), pane_needs(AGAIN)), pane_windows(AGAIN)
    write_hours(lake, derived, compute, Range(TEN_O_CLOCK - HOUR_US, TEN_O_CLOCK + 2 * HOUR_US))
    path = str(lake.path("emitted_again"))
    found = {(row["window_id"], row["deltas"]) for row in now(lake, "emitted_again").values()}
    assert found
    assert set(pl.read_delta(path).select("window_id", "deltas").iter_rows()) == found
    extension = next(Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension"))
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as database:
        database.execute(f"LOAD '{extension}'")
        read = database.execute(f"SELECT window_id, deltas FROM delta_scan('{path}')").fetchall()
    assert set(read) == found
