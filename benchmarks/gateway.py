"""`bench gateway`: the same deltas through the door and in the coordinator's own process, in one run.

Belongs here: which sides are run, and what their figures are held to. Both ends of the door are processes of their own
on this machine, so they share its cores with each other; the CPU time is the server's alone. The results are the same
when every delta that was sent is in the sealed segments exactly once.
"""

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.gateway_sides import BUSY
from benchmarks.harness import Result, ask, options_of, say, show

IN_PROCESS = "in process"
# Parts of the rate in process; and how many times its median a write may take at a steady rate.
OF_RATE, OF_LATENCY = 0.5, 2.0
RATE, WRITE_ROWS = 100_000, 1_000
IDLE = 1_000
# By HTTP: the CPU time of door and coordinator together for one delta, and the part of the rate in process.
SINGLE_US, OF_RATE_BY_HTTP = 300.0, 0.3
CROWDED = 2.0
# Of one core, while nobody speaks.
IDLE_SHARE = 0.05


class Sides:
    """Runs sides, each in a fresh folder."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._number = 0

    def run(self, module: str, side: str, *arguments: float) -> Any:
        """The measurements of a side."""
        self._number += 1
        found = ask(module, side, self._scratch / f"{self._number}-{side}", *arguments)
        shown = {name: value for name, value in found.items() if name != "profile"}
        say(f"{side} {' '.join(map(str, arguments))}: {shown}")
        return found


def main(json_output: bool, rows: int, seconds: float) -> int:
    """Run all sides and compare; gives the exit code."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        sides = Sides(Path(scratch))
        results = [
            *(columns := list(_columns(sides, rows))),
            *_singles(sides, rows // 50),
            *_paced(sides, seconds),
            *_http(sides, seconds, columns[0].peer),
            *_crowd(sides, seconds),
        ]
    return show(results, is_json=json_output)


def _columns(sides: Sides, rows: int) -> Iterator[Result]:
    ours = sides.run("gateway_sides", "w1_columns", rows, WRITE_ROWS)
    peer = sides.run("coordinator_sides", "ours_columns", rows, WRITE_ROWS, 1_000_000)
    yield from _compared(f"W1, writes of {WRITE_ROWS:,}", rows, ours, peer, OF_RATE)


def _singles(sides: Sides, count: int) -> Iterator[Result]:
    ours = sides.run("gateway_sides", "w1_singles", count)
    peer = sides.run("coordinator_sides", "ours_singles", count)
    yield from _compared("W1, single deltas from 64 connections", count, ours, peer, None)


def _compared(name: str, rows: int, ours: Any, peer: Any, target: float | None) -> Iterator[Result]:
    is_equal = ours["is_equal"] and peer["is_equal"]
    mine, theirs = rows / ours["wall_s"], rows / peer["wall_s"]
    is_met = target is None or mine / theirs >= target
    yield Result(name, mine, theirs, IN_PROCESS, "deltas/s", mine / theirs, target, is_met, is_equal)
    mine, theirs = (each["cpu_s"] / rows * 1e6 for each in (ours, peer))
    yield Result(name, mine, theirs, IN_PROCESS, "CPU-µs a delta", mine / theirs, None, True, is_equal)


def _paced(sides: Sides, seconds: float) -> Iterator[Result]:
    ours = sides.run("gateway_sides", "w1_paced", RATE, WRITE_ROWS, seconds)
    peer = sides.run("coordinator_sides", "ours_paced", RATE, WRITE_ROWS, seconds)
    for place, name in enumerate(("p50", "p99")):
        mine, theirs = ours["latencies_ms"][place], peer["latencies_ms"][place]
        target = OF_LATENCY if name == "p50" else None
        title = f"W1, {RATE:,} deltas/s, {name} until flushed"
        is_met = target is None or mine / theirs <= target
        yield Result(title, mine, theirs, IN_PROCESS, "ms", mine / theirs, target, is_met, peer["is_equal"])


def _http(sides: Sides, seconds: float, in_process: float) -> Iterator[Result]:
    one = sides.run("gateway_http", "singles", seconds)
    cpu_us = one["door_us"] + one["coordinator_us"]
    title = f"HTTP, single JSON deltas from 64 connections, {one['deltas_per_s']:,.0f}/s"
    is_met = cpu_us <= SINGLE_US
    yield Result(title, cpu_us, SINGLE_US, "the bound", "CPU-µs a delta", cpu_us / SINGLE_US, 1.0, is_met, True)
    many = sides.run("gateway_http", "arrow_bodies", seconds)
    ratio = many["deltas_per_s"] / in_process
    title = "HTTP, Arrow bodies of 1,000 deltas"
    is_met = ratio >= OF_RATE_BY_HTTP
    yield Result(title, many["deltas_per_s"], in_process, IN_PROCESS, "deltas/s", ratio, OF_RATE_BY_HTTP, is_met, True)


def _crowd(sides: Sides, seconds: float) -> Iterator[Result]:
    alone = sides.run("gateway_sides", "crowd", 0, int(10 * seconds))
    crowded = sides.run("gateway_sides", "crowd", IDLE, int(10 * seconds))
    mine, theirs = crowded["latencies_ms"][1], alone["latencies_ms"][1]
    title = f"{BUSY} busy and {IDLE:,} idle connections, p99"
    yield Result(title, mine, theirs, f"the {BUSY} alone", "ms", mine / theirs, CROWDED, mine / theirs <= CROWDED, True)
    idle = sides.run("gateway_sides", "idle_door", IDLE, seconds)
    share = idle["cpu_s"] / idle["wall_s"]
    title = f"an open door with {IDLE:,} idle connections"
    yield Result(title, share, IDLE_SHARE, "the bound", "of a core", share / IDLE_SHARE, 1.0, share <= IDLE_SHARE, True)


if __name__ == "__main__":
    options = options_of(
        "gateway",
        __doc__,
        rows=(int, 2_000_000, "deltas in columns; a fiftieth of it one by one"),
        seconds=(float, 10.0, "how long each steady rate lasts"),
    )
    sys.exit(main(options.json, options.rows, options.seconds))
