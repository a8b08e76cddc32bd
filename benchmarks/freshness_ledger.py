"""CPU-seconds of everything that this process has started, by kind of process, also of what has ended or was orphaned.

Belongs here: the ledger. It looks only at the files of the family in /proc, so that a look costs about a millisecond;
`harness.Ledger` measures memory too, which costs more than a quiet daemon does. Linux. Does not belong here: what is
run and when it is looked at (`freshness_ways.py`).
"""

import ctypes
import os
import resource
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.harness import looking

PR_SET_CHILD_SUBREAPER = 36
TICKS = os.sysconf("SC_CLK_TCK")
# The total is exact however seldom it looks; only the split by kind misses what ended since the last look.
LOOK_S = 0.25
JAVA, PYTHON, OTHER = "java", "python", "other"


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent ends, such as a server that is to outlive its command.

    Otherwise they would leave the family, and their CPU time with them.
    """
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


@dataclass(frozen=True)
class Spent:
    """CPU-seconds at a moment, since the ledger began."""

    at: float  # seconds since 1970
    cpu_s: float
    by_kind: dict[str, float]


@dataclass
class FamilyLedger:
    """What the descendants of this process have used since this was made."""

    _last: dict[tuple[int, int], tuple[str, float]] = field(default_factory=dict)
    _base_s: float = 0.0
    _base_kinds: dict[str, float] = field(default_factory=dict)
    history: list[Spent] = field(default_factory=list)

    def __post_init__(self) -> None:
        now = self.look()
        self._base_s, self._base_kinds = now.cpu_s, now.by_kind
        self.history = [Spent(now.at, 0.0, {})]

    def look(self) -> Spent:
        """Bring it up to date.

        A process that was waited for lives on in the times of whoever waited, so the living and our own children's
        total have everything. What the system reaped by itself is in nobody's: its last value by a look is kept.
        """
        living = 0.0
        for process in family(os.getpid()):
            living += process.own_s + process.waited_s
            self._last[process.pid, process.started] = process.kind, process.own_s
        reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
        kinds: dict[str, float] = defaultdict(float)
        for kind, own_s in self._last.values():
            kinds[kind] += own_s
        exact = living + reaped.ru_utime + reaped.ru_stime
        spent = Spent(
            time.time(),
            max(exact, sum(kinds.values())) - self._base_s,
            {kind: own_s - self._base_kinds.get(kind, 0.0) for kind, own_s in kinds.items()},
        )
        self.history.append(spent)
        return spent

    def watching(self) -> AbstractContextManager[None]:
        """Look again and again, for the split by kind and the history."""
        return looking(self.look, LOOK_S)

    def at(self, moment: float) -> Spent:
        """What had been used at a moment, as of the last look before it."""
        return max(
            (each for each in self.history if each.at <= moment), key=lambda each: each.at, default=self.history[0]
        )


@dataclass(frozen=True)
class Process:
    """A descendant: its own CPU-seconds, and those of the children that it has waited for."""

    pid: int
    started: int  # tells a process from an earlier one with its number
    kind: str
    own_s: float
    waited_s: float


def family(root: int) -> Iterator[Process]:
    """All descendants of a process, without it."""
    waiting = _children(root)
    while waiting:
        pid = waiting.pop()
        try:
            text = Path(f"/proc/{pid}/stat").read_text()
        except (FileNotFoundError, ProcessLookupError):
            continue
        name, fields = text.partition("(")[2].rpartition(")")[0], text.rpartition(")")[2].split()
        user, system, waited_user, waited_system = (int(ticks) / TICKS for ticks in fields[11:15])
        yield Process(pid, int(fields[19]), _kind(name), user + system, waited_user + waited_system)
        waiting += _children(pid)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    try:
        for thread in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (thread / "children").read_text().split())
    except (FileNotFoundError, ProcessLookupError):
        pass
    return found


def _kind(name: str) -> str:
    if name.startswith("java"):
        return JAVA
    return PYTHON if name.startswith(("python", "dagster", "tidemark")) else OTHER
