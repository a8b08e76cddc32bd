"""Which step of which run did how much, and what its time was for: Dagster's events laid over Spark's event log.

Belongs here: cutting a stretch of time into phases by the events of runs, and sharing out jobs, executions and seconds
among them. Runs follow one another here, as they do in a command; where two of the daemon run side by side, what Spark
did counts for the run that began its step last. Does not belong here: reading Spark's log (`freshness_log.py`).
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarks.freshness_log import Execution, Job, SparkWork, covered_s

if TYPE_CHECKING:
    from dagster import DagsterInstance, EventLogEntry

WRITE, CHECK, LAUNCH, BETWEEN = "write", "check", "launch", "between"


@dataclass(frozen=True)
class Mark:
    """An event of a run that a phase begins or ends with."""

    at_ms: float
    kind: str  # Dagster's name of the event
    step: str
    table: str


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


def marks_of(instance: "DagsterInstance", since_ms: float) -> list[list[Mark]]:
    """The events of every run that was created since, oldest run first."""
    from dagster import RunsFilter

    records = instance.get_run_records(RunsFilter(), ascending=True)
    runs = [list(_marks(instance.all_logs(record.dagster_run.run_id))) for record in records]
    found = [run for run in runs if run and run[0].at_ms >= since_ms]
    return sorted(found, key=lambda run: run[0].at_ms)


def _marks(entries: Iterable["EventLogEntry"]) -> Iterator[Mark]:
    for entry in entries:
        event = entry.dagster_event
        if event is None:
            continue
        kind, table = event.event_type_value, ""
        if kind == "ASSET_MATERIALIZATION" and event.asset_key:
            table = event.asset_key.to_user_string()
        elif kind == "ASSET_CHECK_EVALUATION":
            table = event.asset_check_evaluation_data.asset_key.to_user_string()
        yield Mark(entry.timestamp * 1000, kind, event.step_key or "", table)


def phases_of(runs: Sequence[Sequence[Mark]], start_ms: float, end_ms: float) -> list[Phase]:
    """The time from start to end in phases without gaps: what lies before, between and after runs is `BETWEEN`."""
    phases: list[Phase] = []
    reached = start_ms
    for number, marks in enumerate(runs, start=1):
        if marks[0].at_ms > reached:
            phases.append(Phase(number, "", BETWEEN, reached, marks[0].at_ms))
            reached = marks[0].at_ms
        for phase in _in_run(number, marks):
            begun = max(phase.start_ms, reached)
            if phase.end_ms > begun:
                phases.append(Phase(number, phase.table, phase.kind, begun, phase.end_ms))
                reached = phase.end_ms
    if end_ms > reached:
        phases.append(Phase(len(runs) + 1, "", BETWEEN, reached, end_ms))
    return phases


def _in_run(number: int, marks: Sequence[Mark]) -> Iterator[Phase]:
    """What lies before and between steps is launching. In a step, rows are written until the first record of them."""
    reached, in_step, is_written = marks[0].at_ms, "", False
    for mark in marks:
        match mark.kind:
            case "STEP_START":
                yield Phase(number, "", LAUNCH, reached, mark.at_ms)
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
    yield Phase(number, "", LAUNCH, reached, marks[-1].at_ms)


def shares(phases: Iterable[Phase], work: SparkWork) -> list[Share]:
    """What each phase took of Spark's work, and what its time was for."""
    commits = list(_commits(work))
    return [_share(phase, work, commits) for phase in phases]


def _share(phase: Phase, work: SparkWork, commits: Sequence[tuple[float, float]]) -> Share:
    start, end = phase.start_ms, phase.end_ms
    spans = [(each.start_ms, each.end_ms) for each in work.executions]
    jobs = [(job.start_ms, job.end_ms) for job in work.jobs]
    jvm_end = _first_execution_after_a_start(work, start, end)
    in_executions = _clipped_s([*spans, *jobs], start, end)
    in_jobs = _clipped_s(jobs, start, end)
    # A commit may overlap a job of its own snapshot, which counts as a job.
    in_commits = _clipped_s([*commits, *jobs], start, end) - in_jobs
    jvm_s = max(0.0, jvm_end - start) / 1000 if jvm_end else 0.0
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
        if _is_write(each):
            last = max((job.end_ms for job in jobs_of.get(each.number, ())), default=each.start_ms)
            yield last, each.end_ms


def _is_write(each: Execution) -> bool:
    return each.root == each.number and each.what.startswith("save")


def _clipped_s(spans: Iterable[tuple[float, float]], start_ms: float, end_ms: float) -> float:
    """Seconds between two times in which at least one span was open."""
    return covered_s((max(a, start_ms), min(b, end_ms)) for a, b in spans if a < end_ms and b > start_ms)
