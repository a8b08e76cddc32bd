"""When the daemon refreshes, and what is left to the conditions of the tables. No Spark, no daemon."""

from collections.abc import Iterator

import dagster as dg
import pytest

from assets.as_seen import STATE_TAG, state_of
from assets.ingest.schema import DELTAS
from assets.tables import GRAPH
from orchestration import refresh_sensor, refreshes
from orchestration.automation import find_stale
from orchestration.instance import open_instance
from orchestration.jobs import drain_job, refresh_job
from orchestration.refresh_sensor import follow_tables
from resources.lake import Lake
from tests.support.orchestrator import judge, record_of, tell
from tidemark.storage.home import Home

HOUR = "2026-03-02-09:00"
STALE = {"minute_counts": {HOUR: "new"}}


@pytest.fixture
def instance(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[dg.DagsterInstance]:
    """An hour is stale, whatever happens."""
    for module in (refreshes, refresh_sensor):
        monkeypatch.setattr(module, "stale_now", lambda _: STALE)
    monkeypatch.setattr("orchestration.automation.stale_now", lambda _: STALE)
    with open_instance(home) as found:
        yield found


def look(instance: dg.DagsterInstance) -> dg.RunRequest | str:
    found = follow_tables(dg.build_sensor_context(instance=instance))
    if isinstance(found, dg.RunRequest):
        return found
    assert isinstance(found, dg.SkipReason)
    return found.skip_message or ""


def begin(instance: dg.DagsterInstance, request: dg.RunRequest, status: dg.DagsterRunStatus) -> dg.DagsterRun:
    return instance.add_run(dg.DagsterRun(job_name=refresh_job.name, status=status, tags=dict(request.tags)))


def test_what_is_stale_is_one_refresh_and_nothing_beside_it(instance: dg.DagsterInstance) -> None:
    request = look(instance)
    assert isinstance(request, dg.RunRequest)
    assert find_stale(instance) == {}, "until there was a refresh, no partition is requested by itself"
    begin(instance, request, dg.DagsterRunStatus.STARTED)
    assert look(instance) == "A refresh is under way."
    assert find_stale(instance) == {}


@pytest.mark.parametrize("status", [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE])
def test_what_a_refresh_leaves_is_requested_by_itself_until_the_tables_change(
    instance: dg.DagsterInstance, home: Home, status: dg.DagsterRunStatus
) -> None:
    request = look(instance)
    assert isinstance(request, dg.RunRequest)
    begin(instance, request, status)
    assert look(instance) == "There was a refresh of the tables as they are now."
    assert find_stale(instance) == STALE
    Lake(home, lambda: None).ensure(GRAPH["minute_counts"].spec)  # type: ignore[arg-type, return-value]
    again = look(instance)
    assert isinstance(again, dg.RunRequest)
    assert again.tags[STATE_TAG] != request.tags[STATE_TAG]
    assert find_stale(instance) == {}


def test_nothing_stale_is_no_run(instance: dg.DagsterInstance, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refresh_sensor, "stale_now", lambda _: {"minute_counts": {}})
    assert look(instance) == "Every table is up to date."


def test_while_a_drain_checks_what_it_has_brought_in_nothing_is_requested_that_could_not_be_made(
    instance: dg.DagsterInstance,
) -> None:
    tell(instance, record_of(DELTAS.name, HOUR))
    drain = instance.add_run(dg.DagsterRun(job_name=drain_job.name, status=dg.DagsterRunStatus.STARTED))
    assert look(instance) == "A drain checks what it has brought in."
    judge(instance, DELTAS.name, [HOUR])
    assert isinstance(look(instance), dg.RunRequest), f"{drain.run_id} goes on, and may be followed by others for ever"


def test_a_check_that_passes_after_a_refresh_is_a_change(instance: dg.DagsterInstance) -> None:
    """The drain may have committed while the refresh ran, which then could build on nothing of it."""
    tell(instance, record_of(DELTAS.name, HOUR))
    request = look(instance)
    assert isinstance(request, dg.RunRequest)
    begin(instance, request, dg.DagsterRunStatus.SUCCESS)
    assert look(instance) == "There was a refresh of the tables as they are now."
    judge(instance, DELTAS.name, [HOUR])
    assert isinstance(look(instance), dg.RunRequest)


def test_a_state_that_comes_back_is_requested_again_under_another_key(instance: dg.DagsterInstance, home: Home) -> None:
    """The orchestrator starts one run for a key; a refresh may begin between a drain's commit and its checks."""
    early = look(instance)
    assert isinstance(early, dg.RunRequest)
    same = look(instance)
    assert isinstance(same, dg.RunRequest)
    assert same.run_key == early.run_key, "until it has become a run"
    tell(instance, record_of(DELTAS.name, HOUR))  # the drain reports what it has committed, and will check it
    run = begin(instance, early, dg.DagsterRunStatus.SUCCESS)
    instance.add_run_tags(run.run_id, {STATE_TAG: state_of(home, instance)})
    judge(instance, DELTAS.name, [HOUR])
    late = look(instance)
    assert isinstance(late, dg.RunRequest)
    assert late.tags[STATE_TAG] == early.tags[STATE_TAG]
    assert late.run_key != early.run_key
