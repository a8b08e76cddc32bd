"""What the orchestrator knows, for somebody who looks: the last runs, open backfills, and every table's verdicts.

Belongs here: the questions and their typed answers. Each question is asked once per table and never once per
partition: a year has 8,760 of them. Does not belong here: how the storage is opened (`run_storage.py`), what its tables
hold (`run_records.py`), and how the answers are shown (`cli/status_view.py`). Dagster is not imported.
"""

import sqlite3

from msgspec import MsgspecError, Struct
from yaml import YAMLError

from orchestration.instance import SETTINGS_FILE, has_storage
from orchestration.run_records import (
    FINISHED_RUNS,
    UNFINISHED_RUNS,
    StoredCounts,
    StoredRun,
    StoredTable,
    StoredVerdict,
    count_usual,
    read_backfills,
    read_descriptions,
    read_failures,
    read_materializations,
    read_runs,
    read_tables,
    read_unusual,
    read_verdicts,
)
from orchestration.run_storage import Storage, ask
from orchestration.storage_settings import StorageError
from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import SECOND_US
from tidemark.storage.home import Home

# As many as one looks at together; all of them are on the orchestrator's pages.
LAST_RUNS = 8
# Of so many it is told what has failed in a row; a run an hour among the drains of an hour is in them.
FAILURES_AMONG = 200
# `assets.trust.CHECK_NAME`, whose module imports every table; a test holds the two together.
CHECK_NAME = "suite"
# The orchestrator's own name for the job of whatever was selected.
UNNAMED_JOB = "__ASSET_JOB"
RANGE_START, RANGE_END, PARTITION = (
    "dagster/asset_partition_range_start",
    "dagster/asset_partition_range_end",
    "dagster/partition",
)
# `assets.requested.MORE_PARTITIONS`, whose module imports the orchestrator; a test holds the two together.
MORE_PARTITIONS = "tidemark/more_partitions"
# With so many partitions about which something else than a good verdict is stored, all are looked at one by one.
MANY_UNUSUAL = 500
# Descriptions read at once: a page, not a bound of truth.
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
    error: str | None = None  # the step, and the class and first line of the innermost error
    more_partitions: tuple[str, ...] = ()  # those of it that lie outside of that range


class FailingStatus(Struct, frozen=True):
    """What fails again and again, and has not succeeded since."""

    what: str
    from_partition: str | None
    to_partition: str | None
    times: int
    since_us: int  # when the first of these runs began
    at_us: int  # and the last
    error: str | None = None


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
    failing: list[FailingStatus] = []  # what failed last comes first


def read_run_status(home: Home, *, now_us: int) -> OrchestratorStatus:
    """Runs, backfills and verdicts; nothing at all when the orchestrator has never run in this home."""
    if not has_storage(home):
        return OrchestratorStatus()
    try:
        return ask(home, lambda storage: _read(storage, now_us))
    except (StorageError, sqlite3.Error, MsgspecError, YAMLError, OSError) as error:
        raise RunsUnreadableError(
            f"The orchestrator's storage, which {home.dagster / SETTINGS_FILE} names, cannot be read: {_briefly(error)}"
        ) from error


def _briefly(error: Exception) -> str:
    """Its kind and its first two lines: of a settings file, the second says which line of it is wrong."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join([f"{type(error).__name__}:", *lines[:2]])


def _read(storage: Storage, now_us: int) -> OrchestratorStatus:
    return OrchestratorStatus(_runs(storage, now_us), _backfills(storage), _checks(storage), _failing(storage, now_us))


def _runs(storage: Storage, now_us: int) -> list[RunStatus]:
    found = read_runs(storage, UNFINISHED_RUNS, LAST_RUNS)
    if len(found) < LAST_RUNS:
        found += read_runs(storage, FINISHED_RUNS, LAST_RUNS - len(found))
    errors = read_failures(storage, [run.run_id for run in found if run.status == "FAILURE"])
    return [_run(run, errors, now_us) for run in found]


def _failing(storage: Storage, now_us: int) -> list[FailingStatus]:
    """The same run, failed more than once, with no success since that holds all of it."""
    succeeded: list[StoredRun] = []
    failed: dict[tuple[str, ...], list[StoredRun]] = {}
    for run in read_runs(storage, FINISHED_RUNS, FAILURES_AMONG):
        if run.status == "SUCCESS":
            succeeded.append(run)
        elif run.status == "FAILURE" and not any(_holds(each, run) for each in succeeded):
            failed.setdefault((run.job_name, *run.assets, *_ends(run)), []).append(run)
    rows = [runs for runs in failed.values() if len(runs) > 1]
    errors = read_failures(storage, [runs[0].run_id for runs in rows])
    told = [(_run(runs[0], errors, now_us), _run(runs[-1], errors, now_us), len(runs)) for runs in rows]
    return [
        FailingStatus(last.what, last.from_partition, last.to_partition, times, first.at_us, last.at_us, last.error)
        for last, first, times in told
    ]


def _ends(run: StoredRun) -> tuple[str, str]:
    single = run.tags.get(PARTITION, "")
    return run.tags.get(RANGE_START, single), run.tags.get(RANGE_END, single)


def _holds(run: StoredRun, other: StoredRun) -> bool:
    """Whether a run did all that another was to do; keys of partitions sort as the time that they stand for."""
    if run.job_name != other.job_name or not set(other.assets) <= set(run.assets):
        return False
    (start, end), (first, last) = _ends(run), _ends(other)
    return start <= first and last <= end


def _run(run: StoredRun, errors: dict[str, str], now_us: int) -> RunStatus:
    started_us = run.started_us
    return RunStatus(
        run_id=run.run_id,
        what=", ".join(run.assets) if run.job_name == UNNAMED_JOB and run.assets else run.job_name,
        from_partition=run.tags.get(RANGE_START, run.tags.get(PARTITION)),
        to_partition=run.tags.get(RANGE_END, run.tags.get(PARTITION)),
        status=run.status.lower(),
        is_open=run.status in UNFINISHED_RUNS,
        at_us=run.created_us if started_us is None else started_us,
        seconds=None if started_us is None else max(0, (run.ended_us or now_us) - started_us) / SECOND_US,
        error=_first_line(errors[run.run_id]) if run.run_id in errors else None,
        more_partitions=tuple(each for each in run.tags.get(MORE_PARTITIONS, "").split(",") if each),
    )


def _first_line(reason: str) -> str:
    return (reason.strip() or "no reason was recorded; its page in the UI may show more").splitlines()[0]


def _backfills(storage: Storage) -> list[BackfillStatus]:
    return [
        BackfillStatus(
            backfill_id=backfill.backfill_id,
            what=", ".join(backfill.assets) or backfill.partition_set or backfill.title or "",
            status=backfill.status.lower(),
            at_us=backfill.created_us,
        )
        for backfill in read_backfills(storage)
    ]


def _checks(storage: Storage) -> dict[str, CheckStatus]:
    unusual = read_unusual(storage, CHECK_NAME, MANY_UNUSUAL)
    found = (
        (table.name, _check_status(storage, table, None if unusual is None else unusual.get(table.key, [])))
        for table in read_tables(storage)
    )
    return {name: status for name, status in found if status}


def _check_status(storage: Storage, table: StoredTable, unusual: list[str] | None) -> CheckStatus | None:
    """What is known of the table's partitions; nothing of what is neither partitioned nor judged, as `drain` is.

    A year has thousands of partitions, nearly all of them right. Those are counted, and only the others are looked at
    one by one: those that are `unusual`, or all of them if it is not given.
    """
    usual, judged, materialized = StoredCounts(0, 0, 0), dict[str, StoredVerdict](), dict[str, int]()
    if unusual is not None:
        usual = count_usual(storage, table, CHECK_NAME, unusual)
    if unusual != []:
        judged = read_verdicts(storage, table, CHECK_NAME, only=unusual)
        materialized = read_materializations(storage, table, only=unusual)
    if not judged and materialized.keys() <= {""} and not usual.partitions and not usual.judged:
        return None
    verdicts = {
        partition: _verdict(judged.get(partition), materialized.get(partition))
        for partition in {*materialized, *judged}
    }
    failed = sorted((partition for partition, passed in verdicts.items() if passed is False), reverse=True)
    messages = _messages(storage, [judged[partition].row for partition in failed])
    return CheckStatus(
        passed=sum(passed is True for passed in verdicts.values()) + usual.judged,
        failed=[FailedCheck(partition, messages[partition]) for partition in failed],
        unjudged=sum(passed is None for passed in verdicts.values()) + usual.materialized - usual.judged,
    )


def _verdict(verdict: StoredVerdict | None, materialized: int | None) -> bool | None:
    """Whether the partition's last materialization was found right; none while nobody has said."""
    if verdict is None:
        return None
    if verdict.target is None:
        # A refusal is about no materialization in particular; it holds until there is a later one.
        is_current = materialized is None or verdict.event > materialized
    else:
        is_current = verdict.target == materialized
    if is_current and verdict.status == "FAILED":
        return False
    return True if verdict.status == "SUCCEEDED" and verdict.target and is_current else None


def _messages(storage: Storage, verdicts: list[int]) -> dict[str, str]:
    """Partition → first sentence of its verdict."""
    return {
        partition: first_sentence(description)
        for start in range(0, len(verdicts), VERDICTS_READ)
        for partition, description in read_descriptions(storage, verdicts[start : start + VERDICTS_READ])
    }


def first_sentence(message: str) -> str:
    """What is wrong, without the examples: those are rows, and a status goes to places where rows should not."""
    line = next(iter(message.strip().splitlines()), "")
    sentence, _, example = line.partition(", for example ")
    return sentence if example else line.partition(". ")[0]
