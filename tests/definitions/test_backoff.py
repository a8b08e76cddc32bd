"""What fails again and again is tried less and less often, and `status` says so (O3)."""

from datetime import UTC, datetime, timedelta

import dagster as dg
import pytest

from assets.names import PARTITION, RANGE_END, RANGE_START
from orchestration import automation, backoff
from orchestration.backoff import is_paused, last_runs, pause_s
from orchestration.build import build_defs
from orchestration.run_status import read_run_status
from tidemark.model.timegrid import SECOND_US
from tidemark.storage.home import Home

ASSET = dg.AssetKey("minute_counts")
TEN, ELEVEN, NOON = (f"2026-03-02-{hour}:00" for hour in (10, 11, 12))
START = datetime(2026, 3, 25, 10, 0, 1, tzinfo=UTC)
MINUTES = 60.0


def tried(
    instance: dg.DagsterInstance, first: str, last: str | None = None, *, is_good: bool = False, at: datetime = START
) -> None:
    """A run over some partitions that ended at a moment."""
    tags = {RANGE_START: first, RANGE_END: last} if last else {PARTITION: first}
    run = instance.add_run(
        dg.DagsterRun("__ASSET_JOB", status=dg.DagsterRunStatus.STARTED, tags=tags, asset_selection=frozenset([ASSET]))
    )
    kind = dg.DagsterEventType.RUN_SUCCESS if is_good else dg.DagsterEventType.RUN_FAILURE
    event = dg.DagsterEvent(event_type_value=kind.value, job_name="__ASSET_JOB")
    instance.report_dagster_event(event, run_id=run.run_id, timestamp=at.timestamp())


def test_pauses_grow_from_nothing_to_an_hour_and_no_further() -> None:
    assert [pause_s(failures) / MINUTES for failures in (0, 1, 2, 3, 4, 5, 1_000_000)] == [0, 0, 10, 30, 60, 60, 60]


def test_o3_a_partition_is_left_alone_for_as_long_as_its_failures_in_a_row_say(instance: dg.DagsterInstance) -> None:
    def paused_minutes(key: str) -> int:
        runs, start_s = last_runs(instance, ASSET), START.timestamp()
        return next(minutes for minutes in range(100) if not is_paused(runs, key, start_s + minutes * MINUTES))

    tried(instance, TEN)
    assert paused_minutes(TEN) == 0, "most failures pass by themselves"
    tried(instance, TEN, ELEVEN)
    assert (paused_minutes(TEN), paused_minutes(ELEVEN), paused_minutes(NOON)) == (10, 0, 0)
    tried(instance, NOON, is_good=True)
    tried(instance, TEN)
    assert paused_minutes(TEN) == 30, "what succeeds beside it changes nothing"
    tried(instance, TEN, NOON, is_good=True)
    assert paused_minutes(TEN) == 0


def test_o3_the_automation_tries_again_when_the_pause_is_over(
    instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without pauses it would be tried at every tenth minute for ever."""
    cursor, asked = None, []
    monkeypatch.setattr(automation, "find_stale", lambda _: {ASSET.to_user_string(): {TEN: ""}})
    monkeypatch.setattr(automation.AC, "execution_failed", dg.AutomationCondition.missing)
    # Which of them failed is the orchestrator's own question; here it is all that were never made.
    defs = build_defs()
    tried(instance, TEN)
    for minutes in range(-5, 125, 5):
        now = START + timedelta(minutes=minutes)
        found = dg.evaluate_automation_conditions(defs, instance, cursor=cursor, evaluation_time=now)
        cursor = found.cursor
        if found.get_requested_partitions(ASSET):
            asked.append(minutes)
            tried(instance, TEN, at=now)
    assert asked == [0, 10, 40, 100]


def test_status_tells_what_keeps_failing_until_it_succeeds(home: Home, instance: dg.DagsterInstance) -> None:
    def failing() -> list[tuple[str, str | None, int]]:
        found = read_run_status(home, now_us=round(START.timestamp()) * SECOND_US).failing
        return [(each.what, each.from_partition, each.times) for each in found]

    tried(instance, TEN)
    tried(instance, ELEVEN)
    assert failing() == [], "once is shown among the runs"
    tried(instance, TEN)
    tried(instance, NOON, is_good=True)
    assert failing() == [("minute_counts", TEN, 2)]
    tried(instance, TEN, NOON, is_good=True)
    assert failing() == []


def test_without_a_failure_no_run_is_looked_at(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    def looked(*_: object) -> None:
        raise AssertionError("runs were read")

    monkeypatch.setattr(backoff, "last_runs", looked)
    monkeypatch.setattr(automation, "find_stale", lambda _: {ASSET.to_user_string(): {TEN: ""}})
    found = dg.evaluate_automation_conditions(build_defs(), instance, evaluation_time=START)
    assert found.get_requested_partitions(ASSET) == {TEN}
