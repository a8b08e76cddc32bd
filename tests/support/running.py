"""A platform at work, as an operator has it: commands, the pages and the daemon, each a process of its own.

Whoever waits gives up after a generous limit, with what was seen last. Processes are ended by their id.
"""

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar
from urllib.error import URLError
from urllib.request import urlopen

import dagster as dg
import psutil

from assets.check_states import CheckState, check_states
from assets.tables import TABLES
from orchestration.attempts import OPEN
from orchestration.ui import DAEMON
from orchestration.warm_host.client import describe, stop
from resources.spark_server import SERVER_CLASS
from tests.support.spark import without_server
from tidemark.storage.home import Home

TIDEMARK = Path(__file__).parents[2] / "tidemark"
# Many times what these machines need when they are busy.
COMMAND_LIMIT_S = 600.0
READY_LIMIT_S = 180.0
STOP_LIMIT_S = 90.0
# Two looks of the slower sensor and a run's way through the queue: who is quiet for so long has nothing left to do.
QUIET_S = 30.0

# Asset → partition → number of the event that told of its last materialization.
Materialized = dict[str, dict[str, int]]
Seen = TypeVar("Seen")


class GaveUpError(AssertionError):
    """What was waited for did not happen."""


def wait_until(
    what: str, look: Callable[[], Seen], is_reached: Callable[[Seen], object] = bool, *, limit_s: float
) -> Seen:
    """Look until it is reached."""
    deadline = time.monotonic() + limit_s
    while not is_reached(seen := look()):
        if time.monotonic() > deadline:
            raise GaveUpError(f"Waited {limit_s:.0f} s until {what}. Seen last: {seen!r}")
        time.sleep(0.5)
    return seen


def environment(**extra: str) -> dict[str, str]:
    """This one, without a failpoint or a Spark server that somebody else asked for."""
    return {name: value for name, value in without_server(os.environ).items() if name != "TIDEMARK_FAILPOINT"} | extra


def tidemark(home: Home, *arguments: str) -> Any:
    """The answer of a command that succeeds."""
    command = [str(TIDEMARK), *arguments, "--json", "--home", str(home.root)]
    done = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False, timeout=COMMAND_LIMIT_S
    )
    assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
    return json.loads(done.stdout)


class Ui:
    """`./tidemark ui` on a free port, from when its pages answer until it is told to end."""

    def __init__(self, home: Home, **extra: str) -> None:
        self._home, self._extra = home, extra
        self._log = home.root.parent / f"{home.root.name}-ui-{time.monotonic_ns()}.log"
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}"

    def __enter__(self) -> Self:
        command = [str(TIDEMARK), "ui", "--port", str(self.port), "--home", str(self._home.root)]
        # With a warm host, as everybody has it; it is ended with the rest.
        surroundings = environment(TIDEMARK_WARM="1", **self._extra)
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(command, env=surroundings, stdout=log, stderr=subprocess.STDOUT)
        wait_until(f"the pages answer ({self._log})", self._answer, limit_s=READY_LIMIT_S)
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        below = self._below()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        self.process.wait(STOP_LIMIT_S)
        stop(self._home)
        # A run is asked to end, and a code server ends when nobody asks it any more; both take their time.
        _, alive = psutil.wait_procs(below, STOP_LIMIT_S)
        for process in alive:
            process.kill()
        assert not alive, f"ui ended and left {alive} behind"

    def daemon(self) -> psutil.Process:
        """The process that starts everything by itself."""
        [found] = [process for process in self._below() if _has(process, DAEMON)]
        return found

    def code_servers(self) -> list[psutil.Process]:
        """Whom the pages and the daemon ask for definitions, and who evaluate sensors."""
        return [process for process in self._below() if _has(process, "grpc")]

    def spark(self) -> list[psutil.Process]:
        """The JVM that all runs share, if it has started."""
        return [process for process in self._below() if _has(process, SERVER_CLASS)]

    def everything(self) -> list[psutil.Process]:
        """All processes of it, and of the runs that it started."""
        return [psutil.Process(self.process.pid), *self._below()]

    def _below(self) -> list[psutil.Process]:
        """What it started itself, and the warm host with what that forked."""
        host = describe(self._home)
        return [*_children(self.process.pid), *(_tree(host["pid"]) if host else ())]

    def _answer(self) -> bool:
        assert self.process.poll() is None, f"ui ended by itself: {self._log.read_text()[-4_000:]}"
        try:
            with urlopen(f"http://127.0.0.1:{self.port}/server_info", timeout=5) as answer:
                return bool(answer.status == 200)
        except (URLError, OSError):
            return False


def _children(pid: int) -> list[psutil.Process]:
    try:
        return list(psutil.Process(pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def _tree(pid: int) -> list[psutil.Process]:
    try:
        return [psutil.Process(pid), *_children(pid)]
    except psutil.NoSuchProcess:
        return []


def _has(process: psutil.Process, word: str) -> bool:
    try:
        return word in process.cmdline()
    except psutil.NoSuchProcess:
        return False


def materialized(instance: dg.DagsterInstance, tables: Iterable[str] = tuple(TABLES)) -> Materialized:
    """The last materialization of every partition of every table that has partitions."""
    kind, storage = dg.DagsterEventType.ASSET_MATERIALIZATION, instance.event_log_storage
    return {table: dict(storage.get_latest_storage_id_by_partition(dg.AssetKey(table), kind)) for table in tables}


def changes(before: Materialized, after: Materialized) -> dict[str, set[str]]:
    """The partitions that were materialized meanwhile."""
    return {
        table: {key for key, number in found.items() if before[table].get(key) != number}
        for table, found in after.items()
    }


def not_proven(instance: dg.DagsterInstance, partitions: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Those of the partitions whose present rows have no verdict, or one that is not good."""
    found: dict[str, list[str]] = {}
    for table, keys in partitions.items():
        good = {key for key, state in check_states(instance, table).items() if state is CheckState.PASSED}
        if bad := sorted(set(keys) - good):
            found[table] = bad
    return found


def open_runs(instance: dg.DagsterInstance) -> list[str]:
    """Runs that wait or are under way, in words."""
    return [
        f"{run.job_name} {run.run_id} {run.status.value}" for run in instance.get_runs(dg.RunsFilter(statuses=OPEN))
    ]


def failed_runs(instance: dg.DagsterInstance) -> list[str]:
    """Runs that failed, in words."""
    failed = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE])
    return [f"{run.job_name} {run.run_id} {run.tags}" for run in instance.get_runs(failed)]


def wait_until_quiet(instance: dg.DagsterInstance, *, limit_s: float) -> None:
    """Until no run has been open for a while."""
    quiet_since = [time.monotonic()]

    def look() -> list[str]:
        found = open_runs(instance)
        if found:
            quiet_since[0] = time.monotonic()
        return found

    wait_until("nothing runs any more", look, lambda _: time.monotonic() - quiet_since[0] > QUIET_S, limit_s=limit_s)
