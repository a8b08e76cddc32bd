"""Sessions in the orchestrator (N2, T6): what is carried, how far a re-run goes, and who follows the change feed."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from assets.graph import ROLLUPS, graph_of
from assets.ingest import asset as ingest
from assets.joins.asset import join_asset
from assets.stale import stale_partitions
from assets.windows.catalog import derived_tables
from assets.windows.session_assets import adaptive_asset, closed_asset, open_asset
from orchestration.runs import tags_of
from resources.platform import TidemarkResource
from resources.record import Record
from resources.spark import SparkResource
from tests.support.batch import FORGETFUL, checksums, send
from tests.support.live import TEN_O_CLOCK, HandClock, signal, vector
from tidemark.model.deltas import Kind
from tidemark.model.timegrid import HOUR, HOUR_US, MINUTE_US, from_us, hour_key, to_us
from tidemark.storage.home import Home
from tidemark.streams import Join, JoinForm, Stream, Streams, WindowSpec, WindowType
from tidemark.tables import lake_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAP_US = 15 * MINUTE_US
# Midnight before the Monday that the clock stands at.
MIDNIGHT = TEN_O_CLOCK - 10 * HOUR_US
VISITS = Stream("visits", "shop", Kind.SIGNAL, WindowSpec(WindowType.SESSION, gap_us=GAP_US), key=("entity_id",))
EDITS = Stream("edits", "shop", Kind.VECTOR, WindowSpec(WindowType.SESSION, gap_us=2 * HOUR_US), key=("vector_id",))
BATCHES = Stream("batches", "shop", Kind.SIGNAL, WindowSpec(WindowType.ADAPTIVE), key=())
BOTH = Join("visits_and_edits", "visits", "edits", JoinForm.SESSIONS)
STREAMS = Streams({each.name: each for each in (VISITS, EDITS, BATCHES)}, {BOTH.name: BOTH})
GRAPH = {name: each for name, each in graph_of((*ROLLUPS, *derived_tables(STREAMS))).items() if "_counts" not in name}
ASSETS = [
    ingest.drain_asset(lambda *_: None),
    ingest.deltas,
    ingest.dead_letters,
    *(build(stream, GRAPH).definition for stream in (VISITS, EDITS) for build in (open_asset, closed_asset)),
    adaptive_asset(BATCHES, GRAPH).definition,
    join_asset(BOTH, STREAMS, GRAPH).definition,
]
VISITS_TABLES = ("visits_open", "visits")
TABLES = ("visits_open", "visits", "edits_open", "edits", "batches", "visits_and_edits")


class Platform:
    """A home, an orchestrator's storage, and runs of exactly what is stale."""

    def __init__(self, root: Path) -> None:
        self.home = Home(root).create(FORGETFUL)
        self.instance = dg.DagsterInstance.ephemeral()

    def send(self, *deltas: dict[str, Any], producer: str = "checkout") -> None:
        """Send and drain."""
        send(self.home, list(deltas), producer=producer, clock=HandClock(TEN_O_CLOCK))
        self.run(["drain"])

    def run(self, names: list[str], keys: tuple[str, ...] = ()) -> None:
        spark = SparkResource(home=str(self.home.root), is_fast_start=True)
        tags = tags_of(keys, HOUR) if keys else {}
        dg.materialize(
            ASSETS,
            selection=names,
            instance=self.instance,
            tags=tags,
            resources={
                "tidemark": TidemarkResource(spark=spark, root=str(self.home.root)),
            },
        )

    def refresh(self, *tables: str) -> dict[str, set[str]]:
        """Run what is stale of the tables until nothing is; gives what was run, by table."""
        ran: dict[str, set[str]] = {}
        for _ in range(12):
            stale = {name: keys for name, keys in self.stale().items() if keys and name in (tables or TABLES)}
            if not stale:
                return ran
            name = next(iter(stale))
            self.run([name], tuple(stale[name]))
            ran.setdefault(name, set()).update(stale[name])
        raise AssertionError(f"still stale: {self.stale()}")

    def stale(self) -> dict[str, dict[str, str]]:
        return {
            name: keys
            for name, keys in stale_partitions(self.instance, self.home, graph=GRAPH).items()
            if name in TABLES
        }

    def sessions(self, table: str = "visits") -> list[tuple[str, int, int, int]]:
        """Key, first and last event in minutes from midnight, deltas; of every closed session."""
        found = lake_files.open_table(self.home.lake / table)
        assert found is not None
        rows = found.to_pyarrow_table().to_pylist()
        keys = [row.get("entity_id") or row["vector_id"] for row in rows]
        times = [(_minutes(row["min_event_ts"]), _minutes(row["max_event_ts"]), row["deltas"]) for row in rows]
        return sorted((key, *each) for key, each in zip(keys, times, strict=True))

    def runs_of(self, table: str) -> dict[str, int]:
        """How often each hour was written."""
        events = self.instance.fetch_materializations(dg.AssetKey(table), limit=1000).records
        keys = [str(event.partition_key) for event in events]
        return {key: keys.count(key) for key in sorted(set(keys))}


def _minutes(moment: Any) -> int:
    return (to_us(moment) - MIDNIGHT) // MINUTE_US


def at(minute: int, entity: str = "item-1") -> dict[str, Any]:
    return signal(f"{entity}@{minute}", at=MIDNIGHT + minute * MINUTE_US, entity=entity)


def edit(minute: int, vector_id: str = "item-1") -> dict[str, Any]:
    return vector(f"edit-{vector_id}@{minute}", "delete", at=MIDNIGHT + minute * MINUTE_US, vector_id=vector_id)


@pytest.fixture
def platform(tmp_path: Path, spark: "SparkSession") -> Platform:
    return Platform(tmp_path / "home")


def follow(spark: "SparkSession", path: Path, known: dict[str, Any], after: int) -> int:
    """A consumer of the change feed: per commit deletes first, then upserts, by window id; gives how far it has got."""
    state = lake_files.table_state(path)
    assert state is not None
    if state.version <= after:
        return after
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", after + 1)
    changes = feed.load(str(path)).collect()
    for version in sorted({row["_commit_version"] for row in changes}):
        mine = [row for row in changes if row["_commit_version"] == version]
        for row in mine:
            # A session that went on is at home in another hour, which may have been committed before.
            if row["_change_type"] in ("delete", "update_preimage"):
                is_meant = known.get(row["window_id"], row)["window_hour"] == row["window_hour"]
                known.pop(row["window_id"], None) if is_meant else None
        for row in mine:
            if row["_change_type"] in ("insert", "update_postimage"):
                known[row["window_id"]] = row
    return state.version


def test_a_session_that_began_yesterday_and_is_bridged_today_is_one_row_and_the_two_it_replaces_are_gone(
    platform: Platform, spark: "SparkSession"
) -> None:
    visits = platform.home.lake / "visits"
    yesterday, today, later = (hour_key(MIDNIGHT + hour * HOUR_US) for hour in (-1, 0, 1))
    platform.send(at(-40), at(-20), at(5), at(70), at(-20, "item-2"))
    platform.refresh(*VISITS_TABLES)
    assert platform.sessions() == [
        ("item-1", -40, -40, 1),
        ("item-1", -20, -20, 1),
        ("item-1", 5, 5, 1),
        ("item-1", 70, 70, 1),
        ("item-2", -20, -20, 1),
    ]
    known: dict[str, Any] = {}
    version = follow(spark, visits, known, 0)
    before = {table: platform.runs_of(table) for table in VISITS_TABLES}

    # Twelve minutes after the last of yesterday, thirteen before the first of today.
    platform.send(at(-8), producer="late")
    ran = platform.refresh(*VISITS_TABLES)
    assert ("item-1", -20, 5, 3) in platform.sessions()
    assert len(platform.sessions()) == 4
    follow(spark, visits, known, version)
    assert sorted((row["entity_id"], row["revision"]) for row in known.values()) == [
        ("item-1", 1),
        ("item-1", 1),
        ("item-1", 3),
        ("item-2", 1),
    ]
    # What is touched is run again, going forward for as long as something else is carried; and nothing else is.
    after = {table: platform.runs_of(table) for table in before}
    again = {
        table: sorted(key for key, times in after[table].items() if times != before[table].get(key)) for table in after
    }
    assert again == {"visits": [yesterday, today], "visits_open": [yesterday, today]}
    assert ran["visits_open"] == {yesterday}, "the run went on to the next hour by itself"
    assert Record.latest(platform.instance, "visits", later).carried_in is None


@pytest.mark.slow
def test_what_is_open_is_carried_through_hours_without_a_delta_and_joined_when_both_are_closed(
    platform: Platform,
) -> None:
    # A gap of two hours: the edits of 00:10 and 02:05 are one session, which closes after four.
    platform.send(at(0), at(10), edit(10), edit(125), at(200), at(300, "item-9"))
    platform.refresh()
    assert platform.sessions("edits") == [("item-1", 10, 125, 2)]
    pairs = lake_files.open_table(platform.home.lake / "visits_and_edits")
    assert pairs is not None
    rows = pairs.to_pyarrow_table().to_pylist()
    assert sorted((_minutes(row["left_window_start"]), row["left_deltas"], row["right_deltas"]) for row in rows) == [
        (0, 2, 2),
        (200, 1, 2),
    ]
    assert {hour_key(to_us(row["window_hour"])) for row in rows} == {hour_key(MIDNIGHT + 4 * HOUR_US)}

    # A late edit makes the session longer: its pairs move to the hour in which it closes now.
    platform.send(edit(240), producer="late")
    platform.refresh()
    assert platform.sessions("edits") == [("item-1", 10, 240, 3)]
    rows = lake_files.open_table(platform.home.lake / "visits_and_edits").to_pyarrow_table().to_pylist()  # type: ignore[union-attr]
    assert {(hour_key(to_us(row["window_hour"])), row["right_deltas"]) for row in rows} == {
        (hour_key(MIDNIGHT + 6 * HOUR_US), 3)
    }
    assert len(rows) == 2

    # A backfill of everything gives the same rows, in all tables.
    sums = checksums(platform.home, *TABLES)
    keys = tuple(hour_key(MIDNIGHT + hour * HOUR_US) for hour in range(7))
    for names in (["visits_open", "visits"], ["edits_open", "edits"], [BOTH.name]):
        platform.run(names, keys)
    assert checksums(platform.home, *TABLES) == sums
    assert not any(platform.stale().values())


@pytest.mark.slow
def test_every_delta_is_in_one_batch_of_the_coordinator(platform: Platform) -> None:
    platform.send(at(0), at(1, "item-2"))
    platform.send(at(2), edit(3))
    # The record of the last batch is in the entry after its deltas.
    platform.send(edit(4))
    platform.refresh()
    found = lake_files.open_table(platform.home.lake / "batches")
    assert found is not None
    rows = found.to_pyarrow_table().to_pylist()
    assert sorted((row["deltas"], row["keys"], row["late"]) for row in rows) == [(1, 1, 0), (2, 2, 0)]
    assert {row["close_reason"] for row in rows} <= {"shutdown", "time", "count", "explicit"}
    assert {row["window_hour"] for row in rows} == {from_us(TEN_O_CLOCK)}
