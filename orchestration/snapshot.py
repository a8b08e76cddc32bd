"""A home at one time: what its files show, and the orchestrator's view of it.

Belongs here: taking the snapshot, in two steps because the orchestrator takes longer than all files together, and its
form as JSON. It opens nothing for writing and starts no JVM. Does not belong here: how each part is read
(`tidemark/observe/home_status.py`, `run_status.py`), and how it is shown (`cli/status_view.py`).
"""

from typing import Any

from msgspec import Struct, convert, to_builtins
from msgspec.structs import asdict, replace

from orchestration.run_status import OrchestratorStatus, RunsUnreadableError, read_run_status
from orchestration.warm_host.client import describe
from tidemark.model.errors import ConfigurationError
from tidemark.model.timegrid import from_us
from tidemark.observe.home_status import HomeStatus, home_as_json, read_home
from tidemark.storage.home import Home


class WarmHost(Struct, frozen=True):
    """The process that keeps everything imported for commands and runs, and the Spark beside it."""

    pid: int
    since_us: int
    idle_s: float  # it ends after so long without work
    spark_pid: int | None
    spark_address: str


class Snapshot(HomeStatus, frozen=True):
    """Everything that `status` shows."""

    orchestrator: OrchestratorStatus = OrchestratorStatus()
    orchestrator_error: str | None = None  # why runs and checks could not be read, if so
    warm_host: WarmHost | None = None  # none is running


def take_snapshot(home: Home, *, now_us: int) -> Snapshot:
    """Look at everything once. If the orchestrator's storage cannot be read, the rest is still shown."""
    return ask_orchestrator(home, read_files(home, now_us=now_us))


def read_files(home: Home, *, now_us: int) -> Snapshot:
    """Everything but the orchestrator's part; Dagster is not imported."""
    return Snapshot(**asdict(read_home(home, now_us=now_us)), warm_host=read_warm_host(home))


def read_warm_host(home: Home) -> WarmHost | None:
    """The running warm host of a home; none is started for this."""
    said = describe(home)
    return None if said is None else convert(said, WarmHost)


def ask_orchestrator(home: Home, snapshot: Snapshot) -> Snapshot:
    """The same with runs and check results, or why they could not be read."""
    try:
        return replace(snapshot, orchestrator=read_run_status(home, now_us=snapshot.now_us))
    except (RunsUnreadableError, ConfigurationError) as unreadable:
        return replace(snapshot, orchestrator_error=str(unreadable))


def snapshot_as_json(snapshot: Snapshot) -> dict[str, Any]:
    """For scripts and monitors."""
    orchestrator = snapshot.orchestrator
    return {
        **home_as_json(snapshot),
        "runs": [_timed_as_json(run) for run in orchestrator.runs],
        "failing": [_timed_as_json(failing) for failing in orchestrator.failing],
        "backfills": [_timed_as_json(backfill) for backfill in orchestrator.backfills],
        "checks": to_builtins(orchestrator.checks),
        "orchestrator_error": snapshot.orchestrator_error,
        "warm_host": None if snapshot.warm_host is None else _timed_as_json(snapshot.warm_host),
    }


def _timed_as_json(answer: Struct) -> dict[str, Any]:
    """A run or a backfill; its times as text, like all others here."""
    fields: dict[str, Any] = to_builtins(answer)
    moments = {name: fields.pop(name) for name in ("at_us", "since_us") if name in fields}
    return {**{name.removesuffix("_us"): from_us(moment).isoformat() for name, moment in moments.items()}, **fields}
