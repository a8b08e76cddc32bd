"""`bench counters`: the warm tier beside chDB's AggregatingMergeTree and a count by DuckDB, in the same run.

Belongs here: which sides are run, whether they agree, and what their figures are held to. Every side is a process of
its own and gets the same traffic, by seed. Equality is looked at first: of two thousand 7-day counts, of all counters
after every batch was sent twice, and of three million after a week. chDB is large, so it is not in the environment: it
is fetched by its checksum into `.venv` when this is first run, and left out if that is not possible.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import ROOT, Result, ask, options_of, say, show

PEERS = ROOT / ".venv" / "share" / "tidemark" / "peers"
LOCK = ROOT / "benchmarks" / "peers.lock"
DUCKDB, CHDB = "DuckDB", "chDB"
# Increments a second by the clock; a 7-day count of 2,000 entities at once, by text and by handle, in microseconds.
RATE, TEXT_US, HANDLES_US = 5_000_000.0, 250.0, 20.0
# For a million entities with three signals, active in 20 of the last 168 hours each.
MEMORY_GB = 4.0
RETRIED_EVENTS, RETRIED_ENTITIES = 200_000, 5_000


def run(side: str, *numbers: int) -> Any:
    """The measurements of a side."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(PEERS)))}
    found = ask("counters_sides", side, *numbers, environment=environment)
    shown = ", ".join(f"{name} {value:,.3f}" for name, value in found.items() if isinstance(value, float))
    say(f"{side} {' '.join(map(str, numbers))}: {shown or 'done'}")
    return found


def fetch_chdb() -> bool:
    """Whether chDB is installed; fetches it if needed."""
    marker = PEERS / "fetched"
    if marker.exists() and marker.read_bytes() == LOCK.read_bytes():
        return True
    say("fetching chDB (170 MB), once")
    uv = Path(sys.executable).parent / "uv"
    command = [str(uv), "pip", "install", "--quiet", "--no-deps", "--require-hashes", "--requirement", str(LOCK)]
    try:
        subprocess.run([*command, "--target", str(PEERS), "--python", sys.executable], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        say(f"chDB could not be fetched, so it is left out ({error}).")
        return False
    marker.write_bytes(LOCK.read_bytes())
    return True


def main(json_output: bool, events: int, entities: int, memory_entities: int) -> int:
    """Run all sides and compare; gives the exit code."""
    has_chdb = fetch_chdb()
    results = [
        *_traffic(events, entities, has_chdb=has_chdb),
        *_retries(has_chdb=has_chdb),
        *_memory(memory_entities),
    ]
    return show(results, is_json=json_output)


def _traffic(events: int, entities: int, *, has_chdb: bool) -> Iterator[Result]:
    duck = run("duckdb", events, entities)
    peers = {DUCKDB: duck} | ({CHDB: run("chdb", events, entities)} if has_chdb else {})
    ours = run("ours", events, entities)
    for name, peer in peers.items():
        is_equal = ours["counts"] == duck["counts"] == peer["counts"]
        mine, theirs = events / ours["wall_s"], events / peer["wall_s"]
        yield Result("increments", mine, theirs, name, "a second", mine / theirs, RATE, mine >= RATE, is_equal)
        cpu, peer_cpu = ours["cpu_s"] * 1e6 / events, peer["cpu_s"] * 1e6 / events
        yield Result(
            "increments", cpu, peer_cpu, name, "CPU-seconds a million", cpu / peer_cpu, 1.0, cpu <= peer_cpu, is_equal
        )
        for what, measured_us, target in (
            ("7-day count of 2,000 texts", ours["text_us"], TEXT_US),
            ("7-day count of 2,000 handles", ours["handles_us"], HANDLES_US),
        ):
            ratio = measured_us / peer["text_us"]
            yield Result(what, measured_us, peer["text_us"], name, "µs", ratio, target, measured_us < target, is_equal)


def _retries(*, has_chdb: bool) -> Iterator[Result]:
    numbers = RETRIED_EVENTS, RETRIED_ENTITIES
    right = run("expected", *numbers)["counts"]
    wrong = _wrong(run("ours_retries", *numbers)["counts"], right)
    theirs = _wrong(run("chdb_retries", *numbers)["counts"], right) if has_chdb else 0
    yield Result(
        "wrong counters, every batch twice",
        *(float(wrong), float(theirs), CHDB if has_chdb else "no peer", f"of {len(right):,}"),
        ratio=wrong / theirs if theirs else float(bool(wrong)),
        target=0.0,
        met=wrong == 0,
        equal=wrong == 0,  # this shows that the peer's counts are not equal
    )


def _memory(entities: int) -> Iterator[Result]:
    ours, peer = run("ours_memory", 0, entities), run("duckdb_memory", 0, entities)
    say(f"{ours['bytes'] / ours['pairs']:,.0f} bytes for each of {ours['pairs']:,} pairs of entity and signal")
    mine, theirs = ours["bytes"] / 1e9, peer["bytes"] / 1e9
    target = MEMORY_GB * entities / 1_000_000
    name, is_equal = f"memory of {entities:,} entities", ours["counts"] == peer["counts"]
    yield Result(name, mine, theirs, DUCKDB, "GB", mine / theirs, target, mine <= target, is_equal)
    rate, peer_rate = (ours["increments"] / each["wall_s"] for each in (ours, peer))
    name = "increments spread over a week"
    yield Result(name, rate, peer_rate, DUCKDB, "a second", rate / peer_rate, RATE, rate >= RATE, is_equal)


def _wrong(found: list[int], right: list[int]) -> int:
    return sum(one != other for one, other in zip(found, right, strict=True))


if __name__ == "__main__":
    options = options_of(
        "counters",
        __doc__,
        events=(int, 5_000_000, "increments (default: 5 million)"),
        entities=(int, 100_000, "entities that they are about"),
        memory_entities=(int, 1_000_000, "entities of the week in memory"),
    )
    sys.exit(main(options.json, options.events, options.entities, options.memory_entities))
