"""`bench coordinator`: deltas from producers to flushed, beside a bare log and SlateDB in the same run.

Belongs here: which sides are run, and what their figures are held to. Every side is a process of its own; "flushed"
means on the disk, with everything on: checks, verdicts, memory of identities, watermark stamps and sealing. The results
are the same when every delta that was sent is in the sealed segments exactly once (count, and sum of the identities'
hashes); what the peers wrote is not read back.
"""

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Result, ask, options_of, say, show

BARE, SLATE = "bare loop", "SlateDB"
# Parts of the bare loop's rate, and of SlateDB's, which is a store made for this.
OF_BARE, OF_SLATE = 0.2, 1.0
PACE, PACED_ROWS = 100_000, 1_000
LATENCY_RATIO = 4.0
# Memory at the end of a run, in parts of what it was when the run was warm.
FLAT = 1.1
RECOVERY_MB_S = 200.0


@dataclass(frozen=True)
class Columns:
    """A figure for writes in columns."""

    name: str
    write_rows: int
    identities: int
    target: float  # deltas per second


COLUMNS = [
    Columns("writes of 1,000", 1_000, 1_000_000, 1_000_000),
    Columns("writes of 1,000, no memory of identities", 1_000, 0, 1_500_000),
    Columns("writes of 10,000", 10_000, 1_000_000, 2_000_000),
]
SINGLES, SINGLES_TARGET = "writes of 1 from 64 producers", 20_000.0


class Sides:
    """Runs sides, each in a fresh folder."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._number = 0

    def run(self, side: str, *arguments: float, root: Path | None = None, tree: Path = ROOT) -> Any:
        """The measurements of a side; its folder is new by default. `tree` is the measured checkout."""
        self._number += 1
        folder = root or self._scratch / f"{self._number}-{side}"
        found = ask("coordinator_sides", side, folder, *arguments, tree=tree)
        where = "" if tree == ROOT else f"{tree.name}: "
        say(f"{where}{side} {' '.join(map(str, arguments))}: {_words(found)}")
        return found

    def folder(self, name: str) -> Path:
        """A folder for sides that share one."""
        return self._scratch / name


def against(json_output: bool, revision: str, rows: int, turns: int) -> int:
    """Compare with an earlier commit in CPU-seconds, both taking turns; gives the exit code."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        sides, earlier = Sides(Path(scratch)), Path(scratch) / revision.replace("/", "-")
        _git("worktree", "add", "--detach", str(earlier), revision)
        try:
            acts: list[tuple[str, str, tuple[float, ...]]] = [
                (figure.name, "ours_columns", (rows, figure.write_rows, figure.identities)) for figure in COLUMNS
            ]
            acts.append((SINGLES, "ours_singles", (rows // 50,)))
            results = [_turns(sides, earlier, name, side, numbers, turns) for name, side, numbers in acts]
        finally:
            _git("worktree", "remove", "--force", str(earlier))
    return show(results, is_json=json_output)


def _git(*arguments: str) -> None:
    git = shutil.which("git") or "git"
    subprocess.run([git, *arguments], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)


def _turns(sides: Sides, earlier: Path, name: str, side: str, numbers: tuple[float, ...], turns: int) -> Result:
    found: dict[Path, list[Any]] = {ROOT: [], earlier: []}
    for turn in range(turns):
        for tree in list(found)[:: 1 if turn % 2 else -1]:
            found[tree].append(sides.run(side, *numbers, tree=tree))
    mine, theirs = (min(each["cpu_s"] for each in measured) for measured in found.values())
    is_equal = all(each["is_equal"] for measured in found.values() for each in measured)
    return Result(name, mine, theirs, earlier.name, "CPU-s", mine / theirs, None, True, is_equal)


def main(json_output: bool, rows: int, minutes: float, log_mb: int) -> int:
    """Run all sides and compare; gives the exit code."""
    has_slate = find_spec("slatedb") is not None
    if not has_slate:
        say("SlateDB is not installed, so it is left out: it comes with the extra `dev`.")
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        sides = Sides(Path(scratch))
        results = [
            *_columns(sides, rows, has_slate=has_slate),
            *_singles(sides, rows // 50, has_slate=has_slate),
            *_paced(sides, minutes * 60),
            *_recovery(sides, log_mb),
        ]
    return show(results, is_json=json_output)


def _columns(sides: Sides, rows: int, *, has_slate: bool) -> Iterator[Result]:
    for figure in COLUMNS:
        ours = sides.run("ours_columns", rows, figure.write_rows, figure.identities)
        bare = sides.run("bare_columns", rows, figure.write_rows)
        mine = rows / ours["wall_s"]
        yield _rate(figure.name, mine, rows / bare["wall_s"], BARE, figure.target, OF_BARE, ours["is_equal"])
        if has_slate:
            # A tenth is enough for a rate, and saves a minute.
            slate = sides.run("slate_columns", rows // 10, figure.write_rows)
            theirs = rows // 10 / slate["wall_s"]
            yield _rate(figure.name, mine, theirs, SLATE, figure.target, OF_SLATE, ours["is_equal"])


def _singles(sides: Sides, count: int, *, has_slate: bool) -> Iterator[Result]:
    name = SINGLES
    ours, bare = sides.run("ours_singles", count), sides.run("bare_singles", count)
    mine = count / ours["wall_s"]
    # The issue names no part of the bare loop's rate here.
    yield _rate(name, mine, count / bare["wall_s"], BARE, SINGLES_TARGET, 0.0, ours["is_equal"])
    if has_slate:
        theirs = count / sides.run("slate_singles", count)["wall_s"]
        yield _rate(name, mine, theirs, SLATE, SINGLES_TARGET, OF_SLATE, ours["is_equal"])


def _rate(name: str, mine: float, theirs: float, peer_name: str, target: float, least: float, is_equal: bool) -> Result:
    """Deltas per second by the clock: passes with the target's rate and at least that part of the peer's."""
    is_met = mine >= target and mine >= least * theirs
    return Result(name, mine, theirs, peer_name, "deltas/s", mine / theirs, target, is_met, is_equal)


def _paced(sides: Sides, seconds: float) -> Iterator[Result]:
    ours = sides.run("ours_paced", PACE, PACED_ROWS, float(seconds))
    bare = sides.run("bare_paced", PACE, PACED_ROWS, min(10.0, float(seconds)))
    for place, percentile in enumerate(("p50", "p99")):
        mine, theirs = ours["latencies_ms"][place], bare["latencies_ms"][place]
        ratio = mine / theirs
        name = f"{percentile} of flushed at {PACE:,} deltas/s"
        # Of the 99th percentile the issue asks only that it is shown; it is held to the same measure all the same.
        is_met = ratio <= LATENCY_RATIO
        yield Result(name, mine, theirs, BARE, "ms", ratio, LATENCY_RATIO, is_met, ours["is_equal"])
    warm, last = (found / 1e6 for found in ours["bytes"])
    name = f"memory after {seconds:g} s"
    yield Result(name, last, warm, "when warm", "MB", last / warm, FLAT, last <= FLAT * warm, ours["is_equal"])


def _recovery(sides: Sides, log_mb: int) -> Iterator[Result]:
    """From opening a home to a shard that takes writes; the recovered log is sealed and read after that."""
    root = sides.folder("recovery")
    left = sides.run("leave_log", log_mb, root=root)
    megabytes = left["log_bytes"] / 1e6
    read = megabytes / sides.run("bare_read", root=root)["wall_s"]
    found = sides.run("recover_log", *left["content"], root=root)
    ours = megabytes / found["wall_s"]
    name = f"recovery of {megabytes:,.0f} MB"
    is_met = ours >= RECOVERY_MB_S
    yield Result(name, ours, read, "read and checksum", "MB/s", ours / read, RECOVERY_MB_S, is_met, found["is_equal"])


def _words(found: Any) -> str:
    shown = []
    if "wall_s" in found:
        shown.append(f"{found['wall_s']:.2f} s, {found['cpu_s']:.2f} CPU-seconds")
    if "profile" in found:
        spent = (f"{name} {cpu_s:.2f}" for name, cpu_s in found["profile"].items())
        shown.append(f"of which {', '.join(spent)}")
    if "latencies_ms" in found:
        shown.append("p50 {:.2f} ms, p99 {:.2f} ms".format(*found["latencies_ms"]))
    if "sealed_s" in found:
        shown.append(f"sealed after {found['sealed_s']:.2f} s")
    if "log_bytes" in found:
        shown.append(f"{found['log_bytes'] / 1e6:.0f} MB of log")
    return ", ".join(shown)


if __name__ == "__main__":
    options = options_of(
        "coordinator",
        __doc__,
        rows=(int, 2_000_000, "deltas per figure (default: 2 million)"),
        minutes=(float, 0.25, "how long the paced run takes (10 for the long one)"),
        log_mb=(int, 256, "the log that is recovered (1024 for the long one)"),
        against=(str, None, "a revision: compare with that earlier commit instead, in turns"),
        turns=(int, 5, "of each side against an earlier commit (default: 5)"),
    )
    if options.against:
        sys.exit(against(options.json, options.against, options.rows, options.turns))
    sys.exit(main(options.json, options.rows, options.minutes, options.log_mb))
