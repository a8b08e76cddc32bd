"""`bench joins`: CPU-seconds per 10 million deltas of the joins, beside DuckDB and Spark's own formulation.

Belongs here: which sides are run, whether they give the same pairs, and what their figures are held to.
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.harness import HOME_SETTINGS, Result, fingerprint, measure, memory_below, options_of, say, show
from benchmarks.windows import ENTITIES, HOURS, MEMORY_TARGET_GB, PER, ROWS, SEED
from benchmarks.windows_data import write_deltas
from tidemark.storage.home import Home

# Ours as a part of the peer's, at most; None: reported only.
TARGETS: dict[tuple[str, str], float | None] = {
    ("panes", "duckdb"): 5.0,
    ("panes", "spark"): None,
    ("sessions", "duckdb"): None,
}
PEERS = {"duckdb": "DuckDB", "spark": "Spark's own"}
TITLES = {"panes": "tumbling x tumbling", "sessions": "session x session"}
# Whole rows, but for the name of a pair of deltas: each engine has hashes of its own. Times as numbers.
DELTA = "namespace, {0}_key, epoch_us({0}_event_ts), {0}_delta_id, {0}_shard, {0}_epoch, {0}_ordinal"
COMPARED = {
    "panes": "entity_id, epoch_us(window_start), epoch_us(window_end), left_"
    + DELTA.format("left")
    + ", right_"
    + DELTA.format("right")
    + ", len(right_windows), epoch_us(window_hour)",
    "sessions": "pair_id, entity_id, left_window_id, epoch_us(left_window_start), epoch_us(left_window_end), "
    "left_deltas, right_window_id, epoch_us(right_window_start), epoch_us(right_window_end), "
    "right_deltas, epoch_us(window_hour)",
}


def main(json_output: bool, rows: int, hours: int) -> int:
    """Run all sides and compare; gives the exit code."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        place = Path(scratch)
        home = Home(place / "home").create(HOME_SETTINGS)
        say(f"writing {rows:,} deltas of {hours} hours")
        write_deltas(home, rows=rows, entities=ENTITIES, hours=hours, seed=SEED)
        found: dict[str, Any] = {}
        peak = 0
        for side in ("spark", "duckdb"):
            (place / side).mkdir()
            usage = measure("joins_sides", side, home.root, place / side / "out", hours, place / "spark/out")
            found |= json.loads((place / side / f"{side}.json").read_text())
            peak = max(peak, usage.peak_bytes)
        results = list(_results(place, found, rows))
    return show([*results, memory_below(MEMORY_TARGET_GB, peak)], is_json=json_output)


def _results(place: Path, found: dict[str, Any], rows: int) -> Iterator[Result]:
    for (name, peer), target in TARGETS.items():
        ours, theirs = (found[f"{side}_{name}"]["cpu_s"] * PER / rows for side in ("ours", peer))
        mine = fingerprint(COMPARED[name], [str(place / "spark/out" / f"ours_{name}/*.parquet")])
        files = f"duckdb_{name}.parquet" if peer == "duckdb" else f"spark_{name}/*.parquet"
        other = fingerprint(COMPARED[name], [str(place / peer / "out" / files)])
        say(f"{name}: {mine[0]:,} pairs, {PEERS[peer]} {other[0]:,}, {'equal' if mine == other else 'DIFFERENT'}")
        is_met = target is None or ours / theirs <= target
        unit, ratio = "CPU-seconds", ours / theirs
        yield Result(TITLES[name], ours, theirs, PEERS[peer], unit, ratio, target, is_met, mine == other)


if __name__ == "__main__":
    options = options_of(
        "joins",
        __doc__,
        rows=(int, ROWS, "how many deltas (default: 10 million)"),
        hours=(int, HOURS, "over how many hours (default: a week)"),
    )
    sys.exit(main(options.json, options.rows, options.hours))
