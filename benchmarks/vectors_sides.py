"""The sides of `bench vectors`: our fold, a plain `applyInPandas` in Spark, and a plain NumPy loop, on the same files.

Belongs here: the work that is measured, warm. Every side reads the same table of deltas and writes one row per vector.
"""

import json
import resource
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from assets.vectors.schema import VECTORS
from benchmarks.harness import SAMPLE_S, Ledger, looking
from resources.lake import Lake
from tidemark.storage.home import Home
from tidemark.tables import lake_files

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

# Of those that count, the cheapest does: a platform's session lives for months, and a JVM compiles when it likes.
WARMING_RUNS, COUNTED_RUNS = 3, 3
# The columns that both peers write.
PEER_DDL = "namespace string, vector_id string, values array<float>, deltas bigint"
_READ = ["namespace", "key", "event_ts", "origin", "delta_id"]


@contextmanager
def measured(found: dict[str, Any], name: str) -> Iterator[None]:
    """CPU-seconds of this process and all it started, those that end meanwhile too."""
    ledger = Ledger(psutil.Process())
    ledger.look()
    before, started = ledger.cpu_s, time.monotonic()
    with looking(ledger.look, SAMPLE_S):
        yield
    found[name] = {"cpu_s": ledger.cpu_s - before, "wall_s": time.monotonic() - started}
    print(f"{name}: {found[name]['cpu_s']:.1f} CPU-seconds", file=sys.stderr, flush=True)


def spark_side(root: Path, part: Path, target: Path) -> dict[str, Any]:
    """Ours, and on a part of the vectors, because it takes so long, Spark's own way to run Python on groups."""
    from resources.session import start_session

    session = start_session(Home(root))
    lake, of_part = (Lake(Home(place), lambda: session) for place in (root, part))
    found: dict[str, Any] = {}
    runs: list[dict[str, Any]] = []
    for _ in range(WARMING_RUNS + COUNTED_RUNS):
        with measured(found, "ours"):
            ours(lake)
        runs.append(found["ours"])
    found["ours"] = min(runs[WARMING_RUNS:], key=lambda run: run["cpu_s"])
    ours(of_part)
    with measured(found, "apply_in_pandas"):
        plain_spark(of_part).write.mode("overwrite").parquet(str(target / "apply_in_pandas"))
    session.stop()
    return found


def ours(lake: Lake) -> None:
    """The work of a first materialization of `vectors`."""
    from assets.vectors.asset import write_vectors

    lake.settle(VECTORS)
    write_vectors(lake, 1, dict.fromkeys(range(VECTORS.buckets)))


def plain_spark(lake: Lake) -> "DataFrame":
    """The usual way without us: a pandas function for each vector."""
    rows = lake.read("deltas", 1).where("kind = 'vector'")
    columns = rows.selectExpr(*_READ, "vector.op", "vector.values", "vector.indices")
    return columns.groupBy("namespace", "key").applyInPandas(_fold_frame, PEER_DDL)


def _fold_frame(frame: "pd.DataFrame") -> "pd.DataFrame":
    import pandas as pd

    ordered = frame.sort_values(["event_ts", "origin", "delta_id"])
    state = _fold(ordered["op"], ordered["values"], ordered["indices"])
    first = ordered.iloc[0]
    return pd.DataFrame(
        {
            "namespace": [first["namespace"]],
            "vector_id": [first["key"]],
            "values": [state],
            "deltas": [len(ordered)],
        }
    )


def _fold(ops: Any, values: Any, indices: Any) -> np.ndarray[Any, Any]:
    """A vector's changes, one after the other, each on its dimensions at once."""
    state = np.empty(0)
    for op, given, where in zip(ops, values, indices, strict=True):
        if op == "create":
            state = np.asarray(given, np.float64)
        elif op == "set_dims":
            state[where] = given
        else:
            state[where] += np.asarray(given, np.float64)
    return state.astype(np.float32)


def numpy_side(root: Path, target: Path) -> dict[str, Any]:
    """A plain loop over vectors: read with Arrow, sort, fold, write."""
    found: dict[str, Any] = {}
    with measured(found, "numpy"):
        files = lake_files.files(root / "lake" / "deltas")
        rows = pq.ParquetDataset(files, partitioning=None).read([*_READ, "vector"])
        rows = rows.filter(pc.is_valid(rows["vector"])).sort_by([(name, "ascending") for name in _READ])
        keys = rows["key"].combine_chunks()
        begins = [0, *(np.flatnonzero(np.asarray(pc.not_equal(keys[1:], keys[:-1]))) + 1).tolist(), len(keys)]
        vector = rows["vector"].combine_chunks()
        ops = vector.field("op").to_pylist()
        values, indices = (_views(vector.field(name)) for name in ("values", "indices"))
        states = [_fold(ops[a:b], values[a:b], indices[a:b]) for a, b in pairwise(begins)]
        first = pa.array(begins[:-1])
        table = {
            "namespace": rows["namespace"].combine_chunks().take(first),
            "vector_id": keys.take(first),
            "values": pa.array(states, pa.list_(pa.float32())),
            "deltas": pa.array(np.diff(begins)),
        }
        pq.write_table(pa.table(table), target / "numpy.parquet")
    return found


def _views(lists: pa.Array) -> list[np.ndarray[Any, Any]]:
    numbers, ends = np.asarray(lists.values), np.asarray(lists.offsets).tolist()
    return [numbers[a:b] for a, b in pairwise(ends)]


def memory_side(root: Path) -> dict[str, Any]:
    """One vector with very many deltas: the peak of the Python process that folds it, as Spark runs it."""
    from resources.session import start_session

    session = start_session(Home(root))
    ours(Lake(Home(root), lambda: session))
    # Workers are kept for later work, so each can now report its peak memory.
    said = session.range(8).repartition(8).mapInArrow(_largest, "pid long, kilobytes long").collect()
    [row] = Lake(Home(root), lambda: session).read(VECTORS.name).select("deltas").collect()
    session.stop()
    return {"peak_bytes": max(each["kilobytes"] for each in said) * 1_024, "deltas": row["deltas"]}


def _largest(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for _ in batches:
        usage = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        yield pa.RecordBatch.from_pydict({"pid": [psutil.Process().pid], "kilobytes": [usage]})


if __name__ == "__main__":
    side, root, out = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    out.mkdir(parents=True, exist_ok=True)
    sides: dict[str, Callable[[], dict[str, Any]]] = {
        "spark": lambda: spark_side(root, Path(sys.argv[4]), out),
        "numpy": lambda: numpy_side(root, out),
        "memory": lambda: memory_side(root),
    }
    (out / f"{side}.json").write_text(json.dumps(sides[side]()))
