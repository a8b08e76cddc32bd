"""What every benchmark shares: measuring a process with all its children, and one line of result.

Belongs here: the ledger and the shape of a result. Does not belong here: any particular work.
"""

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psutil

ROOT = Path(__file__).resolve().parent.parent
# Short enough that a process cannot do much between the last look at it and its end.
SAMPLE_S = 0.05
# Memory is looked at less often, because the kernel has to walk the page tables for an honest number.
MEMORY_EVERY = 5
# Of a home in which Spark works.
HOME_SETTINGS = '[spark]\nmaster = "local[2]"\ndriver_memory = "3g"\n'


@dataclass(frozen=True)
class Usage:
    """What a process and all its descendants used, start-up included."""

    cpu_s: float
    wall_s: float
    peak_bytes: int


@dataclass(frozen=True)
class Result:
    """One comparison. `equal` says whether both sides produced the same; a fast wrong answer is no answer."""

    name: str
    ours: float
    peer: float
    peer_name: str
    unit: str
    ratio: float
    target: float | None  # none: it is reported only
    met: bool
    equal: bool


class Ledger:
    """CPU time per process: an ended process keeps its last value, so its work still counts."""

    def __init__(self, root: psutil.Process) -> None:
        self._root = root
        self._cpu: dict[tuple[int, float], float] = {}
        self._looks = 0
        self.peak_bytes = 0

    @property
    def cpu_s(self) -> float:
        """CPU-seconds of all processes seen so far."""
        return sum(self._cpu.values())

    def look(self) -> None:
        """Bring the ledger up to date.

        Memory is the proportional set size, which counts a shared page once: a JVM that has just forked to run `chmod`
        shows all of its resident memory a second time in the child.
        """
        has_memory = self._looks % MEMORY_EVERY == 0
        self._looks += 1
        memory = 0
        try:
            family = [self._root, *self._root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return
        for process in family:
            try:
                times = process.cpu_times()
                self._cpu[process.pid, process.create_time()] = times.user + times.system
                memory += process.memory_full_info().pss if has_memory else 0
            except psutil.NoSuchProcess:
                continue
        self.peak_bytes = max(self.peak_bytes, memory)


def cpu_s() -> float:
    """CPU-seconds of this process and of the JVM that it started."""
    me = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in (me, *me.children(recursive=True)))


@contextmanager
def looking(look: Callable[[], object], every_s: float) -> Iterator[None]:
    """Look again and again, in a thread, and once more at the end."""
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(every_s):
            look()

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
        look()


def _command(module: str, arguments: Sequence[object]) -> list[str]:
    return [sys.executable, "-W", "ignore", "-m", f"benchmarks.{module}", *map(str, arguments)]


def ask(module: str, *arguments: object, tree: Path = ROOT, environment: Mapping[str, str] | None = None) -> Any:
    """The answer of a side, in a process of its own: one JSON object on standard output. `tree` is its checkout."""
    command = _command(module, arguments)
    return json.loads(subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, check=True).stdout)


def measure(module: str, *arguments: object) -> Usage:
    """Run a side to its end; its output goes to standard error, because it is not the answer."""
    started, command = time.monotonic(), _command(module, arguments)
    child = psutil.Popen(command, cwd=ROOT, stdout=sys.stderr, stderr=sys.stderr)
    ledger = Ledger(child)
    with looking(ledger.look, SAMPLE_S):
        code = child.wait()
    if code:
        raise subprocess.CalledProcessError(code, command)
    return Usage(ledger.cpu_s, time.monotonic() - started, ledger.peak_bytes)


def memory_below(bound_gb: float, peak_bytes: int) -> Result:
    """The peak of a process beside the memory that it may have."""
    peak = peak_bytes / 1e9
    return Result(
        "memory", peak, bound_gb, "the bound", "GB at peak", peak / bound_gb, 1.0, peak < bound_gb, equal=True
    )


def peaks(name: str, ours: Usage, peer: Usage, peer_name: str, bound_gb: float, *, is_equal: bool) -> Result:
    """The peaks of both sides; ours has a bound."""
    mine, theirs = ours.peak_bytes / 1e9, peer.peak_bytes / 1e9
    return Result(name, mine, theirs, peer_name, "GB at peak", mine / theirs, bound_gb, mine < bound_gb, is_equal)


def fingerprint(columns: str, files: Sequence[str]) -> tuple[int, int]:
    """Rows, and the sum of the hashes of these columns, which no order of rows or files can change."""
    from tidemark.tables.lake_files import quiet_database  # imported late: measured processes do without

    with quiet_database() as database:
        query = f"SELECT count(*), sum(hash(({columns}))::HUGEINT) FROM read_parquet(?)"
        [found] = database.execute(query, [list(files)]).fetchall()
    return int(found[0]), int(found[1] or 0)


def options_of(name: str, about: str | None, **options: tuple[type, object, str]) -> argparse.Namespace:
    """The options of a benchmark: its own, each by type, default and meaning, and `--json`."""
    parser = argparse.ArgumentParser(prog=f"tidemark bench {name}", description=about)
    parser.add_argument("--json", action="store_true", help="one object per line")
    for option, (kind, default, meaning) in options.items():
        parser.add_argument(f"--{option.replace('_', '-')}", type=kind, default=default, help=meaning)
    return parser.parse_args()


def say(text: str) -> None:
    """Progress of a benchmark, for people: only results go to standard output."""
    print(text, file=sys.stderr, flush=True)


def show(results: Sequence[Result], *, is_json: bool) -> int:
    """Print the results, one object per line or as text; gives the exit code: 1 when results differ."""
    for result in results:
        if is_json:
            print(json.dumps(asdict(result)))
            continue
        verdict = f", target {result.target:g} {'met' if result.met else 'missed'}" if result.target is not None else ""
        same = "same results" if result.equal else "RESULTS DIFFER"
        print(
            f"{result.name}: {result.ours:.2f} {result.unit}, {result.peer_name} {result.peer:.2f}; "
            f"ratio {result.ratio:.2f}{verdict}; {same}"
        )
    return 0 if all(result.equal for result in results) else 1
