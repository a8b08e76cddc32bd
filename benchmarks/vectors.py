"""`bench vectors`: CPU-seconds of the fold of vector deltas, beside Spark's `applyInPandas` and a plain NumPy loop.

Belongs here: which sides are run, whether they give the same rows, and what their figures are held to. Each engine is a
process of its own, warm. Reading vectors and the index are measured beside it (`vectors_reads.py`, `vectors_index.py`).
"""

import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks import vectors_index, vectors_reads
from benchmarks.harness import HOME_SETTINGS, Result, fingerprint, measure, options_of, say, show
from benchmarks.vectors_data import write_vector_deltas
from tidemark.storage.home import Home
from tidemark.tables import lake_files

DELTAS, VECTORS, DIMENSIONS, CHANGED, HOURS, SEED = 1_000_000, 100_000, 384, 16, 12, 7
# A function of pandas for each vector had not come to an end after a quarter of an hour: it gets so many times fewer
# vectors and deltas, and its figure is multiplied by that.
PART = 20
# Ours are to be so many times cheaper than a function of pandas for each vector, and to do so many a CPU-second.
TARGET_TIMES, TARGET_PER_S = 4.0, 100_000
TARGET_PEAK_MB = 500.0
COMPARED = "namespace, vector_id, values::FLOAT[], deltas::BIGINT"
PARTS = ("fold", "memory", "reads", "index")


def main(json_output: bool, deltas: int, vectors: int, names: list[str]) -> int:
    """Run all sides and compare; gives the exit code."""
    results: list[Result] = []
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        place = Path(scratch)
        if "fold" in names:
            results += _fold(place, deltas, vectors)
        if "memory" in names:
            results += _one_vector(place, deltas)
    if "reads" in names:
        results += vectors_reads.results()
    if "index" in names:
        results += vectors_index.results()
    return show(results, is_json=json_output)


def _fold(place: Path, deltas: int, vectors: int) -> Iterator[Result]:
    home, part = (Home(place / name).create(HOME_SETTINGS) for name in ("home", "part"))
    say(f"writing {deltas:,} deltas of {vectors:,} vectors")
    _write(home, deltas, vectors)
    _write(part, deltas // PART, vectors // PART)
    found = _run(place, "numpy", home) | _run(place, "spark", home, part)
    peers = {"apply_in_pandas": f"applyInPandas (from 1/{PART})", "numpy": "a NumPy loop"}
    folded = {"apply_in_pandas": part, "numpy": home}
    files = {"apply_in_pandas": [str(place / "apply_in_pandas/*.parquet")], "numpy": [str(place / "numpy.parquet")]}
    cpu_s = found["ours"]["cpu_s"]
    for name, title in peers.items():
        theirs = found[name]["cpu_s"] * (PART if folded[name] is part else 1)
        mine = fingerprint(COMPARED, lake_files.files(folded[name].lake / "vectors"))
        other = fingerprint(COMPARED, files[name])
        say(f"{mine[0]:,} vectors, {title} {other[0]:,}, {'equal' if mine == other else 'DIFFERENT'}")
        target = TARGET_TIMES if name == "apply_in_pandas" else None
        is_met = target is None or theirs / cpu_s >= target
        yield Result("fold", cpu_s, theirs, title, "CPU-seconds", theirs / cpu_s, target, is_met, mine == other)
    rate = deltas / cpu_s
    yield Result("fold", rate, TARGET_PER_S, "the target", "deltas per CPU-second", rate / TARGET_PER_S, 1.0,
                 rate >= TARGET_PER_S, equal=True)  # fmt: skip


def _one_vector(place: Path, deltas: int) -> Iterator[Result]:
    """The peak of the Python process that folds one vector with all of the deltas, alone or each the next's parent.

    In a chain of parents all envelopes are in memory, which grows with them: this is reported without a target.
    """
    for name, is_chained in (("deltas", False), ("deltas that name parents", True)):
        home = Home(place / name.replace(" ", "-")).create(HOME_SETTINGS)
        _write(home, deltas, 1, is_chained=is_chained)
        found = _run(place, "memory", home)
        peak = found["peak_bytes"] / 1e6
        is_met, is_whole = peak <= TARGET_PEAK_MB, found["deltas"] == deltas
        yield Result(f"one vector with {deltas:,} {name}", peak, TARGET_PEAK_MB, "the bound", "MB at peak",
                     peak / TARGET_PEAK_MB, None if is_chained else 1.0, is_met, equal=is_whole)  # fmt: skip


def _write(home: Home, deltas: int, vectors: int, *, is_chained: bool = False) -> None:
    write_vector_deltas(
        home,
        deltas=deltas,
        vectors=vectors,
        dimensions=DIMENSIONS,
        changed=CHANGED,
        hours=HOURS,
        seed=SEED,
        is_chained=is_chained,
    )


def _run(place: Path, side: str, home: Home, *more: Home) -> dict[str, Any]:
    measure("vectors_sides", side, home.root, place, *(each.root for each in more))
    found: dict[str, Any] = json.loads((place / f"{side}.json").read_text())
    return found


if __name__ == "__main__":
    options = options_of(
        "vectors",
        __doc__,
        deltas=(int, DELTAS, "how many deltas are folded (default: a million)"),
        vectors=(int, VECTORS, "of how many vectors (default: 100,000)"),
        only=(str, ",".join(PARTS), f"which parts (default: all of {', '.join(PARTS)})"),
    )
    chosen = [name for name in PARTS if name in options.only.split(",")]
    sys.exit(main(options.json, options.deltas, options.vectors, chosen))
