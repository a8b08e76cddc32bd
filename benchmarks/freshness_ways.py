"""The ways from a write to the tables: the command cold and again, the daemon cold and warm, and the demo.

Belongs here: running each of them under the ledger and the watch, and what one turn of it gave. Does not belong here:
what the turns are compared with (`freshness.py`), and how what was written down is counted (`freshness_count.py`).
"""

import json
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.freshness_home import Sent, command, environment, send
from benchmarks.freshness_ledger import FamilyLedger
from benchmarks.freshness_steps import JUDGED, MADE, runs_of, unproven
from benchmarks.freshness_watch import Watch, is_settled
from orchestration.instance import existing_instance
from tidemark.storage.home import Home

# Many times what anything here takes.
LIMIT_S = 3_600.0
# After this long without a commit it is worth asking the orchestrator whether there is more to come.
QUIET_S, PAUSE_S = 2.0, 0.5
STOP_S = 60.0


class FreshnessError(Exception):
    """A way did not bring the write into the tables."""


@dataclass(frozen=True)
class Turn:
    """One write on one way. Seconds are from its acknowledgement; a turn without a write counts from its start."""

    way: str
    begun: float  # seconds since 1970
    ended: float
    deltas_s: float | None
    hourly_s: float | None
    tables_s: float  # the last row and the last check result of every table that was reached
    command_s: float | None  # of the command alone, if there was one
    cpu_s: float
    cpu_by_kind: dict[str, float]
    commits: dict[str, int]  # by table
    checks: dict[str, int]  # check results, by table
    unproven: list[str]  # partitions without a check that passed
    looking_s: float  # CPU-seconds of the benchmark itself, which are in none of the figures
    stages: dict[str, float] = field(default_factory=dict)  # of the demo


@dataclass
class Measuring:
    """What is looked at from a moment on; `turn` says what there was to see."""

    way: str
    home: Home
    ledger: FamilyLedger
    watch: Watch
    begun: float
    _own_s: float = field(default_factory=time.process_time)

    @classmethod
    def begin(cls, way: str, home: Home, ledger: FamilyLedger, sent: Sent | None = None) -> "Measuring":
        """From the acknowledgement of a write, or from now."""
        ledger.look()
        return cls(way, home, ledger, Watch(home, sent), sent.at if sent else time.time())

    def turn(self, *, command_s: float | None = None, stages: Mapping[str, float] | None = None) -> Turn:
        """The result, when nothing is left to do. A command's turn ends with it, the daemon's with the last event."""
        now, looking_s = time.time(), time.process_time() - self._own_s
        with existing_instance(self.home) as instance:
            runs = runs_of(instance, self.begun)
        # Of runs that no schedule began.
        tables = {mark.table for run in runs if not run.is_scheduled for mark in run.marks if mark.kind == MADE}
        times = [at for table, seen in self.watch.commits.items() if table in tables for at in seen]
        times += [
            mark.at_ms / 1000 for run in runs for mark in run.marks if mark.kind == JUDGED and not run.is_scheduled
        ]
        if not times:
            raise FreshnessError(f"{self.way}: no table was written. The output above says why.")
        ended = now if command_s is not None else max(times)
        before, after = self.ledger.at(self.begun), self.ledger.at(ended)
        return Turn(
            self.way,
            self.begun,
            ended,
            self._since(self.watch.deltas_at),
            self._since(self.watch.hourly_at),
            max(times) - self.begun,
            command_s,
            after.cpu_s - before.cpu_s,
            {kind: cpu_s - before.by_kind.get(kind, 0.0) for kind, cpu_s in after.by_kind.items()},
            {table: len(seen) for table, seen in sorted(self.watch.commits.items())},
            dict(sorted(Counter(mark.table for run in runs for mark in run.marks if mark.kind == JUDGED).items())),
            unproven(runs),
            looking_s,
            dict(stages or {}),
        )

    def _since(self, at: float | None) -> float | None:
        return None if at is None else at - self.begun


def drain(way: str, home: Home, sent: Sent, more: Mapping[str, str]) -> Turn:
    """The command, from its start to its end."""
    ledger = FamilyLedger()
    measuring = Measuring.begin(way, home, ledger, sent)
    with ledger.watching(), measuring.watch.watching():
        seconds, _ = _run(command(home, "drain", "--json"), more)
    return measuring.turn(command_s=seconds)


def demo(home: Home, more: Mapping[str, str], deltas: int) -> Turn:
    """The demo, with its own account of its stages."""
    ledger = FamilyLedger()
    measuring = Measuring.begin("demo", home, ledger)
    with ledger.watching(), measuring.watch.watching():
        seconds, answer = _run(command(home, "demo", "--json", "--deltas", str(deltas)), more)
    return measuring.turn(command_s=seconds, stages=answer["stages"])


def _run(arguments: list[str], more: Mapping[str, str]) -> tuple[float, Any]:
    """Run a command; gives its seconds and its answer. Its other output goes to standard error."""
    begun = time.monotonic()
    done = subprocess.run(
        arguments, env=environment(more), stdout=subprocess.PIPE, stderr=sys.stderr, check=False, timeout=LIMIT_S
    )
    seconds = time.monotonic() - begun
    if done.returncode:
        raise FreshnessError(f"{' '.join(arguments[3:])} ended with {done.returncode}: {done.stdout.decode()[-2000:]}")
    return seconds, json.loads(done.stdout)


class Daemon:
    """`./tidemark ui` on a home, and the turns through it."""

    def __init__(self, home: Home, process: subprocess.Popen[bytes], ledger: FamilyLedger) -> None:
        self._home, self._process, self._ledger = home, process, ledger

    def follow(self, measuring: Measuring) -> Turn:
        """Wait until everything is where it belongs."""
        deadline = time.monotonic() + LIMIT_S
        with measuring.watch.watching(), existing_instance(self._home) as instance:
            while time.monotonic() < deadline:
                time.sleep(PAUSE_S)
                if self._process.poll() is not None:
                    raise FreshnessError(f"ui ended with {self._process.returncode}. Its output is above.")
                is_quiet = time.time() - measuring.watch.changed_at > QUIET_S
                if is_quiet and measuring.watch.commits and is_settled(self._home, instance):
                    return measuring.turn()
        raise FreshnessError(f"{measuring.way}: not everything was refreshed within {LIMIT_S:.0f} s.")

    def turn(self, number: int) -> Turn:
        """One write while it is running."""
        sent = send(self._home, number)
        return self.follow(Measuring.begin("daemon, warm", self._home, self._ledger, sent))

    def idle(self, seconds: float) -> float:
        """CPU-seconds that it uses in this time while there is nothing to do."""
        before = self._ledger.look()
        time.sleep(seconds)
        return self._ledger.look().cpu_s - before.cpu_s


@contextmanager
def daemon(home: Home, more: Mapping[str, str], number: int) -> Iterator[tuple[Daemon, Turn]]:
    """Send a write, start `ui`, and wait until it has refreshed everything: the daemon, and that cold turn."""
    ledger = FamilyLedger()
    sent = send(home, number)
    measuring = Measuring.begin("daemon, cold", home, ledger, sent)
    arguments = command(home, "ui", "--port", str(_free_port()))
    process = subprocess.Popen(arguments, env=environment(more), stdout=sys.stderr, stderr=sys.stderr)
    try:
        with ledger.watching():
            running = Daemon(home, process, ledger)
            yield running, running.follow(measuring)
    finally:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def end_leftovers(folder: Path) -> None:
    """End what commands left running for homes in a folder, such as a server that waits for the next command.

    They were started here: their variables or their command name the folder, which is new for each benchmark.
    """
    import psutil

    left = [process for process in psutil.Process().children(recursive=True) if _is_about(process, folder)]
    for process in left:
        with suppress(psutil.NoSuchProcess):  # many are about to end by themselves
            process.terminate()
    for process in psutil.wait_procs(left, timeout=STOP_S)[1]:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def _is_about(process: Any, folder: Path) -> bool:
    import psutil

    try:
        return any(str(folder) in text for text in (*process.cmdline(), *process.environ().values()))
    except psutil.Error:
        return False
