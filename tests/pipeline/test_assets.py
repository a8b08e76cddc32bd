"""The assets in the orchestrator: touched hours, one job per range, one record per partition (O1, O2, O3, R1)."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest

from assets.ingest import asset as ingest
from assets.ingest.schema import DELTAS
from assets.rollups import asset as rollups
from assets.rollups.schema import TIERS
from assets.rollups.windowed_asset import BehindError, windowed_counts
from assets.stale import stale_partitions
from resources.platform import TidemarkResource
from resources.record import Record, RecordError
from resources.spark import SparkResource
from tests.support.batch import FORGETFUL, checksums, rows_of, send
from tests.support.live import TEN_O_CLOCK, HandClock, hour_of, sample, signal
from tidemark.counts.windows import NotOnAMinuteError, Window, shown, velocity
from tidemark.model.timegrid import DAY, HOUR_US, MONTH, WEEK, hour_key
from tidemark.storage.home import Home
from tidemark.tables import lake_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ASSETS = [
    ingest.deltas,
    ingest.dead_letters,
    *(tier.definition for tier in rollups.rollup_assets()),
    windowed_counts,
]
COUNTS = tuple(spec.name for spec in TIERS)


class Platform:
    """A home and an orchestrator's storage, and the runs in between."""

    def __init__(self, root: Path, instance: dg.DagsterInstance) -> None:
        self.home = Home(root).create(FORGETFUL)
        self.instance = instance
        self.observed: list[Mapping[str, Sequence[str]]] = []

    def run(
        self, *names: str, first: str | None = None, last: str | None = None, as_of: str | None = None
    ) -> dg.ExecuteInProcessResult:
        tags = {}
        if first:
            tags = {"dagster/asset_partition_range_start": first, "dagster/asset_partition_range_end": last or first}
        spark = SparkResource(home=str(self.home.root), is_fast_start=True)
        return dg.materialize(
            [ingest.drain_asset(lambda _, __, reported: self.observed.append(reported)), *ASSETS],
            selection=list(names),
            instance=self.instance,
            tags=tags,
            run_config={"ops": {names[0]: {"config": {"as_of": as_of}}}} if as_of else None,
            resources={
                "tidemark": TidemarkResource(spark=spark, root=str(self.home.root)),
            },
        )

    def drain(self) -> Mapping[str, Sequence[str]]:
        self.run("drain")
        return self.observed[-1]

    def refresh(self) -> dict[str, dict[str, str]]:
        """Materialize what is stale, each asset in one run over its range; gives what was stale."""
        stale = stale_partitions(self.instance, self.home)
        for asset, partitions in stale.items():
            if partitions:
                self.run(asset, first=min(partitions), last=max(partitions))
        return stale


@pytest.fixture
def platform(tmp_path: Path, spark: "SparkSession") -> Platform:
    return Platform(tmp_path / "home", dg.DagsterInstance.ephemeral())


def stale_keys(stale: dict[str, dict[str, str]]) -> dict[str, list[str]]:
    return {asset: sorted(partitions) for asset, partitions in stale.items()}


def test_a_day_from_the_log_to_the_weeks(platform: Platform) -> None:
    home, instance = platform.home, platform.instance
    clock = HandClock(TEN_O_CLOCK + 60_000_000)
    ten, eight = hour_key(TEN_O_CLOCK), hour_key(hour_of(-2))
    deltas = [signal("a"), signal("b", count=3), signal("c", at=hour_of(-2)), sample("s", 1.0), {"bad": 1}, signal("a")]
    send(home, deltas, clock=clock)
    assert platform.drain() == {"deltas": [eight, ten], "dead_letters": [ten]}

    record = Record.latest(instance, "deltas", ten)
    assert (record.rows_in, record.rows_out, record.rows_refused) == (4, 3, 1)
    assert (record.epochs, record.durable, record.flushed) == ({0: (1, 2)}, {0: 1}, {0: 1})
    assert record.watermark_us is not None
    assert record.held_by in {"shard 0, fleet/sample", "shard 0, shop/signal"}
    assert Record.latest(instance, "dead_letters", ten).rows_out == 2

    # Everything above is stale, and only that; refreshed in one run per asset it is fresh.
    day, week, month = DAY.key(TEN_O_CLOCK), WEEK.key(TEN_O_CLOCK), MONTH.key(TEN_O_CLOCK)
    expected = {
        "minute_counts": [eight, ten],
        "hourly_counts": [eight, ten],
        "daily_counts": [day],
        "weekly_counts": [week],
        "monthly_counts": [month],
    }
    assert stale_keys(platform.refresh()) == expected
    assert stale_keys(stale_partitions(instance, home)) == {asset: [] for asset in COUNTS}
    assert rows_of(home, "weekly_counts", "entity_id", "signal", "count", "deltas") == [("item-1", "view", 5, 3)]
    assert rows_of(home, "hourly_counts", "count", "deltas") == [(1, 1), (4, 2)]
    between = Record.latest(instance, "hourly_counts", hour_key(hour_of(-1)))
    assert (between.rows_in, between.rows_out, between.epochs) == (0, 0, {})
    of_week = Record.latest(instance, "weekly_counts", week)
    assert of_week.input_versions == {"daily_counts": Record.latest(instance, "daily_counts", day).table_version}
    assert (of_week.epochs, of_week.durable) == ({0: (1, 2)}, {0: 1})

    # A late delta costs the hours it touches, their day, their week and their month.
    send(home, [signal("late", at=hour_of(-2))], producer="other", clock=clock)
    assert platform.drain() == {"deltas": [eight], "dead_letters": [ten]}
    assert Record.latest(instance, "deltas", eight).rows_out == 2
    expected = {
        "minute_counts": [eight],
        "hourly_counts": [eight],
        "daily_counts": [day],
        "weekly_counts": [week],
        "monthly_counts": [month],
    }
    assert stale_keys(platform.refresh()) == expected
    assert rows_of(home, "weekly_counts", "count", "deltas") == [(6, 4)]
    assert rows_of(home, "monthly_counts", "count", "deltas") == [(6, 4)]

    # A second run of everything changes no row.
    before = checksums(home, "deltas", *COUNTS)
    platform.run("deltas", "minute_counts", "hourly_counts", first=eight, last=ten)
    platform.run("daily_counts", first=day)
    platform.run("weekly_counts", first=week)
    platform.run("monthly_counts", first=month)
    assert checksums(home, "deltas", *COUNTS) == before
    assert platform.drain() == {"deltas": [], "dead_letters": []}

    # A derived table that is deleted is stale as a whole, and comes back the same.
    shutil.rmtree(home.lake / "hourly_counts")
    hours = [eight, hour_key(hour_of(-1)), ten]
    assert stale_keys(platform.refresh()) == {
        "minute_counts": [],
        "hourly_counts": hours,
        "daily_counts": [day],
        "weekly_counts": [week],
        "monthly_counts": [month],
    }
    assert checksums(home, "deltas", *COUNTS) == before
    # So is one that everything hangs on.
    shutil.rmtree(home.lake / "deltas")
    assert platform.drain()["deltas"] == [eight, ten]
    assert stale_keys(platform.refresh()) == {
        "minute_counts": hours,
        "hourly_counts": hours,
        "daily_counts": [day],
        "weekly_counts": [week],
        "monthly_counts": [month],
    }
    assert checksums(home, "deltas", *COUNTS) == before


def test_hours_that_a_crash_left_unreported_are_reported_by_the_next_drain(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(platform.home, [signal("a")])

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("the process died here")

    with monkeypatch.context() as patched:
        patched.setattr(ingest, "hour_records", fail)
        with pytest.raises(RuntimeError, match="died here"):
            platform.run("drain")
    with pytest.raises(RecordError, match="never been materialized"):
        Record.latest(platform.instance, DELTAS.name, hour_key(TEN_O_CLOCK))
    send(platform.home, [signal("b", at=hour_of(-1))], producer="other")
    assert platform.drain()["deltas"] == [hour_key(hour_of(-1)), hour_key(TEN_O_CLOCK)]


def test_a_new_stream_that_is_far_behind_takes_no_recorded_watermark_back_t3(platform: Platform) -> None:
    send(platform.home, [signal("a")])
    platform.drain()
    hour = hour_key(TEN_O_CLOCK)
    before = [Record.latest(platform.instance, *where) for where in (("drain",), ("deltas", hour))]
    send(platform.home, [sample("old", 1.0, at=hour_of(-500)), signal("b", at=TEN_O_CLOCK + 1)])
    platform.drain()
    after = [Record.latest(platform.instance, *where) for where in (("drain",), ("deltas", hour))]
    assert [record.watermark_us for record in after] == [record.watermark_us for record in before]
    assert after[0].held_by == "shard 0, shop/signal"
    fresh = Record.latest(platform.instance, "deltas", hour_key(hour_of(-500)))
    assert fresh.held_by == "shard 0, fleet/sample", "an hour that had no record yet says what holds it back now"


def materialized(instance: dg.DagsterInstance) -> dict[str, dict[str, int]]:
    kind, storage = dg.DagsterEventType.ASSET_MATERIALIZATION, instance.event_log_storage
    return {table: dict(storage.get_latest_storage_id_by_partition(dg.AssetKey(table), kind)) for table in COUNTS}


def files_of_the_last_commit(home: Home, table: str) -> dict[str, int]:
    state = lake_files.table_state(home.lake / table)
    assert state is not None
    actions = list(lake_files.actions_of(home.lake / table, state.version))
    return {name: sum(name in action for action in actions) for name in ("add", "remove")}


@pytest.mark.slow  # three weeks of days; which partitions follow which is in tests/definitions
def test_one_delta_three_weeks_late_reruns_its_hour_day_week_and_month_and_all_windows_are_right_r5(
    platform: Platform,
) -> None:
    home, instance = platform.home, platform.instance
    clock = HandClock(TEN_O_CLOCK + 60_000_000)
    # Monday, three weeks ago: an hour with neighbours in its day, in the next day and in the week before.
    monday = hour_of(-10 - 21 * 24)
    sunday_night, hour, tuesday = hour_key(hour_of(-11 - 21 * 24)), hour_key(monday), hour_key(monday + 24 * HOUR_US)
    starts = [monday - HOUR_US, monday, monday + HOUR_US, monday + 24 * HOUR_US]
    sent = [signal(f"d{number}", at=start + 90_000_000, count=number + 1) for number, start in enumerate(starts)]
    send(home, sent, clock=clock)
    platform.drain()
    assert stale_keys(platform.refresh())["hourly_counts"] == [sunday_night, hour, hour_key(starts[2]), tuesday]
    before = materialized(instance)

    late = signal("late", at=monday + 150_000_000, count=70)
    send(home, [late], producer="other", clock=clock)
    assert platform.drain()["deltas"] == [hour]
    with pytest.raises(BehindError, match=r"hourly_counts are behind .*2026-02-09-00:00.*tidemark drain"):
        platform.run("windowed_counts", as_of=shown(TEN_O_CLOCK))
    platform.refresh()
    after = materialized(instance)
    assert {
        table: [key for key, number in found.items() if before[table].get(key) != number]
        for table, found in after.items()
    } == {
        "minute_counts": [hour],
        "hourly_counts": [hour],
        "daily_counts": ["2026-02-09"],
        "weekly_counts": ["2026-02-09"],
        "monthly_counts": ["2026-02-01"],
    }
    # What the table holds beside the touched partition is neither read anew nor written.
    assert [files_of_the_last_commit(home, table) for table in COUNTS] == [{"add": 1, "remove": 1}] * len(COUNTS)

    with pytest.raises(NotOnAMinuteError, match=r"10:00:00Z or 2026-03-02T10:01:00Z"):
        platform.run("windowed_counts", as_of="2026-03-02T10:00:01Z")
    for as_of in (TEN_O_CLOCK, monday + 180_000_000):
        platform.run("windowed_counts", as_of=shown(as_of))
        [row] = rows_of(home, "windowed_counts", *(f"{what}_{w}" for w in Window for what in ("count", "velocity")))
        expected: list[float] = []
        for window in Window:
            start = window.start_us(as_of)
            times = [(each["event_ts"], each["signal"]["count"]) for each in (*sent, late)]
            count = sum(count for time, count in times if (start is None or start <= time) and time < as_of)
            expected += [count, velocity(count, window, as_of, monday - HOUR_US + 60_000_000)]
        assert row == tuple(expected)
    record = Record.latest(instance, "windowed_counts")
    assert (record.as_of_us, record.rows_out, record.durable) == (monday + 180_000_000, 1, {0: 2})
    assert record.input_versions == {
        table: Record.latest(instance, table, key).table_version
        for table, key in (
            ("minute_counts", hour),
            ("hourly_counts", hour),
            ("daily_counts", "2026-02-09"),
            ("weekly_counts", "2026-02-09"),
        )
    }
