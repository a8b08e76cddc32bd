"""What a turn took in jobs, executions, stages, tasks and statements, by step, by purpose and by description.

Belongs here: putting together what Spark, Dagster and SQLite wrote down, as rows for people and for scripts. Does not
belong here: measuring time and CPU (`freshness_ways.py`): what is written down costs some.
"""

import struct
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks.freshness_home import Notes
from benchmarks.freshness_log import Execution, SparkWork, read_logs
from benchmarks.freshness_steps import KINDS, Share, phases_of, runs_of, shares
from benchmarks.freshness_ways import Turn
from orchestration.instance import existing_instance
from tidemark.storage.home import Home


@dataclass(frozen=True)
class Row:
    """A row of the breakdown; the seconds after the first add up to it."""

    run: int | None
    what: str
    table: str
    seconds: float
    jvm_s: float
    job_s: float
    planning_s: float
    commit_s: float
    other_s: float
    jobs: int
    executions: int
    views: int  # of the executions: those that only name a view
    stages: int
    tasks: int
    statements: int


@dataclass(frozen=True)
class Asked:
    """One sort of work that Spark was asked for."""

    what: str  # the kind of phase
    description: str
    executions: int
    execution_s: float
    jobs: int
    job_s: float


@dataclass(frozen=True)
class Counted:
    """A turn, counted."""

    turn: Turn
    total: Row
    steps: list[Row]
    purposes: list[Row]
    asked: list[Asked]

    def as_json(self) -> dict[str, Any]:
        """One object."""
        return asdict(self)


def count(turn: Turn, home: Home, notes: Notes) -> Counted:
    """Count a turn. Call it when everything that wrote notes has ended."""
    begun_ms, ended_ms = turn.begun * 1000, turn.ended * 1000
    with existing_instance(home) as instance:
        runs = [run for run in runs_of(instance, turn.begun) if run.begun_ms < ended_ms]
    work = read_logs(notes.events).within(begun_ms, ended_ms)
    found = shares(phases_of(runs, begun_ms, ended_ms, is_command=turn.command_s is not None), work)
    statements = statement_times(notes)
    steps = _rows(found, statements, lambda share: (share.phase.run, share.phase.kind, share.phase.table))
    purposes = _rows(found, statements, lambda share: (None, share.phase.kind, ""))
    [total] = _rows(found, statements, lambda _: (None, "in all", "")) or [_row((None, "in all", ""), [], [])]
    return Counted(
        turn, total, steps, sorted(purposes, key=lambda row: KINDS.index(row.what)), list(_asked(found, work))
    )


def statement_times(notes: Notes) -> list[float]:
    """When statements were given to SQLite, in seconds since 1970, in order."""
    found: list[float] = []
    for path in notes.statements.iterdir():
        written = path.read_bytes()
        found += (each for (each,) in struct.iter_unpack("d", written[: len(written) // 8 * 8]))
    return sorted(found)


def _rows(
    found: Iterable[Share],
    statements: Sequence[float],
    key_of: Callable[[Share], tuple[int | None, str, str]],
) -> list[Row]:
    groups: dict[tuple[int | None, str, str], list[Share]] = defaultdict(list)
    for share in found:
        groups[key_of(share)].append(share)
    return [_row(key, together, statements) for key, together in groups.items()]


def _row(key: tuple[int | None, str, str], together: Sequence[Share], statements: Sequence[float]) -> Row:
    spans = [(share.phase.start_ms / 1000, share.phase.end_ms / 1000) for share in together]
    return Row(
        *key,
        seconds=sum(share.seconds for share in together),
        jvm_s=sum(share.jvm_s for share in together),
        job_s=sum(share.job_s for share in together),
        planning_s=sum(share.planning_s for share in together),
        commit_s=sum(share.commit_s for share in together),
        other_s=sum(share.other_s for share in together),
        jobs=sum(len(share.work.jobs) for share in together),
        executions=sum(len(share.work.executions) for share in together),
        views=sum(each.is_view for share in together for each in share.work.executions),
        stages=sum(share.work.stages for share in together),
        tasks=sum(share.work.tasks for share in together),
        statements=sum(bisect_left(statements, end) - bisect_left(statements, start) for start, end in spans),
    )


def _asked(found: Iterable[Share], work: SparkWork) -> Iterable[Asked]:
    """Executions and jobs by kind of phase and description, the longest first within a kind."""
    by_number = {each.number: each for each in work.executions}
    spent: dict[tuple[str, str], list[float]] = defaultdict(lambda: [0, 0.0, 0, 0.0])
    for share in found:
        for each in share.work.executions:
            entry = spent[share.phase.kind, _described(each, by_number)]
            entry[0] += 1
            entry[1] += (each.end_ms - each.start_ms) / 1000
        for job in share.work.jobs:
            own = by_number.get(job.execution) if job.execution is not None else None
            entry = spent[share.phase.kind, _described(own, by_number) if own else job.what]
            entry[2] += 1
            entry[3] += (job.end_ms - job.start_ms) / 1000
    for (kind, description), numbers in sorted(spent.items(), key=lambda item: (item[0][0], -item[1][1])):
        yield Asked(kind, description, int(numbers[0]), numbers[1], int(numbers[2]), numbers[3])


def _described(each: Execution, by_number: dict[int, Execution]) -> str:
    """An execution within another one is named with it."""
    root = by_number.get(each.root, each)
    return each.what if root is each else f"{root.what}: {each.what}"


def as_text(counted: Counted) -> str:
    """The breakdown for people."""
    turn = counted.turn
    said = (
        f"{turn.way}, counted: {counted.total.jobs} jobs and {counted.total.executions} SQL executions "
        f"({counted.total.views} of them name a view), {counted.total.stages} stages, {counted.total.tasks} tasks, "
        f"{counted.total.statements} statements to Dagster's storage"
    )
    lines = [
        said,
        f"commits: {', '.join(f'{table} {number}' for table, number in turn.commits.items())}",
        "",
        _HEAD.format(
            *("run", "what", "table", "s", "JVM", "jobs", "plan", "commit", "other"),
            *("jobs", "exec", "views", "stage", "tasks", "SQLite"),
        ),
        *(_line(row) for row in counted.steps),
        "",
        *(_line(row) for row in (*counted.purposes, counted.total)),
        "",
        f"{'exec':>5} {'s':>7} {'jobs':>5} {'s':>7}  what Spark was asked for",
        *(
            f"{each.executions:5} {each.execution_s:7.2f} {each.jobs:5} {each.job_s:7.2f}  "
            f"{each.what}: {each.description}"
            for each in counted.asked
        ),
    ]
    return "\n".join(lines)


_HEAD = "{:>3} {:19} {:16} {:>7} {:>6} {:>6} {:>6} {:>6} {:>6} | {:>5} {:>5} {:>5} {:>5} {:>5} {:>6}"


def _line(row: Row) -> str:
    seconds = (row.seconds, row.jvm_s, row.job_s, row.planning_s, row.commit_s, row.other_s)
    counts = (row.jobs, row.executions, row.views, row.stages, row.tasks, row.statements)
    return _HEAD.format(row.run or "", row.what, row.table, *(f"{each:.2f}" for each in seconds), *counts)
