"""Which step of which run did how much, and what its time was for: Dagster's events laid over Spark's event log.

Belongs here: cutting a stretch of time into phases by the events of runs, and sharing out jobs, executions and seconds
among them. Runs follow one another in a command. Where two of the daemon run side by side, what happened at a time
counts for the earlier one, so that seconds add up. Does not belong here: reading Spark's log (`freshness_log.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.freshness_log import Job, SparkWork, covered_s

if TYPE_CHECKING:
    from dagster import DagsterInstance, EventLogEntry

MADE, JUDGED = "ASSET_MATERIALIZATION", "ASSET_CHECK_EVALUATION"
SCHEDULE_TAG = "dagster/schedule_name"
# What a phase is for. A command's own process starts once; each run of the daemon has a process of its own.
PROCESS, WRITE, CHECK = "process and imports", "write", "check"
# Steps that begin and end, and everything that is recorded of them; what lies between runs: looks of sensors, planning.
ORCHESTRATOR, BETWEEN, QUEUE = "orchestrator", "between runs", "queue"
KINDS = (PROCESS, QUEUE, BETWEEN, ORCHESTRATOR, WRITE, CHECK)


@dataclass(frozen=True)
class Mark:
    """An event of a run that a phase begins or ends with."""

    at_ms: float
    kind: str  # Dagster's name of the event
    step: str
    table: str
    partition: str | None = None
    is_passed: bool = False


@dataclass(frozen=True)
class Run:
    """A run's events, and whether a schedule began it: then it has nothing to do with a write."""

    marks: tuple[Mark, ...]
    is_scheduled: bool = False

    @property
    def begun_ms(self) -> float:
        """Its first event."""
        return self.marks[0].at_ms


@dataclass(frozen=True)
class Phase:
    """A stretch of a run: what it was for, and the table that it was about."""

    run: int
    table: str
    kind: str
    start_ms: float
    end_ms: float


@dataclass(frozen=True)
class Share:
    """What a phase took. The seconds add up to its length."""

    phase: Phase
    work: SparkWork
    jvm_s: float  # until a JVM that was started here had its first execution
    job_s: float
    commit_s: float  # after the last job of a write
    planning_s: float  # the rest of the executions
    other_s: float  # outside executions: Python, Delta's look at the log, the orchestrator's storage

    @property
    def seconds(self) -> float:
        """The length of the phase."""
        return (self.phase.end_ms - self.phase.start_ms) / 1000


def runs_of(instance: "DagsterInstance", since_s: float) -> list[Run]:
    """Every run that was created since a time, the oldest first."""
    found = []
    for record in instance.get_run_records(ascending=True):
        run = record.dagster_run
        marks = tuple(_marks(instance.all_logs(run.run_id)))
        if marks and marks[0].at_ms >= since_s * 1000:
            found.append(Run(marks, SCHEDULE_TAG in run.tags))
    return sorted(found, key=lambda run: run.begun_ms)


def _marks(entries: Iterable["EventLogEntry"]) -> Iterator[Mark]:
    for entry in entries:
        event, at_ms = entry.dagster_event, entry.timestamp * 1000
        if event is None:
            continue
        kind, step = event.event_type_value, event.step_key or ""
        if kind == MADE and event.asset_key:
            yield Mark(at_ms, kind, step, event.asset_key.to_user_string(), event.partition)
        elif kind == JUDGED:
            found = event.asset_check_evaluation_data
            yield Mark(at_ms, kind, step, found.asset_key.to_user_string(), found.partition, found.passed)
        else:
            yield Mark(at_ms, kind, step, "")


def unproven(runs: Iterable[Run]) -> list[str]:
    """Partitions that were made and have not passed a check since, and those that failed one."""
    is_good: dict[tuple[str, str | None], bool] = {}
    for mark in sorted((mark for run in runs for mark in run.marks), key=lambda mark: mark.at_ms):
        # These are assets without rows, and nothing checks them.
        if mark.kind in {MADE, JUDGED} and mark.table not in {"drain", "refresh"}:
            is_good[mark.table, mark.partition] = mark.is_passed
    return sorted(f"{table} {partition or ''}".strip() for (table, partition), good in is_good.items() if not good)


def phases_of(runs: Sequence[Run], start_ms: float, end_ms: float, *, is_command: bool) -> list[Phase]:
    """The time from start to end in phases without gaps. Before the first run a command starts, the daemon waits."""
    phases: list[Phase] = []
    reached = start_ms
    for number, run in enumerate(runs, start=1):
        if run.begun_ms > reached:
            before = PROCESS if is_command and number == 1 else BETWEEN
            phases.append(Phase(number, "", before, reached, min(run.begun_ms, end_ms)))
            reached = run.begun_ms
        for phase in _in_run(number, run.marks):
            begun, end = max(phase.start_ms, reached), min(phase.end_ms, end_ms)
            if end > begun:
                phases.append(Phase(number, phase.table, phase.kind, begun, end))
                reached = end
    if end_ms > reached:
        phases.append(Phase(len(runs) + 1, "", BETWEEN, reached, end_ms))
    return phases


def _in_run(number: int, marks: Sequence[Mark]) -> Iterator[Phase]:
    """In a step, rows are written until the first record of them; what lies before and between steps is the rest."""
    reached, in_step, is_written, is_launched = marks[0].at_ms, "", False, False
    for mark in marks:
        match mark.kind:
            case "PIPELINE_STARTING":
                yield Phase(number, "", QUEUE, reached, mark.at_ms)
                is_launched = True
            case "PIPELINE_START":
                yield Phase(number, "", PROCESS if is_launched else ORCHESTRATOR, reached, mark.at_ms)
            case "STEP_START":
                yield Phase(number, "", ORCHESTRATOR, reached, mark.at_ms)
                in_step, is_written = mark.step, mark.step.endswith("_suite")
            case "ASSET_MATERIALIZATION" if in_step and not is_written:
                yield Phase(number, in_step.removesuffix("_suite"), WRITE, reached, mark.at_ms)
                is_written = True
            case "ASSET_CHECK_EVALUATION" if in_step:
                yield Phase(number, mark.table, CHECK, reached, mark.at_ms)
            case "STEP_SUCCESS" | "STEP_FAILURE" if in_step:
                kind, in_step = CHECK if is_written else WRITE, ""
                yield Phase(number, mark.step.removesuffix("_suite"), kind, reached, mark.at_ms)
            case _:
                continue
        reached = mark.at_ms
    yield Phase(number, "", ORCHESTRATOR, reached, marks[-1].at_ms)


def shares(phases: Iterable[Phase], work: SparkWork) -> list[Share]:
    """What each phase took of Spark's work, and what its time was for."""
    commits = list(_commits(work))
    return [_share(phase, work, commits) for phase in phases]


def _share(phase: Phase, work: SparkWork, commits: Sequence[tuple[float, float]]) -> Share:
    start, end = phase.start_ms, phase.end_ms
    spans = [(each.start_ms, each.end_ms) for each in work.executions]
    jobs = [(job.start_ms, job.end_ms) for job in work.jobs]
    # Before and between runs a JVM starts beside what is going on; only a step waits for it.
    jvm_end = _first_execution_after_a_start(work, start, end) if phase.kind in {WRITE, CHECK} else None
    in_executions = _clipped_s([*spans, *jobs], start, end)
    in_jobs = _clipped_s(jobs, start, end)
    # A commit may overlap a job of its own snapshot, which counts as a job.
    in_commits = _clipped_s([*commits, *jobs], start, end) - in_jobs
    jvm_s = (min(jvm_end, end) - start) / 1000 if jvm_end else 0.0
    return Share(
        phase,
        work.within(start, end),
        jvm_s,
        in_jobs,
        in_commits,
        in_executions - in_jobs - in_commits,
        max(0.0, (end - start) / 1000 - in_executions - jvm_s),
    )


def _first_execution_after_a_start(work: SparkWork, start_ms: float, end_ms: float) -> float | None:
    """When the JVM that was started in this stretch began to work, if one was."""
    for begun in work.starts_ms:
        if start_ms <= begun < end_ms:
            return min((each.start_ms for each in work.executions if each.start_ms >= begun), default=end_ms)
    return None


def _commits(work: SparkWork) -> Iterator[tuple[float, float]]:
    """From the last job of each write to its end."""
    jobs_of: dict[int, list[Job]] = {}
    root_of = {each.number: each.root for each in work.executions}
    for job in work.jobs:
        if job.execution is not None:
            jobs_of.setdefault(root_of.get(job.execution, job.execution), []).append(job)
    for each in work.executions:
        if each.is_write:
            last = max((job.end_ms for job in jobs_of.get(each.number, ())), default=each.start_ms)
            yield last, each.end_ms


def _clipped_s(spans: Iterable[tuple[float, float]], start_ms: float, end_ms: float) -> float:
    """Seconds between two times in which at least one span was open."""
    return covered_s((max(a, start_ms), min(b, end_ms)) for a, b in spans if a < end_ms and b > start_ms)
