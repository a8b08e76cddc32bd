"""Checks on real tables (O4, O5): each partition's own verdict, current, and blocking what is downstream."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import dagster as dg
import pytest
from pyspark.sql import functions as F
from support.batch import FORGETFUL, send
from support.live import HandClock, hour_of, sample, signal, vector

from assets.rollups.transform import count_minutes
from expectations.checks import CHECK_NAME
from orchestration.instance import open_instance
from orchestration.materialize import CheckOutcome, Outcome, drain, materialize_everything_stale, materialize_hours
from resources.home import Home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEN, ELEVEN, NOON = "2026-03-02-10:00", "2026-03-02-11:00", "2026-03-02-12:00"
OLD_HOUR, OLD_WEEK, WEEK = "2026-02-09-10:00", "2026-02-09", "2026-03-02"
ARRIVAL = "2026-03-02-15:00"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, spark: "SparkSession") -> tuple[Home, Outcome, Outcome]:
    """A home with three hours, one old hour, a copy and a refused delta, drained and rolled up."""
    home = Home(tmp_path_factory.mktemp("checks") / "home").create(FORGETFUL)
    three_hours = [signal(f"d{n}", at=hour_of(n % 3) + n, entity=f"e{n % 7}", count=n) for n in range(60)]
    others = [vector("v1", "create", values=[1.0, 2.0]), sample("s1", 2.5), signal("old", at=hour_of(-24 * 21))]
    send(home, three_hours, [*others, three_hours[4], b"{nonsense"], clock=HandClock(hour_of(5)))
    return home, drain(home), materialize_everything_stale(home)


@pytest.fixture
def home(finished: tuple[Home, Outcome, Outcome], tmp_path: Path) -> Home:
    """A copy of it, to be broken; a home may be copied while nothing runs."""
    shutil.copytree(finished[0].root, tmp_path / "home")
    return Home(tmp_path / "home")


def verdicts(outcome: Outcome, asset: str) -> dict[str | None, CheckOutcome]:
    return {check.partition: check for check in outcome.checks if check.asset == asset}


def current(home: Home, asset: str) -> dict[str | None, bool]:
    with open_instance(home) as instance:
        key = dg.AssetCheckKey(dg.AssetKey(asset), CHECK_NAME)
        infos = instance.event_log_storage.get_asset_check_partition_info([key])
        return {info.partition_key: info.is_current for info in infos}


def spoiled(deltas: "DataFrame") -> "DataFrame":
    """Minute counts with a mistake at eleven."""
    counted = count_minutes(deltas)
    is_eleven = F.col("bucket_hour") == F.lit("2026-03-02 11:00:00").cast("timestamp")
    return counted.withColumn("count", F.when(is_eleven, F.col("count") + 1).otherwise(F.col("count")))


def test_a_drain_judges_exactly_the_hours_that_it_touched(finished: tuple[Home, Outcome, Outcome]) -> None:
    home, drained, _ = finished
    assert drained.succeeded
    assert set(verdicts(drained, "deltas")) == {OLD_HOUR, TEN, ELEVEN, NOON}
    assert set(verdicts(drained, "dead_letters")) == {ARRIVAL}
    assert current(home, "deltas") == dict.fromkeys([OLD_HOUR, TEN, ELEVEN, NOON], True)


def test_rollups_run_for_stale_partitions_only_and_one_run_per_range(finished: tuple[Home, Outcome, Outcome]) -> None:
    home, _, rolled_up = finished
    assert rolled_up.succeeded
    hourly = (OLD_HOUR, TEN, ELEVEN, NOON)
    assert rolled_up.partitions == {"minute_counts": hourly, "hourly_counts": hourly, "weekly_counts": (OLD_WEEK, WEEK)}
    assert [len(run.partitions[run.assets[0]]) for run in rolled_up.runs] == [1, 3, 1, 1]
    for asset in ("minute_counts", "hourly_counts", "weekly_counts"):
        assert all(current(home, asset).values())
    assert materialize_everything_stale(home) == Outcome()


def test_a_broken_partition_fails_alone_names_its_rows_and_blocks_downstream_in_the_same_run(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assets.rollups.asset.count_minutes", spoiled)
    broken = materialize_hours(home, ["minute_counts", "hourly_counts"], [TEN, ELEVEN, NOON])

    [run] = broken.runs
    assert not run.succeeded
    assert run.partitions == {"minute_counts": (TEN, ELEVEN, NOON)}, "hourly_counts must not run"
    found = verdicts(broken, "minute_counts")
    assert {key: check.passed for key, check in found.items()} == {TEN: True, ELEVEN: False, NOON: True}
    assert "counts_equal_the_deltas" in found[ELEVEN].message
    assert "7 rows contradict" in found[ELEVEN].message
    assert '"expected_count"' in found[ELEVEN].message
    assert current(home, "minute_counts") == dict.fromkeys([OLD_HOUR, TEN, ELEVEN, NOON], True)

    # Across runs: what hangs on the broken hour is held back, the others go on.
    monkeypatch.undo()
    beside = materialize_everything_stale(home)
    assert beside.partitions == {"hourly_counts": (TEN, NOON)}
    assert beside.held_back == {"hourly_counts": (ELEVEN,), "weekly_counts": (WEEK,)}
    assert not beside.succeeded

    healed = materialize_hours(home, ["minute_counts"], [ELEVEN]) + materialize_everything_stale(home)
    assert healed.succeeded
    assert healed.partitions == {"minute_counts": (ELEVEN,), "hourly_counts": (ELEVEN,), "weekly_counts": (WEEK,)}


def test_rows_that_were_removed_by_hand_are_missed_by_the_account(home: Home, spark: "SparkSession") -> None:
    """Received reconciles with outcomes (O4): an hour that lost rows is found by the next drain that touches it."""
    spark.sql(f"DELETE FROM delta.`{home.lake / 'deltas'}` WHERE delta_id IN ('d2', 'd5')").collect()
    send(home, [signal("late-1", at=hour_of(1)), signal("late-2", at=hour_of(2))], producer="mobile", clock=HandClock(hour_of(6)))

    drained = drain(home)

    [run] = drained.runs
    assert run.succeeded, "the commit is there; only what hangs on the hour is stopped"
    found = verdicts(drained, "deltas")
    assert {key: check.passed for key, check in found.items()} == {ELEVEN: True, NOON: False}
    assert '"accepted_by_the_log":21,"in_deltas":19' in found[NOON].message
    held = materialize_everything_stale(home)
    assert held.held_back is not None
    assert held.held_back["minute_counts"] == (NOON,)
    assert held.partitions["minute_counts"] == (ELEVEN,)

    rebuilt = materialize_hours(home, ["deltas"], [NOON])
    assert verdicts(rebuilt, "deltas")[NOON].passed


def test_progress_is_told_step_by_step(home: Home) -> None:
    steps: list[tuple[str, bool, Sequence[str]]] = []
    materialize_hours(
        home, ["weekly_counts"], [TEN], progress=lambda step: steps.append((step.asset, step.is_check, step.partitions))
    )
    assert steps == [("weekly_counts", False, (WEEK,)), ("weekly_counts", True, (WEEK,))]
