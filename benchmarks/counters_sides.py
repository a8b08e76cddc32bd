"""The sides of `bench counters`, each in a process of its own: our counters, DuckDB, chDB's AggregatingMergeTree.

Belongs here: the same traffic through each of them, and its cost. A side prints one JSON object: seconds by the clock
and by the CPU for counting and for reading, and the counts themselves, which must be equal. Peers get their batches as
Arrow tables that were made before the clock started.
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa

from benchmarks.counters_data import AS_OF_US, NOW_US, SIGNALS, Batch, active_in, asked, batches, hour_times, names
from tidemark.counts.warm.counters import Counters
from tidemark.counts.windows import Window
from tidemark.model.timegrid import DAY_US, MINUTE_US
from tidemark.tables.lake_files import quiet_database

WEEK_US = 7 * DAY_US
BATCH = 10_000
QUESTIONS = 300
WEEK_OF = f"minute >= {(AS_OF_US - WEEK_US) // MINUTE_US} AND minute < {AS_OF_US // MINUTE_US}"


def measured(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds by the clock and by the CPU, of all threads."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def _sum(spent: list[tuple[float, float]]) -> dict[str, float]:
    """For all batches together, without making them."""
    return {"wall_s": sum(wall for wall, _ in spent), "cpu_s": sum(cpu for _, cpu in spent)}


def median_us(ask: Callable[[], object], times: int) -> float:
    """The median of many reads, in microseconds."""
    return statistics.median(measured(ask)[0] for _ in range(times)) * 1e6


def ours(events: int, entities: int) -> dict[str, Any]:
    """Counters in memory, with default settings."""
    wanted, counters = asked(entities), Counters(lambda: NOW_US)
    spent = [
        measured(partial(counters.increment_many, "shop", batch.signal, batch.entities, batch.times_us))
        for batch in batches(events, entities, BATCH)
    ]
    handles = counters.resolve("shop", "view", wanted)
    found = counters.count_many("shop", "view", wanted, Window.WEEK).tolist()
    return {
        **_sum(spent),
        "longest_ms": max(wall for wall, _ in spent) * 1e3,
        "text_us": median_us(lambda: counters.count_many("shop", "view", wanted, Window.WEEK), QUESTIONS),
        "handles_us": median_us(lambda: counters.count_resolved(handles, Window.WEEK), QUESTIONS),
        "counts": found,
    }


def duckdb(events: int, entities: int) -> dict[str, Any]:
    """A table of events, and a count over it."""
    wanted = asked(entities)
    with quiet_database() as database:
        database.execute("CREATE TABLE events (signal VARCHAR, entity VARCHAR, minute BIGINT, count BIGINT)")
        spent = []
        for batch in map(_table, batches(events, entities, BATCH)):
            database.register("batch", batch)
            spent.append(measured(lambda: database.execute("INSERT INTO events SELECT * FROM batch")))
        database.register("wanted", pa.table({"entity": wanted}))
        query = (
            "SELECT entity, sum(count) FROM events JOIN wanted USING (entity) "
            f"WHERE signal = 'view' AND {WEEK_OF} GROUP BY entity"
        )
        found = dict(database.execute(query).fetchall())
        text_us = median_us(lambda: database.execute(query).fetchall(), 10)
    return {**_sum(spent), "text_us": text_us, "counts": [int(found.get(entity, 0)) for entity in wanted]}


def chdb(events: int, entities: int) -> dict[str, Any]:
    """ClickHouse in the process: sums by minute that are merged in the background."""
    wanted = asked(entities)
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        database = _open_chdb(Path(folder))
        spent = [measured(partial(database.insert, batch)) for batch in map(_table, batches(events, entities, BATCH))]
        texts = ", ".join(f"'{entity}'" for entity in wanted)
        query = (
            f"SELECT entity, sum(count) FROM counts WHERE signal = 'view' AND {WEEK_OF} AND entity IN ({texts}) "
            "GROUP BY entity"
        )
        found = database.sums(query)
        text_us = median_us(lambda: database.sums(query), 10)
    return {**_sum(spent), "text_us": text_us, "counts": [found.get(entity, 0) for entity in wanted]}


def chdb_retries(events: int, entities: int) -> dict[str, Any]:
    """Every batch sent twice, as after a lost answer."""
    wanted = names(entities)
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        database = _open_chdb(Path(folder))
        for batch in map(_table, batches(events, entities, BATCH)):
            database.insert(batch)
            database.insert(batch)
        found = database.sums(f"SELECT concat(signal, '/', entity), sum(count) FROM counts WHERE {WEEK_OF} GROUP BY 1")
    return {"counts": [found.get(f"{signal}/{entity}", 0) for signal in SIGNALS for entity in wanted]}


def ours_retries(events: int, entities: int) -> dict[str, Any]:
    """The same through the coordinator, whose batches our counters follow."""
    from tidemark import Platform
    from tidemark.counts.warm.follower import Follower
    from tidemark.model.log_schema import SENT_SCHEMA
    from tidemark.storage.home import Home

    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder:
        home = Home(Path(folder)).create()
        with (
            Platform.open(home, clock=lambda: NOW_US, durable_epochs=dict) as platform,
            Follower(platform, home, clock=lambda: NOW_US, has_snapshots=False) as follower,
        ):
            producer = platform.producer("bench")
            for number, batch in enumerate(batches(events, entities, BATCH)):
                write = producer.write(_deltas(batch, number).cast(SENT_SCHEMA))
                write.wait()
                epochs = producer.resend(write).wait().epochs
            platform.shards[0].close_batch()
            follower.wait(epochs, timeout=120)
            wanted = names(entities)
            counts = [
                follower.counters.count_many("shop", signal, wanted, Window.WEEK, AS_OF_US).tolist()
                for signal in SIGNALS
            ]
    return {"counts": [count for each in counts for count in each]}


def expected(events: int, entities: int) -> dict[str, Any]:
    """The counts if every batch is sent once, by DuckDB."""
    with quiet_database() as database:
        database.execute("CREATE TABLE events (signal VARCHAR, entity VARCHAR, minute BIGINT, count BIGINT)")
        for batch in map(_table, batches(events, entities, BATCH)):
            database.register("batch", batch)
            database.execute("INSERT INTO events SELECT * FROM batch")
        query = f"SELECT signal || '/' || entity, sum(count) FROM events WHERE {WEEK_OF} GROUP BY 1"
        found = dict(database.execute(query).fetchall())
    return {"counts": [int(found.get(f"{signal}/{entity}", 0)) for signal in SIGNALS for entity in names(entities)]}


def ours_memory(_: int, entities: int) -> dict[str, Any]:
    """Many entities with three signals, each active in 20 of the last 168 hours, without any table behind them."""
    process = psutil.Process()
    before, known = process.memory_info().rss, names(entities)
    counters = Counters(lambda: NOW_US, capacity=4 * entities)
    increments, spent = 0, []
    for hour in range(167, -1, -1):
        active = active_in(hour, entities)
        chosen, times = [known[each] for each in active.tolist()], hour_times(hour, active)
        for signal in SIGNALS:
            spent.append(measured(partial(counters.increment_many, "shop", signal, chosen, times)))
            increments += len(chosen)
    counts = counters.count_many("shop", "like", known, Window.WEEK)
    after = process.memory_info().rss
    return {
        "bytes": after - before,
        "pairs": counters.rows,
        "increments": increments,
        **_sum(spent),
        "counts": [int(counts.min()), int(counts.max()), int(counts.sum())],
    }


def duckdb_memory(_: int, entities: int) -> dict[str, Any]:
    """The same pairs of entity, signal and minute as rows of a table in memory."""
    process = psutil.Process()
    before = process.memory_info().rss
    with quiet_database() as database:
        wall_s, cpu_s = measured(
            lambda: database.execute(
                "CREATE TABLE events AS SELECT printf('item-%07d', i) AS entity, signal, "
                f"({AS_OF_US} - (hour + 1) * 3600000000) // {MINUTE_US} + i % 60 AS minute, 1::BIGINT AS count "
                f"FROM range({entities}) entities(i), range(168) hours(hour), "
                "(VALUES ('view'), ('like'), ('share')) signals(signal) WHERE (i * 37 + hour * 5) % 168 < 20"
            )
        )
        query = (
            "SELECT min(c), max(c), sum(c) FROM (SELECT sum(count) AS c FROM events "
            f"WHERE signal = 'like' AND {WEEK_OF} GROUP BY entity)"
        )
        counts = [int(each) for each in database.execute(query).fetchall()[0]]
        after = process.memory_info().rss
    return {"bytes": after - before, "wall_s": wall_s, "cpu_s": cpu_s, "counts": counts}


class _Chdb:
    """A table of sums in ClickHouse."""

    def __init__(self, session: Any) -> None:
        self._session = session
        session.query("CREATE DATABASE bench ENGINE = Atomic")
        session.query("USE bench")
        session.query(
            "CREATE TABLE counts (signal LowCardinality(String), entity String, minute Int64, "
            "count SimpleAggregateFunction(sum, Int64)) ENGINE = AggregatingMergeTree ORDER BY (signal, entity, minute)"
        )

    def insert(self, batch: pa.Table) -> None:  # noqa: ARG002 - the query names it
        self._session.query("INSERT INTO bench.counts SELECT signal, entity, minute, count FROM Python(batch)")

    def sums(self, query: str) -> dict[str, int]:
        answer = str(self._session.query(query.replace("FROM counts", "FROM bench.counts"), "JSONCompactEachRow"))
        return {name: int(count) for name, count in map(json.loads, answer.splitlines())}


def _open_chdb(folder: Path) -> _Chdb:
    from chdb.session import Session

    opened: Any = Session
    return _Chdb(opened(str(folder / "chdb")))


def _table(batch: Batch) -> pa.Table:
    rows = len(batch.entities)
    return pa.table(
        {
            "signal": [batch.signal] * rows,
            "entity": batch.entities,
            "minute": batch.times_us // MINUTE_US,
            "count": pa.array([1] * rows, pa.int64()),
        }
    )


def _deltas(batch: Batch, number: int) -> pa.Table:
    rows = len(batch.entities)
    signals = pa.StructArray.from_arrays(
        [
            pa.array(batch.entities),
            pa.array([batch.signal] * rows),
            pa.array([1] * rows, pa.int64()),
            pa.array([0] * rows, pa.int64()),
        ],
        names=["entity_id", "signal", "count", "weight_millionths"],
    )
    texts = {"namespace": "shop", "kind": "signal", "priority": "normal", "source": "local", "origin": "bench"}
    columns: dict[str, Any] = {name: pa.array([text] * rows) for name, text in texts.items()}
    columns["delta_id"] = pa.array([f"d-{number}-{place}" for place in range(rows)])
    columns["event_ts"] = pa.array(batch.times_us).cast(pa.timestamp("us", tz="UTC"))
    columns["signal"] = signals
    from tidemark.model.log_schema import SENT_SCHEMA

    missing = {field.name: pa.nulls(rows, field.type) for field in SENT_SCHEMA if field.name not in columns}
    return pa.table({name: (columns | missing)[name] for name in SENT_SCHEMA.names})


SIDES = {
    side.__name__: side
    for side in (ours, duckdb, chdb, ours_retries, chdb_retries, expected, ours_memory, duckdb_memory)
}


if __name__ == "__main__":
    name, *numbers = sys.argv[1:]
    print(json.dumps(SIDES[name](*map(int, numbers))))
