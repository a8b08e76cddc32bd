"""What Spark did, from its own event log: jobs, SQL executions, stages and tasks, with their times.

Belongs here: reading the log, and what a line of it says. Does not belong here: which step of a run a job belongs to
(`freshness_steps.py`), or how the log is switched on (`freshness_home.py`).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SAVE, VIEW = "save", "naming a view"
# A table of the lake in a plan is the folder of that name.
_TABLE = re.compile(r"/lake/([a-z][a-z0-9_]*)")
# What a command of SQL does, by the node of its plan: the same words in a process of its own and on a server.
_COMMANDS = {"SaveIntoDataSourceCommand": SAVE, "CreateViewCommand": VIEW, "DropTempViewCommand": VIEW}
_ON_SERVER = "Spark Connect"
# What Delta says of itself, from the most special to the most general.
DELTA_WORK = {
    "Compute snapshot": "snapshot",
    "Filtering files": "choosing files",
}


@dataclass(frozen=True)
class Job:
    """A job of Spark. `tasks` are those that ran; stages whose output was there already do not count."""

    number: int
    execution: int | None
    start_ms: int
    end_ms: int
    stages: int
    tasks: int
    what: str


@dataclass(frozen=True)
class Execution:
    """A SQL execution of Spark. `root` is the one that it was started by, often itself."""

    number: int
    root: int
    start_ms: int
    end_ms: int
    what: str
    tables: tuple[str, ...]

    @property
    def is_view(self) -> bool:
        """Whether it only names a view: such an execution reads nothing and takes a millisecond."""
        return self.what == VIEW

    @property
    def is_write(self) -> bool:
        """Whether it writes a table, and is not a part of that."""
        return self.what == SAVE and self.root == self.number


@dataclass(frozen=True)
class SparkWork:
    """Everything that one or several logs say."""

    jobs: tuple[Job, ...] = ()
    executions: tuple[Execution, ...] = ()
    starts_ms: tuple[int, ...] = ()  # of the applications

    def within(self, start_ms: float, end_ms: float) -> "SparkWork":
        """What began between two times."""
        return SparkWork(
            tuple(job for job in self.jobs if start_ms <= job.start_ms < end_ms),
            tuple(each for each in self.executions if start_ms <= each.start_ms < end_ms),
            tuple(start for start in self.starts_ms if start_ms <= start < end_ms),
        )

    @property
    def stages(self) -> int:
        """Stages that ran."""
        return sum(job.stages for job in self.jobs)

    @property
    def tasks(self) -> int:
        """Tasks that ran."""
        return sum(job.tasks for job in self.jobs)


@dataclass
class _Reading:
    """What was read so far: starts wait for their ends."""

    jobs: dict[int, Any] = field(default_factory=dict)
    executions: dict[int, Any] = field(default_factory=dict)
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    ran: dict[int, int] = field(default_factory=dict)  # stage → its tasks
    starts_ms: list[int] = field(default_factory=list)
    last_ms: int = 0


def read_logs(folder: Path) -> SparkWork:
    """All logs of a folder, also those of applications that still run."""
    works = [read_log(path) for path in sorted(folder.iterdir())] if folder.exists() else []
    return SparkWork(
        tuple(job for work in works for job in work.jobs),
        tuple(each for work in works for each in work.executions),
        tuple(start for work in works for start in work.starts_ms),
    )


def read_log(path: Path) -> SparkWork:
    """One log. What had not ended when it was written counts as ended with its last line."""
    reading = _Reading()
    with path.open() as lines:
        for event in _events(lines):
            _note(reading, event)
    return SparkWork(
        tuple(_job(each, reading) for each in reading.jobs.values()),
        tuple(_execution(each, reading) for each in reading.executions.values()),
        tuple(reading.starts_ms),
    )


def covered_s(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds in which at least one of the spans, in milliseconds, was open."""
    total, reached = 0.0, float("-inf")
    for start, end in sorted(spans):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total / 1000


def _events(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    for line in lines:
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            # The last line of an application that still runs, or was killed.
            return


def _note(reading: _Reading, event: Mapping[str, Any]) -> None:
    match event["Event"].rpartition(".")[2]:
        case "SparkListenerApplicationStart":
            reading.starts_ms.append(event["Timestamp"])
        case "SparkListenerJobStart":
            reading.jobs[event["Job ID"]] = event
            reading.last_ms = event["Submission Time"]
        case "SparkListenerJobEnd":
            reading.ends["job", event["Job ID"]] = reading.last_ms = event["Completion Time"]
        case "SparkListenerStageSubmitted":
            reading.ran.setdefault(event["Stage Info"]["Stage ID"], 0)
        case "SparkListenerTaskEnd":
            reading.ran[event["Stage ID"]] = reading.ran.get(event["Stage ID"], 0) + 1
        case "SparkListenerSQLExecutionStart":
            reading.executions[event["executionId"]] = event
            reading.last_ms = event["time"]
        case "SparkListenerSQLExecutionEnd":
            reading.ends["execution", event["executionId"]] = reading.last_ms = event["time"]


def _job(event: Mapping[str, Any], reading: _Reading) -> Job:
    number, properties = event["Job ID"], event.get("Properties") or {}
    execution = properties.get("spark.sql.execution.id")
    # A stage that several jobs share ran for the first of them.
    stages = [stage["Stage ID"] for stage in event["Stage Infos"]]
    ran = [reading.ran.pop(stage) for stage in stages if stage in reading.ran]
    said = properties.get("spark.job.description") or properties.get("callSite.short") or ""
    return Job(
        number,
        int(execution) if execution is not None else None,
        event["Submission Time"],
        reading.ends.get(("job", number), reading.last_ms),
        len(ran),
        sum(ran),
        plain(said),
    )


def _execution(event: Mapping[str, Any], reading: _Reading) -> Execution:
    number, plan = event["executionId"], event["physicalPlanDescription"]
    return Execution(
        number,
        event.get("rootExecutionId", number),
        event["time"],
        reading.ends.get(("execution", number), reading.last_ms),
        _what(event),
        tuple(dict.fromkeys(_TABLE.findall(plan))),
    )


def _what(event: Mapping[str, Any]) -> str:
    """What an execution is: by its plan if that is a command, else by its description."""
    node = (event.get("sparkPlanInfo") or {}).get("nodeName", "")
    command = next((what for name, what in _COMMANDS.items() if name in node), None)
    description = event["description"]
    # On a server every description is that of the session.
    return command or (f"on the server: {node}" if description.startswith(_ON_SERVER) else plain(description))


def plain(description: str) -> str:
    """Spark's description of work, in a word or two that are the same for the same work."""
    for words, what in DELTA_WORK.items():
        if words in description:
            return f"Delta: {what}"
    if description.startswith("Delta: "):
        return re.sub(r"\d+", "n", description)
    action, _, place = description.partition(" at ")
    file, _, line = place.rpartition(":")
    if file.endswith(".py"):
        return f"{action} ({'/'.join(Path(file).parts[-2:])}:{line})"
    if action.startswith("$anonfun"):
        return "inside Spark"  # a closure of Spark's own, which says nothing more
    return action.splitlines()[0] if action else "unnamed"
