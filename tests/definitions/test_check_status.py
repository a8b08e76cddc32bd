"""What `status` says of checks: the last result on the latest rows of each partition counts."""

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any
from unittest.mock import patch

import dagster as dg
import pytest

from assets import trust
from orchestration import check_status, run_status
from orchestration.instance import open_instance
from orchestration.materialize import hours_between
from orchestration.run_status import FailedCheck, read_run_status
from tests.support.live import TEN_O_CLOCK
from tests.support.orchestrator import copy_to, judge, judge_as_of, materialize, refuse
from tidemark.storage.home import Home

HOURS = [f"2026-03-02-{hour:02d}:00" for hour in range(6)]
WRONG = '2 rows contradict \'A count is positive. Always.\' (positive), for example {"entity_id": "item-1"}\nand more'


@contextmanager
def statements() -> Iterator[list[str]]:
    """The questions that are asked meanwhile, as SQLite itself hears them; a pragma asks nothing of what is stored."""
    found: list[str] = []
    connect = sqlite3.dbapi2.connect

    def traced(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(*arguments, **options)
        connection.set_trace_callback(lambda told: None if told.startswith("PRAGMA") else found.append(told))
        return connection

    with patch.object(sqlite3.dbapi2, "connect", traced):
        yield found


def test_each_partition_is_passed_failed_or_not_judged_yet(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS)
        judge(instance, "deltas", HOURS[:3])
        judge(instance, "deltas", HOURS[3:5], passed=False, message=WRONG)
        found = read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"]
        assert trust.unchecked(instance, "deltas") == {HOURS[5]}
    assert (found.passed, found.unjudged) == (3, 1)
    assert found.failed == [
        FailedCheck(HOURS[4], "2 rows contradict 'A count is positive. Always.' (positive)"),
        FailedCheck(HOURS[3], "2 rows contradict 'A count is positive. Always.' (positive)"),
    ]


def test_a_verdict_on_earlier_rows_does_not_count(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[:2])
        judge(instance, "deltas", HOURS[:1])
        judge(instance, "deltas", HOURS[1:2], passed=False, message=WRONG)
        materialize(instance, "deltas", HOURS[:2])
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"]
    assert (found.passed, found.failed, found.unjudged) == (0, [], 2)


def test_the_last_of_several_verdicts_counts(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[:2])
        judge(instance, "deltas", HOURS[:2], passed=False, message="First. It was so.")
        judge(instance, "deltas", HOURS[:1])
        judge(instance, "deltas", HOURS[1:2], passed=False, message="Second. It is so.")
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"]
    assert (found.passed, found.failed, found.unjudged) == (1, [FailedCheck(HOURS[1], "Second")], 0)


def test_a_refusal_holds_until_the_next_materialization(home: Home) -> None:
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS[1:2])
        refuse(instance, "deltas", HOURS[0], "It has never been materialized. Materialize it.")
        found = read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"]
        assert found.failed == [FailedCheck(HOURS[0], "It has never been materialized")]
        materialize(instance, "deltas", HOURS[:1])
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"]
    assert (found.failed, found.unjudged) == ([], 2)


def test_more_failures_than_are_read_at_once_have_their_messages(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_status, "RESULTS_READ", 2)
    with open_instance(home) as instance:
        materialize(instance, "deltas", HOURS)
        for hour in HOURS:
            judge(instance, "deltas", [hour], passed=False, message=f"Wrong at {hour}. Look.")
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks["deltas"]
    assert found.failed == [FailedCheck(hour, f"Wrong at {hour}") for hour in reversed(HOURS)]


def test_the_number_of_questions_does_not_grow_with_the_partitions(home: Home) -> None:
    counts = []
    with open_instance(home) as instance:
        for hours in (HOURS[:2], HOURS):
            materialize(instance, "deltas", hours)
            judge(instance, "deltas", hours, passed=False, message=WRONG)
            with statements() as asked:
                read_run_status(home, now_us=TEN_O_CLOCK)
            counts.append(len(asked))
    assert counts[0] == counts[1] > 0


@pytest.mark.slow
def test_a_year_of_hours_costs_as_many_questions_as_a_day(home: Home) -> None:
    year = hours_between("2025-01-01-00:00", "2025-12-31-23:00")
    with open_instance(home) as instance:
        for table in ("deltas", "minute_counts"):
            materialize(instance, table, year[:1])
            judge(instance, table, year[:1], passed=table == "deltas", message=WRONG)
    with statements() as few:
        read_run_status(home, now_us=TEN_O_CLOCK)
    for table in ("deltas", "minute_counts"):
        copy_to(home, table, year[0], year[1:])
    with statements() as many:
        found = read_run_status(home, now_us=TEN_O_CLOCK).checks
    assert found["deltas"].passed == len(year) == 8_760
    assert [failed.partition for failed in found["minute_counts"].failed] == year[::-1]
    assert all(failed.message for failed in found["minute_counts"].failed)
    assert len(many) == len(few) + (len(year) - 1) // check_status.RESULTS_READ


@pytest.mark.parametrize("seed", range(3))
def test_verdicts_are_counted_as_a_model_counts_them_that_remembers_what_was_said(home: Home, seed: int) -> None:
    chosen = Random(seed)
    made: Counter[str] = Counter()  # how often each partition was materialized
    said: dict[str, tuple[bool, bool, int]] = {}  # passed, whether it names a materialization, and which was the last
    with open_instance(home) as instance:
        for _ in range(12):
            hours = chosen.sample(HOURS, 3)
            kind = chosen.choice(["materialize", "materialize", "judge", "judge", "wrong", "refuse"])
            if kind == "refuse":
                refuse(instance, "deltas", hours[0], "It cannot be judged. Ask again.")
                said[hours[0]] = (False, False, made[hours[0]])
                continue
            about = hours if kind == "materialize" else hours[:1]
            materialize(instance, "deltas", about)
            made.update(about)
            if kind != "materialize":
                judge(instance, "deltas", about, passed=kind == "judge", message=WRONG)
                said[hours[0]] = (kind == "judge", True, made[hours[0]])
        materialize(instance, "hourly_counts", HOURS)
        judge(instance, "hourly_counts", HOURS)
        materialize(instance, "daily_counts", HOURS[:2])
    current = {hour: passed for hour, (passed, _, number) in said.items() if number == made[hour]}
    known = {hour for hour in HOURS if made[hour] or hour in said}
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks
    assert found["deltas"].passed == sum(current.values())
    assert [each.partition for each in found["deltas"].failed] == sorted(
        (hour for hour, passed in current.items() if not passed), reverse=True
    )
    assert found["deltas"].unjudged == len(known - current.keys())
    assert (found["hourly_counts"].passed, found["daily_counts"].unjudged) == (len(HOURS), 2)


def test_what_was_wiped_does_not_count_and_what_came_after_does(home: Home) -> None:
    with open_instance(home) as instance:
        for table in ("wiped", "wiped_once"):
            materialize(instance, table, HOURS[:3])
            judge(instance, table, HOURS[:1])
            judge(instance, table, HOURS[1:2], passed=False, message=WRONG)
        [*_, first] = instance.fetch_materializations(dg.AssetKey("wiped_once"), limit=3).records
        instance.wipe_assets([dg.AssetKey("wiped"), dg.AssetKey("wiped_once")])
        judge_as_of(instance, "wiped_once", HOURS[0], first.storage_id, passed=True)  # by a run that went on meanwhile
        materialize(instance, "wiped_once", HOURS[2:4])
        judge(instance, "wiped_once", HOURS[3:4])
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks
    assert found == {"wiped_once": run_status.CheckStatus(passed=1, failed=[], unjudged=1)}


@pytest.mark.parametrize("passed", [True, False])
def test_a_table_without_partitions_counts_once_it_was_judged(home: Home, passed: bool) -> None:
    key = dg.AssetKey("vector_index")
    with open_instance(home) as instance:
        for asset in ("drain", "vector_index"):
            instance.report_runless_asset_event(dg.AssetMaterialization(asset))
        [last] = instance.fetch_materializations(key, limit=1).records
        judge_as_of(instance, "vector_index", None, last.storage_id, passed=passed, message="It is odd. Look.")
        failed = [] if passed else [FailedCheck("", "It is odd")]
        found = read_run_status(home, now_us=TEN_O_CLOCK).checks
        assert found == {"vector_index": run_status.CheckStatus(int(passed), failed, 0)}
        instance.report_runless_asset_event(dg.AssetMaterialization("vector_index"))
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks
    assert found == {"vector_index": run_status.CheckStatus(0, [], 1)}


def test_what_was_said_of_a_table_before_it_had_partitions_counts_no_more(home: Home) -> None:
    with open_instance(home) as instance:
        instance.report_runless_asset_event(dg.AssetMaterialization("vectors"))
        [last] = instance.fetch_materializations(dg.AssetKey("vectors"), limit=1).records
        judge_as_of(instance, "vectors", None, last.storage_id, passed=False, message="It is odd. Look.")
        materialize(instance, "vectors", ["bucket-03", "bucket-11"])
        judge(instance, "vectors", ["bucket-03"])
    found = read_run_status(home, now_us=TEN_O_CLOCK).checks
    assert found == {"vectors": run_status.CheckStatus(passed=1, failed=[], unjudged=1)}
