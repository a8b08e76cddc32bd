"""What the orchestrator knows, for somebody who looks: the last runs, open backfills, and every table's verdicts.

Belongs here: the questions and their typed answers. Each question is asked once per table and never once per
partition: a year has 8,760 of them. Does not belong here: how the storage is opened (`run_storage.py`), and how the
answers are shown (`cli/status_view.py`). Dagster is imported when there is something to read.
"""

import gc
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from msgspec import Struct
from yaml import YAMLError

from orchestration.instance import SETTINGS_FILE, has_storage
from resources.errors import TidemarkError
from resources.home import Home
from resources.timegrid import SECOND_US, to_us

if TYPE_CHECKING:
    from dagster import AssetCheckKey, AssetKey, DagsterRun, RunRecord
    from dagster._core.events import DagsterEvent, JobFailureData
    from dagster._core.storage.asset_check_execution_record import AssetCheckPartitionInfo

    from orchestration.run_storage import Storage

# As many as one looks at together; all of them are on the orchestrator's pages.
LAST_RUNS = 8
# `expectations.checks.CHECK_NAME`, whose module imports Spark; a test holds the two together.
CHECK_NAME = "suite"
# The orchestrator's own name for the job of whatever was selected.
UNNAMED_JOB = "__ASSET_JOB"
RANGE_START, RANGE_END, PARTITION = (
    "dagster/asset_partition_range_start",
    "dagster/asset_partition_range_end",
    "dagster/partition",
)
# Failures to look through for those of the last runs, and verdicts read at once. Both are pages, not bounds of truth.
FAILURES_READ = 100
VERDICTS_READ = 1_000


class RunsUnreadableError(TidemarkError):
    """The orchestrator's storage is there and cannot be read."""


class RunStatus(Struct, frozen=True):
    """One run."""

    run_id: str
    what: str  # its assets, or the name of its job
    from_partition: str | None  # both ends are in the range; the same for a single partition
    to_partition: str | None
    status: str  # the orchestrator's word, in small letters
    is_open: bool
    at_us: int  # when it started, or was asked for if it has not started
    seconds: float | None  # so far, if it is still running
    error: str | None = None  # first line of the innermost error


class BackfillStatus(Struct, frozen=True):
    """One backfill that is not finished."""

    backfill_id: str
    what: str
    status: str
    at_us: int


class FailedCheck(Struct, frozen=True):
    """A partition that was found wrong, and why."""

    partition: str
    message: str


class CheckStatus(Struct, frozen=True):
    """The verdicts on a table's partitions as they are now; a verdict on earlier rows does not count."""

    passed: int
    failed: list[FailedCheck]  # newest partition first
    unjudged: int


class OrchestratorStatus(Struct, frozen=True):
    """All that is read in one look."""

    runs: list[RunStatus] = []  # open ones first, each group newest first
    backfills: list[BackfillStatus] = []
    checks: dict[str, CheckStatus] = {}


def read_run_status(home: Home, *, now_us: int) -> OrchestratorStatus:
    """Runs, backfills and verdicts; nothing at all when the orchestrator has never run in this home."""
    if not has_storage(home):
        return OrchestratorStatus()
    with _importing():
        from dagster import DagsterError
        from dagster._check import CheckError
        from sqlalchemy.exc import SQLAlchemyError

        from orchestration.run_storage import ask

    try:
        return ask(home, lambda storage: _read(storage, now_us))
    except (DagsterError, CheckError, SQLAlchemyError, YAMLError, ImportError, OSError) as error:
        raise RunsUnreadableError(
            f"The orchestrator's storage, which {home.dagster / SETTINGS_FILE} names, cannot be read: {_briefly(error)}"
        ) from error


def _briefly(error: Exception) -> str:
    """Its kind and its first two lines: of a settings file, the second says which line of it is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join([f"{type(error).__name__}:", *lines[:2]])


@contextmanager
def _importing() -> Iterator[None]:
    """Everything that an import makes stays: looking for garbage among it takes a sixth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _read(storage: "Storage", now_us: int) -> OrchestratorStatus:
    return OrchestratorStatus(_runs(storage, now_us), _backfills(storage), _checks(storage))


def _runs(storage: "Storage", now_us: int) -> list[RunStatus]:
    from dagster import DagsterRunStatus, RunsFilter
    from dagster._core.storage.dagster_run import FINISHED_STATUSES

    unfinished = [status for status in DagsterRunStatus if status not in FINISHED_STATUSES]
    found = list(storage.runs.get_run_records(RunsFilter(statuses=unfinished), limit=LAST_RUNS))
    if len(found) < LAST_RUNS:
        finished = RunsFilter(statuses=FINISHED_STATUSES)
        found += storage.runs.get_run_records(finished, limit=LAST_RUNS - len(found))
    errors = _errors(storage, [record for record in found if record.dagster_run.status == DagsterRunStatus.FAILURE])
    return [_run(record, errors, now_us) for record in found]


def _run(record: "RunRecord", errors: dict[str, str], now_us: int) -> RunStatus:
    run = record.dagster_run
    ended_us = round(record.end_time * SECOND_US) if record.end_time else now_us
    started_us = round(record.start_time * SECOND_US) if record.start_time else None
    return RunStatus(
        run_id=run.run_id,
        what=_what(run),
        from_partition=run.tags.get(RANGE_START, run.tags.get(PARTITION)),
        to_partition=run.tags.get(RANGE_END, run.tags.get(PARTITION)),
        status=run.status.value.lower(),
        is_open=not run.is_finished,
        at_us=to_us(record.create_timestamp) if started_us is None else started_us,
        seconds=None if started_us is None else max(0, ended_us - started_us) / SECOND_US,
        error=errors.get(run.run_id),
    )


def _what(run: "DagsterRun") -> str:
    if run.job_name == UNNAMED_JOB and run.asset_selection:
        return _names(list(run.asset_selection))
    return run.job_name


def _names(keys: "Sequence[AssetKey]") -> str:
    return ", ".join(sorted(key.to_user_string() for key in keys))


def _errors(storage: "Storage", failed: "Sequence[RunRecord]") -> dict[str, str]:
    """Run → first line of its innermost error, in one question for all of them."""
    if not failed:
        return {}
    from dagster import DagsterEventType
    from dagster._core.event_api import RunStatusChangeRecordsFilter

    since = min(record.create_timestamp for record in failed).timestamp()
    chosen = RunStatusChangeRecordsFilter(DagsterEventType.RUN_FAILURE, after_timestamp=since)
    records = storage.events.fetch_run_status_changes(chosen, limit=FAILURES_READ).records
    return {record.run_id: _reason(record.event_log_entry.get_dagster_event()) for record in records}


def _reason(failure: "DagsterEvent") -> str:
    """The innermost error is the one that knows."""
    # Who finds a run dead from outside, as the daemon does, leaves a message and no error.
    data: JobFailureData | None = failure.job_failure_data
    step = data.first_step_failure_event if data else None
    error = step.step_failure_data.error if step else (data.error if data else None)
    while error and error.cause:
        error = error.cause
    text = (error.message if error else failure.message) or "no reason was recorded; its page in the UI may show more"
    return text.strip().splitlines()[0]


def _backfills(storage: "Storage") -> list[BackfillStatus]:
    from dagster._core.execution.backfill import BULK_ACTION_TERMINAL_STATUSES, BulkActionsFilter, BulkActionStatus

    unfinished = [status for status in BulkActionStatus if status not in BULK_ACTION_TERMINAL_STATUSES]
    return [
        BackfillStatus(
            backfill_id=backfill.backfill_id,
            what=_names(backfill.asset_selection or []) or backfill.partition_set_name or backfill.title or "",
            status=backfill.status.value.lower(),
            at_us=round(backfill.backfill_timestamp * SECOND_US),
        )
        for backfill in storage.runs.get_backfills(BulkActionsFilter(statuses=unfinished))
    ]


def _checks(storage: "Storage") -> dict[str, CheckStatus]:
    from dagster import AssetCheckKey, DagsterEventType

    keys = storage.events.all_asset_keys()
    by_table: dict[AssetKey, dict[str, AssetCheckPartitionInfo]] = defaultdict(dict)
    for info in storage.events.get_asset_check_partition_info([AssetCheckKey(key, CHECK_NAME) for key in keys]):
        if info.partition_key is not None:
            by_table[info.check_key.asset_key][info.partition_key] = info
    found: dict[str, CheckStatus] = {}
    for key in keys:
        materialized = storage.events.get_latest_storage_id_by_partition(key, DagsterEventType.ASSET_MATERIALIZATION)
        judged = by_table[key]
        if materialized or judged:  # `drain` has no partitions
            verdicts = {
                partition: _verdict(judged.get(partition), materialized.get(partition))
                for partition in {*materialized, *judged}
            }
            found[key.to_user_string()] = _check_status(storage, AssetCheckKey(key, CHECK_NAME), verdicts)
    return found


def _check_status(storage: "Storage", key: "AssetCheckKey", verdicts: dict[str, bool | None]) -> CheckStatus:
    failed = sorted((partition for partition, passed in verdicts.items() if passed is False), reverse=True)
    messages = _messages(storage, key, set(failed))
    return CheckStatus(
        passed=sum(passed is True for passed in verdicts.values()),
        failed=[FailedCheck(partition, messages.get(partition, "")) for partition in failed],
        unjudged=sum(passed is None for passed in verdicts.values()),
    )


def _verdict(info: "AssetCheckPartitionInfo | None", materialized: int | None) -> bool | None:
    """Whether the partition's last materialization was found right; none while nobody has said."""
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

    if info is None:
        return None
    target = info.latest_target_materialization_storage_id
    if target is None:
        # A refusal is about no materialization in particular; it holds until there is a later one.
        is_current = materialized is None or info.latest_check_event_storage_id > materialized
    else:
        is_current = target == materialized
    status = info.latest_execution_status
    if is_current and status is AssetCheckExecutionRecordStatus.FAILED:
        return False
    return True if status is AssetCheckExecutionRecordStatus.SUCCEEDED and target and is_current else None


def _messages(storage: "Storage", key: "AssetCheckKey", partitions: set[str]) -> dict[str, str]:
    """Partition → first sentence of its last failed verdict."""
    from dagster._core.storage.asset_check_execution_record import AssetCheckExecutionRecordStatus

    found: dict[str, str] = {}
    cursor: int | None = None
    while partitions - found.keys():
        records = storage.events.get_asset_check_execution_history(
            key, limit=VERDICTS_READ, cursor=cursor, status={AssetCheckExecutionRecordStatus.FAILED}
        )
        for record in records:
            if record.partition in partitions and record.partition not in found:
                found[record.partition] = first_sentence((record.evaluation and record.evaluation.description) or "")
        if len(records) < VERDICTS_READ:
            break
        cursor = records[-1].id
    return found


def first_sentence(message: str) -> str:
    """What is wrong, without the examples: those are rows, and a status goes to places where rows should not."""
    line = next(iter(message.strip().splitlines()), "")
    sentence, _, example = line.partition(", for example ")
    return sentence if example else line.partition(". ")[0]
