"""The runs and backfills of a home, as the orchestrator reports them.

Belongs here: queries of Dagster's instance about runs, and which failures in a row follow from them, and why. Does not
belong here: check results (`check_status.py`), and the types of the answers (`run_status.py`). This imports Dagster;
only `run_status.py` imports it, and only when it is needed.
"""

from collections.abc import Collection, Sequence

import dagster as dg

from assets.names import PARTITION, RANGE_END, RANGE_START, more_partitions
from orchestration.check_status import read_checks
from orchestration.instance import existing_instance
from orchestration.reasons import in_a_line, innermost
from orchestration.run_status import BackfillStatus, FailingStatus, OrchestratorStatus, RunStatus
from resources.dagster_internals import BULK_ACTION_TERMINAL_STATUSES, BulkActionsFilter, BulkActionStatus
from tidemark.model.timegrid import SECOND_US, to_us
from tidemark.storage.home import Home

FINISHED = [dg.DagsterRunStatus.SUCCESS, dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]
UNFINISHED = [status for status in dg.DagsterRunStatus if status not in FINISHED]
UNFINISHED_BACKFILLS = [status for status in BulkActionStatus if status not in BULK_ACTION_TERMINAL_STATUSES]
# As many as a person reads together; all of them are on the orchestrator's pages.
LAST_RUNS = 8
# Failures in a row are looked for among so many runs; an hourly run is among them, in spite of an hour of drains.
FAILURES_AMONG = 200
# A stored failure contains its whole stack. The wanted ones are nearly always among the last.
FAILURES_READ = 20
# The orchestrator's own name for the job of selected assets.
UNNAMED_JOB = "__ASSET_JOB"


def read_history(home: Home, *, now_us: int) -> OrchestratorStatus:
    """All queries of one look at a home whose orchestrator has a storage."""
    with existing_instance(home) as instance:
        return OrchestratorStatus(
            runs=_runs(instance, now_us),
            backfills=_backfills(instance),
            checks=read_checks(instance, home),
            failing=_failing(instance, now_us),
        )


def _runs(instance: dg.DagsterInstance, now_us: int) -> list[RunStatus]:
    found = [*instance.get_run_records(dg.RunsFilter(statuses=UNFINISHED), limit=LAST_RUNS)]
    if len(found) < LAST_RUNS:
        found += instance.get_run_records(dg.RunsFilter(statuses=FINISHED), limit=LAST_RUNS - len(found))
    errors = _errors(instance, [run for run in found if run.dagster_run.status is dg.DagsterRunStatus.FAILURE])
    return [_run(run, errors, now_us) for run in found]


def _failing(instance: dg.DagsterInstance, now_us: int) -> list[FailingStatus]:
    """The same run, failed more than once, with no success since that holds all of it."""
    succeeded: list[dg.DagsterRun] = []
    failed: dict[tuple[str, ...], list[dg.RunRecord]] = {}
    for record in instance.get_run_records(dg.RunsFilter(statuses=FINISHED), limit=FAILURES_AMONG):
        run = record.dagster_run
        if run.status is dg.DagsterRunStatus.SUCCESS:
            succeeded.append(run)
        elif run.status is dg.DagsterRunStatus.FAILURE and not any(_holds(each, run) for each in succeeded):
            failed.setdefault((run.job_name, *_names(run.asset_selection), *_ends(run)), []).append(record)
    rows = [runs for runs in failed.values() if len(runs) > 1]
    errors = _errors(instance, [runs[0] for runs in rows])
    told = [(_run(runs[0], errors, now_us), _run(runs[-1], errors, now_us), len(runs)) for runs in rows]
    return [
        FailingStatus(last.what, last.from_partition, last.to_partition, times, first.at_us, last.at_us, last.error)
        for last, first, times in told
    ]


def _ends(run: dg.DagsterRun) -> tuple[str, str]:
    single = run.tags.get(PARTITION, "")
    return run.tags.get(RANGE_START, single), run.tags.get(RANGE_END, single)


def _holds(run: dg.DagsterRun, other: dg.DagsterRun) -> bool:
    """Whether a run did everything that another had to do; partition keys sort by the time that they stand for."""
    if run.job_name != other.job_name or not (other.asset_selection or set()) <= (run.asset_selection or set()):
        return False
    (start, end), (first, last) = _ends(run), _ends(other)
    return start <= first and last <= end


def _run(record: dg.RunRecord, errors: dict[str, str], now_us: int) -> RunStatus:
    run, started_us, ended_us = record.dagster_run, _us(record.start_time), _us(record.end_time)
    assets = ", ".join(_names(run.asset_selection))
    return RunStatus(
        run_id=run.run_id,
        what=assets if run.job_name == UNNAMED_JOB and assets else run.job_name,
        from_partition=run.tags.get(RANGE_START, run.tags.get(PARTITION)),
        to_partition=run.tags.get(RANGE_END, run.tags.get(PARTITION)),
        status=run.status.value.lower(),
        is_open=run.status in UNFINISHED,
        at_us=to_us(record.create_timestamp) if started_us is None else started_us,
        seconds=None if started_us is None else max(0, (ended_us or now_us) - started_us) / SECOND_US,
        error=_first_line(errors[run.run_id]) if run.run_id in errors else None,
        more_partitions=more_partitions(run.tags),
    )


def _names(keys: Collection[dg.AssetKey] | None) -> list[str]:
    return sorted(key.to_user_string() for key in keys or ())


def _us(seconds: float | None) -> int | None:
    return round(seconds * SECOND_US) if seconds else None


def _first_line(reason: str) -> str:
    return (reason.strip() or "no reason was recorded; its page in the UI may show more").splitlines()[0]


def _errors(instance: dg.DagsterInstance, failed: Sequence[dg.RunRecord]) -> dict[str, str]:
    """Run → the failed step and its innermost error, or the message of the process that found it dead, if any.

    The last failures of all runs are read until the wanted ones are among them. A run can report twice that it failed,
    and no more events are read than the last runs can have written.
    """
    wanted, found = {record.dagster_run.run_id for record in failed}, dict[str, str]()
    cursor: str | None = None
    for _ in range(2 * FAILURES_AMONG // FAILURES_READ):
        if wanted <= found.keys():
            break
        page = instance.fetch_run_status_changes(dg.DagsterEventType.RUN_FAILURE, FAILURES_READ, cursor)
        for event in page.records:
            if event.run_id in wanted and event.event_log_entry.dagster_event:
                # The first failure of a run is read last, and names the cause.
                found[event.run_id] = _reason(event.event_log_entry.dagster_event)
        if not page.has_more:
            break
        cursor = page.cursor
    return found


def _reason(failure: dg.DagsterEvent) -> str:
    # A process that finds a run dead from outside, such as the daemon, leaves a message and no error.
    data = failure.job_failure_data if failure.event_specific_data else None
    step = data.first_step_failure_event if data else None
    if step:
        error = innermost(step.step_failure_data.error) if step.event_specific_data else None
    else:
        error = innermost(data.error) if data else None
    if error is None:
        return failure.message or ""
    where = f"{step.step_key}: " if step and step.step_key else ""
    return where + in_a_line(error.message, error.stack)


def _backfills(instance: dg.DagsterInstance) -> list[BackfillStatus]:
    return [
        BackfillStatus(
            backfill_id=backfill.backfill_id,
            what=", ".join(_names(backfill.asset_selection)) or backfill.partition_set_name or backfill.title or "",
            status=backfill.status.value.lower(),
            at_us=round(backfill.backfill_timestamp * SECOND_US),
        )
        for backfill in instance.get_backfills(BulkActionsFilter(statuses=UNFINISHED_BACKFILLS))
    ]
