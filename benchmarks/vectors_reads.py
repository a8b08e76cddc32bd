"""Reading current vectors by id on a warm handle, beside DuckDB on the same table; a part of `bench vectors`.

Belongs here: a seeded table, both sides, and their targets. No JVM: the table is written by delta-rs, a sorted
file for each bucket, as the fold writes it. Both sides read the same ids, several times; the medians count.
DuckDB is warm too: its connection is open, and the files are in the system's cache.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from assets.ingest.schema import DELTAS
from assets.vectors.schema import VECTORS
from benchmarks.harness import Result
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import KnownTableFile
from tidemark.tables.lineage import Input, LineageFile
from tidemark.tables.table_spec import create_table
from tidemark.vectors.reading.reader import Vectors
from tidemark.vectors.tables import BUCKETS, bucket_of

NAMESPACE, SEED, ROUNDS = "bench", 8, 15
TARGET_MS = 100.0


class _Usage(NamedTuple):
    wall_ms: float
    cpu_ms: float


def results(vectors: int = 100_000, dimension: int = 384, wanted: int = 1_000) -> list[Result]:
    """Wall and CPU milliseconds for `wanted` vectors of a table; the CPU time is that of all threads."""
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home").create()
        values = make_table(home, vectors, dimension)
        random = np.random.default_rng(SEED)
        rounds = [random.choice(vectors, wanted, replace=False) for _ in range(ROUNDS)]
        ours, found = _ours(home, rounds)
        peer, theirs = _duckdb(home, rounds)
        last = rounds[-1]
        right = {_name(number): values[number] for number in last}
        is_equal = all(_is_same(each, right) for each in (found, theirs))
    name = f"{wanted:,} of {vectors:,} current vectors by id"
    return [
        Result(f"{name}, {what}", mine, other, "DuckDB", "ms", mine / other, TARGET_MS, mine < TARGET_MS, is_equal)
        for what, mine, other in (
            ("wall", ours.wall_ms, peer.wall_ms),
            ("CPU", ours.cpu_ms, peer.cpu_ms),
        )
    ]


def make_table(home: Home, vectors: int, dimension: int) -> Any:
    """Write the current states of so many vectors, recorded as covering all of `deltas`; returns their numbers."""
    values = np.random.default_rng(SEED).standard_normal((vectors, dimension), np.float32)
    for spec in (DELTAS, VECTORS):
        create_table(home.lake / spec.name, spec)
        KnownTableFile(home.plans, spec.name).record_commit(home.lake / spec.name)
    buckets = np.array([bucket_of(NAMESPACE, _name(number)) for number in range(vectors)])
    for bucket in range(BUCKETS):
        _write_bucket(home, bucket, np.flatnonzero(buckets == bucket), values)
    made = Input(0, 1)
    path = home.lake / VECTORS.name
    LineageFile(home.plans, VECTORS.name).record(path, made_from=made, made=range(BUCKETS))
    return values


def _name(number: int) -> str:
    return f"item-{number:08d}"


def _write_bucket(home: Home, bucket: int, rows: Any, values: Any) -> None:
    count, dimension = len(rows), values.shape[1]
    offsets = pa.array(np.arange(0, (count + 1) * dimension, dimension, dtype=np.int32))
    constant = {
        "namespace": NAMESPACE,
        "exists": True,
        "is_dead": False,
        "depth": 0,
        "origin": "bench",
        "shard": 0,
        "eff_ts": 1,
        "event_ts": 1,
        "first_epoch": 1,
        "last_epoch": 1,
        "last_ordinal": 0,
        "deltas": 10,
        "no_base": 0,
        "no_effect": 0,
        "parked": 0,
        "cycles": 0,
        "has_parents": False,
        "bucket": bucket,
    }
    made = {
        "vector_id": pa.array([_name(row) for row in rows]),
        "delta_id": pa.array([f"d-{row}" for row in rows]),
        "values": pa.ListArray.from_arrays(offsets, pa.array(values[rows].ravel())),
    }
    columns = {
        column.name: made.get(column.name, pa.array([constant.get(column.name)] * count, column.type))
        for column in VECTORS.columns
    }
    ours = CommitProperties(app_transactions=[Transaction(f"{VECTORS.name}/1/replace", bucket + 1)])
    write_deltalake(home.lake / VECTORS.name, pa.table(columns), mode="append", commit_properties=ours)


def _ours(home: Home, rounds: list[Any]) -> tuple[_Usage, dict[str, Any]]:
    with Vectors(home, counts_reads=False) as vectors:

        def read(numbers: Any) -> dict[str, Any]:
            found = vectors.many(map(_name, numbers), namespace=NAMESPACE)
            return {name: each.values for name, each in found.items()}

        return _measured(read, rounds)


def _duckdb(home: Home, rounds: list[Any]) -> tuple[_Usage, dict[str, Any]]:
    files = lake_files.files(home.lake / VECTORS.name)
    with lake_files.quiet_database() as database:

        def read(numbers: Any) -> dict[str, Any]:
            query = (
                "SELECT vector_id, values FROM read_parquet($1, hive_partitioning = false) "
                "WHERE namespace = $2 AND vector_id IN (SELECT unnest($3))"
            )
            values = [files, NAMESPACE, [_name(number) for number in numbers]]
            found = database.execute(query, values).to_arrow_table().combine_chunks()
            lists = found["values"].chunk(0)
            numbers_of = np.asarray(lists.values).reshape(len(lists), -1)
            return dict(zip(found["vector_id"].to_pylist(), numbers_of, strict=True))

        return _measured(read, rounds)


def _measured(read: Callable[[Any], dict[str, Any]], rounds: list[Any]) -> tuple[_Usage, dict[str, Any]]:
    """Medians over the rounds; the first is a warm-up and does not count."""
    read(rounds[0])
    walls, cpus, found = [], [], dict[str, Any]()
    for numbers in rounds:
        wall, cpu = time.perf_counter(), time.process_time()
        found = read(numbers)
        walls.append(time.perf_counter() - wall)
        cpus.append(time.process_time() - cpu)
    return _Usage(statistics.median(walls) * 1e3, statistics.median(cpus) * 1e3), found


def _is_same(found: dict[str, Any], right: dict[str, Any]) -> bool:
    return found.keys() == right.keys() and all(np.array_equal(found[name], right[name]) for name in right)
