"""Checks on real tables (O4, O5): each partition's own verdict, current, and blocking what is downstream."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dagster as dg
import pytest
from pyspark.sql import functions as F

from assets.names import CHECK_NAME
from assets.rollups.transform import count_minutes
from orchestration.instance import open_instance
from orchestration.materialize import (
    UnknownAssetError,
    check_hours,
    drain,
    materialize_everything_stale,
    materialize_hours,
)
from orchestration.runs import CheckOutcome, RunResults, Step
from resources.lake import Lake, TableSpec
from tests.support.batch import FORGETFUL, send
from tests.support.live import HandClock, hour_of, sample, signal, vector
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.check_notes import read_note

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TEN, ELEVEN, NOON = "2026-03-02-10:00", "2026-03-02-11:00", "2026-03-02-12:00"
HOURS = (TEN, ELEVEN, NOON)
DAY = WEEK = "2026-03-02"  # a Monday
MONTH = "2026-03-01"
# What hangs on a day.
ABOVE = {"weekly_counts": (WEEK,), "monthly_counts": (MONTH,)}
ARRIVAL = "2026-03-02-15:00"


@dataclass(frozen=True)
class Finished:
    """A home with three hours, a copy and a refused delta, drained and rolled up, and what that reported."""

    home: Home
    drained: RunResults
    rolled_up: RunResults
    steps: list[Step]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, spark: "SparkSession") -> Finished:
    home = Home(tmp_path_factory.mktemp("checks") / "home").create(FORGETFUL)
    three_hours = [signal(f"d{n}", at=hour_of(n % 3) + n, entity=f"e{n % 7}", count=n) for n in range(60)]
    others = [vector("v1", "create", values=[1.0, 2.0]), sample("s1", 2.5), three_hours[4], b"{nonsense"]
    send(home, three_hours, others, clock=HandClock(hour_of(5)))
    steps: list[Step] = []
    return Finished(home, drain(home), materialize_everything_stale(home, progress=steps.append), steps)


@pytest.fixture
def home(finished: Finished, tmp_path: Path) -> Home:
    """A copy of it, to be broken; a home may be copied while nothing runs."""
    shutil.copytree(finished.home.root, tmp_path / "home")
    return Home(tmp_path / "home")


def verdicts(outcome: RunResults, asset: str) -> dict[str | None, CheckOutcome]:
    return {check.partition: check for check in outcome.checks if check.asset == asset}


def passed(outcome: RunResults, asset: str) -> dict[str | None, bool]:
    return {partition: check.passed for partition, check in verdicts(outcome, asset).items()}


def current(home: Home, asset: str) -> dict[str | None, bool]:
    with open_instance(home) as instance:
        key = dg.AssetCheckKey(dg.AssetKey(asset), CHECK_NAME)
        infos = instance.event_log_storage.get_asset_check_partition_info([key])
        return {info.partition_key: info.is_current for info in infos}


def miscounted(deltas: "DataFrame") -> "DataFrame":
    """Minute counts with a mistake at noon."""
    is_noon = F.col("bucket_hour") == F.lit("2026-03-02 12:00:00").cast("timestamp")
    return count_minutes(deltas).withColumn("count", F.col("count") + F.when(is_noon, 1).otherwise(0))


def test_a_drain_judges_exactly_the_hours_that_it_touched(finished: Finished) -> None:
    assert finished.drained.succeeded
    assert passed(finished.drained, "deltas") == dict.fromkeys(HOURS, True)
    assert passed(finished.drained, "dead_letters") == {ARRIVAL: True}
    assert current(finished.home, "deltas") == dict.fromkeys(HOURS, True)


def test_everything_stale_is_one_run_and_each_of_its_partitions_has_a_current_verdict(finished: Finished) -> None:
    assert finished.rolled_up.succeeded
    [run] = finished.rolled_up.runs
    assert run.partitions == {
        "minute_counts": HOURS,
        "hourly_counts": HOURS,
        "daily_counts": (DAY,),
        "weekly_counts": (WEEK,),
        "monthly_counts": (MONTH,),
        "refresh": (),
    }
    assert current(finished.home, "minute_counts") == dict.fromkeys(HOURS, True)
    assert current(finished.home, "hourly_counts") == dict.fromkeys(HOURS, True)
    assert current(finished.home, "daily_counts") == {DAY: True}
    assert current(finished.home, "weekly_counts") == {WEEK: True}
    assert current(finished.home, "monthly_counts") == {MONTH: True}


def test_progress_is_told_step_by_step(finished: Finished) -> None:
    assert [(step.asset, step.is_check) for step in finished.steps] == [
        ("refresh", False),
        ("minute_counts", False),
        ("minute_counts", True),
        ("hourly_counts", False),
        ("hourly_counts", True),
        ("daily_counts", False),
        ("daily_counts", True),
        ("weekly_counts", False),
        ("weekly_counts", True),
        ("monthly_counts", False),
        ("monthly_counts", True),
    ]


def test_what_is_fresh_is_left_alone(finished: Finished) -> None:
    assert materialize_everything_stale(finished.home) == RunResults()


def test_an_asset_that_does_not_exist_is_refused(finished: Finished) -> None:
    with pytest.raises(UnknownAssetError, match="minute_counts"):
        materialize_hours(finished.home, ["minutes"], HOURS)


def test_a_broken_partition_fails_alone_names_its_rows_and_stops_what_hangs_on_it(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("assets.rollups.transform.count_minutes", miscounted)
    broken = materialize_hours(home, ["minute_counts", "hourly_counts"], HOURS)

    [run] = broken.runs
    assert not run.succeeded
    assert run.partitions == {"minute_counts": HOURS}, "hourly_counts must not run in the same run"
    assert passed(broken, "minute_counts") == {TEN: True, ELEVEN: True, NOON: False}
    message = verdicts(broken, "minute_counts")[NOON].message
    assert "7 rows contradict" in message
    assert "(counts_equal_the_deltas)" in message
    assert '"expected_count"' in message
    assert current(home, "minute_counts") == dict.fromkeys(HOURS, True)
    note = read_note(home, "minute_counts")
    assert note is not None
    assert note.failed == {NOON: message}, "people who look at the home without Dagster see the same"

    beside = materialize_everything_stale(home)
    assert beside.partitions["hourly_counts"] == (TEN, ELEVEN), "the hours beside it go on"
    assert beside.partitions["minute_counts"] == (NOON,), "what failed is done again"
    assert beside.held_back == {"hourly_counts": (NOON,), "daily_counts": (DAY,), **ABOVE}
    assert not beside.succeeded, "as long as it is not right"

    monkeypatch.undo()
    repaired = materialize_everything_stale(home)
    assert repaired.partitions["minute_counts"] == (NOON,)
    assert repaired.partitions["hourly_counts"] == (NOON,)
    assert repaired.held_back is None
    assert repaired.succeeded
    note = read_note(home, "minute_counts")
    assert note is not None
    assert note.failed == {}


def test_a_delta_that_the_drain_loses_is_missed_by_the_account_until_it_is_brought_back(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Received reconciles with outcomes (O4). The drain's run succeeds: only what hangs on the hour is stopped."""
    late = [signal("late-1", at=hour_of(1)), signal("late-2", at=hour_of(2))]
    send(home, late, producer="mobile", clock=HandClock(hour_of(6)))
    for way in ("append_once", "replace"):
        monkeypatch.setattr(Lake, way, losing("late-2", getattr(Lake, way)))

    drained = drain(home)

    assert drained.runs[0].succeeded
    assert passed(drained, "deltas") == {ELEVEN: True, NOON: False}
    message = verdicts(drained, "deltas")[NOON].message
    assert "(accepted_deltas_are_accounted_for)" in message
    assert '"accepted_by_the_log":21,"in_deltas":20,"set_aside":0' in message
    assert not drained.succeeded

    again = materialize_everything_stale(home)
    assert again.partitions["deltas"] == (NOON,), "it is made again from the log"
    assert again.held_back == {"minute_counts": (NOON,), "hourly_counts": (NOON,), "daily_counts": (DAY,), **ABOVE}

    monkeypatch.undo()
    repaired = materialize_everything_stale(home)
    assert passed(repaired, "deltas") == {NOON: True}
    assert repaired.partitions["minute_counts"] == (NOON,)
    assert repaired.held_back is None
    assert repaired.succeeded


def losing(delta_id: str, write: Callable[..., None]) -> Callable[..., None]:
    """A way to write that loses a delta."""

    def write_less(lake: Lake, spec: TableSpec, rows: "DataFrame", **options: Any) -> None:
        kept = rows.where(f"delta_id <> '{delta_id}'") if spec.name == "deltas" else rows
        write(lake, spec, kept, **options)

    return write_less


def edit_noon(home: Home, table: str, assignments: dict[str, str], column: str) -> None:
    """Change some rows of one partition, as anybody with delta-rs could."""
    found = lake_files.open_table(home.lake / table)
    assert found is not None
    found.update(updates=assignments, predicate=f"{column} = '2026-03-02 12:00:00'")


def test_a_partition_changed_by_hand_fails_alone_and_holds_back_only_what_hangs_on_it(home: Home) -> None:
    edit_noon(home, "deltas", {"kind": "'nonsense'"}, "event_hour")
    checked = check_hours(home, ["deltas"], HOURS)
    assert passed(checked, "deltas") == {TEN: True, ELEVEN: True, NOON: False}
    message = verdicts(checked, "deltas")[NOON].message
    assert "20 rows contradict 'Every delta is a vector delta, a sample or a signal.' (kind_is_known)" in message
    assert "(nobody_else_wrote_here)" in message
    assert '"delta_id":"d' in message

    followed = materialize_hours(home, ["minute_counts", "hourly_counts", "daily_counts", *ABOVE], HOURS)
    assert followed.held_back == {"minute_counts": (NOON,), "daily_counts": (DAY,), **ABOVE}
    assert followed.partitions == {"minute_counts": (TEN, ELEVEN), "hourly_counts": (TEN, ELEVEN)}
    assert not followed.succeeded

    repaired = materialize_hours(home, ["deltas"], [NOON])
    assert passed(repaired, "deltas") == {NOON: True}


@pytest.mark.slow
def test_a_drain_finds_what_was_changed_by_hand_also_behind_its_own_commit(home: Home) -> None:
    edit_noon(home, "hourly_counts", {"count": "count + 1"}, "bucket_hour")
    send(home, [signal("late", at=hour_of(0) + 99)], clock=HandClock(hour_of(6)))
    drained = drain(home)
    assert passed(drained, "hourly_counts") == {NOON: False}
    assert passed(drained, "deltas") == {TEN: True}
    followed = materialize_everything_stale(home)
    assert followed.held_back == {"daily_counts": (DAY,), **ABOVE}
    assert passed(followed, "hourly_counts") == {TEN: True}
    assert passed(drain(home), "hourly_counts") == {NOON: False}, "until somebody writes it anew"
    materialize_hours(home, ["hourly_counts"], [NOON])
    assert materialize_everything_stale(home).succeeded
