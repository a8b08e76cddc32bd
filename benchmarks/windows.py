"""`bench windows`: CPU-seconds per 10 million deltas of each window type, beside DuckDB and Spark's own formulations.

Belongs here: which sides are run, whether they give the same rows, and what their figures are held to. Each engine is a
process of its own, warm; memory is the peak of the whole process.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import HOME_SETTINGS, Result, Usage, fingerprint, measure, memory_below, options_of, say, show
from benchmarks.windows_data import Traffic, write_deltas
from benchmarks.windows_sides import WINDOWS, measured_hours
from tidemark.storage.home import Home

ROWS, ENTITIES, HOURS, SEED = 10_000_000, 100_000, 168, 7
PER = 10_000_000
# A day of them: files are counted, whatever their contents.
LATE_ROWS = 48_000
# Ours as a part of the peer's, at most; the others are reported only. Sessions are made of visits: where every delta
# comes on its own, there is nothing to sum up before the sort.
TARGETS: dict[tuple[Traffic, str, str], float] = {
    (Traffic.SCATTERED, "tumbling", "duckdb"): 4.0,
    (Traffic.SCATTERED, "sliding", "spark"): 0.84,
    (Traffic.VISITS, "session", "duckdb"): 2.0,
    (Traffic.VISITS, "session", "spark"): 0.45,
}
MEMORY_TARGET_GB = 5.0
PEERS = {"duckdb": "DuckDB", "spark": "Spark's own"}
# Times as numbers: engines write them in types of their own.
COMPARED = (
    "window_id, entity_id, epoch_us(window_start), epoch_us(window_end), deltas, revision, late, keys, bytes, "
    "mean_bytes, epoch_us(min_event_ts), epoch_us(max_event_ts), epochs[1].shard, epochs[1].first, epochs[1].last, "
    "len(epochs), close_reason, views, epoch_us(window_hour)"
)


def main(json_output: bool, rows: int, hours: int, names: list[str]) -> int:
    """Run all sides and compare; gives the exit code."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        place = Path(scratch)
        results, peaks = list[Result](), list[int]()
        for traffic in Traffic:
            cut = [name for name in names if name == "session" or traffic is Traffic.SCATTERED]
            if cut:
                found, peak = _compared(place / traffic, traffic, rows, hours, cut)
                results += found
                peaks.append(peak)
        results += [memory_below(MEMORY_TARGET_GB, max(peaks)), *_late(place)]
    return show(results, is_json=json_output)


def _compared(place: Path, traffic: Traffic, rows: int, hours: int, names: list[str]) -> tuple[list[Result], int]:
    """All sides over deltas of one kind of traffic, and the bytes that Spark's process had at its peak."""
    place.mkdir()
    home = Home(place / "home").create(HOME_SETTINGS)
    say(f"writing {rows:,} deltas of {hours} hours, {traffic}")
    write_deltas(home, rows=rows, entities=ENTITIES, hours=hours, seed=SEED, traffic=traffic)
    by_duckdb, _ = run_side(place, "duckdb", home, hours, names)
    by_spark, usage = run_side(place, "spark", home, hours, names)
    return list(_ratios(place, {**by_duckdb, **by_spark}, rows, hours, traffic, names)), usage.peak_bytes


def run_side(place: Path, side: str, home: Home, hours: int, names: list[str]) -> tuple[dict[str, Any], Usage]:
    """The measurements of a side, and the total of its process."""
    (place / side).mkdir()
    usage = measure("windows_sides", side, home.root, place / side / "out", hours, ",".join(names))
    found = json.loads((place / side / f"{side}.json").read_text())
    return found, usage


def _ratios(
    place: Path, found: dict[str, Any], rows: int, hours: int, traffic: Traffic, names: list[str]
) -> Iterator[Result]:
    for name in names:
        scale = PER / rows * hours / measured_hours(name, hours)
        ours = found[f"ours_{name}"]["cpu_s"] * scale
        mine = fingerprint(COMPARED, [str(place / "spark/out" / f"ours_{name}/*.parquet")])
        for peer, title in PEERS.items():
            theirs = found[f"{peer}_{name}"]["cpu_s"] * scale
            files = f"spark_{name}/*.parquet" if peer == "spark" else f"duckdb_{name}.parquet"
            other = fingerprint(COMPARED, [str(place / peer / "out" / files)])
            say(f"{name}: {mine[0]:,} windows, {title} {other[0]:,}, {'equal' if mine == other else 'DIFFERENT'}")
            target = TARGETS.get((traffic, name, peer))
            is_met = target is None or ours / theirs <= target
            row = f"{name}, {traffic}"
            yield Result(row, ours, theirs, title, "CPU-seconds", ours / theirs, target, is_met, mine == other)


def _late(place: Path) -> Iterator[Result]:
    """A late delta's files in a table of a day and in one of four."""
    found = []
    for days in (1, 4):
        home = Home(place / f"late_{days}").create(HOME_SETTINGS)
        write_deltas(home, rows=LATE_ROWS * days, entities=1_000, hours=24 * days, seed=SEED)
        (place / f"of_{days}").mkdir()
        measure("windows_sides", "late", home.root, place / f"of_{days}/x", 24 * days, "")
        found.append(json.loads((place / f"of_{days}" / "late.json").read_text()))
    for name, small in found[0].items():
        large = found[1][name]
        say(f"one more late delta, {name}: {small} in a day, {large} in four")
        same = all(small[each] == large[each] for each in ("read", "added", "removed"))
        many, few = (float(sum(each[what] for what in ("read", "added", "removed"))) for each in (large, small))
        title = f"files of one more late delta, {name}"
        yield Result(title, many, few, "a quarter of the table", "files", many / few, 1.0, same, equal=True)


if __name__ == "__main__":
    options = options_of(
        "windows",
        __doc__,
        rows=(int, ROWS, "how many deltas (default: 10 million)"),
        hours=(int, HOURS, "over how many hours (default: a week)"),
        only=(str, ",".join(WINDOWS), "which windows (default: all)"),
    )
    sys.exit(main(options.json, options.rows, options.hours, [n for n in WINDOWS if n in options.only.split(",")]))
