"""What the orchestrator's tables hold, read by SQL: runs, failures, backfills, materializations and verdicts.

Belongs here: the questions in SQL, and the parts of the stored bodies that are used. Tables, columns and bodies are
those of the Dagster that `pyproject.toml` pins; a test asks Dagster the same and compares. Does not belong here: what
follows from the answers (`run_status.py`).
"""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from msgspec import Struct, field
from msgspec.json import Decoder

from orchestration.run_storage import Storage
from tidemark.model.timegrid import SECOND_US, to_us

UNFINISHED_RUNS = ("QUEUED", "NOT_STARTED", "MANAGED", "STARTING", "STARTED", "SUSPENDED", "CANCELING")
FINISHED_RUNS = ("SUCCESS", "FAILURE", "CANCELED")
UNFINISHED_BACKFILLS = ("REQUESTED", "CANCELING", "FAILING")
# Dagster's stored names: a run was a pipeline once.
RUN_FAILURE = "PIPELINE_FAILURE"
MATERIALIZATION = "ASSET_MATERIALIZATION"
# A line of `status`; all of an error is on the run's page.
LONGEST_REASON = 400


class _Key(Struct):
    path: list[str]

    def __str__(self) -> str:
        return "/".join(self.path)


class _Keys(Struct):
    """A set as it is stored, by the kind of set that it was."""

    frozen: list[_Key] = field(name="__frozenset__", default_factory=list)
    plain: list[_Key] = field(name="__set__", default_factory=list)


class _RunBody(Struct):
    tags: dict[str, str]
    asset_selection: _Keys | None = None


class _PartitionSet(Struct):
    partition_set_name: str


class _BackfillBody(Struct):
    backfill_timestamp: float
    asset_selection: list[_Key] | None = None
    partition_set_origin: _PartitionSet | None = None
    title: str | None = None


class _Error(Struct):
    message: str
    stack: list[str] = []
    cause: "_Error | None" = None


class _StepFailure(Struct):
    error: _Error | None = None


class _StepFailureEvent(Struct):
    step_key: str | None = None
    event_specific_data: _StepFailure | None = None


class _RunFailure(Struct):
    error: _Error | None = None
    first_step_failure_event: _StepFailureEvent | None = None


class _RunFailureEvent(Struct):
    message: str | None = None
    event_specific_data: _RunFailure | None = None


class _RunFailureEntry(Struct):
    dagster_event: _RunFailureEvent


class _Evaluation(Struct):
    description: str | None = None


class _EvaluationEvent(Struct):
    event_specific_data: _Evaluation


class _EvaluationEntry(Struct):
    dagster_event: _EvaluationEvent


class _AssetDetails(Struct):
    last_wipe_timestamp: float | None = None


_RUN, _BACKFILL, _DETAILS = Decoder(_RunBody), Decoder(_BackfillBody), Decoder(_AssetDetails)
_FAILURE, _EVALUATION, _PATH = Decoder(_RunFailureEntry), Decoder(_EvaluationEntry), Decoder(list[str])


class StoredRun(NamedTuple):
    """One run; names of assets in the order of the alphabet, times in microseconds."""

    run_id: str
    job_name: str
    status: str
    assets: list[str]
    tags: dict[str, str]
    created_us: int
    started_us: int | None
    ended_us: int | None


class StoredBackfill(NamedTuple):
    """One backfill."""

    backfill_id: str
    status: str
    assets: list[str]
    partition_set: str | None
    title: str | None
    created_us: int


class StoredTable(NamedTuple):
    """An asset of which something was recorded, and not wiped since."""

    key: str  # as the storage writes it
    name: str
    wiped_at: str | None  # what was materialized before does not count


class StoredVerdict(NamedTuple):
    """The last verdict on a partition, or its plan."""

    row: int
    status: str  # PLANNED, SUCCEEDED or FAILED
    event: int
    target: int | None  # the materialization that was judged


def read_runs(storage: Storage, statuses: Sequence[str], limit: int) -> list[StoredRun]:
    """The newest runs that have one of the statuses."""
    rows = storage.runs.rows(
        "SELECT run_id, pipeline_name, status, run_body, create_timestamp, start_time, end_time FROM runs "
        f"WHERE status IN ({_places(statuses)}) ORDER BY id DESC LIMIT ?",
        *statuses,
        limit,
    )
    return [_run(*row) for row in rows]


def _run(
    run_id: str,
    job_name: str,
    status: str,
    body: str,
    created: datetime | str,
    started: float | None,
    ended: float | None,
) -> StoredRun:
    run = _RUN.decode(body)
    keys = [*run.asset_selection.frozen, *run.asset_selection.plain] if run.asset_selection else []
    # The status in the row is newer than the one in the body if two wrote at once.
    return StoredRun(
        run_id, job_name, status, _names(keys), run.tags, _naive_us(created), _seconds_us(started), _seconds_us(ended)
    )


def read_failures(storage: Storage, run_ids: Sequence[str]) -> dict[str, str]:
    """Run → the step that failed and what its innermost error says, or who found it dead; nothing if nobody spoke."""
    if not run_ids:
        return {}
    rows = storage.events.rows(
        "SELECT run_id, event FROM event_logs "
        f"WHERE dagster_event_type = ? AND run_id IN ({_places(run_ids)}) ORDER BY id DESC",
        RUN_FAILURE,
        *run_ids,
    )
    return {run_id: _reason(_FAILURE.decode(event).dagster_event) for run_id, event in rows}


def _reason(failure: _RunFailureEvent) -> str:
    """The innermost error is the one that knows."""
    # Who finds a run dead from outside, as the daemon does, leaves a message and no error.
    data = failure.event_specific_data
    step = data.first_step_failure_event if data else None
    if step:
        error = step.event_specific_data.error if step.event_specific_data else None
    else:
        error = data.error if data else None
    while error and error.cause:
        error = error.cause
    if error is None:
        return failure.message or ""
    where = f"{step.step_key}: " if step and step.step_key else ""
    return where + in_a_line(error.message, error.stack)


def in_a_line(message: str, stack: Sequence[str]) -> str:
    """An error's class and the first line of what it says; of one that says nothing, where it was raised."""
    lines = [line.strip() for line in message.splitlines() if line.strip()]
    if not lines:
        lines = ["an error without a word"]
    kind, _, said = lines[0].partition(":")
    if not said.strip() and " " not in kind:
        place = " ".join(stack[-1].split()) if stack else ""
        said = lines[1] if len(lines) > 1 else f"it says no more; raised at {place}" if place else "it says no more"
        lines = [f"{kind}: {said}"]
    return lines[0] if len(lines[0]) <= LONGEST_REASON else f"{lines[0][: LONGEST_REASON - 1]}…"


def read_backfills(storage: Storage) -> list[StoredBackfill]:
    """Backfills that are not finished, newest first."""
    rows = storage.runs.rows(
        "SELECT key, status, body FROM bulk_actions "
        f"WHERE status IN ({_places(UNFINISHED_BACKFILLS)}) ORDER BY id DESC",
        *UNFINISHED_BACKFILLS,
    )
    found = []
    for key, status, text in rows:
        body = _BACKFILL.decode(text)
        origin = body.partition_set_origin
        partition_set = origin.partition_set_name if origin else None
        created_us = round(body.backfill_timestamp * SECOND_US)
        names = _names(body.asset_selection or [])
        found.append(StoredBackfill(key, status, names, partition_set, body.title, created_us))
    return found


def read_tables(storage: Storage) -> list[StoredTable]:
    """Every asset that the orchestrator remembers, in the order of the stored keys."""
    rows = storage.events.rows(
        "SELECT asset_key, asset_details FROM asset_keys "
        "WHERE wipe_timestamp IS NULL OR last_materialization_timestamp > wipe_timestamp"
    )
    # Sorted here: a server sorts by its own language.
    return [StoredTable(key, "/".join(_PATH.decode(key)), _wiped_at(details)) for key, details in sorted(rows)]


def _wiped_at(details: str | None) -> str | None:
    wiped = _DETAILS.decode(details).last_wipe_timestamp if details else None
    # All digits of the microseconds: SQLite compares times as text.
    return (
        str(datetime.fromtimestamp(wiped, UTC).replace(tzinfo=None).isoformat(" ", "microseconds")) if wiped else None
    )


def read_materializations(storage: Storage, table: StoredTable, only: Sequence[str] | None = None) -> dict[str, int]:
    """Partition → the number of its last materialization; of a table without partitions under no name."""
    since = " AND timestamp > ?" if table.wiped_at else ""
    rows = storage.events.rows(
        "SELECT coalesce(partition, ''), max(id) FROM event_logs "
        f"WHERE asset_key = ? AND dagster_event_type = ?{since}{_among(only)} GROUP BY coalesce(partition, '')",
        table.key,
        MATERIALIZATION,
        *([table.wiped_at] if table.wiped_at else []),
        *(only or ()),
    )
    return {partition: last for partition, last in rows}  # noqa: C416 - the types of two columns


def read_verdicts(
    storage: Storage, table: StoredTable, check: str, only: Sequence[str] | None = None
) -> dict[str, StoredVerdict]:
    """Partition → the last that was said of it; of a table without partitions under no name."""
    rows = storage.events.rows(
        "SELECT coalesce(partition, ''), id, execution_status, evaluation_event_storage_id, "
        "materialization_event_storage_id FROM asset_check_executions WHERE id IN ("
        "SELECT max(id) FROM asset_check_executions WHERE asset_key = ? AND check_name = ? "
        f"AND evaluation_event_storage_id IS NOT NULL{_among(only)} GROUP BY coalesce(partition, ''))",
        table.key,
        check,
        *(only or ()),
    )
    return {partition: StoredVerdict(*verdict) for partition, *verdict in rows}


class StoredCounts(NamedTuple):
    """Of partitions that only good verdicts are stored of, if any."""

    materialized: int
    partitions: int  # of these, those with a name
    judged: int  # of these, those with a verdict on their last materialization


def read_unusual(storage: Storage, check: str, limit: int) -> dict[str, list[str]] | None:
    """Key of a table → partitions with a verdict that is not good, not finished, or about no materialization.

    None if there are more than so many.
    """
    rows = storage.events.rows(
        "SELECT DISTINCT asset_key, coalesce(partition, '') FROM asset_check_executions WHERE check_name = ? "
        "AND (execution_status <> 'SUCCEEDED' OR materialization_event_storage_id IS NULL "
        "OR evaluation_event_storage_id IS NULL) LIMIT ?",
        check,
        limit + 1,
    )
    found: dict[str, list[str]] = {}
    for key, partition in rows:
        found.setdefault(key, []).append(partition)
    return found if len(rows) <= limit else None


def count_usual(storage: Storage, table: StoredTable, check: str, unusual: Sequence[str]) -> StoredCounts:
    """The others, counted where they are stored: there is one for every hour of a table's life."""
    since = " AND timestamp > ?" if table.wiped_at else ""
    [counts] = storage.events.rows(
        "SELECT count(*), count(nullif(partition, '')), coalesce(sum(CASE WHEN last IN ("
        "SELECT materialization_event_storage_id FROM asset_check_executions WHERE asset_key = ? AND check_name = ? "
        "AND materialization_event_storage_id IS NOT NULL) THEN 1 ELSE 0 END), 0) "
        "FROM (SELECT partition, max(id) AS last FROM event_logs WHERE asset_key = ? AND dagster_event_type = ?"
        f"{since}{_among(unusual, is_not=True)} GROUP BY partition) AS made",
        table.key,
        check,
        table.key,
        MATERIALIZATION,
        *([table.wiped_at] if table.wiped_at else []),
        *unusual,
    )
    return StoredCounts(*(int(count) for count in counts))


def _among(partitions: Sequence[str] | None, *, is_not: bool = False) -> str:
    """A condition on the partition; none if there is nothing to tell apart."""
    if partitions is None or (is_not and not partitions):
        return ""
    return f" AND coalesce(partition, '') {'NOT ' if is_not else ''}IN ({_places(partitions)})"


def read_descriptions(storage: Storage, verdicts: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Partition and description of each of the verdicts."""
    rows = storage.events.rows(
        "SELECT coalesce(partition, ''), evaluation_event FROM asset_check_executions "
        f"WHERE id IN ({_places(verdicts)})",
        *verdicts,
    )
    for partition, event in rows:
        evaluation = _EVALUATION.decode(event).dagster_event.event_specific_data if event else None
        yield partition, (evaluation and evaluation.description) or ""


def _places(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))


def _names(keys: Sequence[_Key]) -> list[str]:
    return sorted(map(str, keys))


def _naive_us(moment: datetime | str) -> int:
    """A stored time, which is in UTC and does not say so; SQLite has it as text."""
    value = datetime.fromisoformat(moment) if isinstance(moment, str) else moment
    return to_us(value.replace(tzinfo=UTC))


def _seconds_us(seconds: float | None) -> int | None:
    return round(seconds * SECOND_US) if seconds else None
