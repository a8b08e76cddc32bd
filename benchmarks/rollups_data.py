"""Signals as a table `deltas`: the input of `bench rollups`. For a year of them, also their sums.

Belongs here: the shape of the data, as files of the tables and commits to their logs; both sides read these files. Text
ids, skewed as traffic is; the number of groups follows from how many entities there are and how finely they act.
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from assets.ingest.schema import DELTAS
from assets.rollups.schema import CHAIN, EXTREMES, MINUTE_COUNTS
from resources.lake import Lake, TableSpec
from tidemark.model.timegrid import HOUR_US, MINUTE_US, from_us, to_us
from tidemark.storage.home import Home
from tidemark.tables.lake_files import quiet_database

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

START_US = to_us(datetime(2026, 3, 2, tzinfo=UTC))
SIGNALS = np.array(["view", "click", "cart", "purchase", "return"])
# The deltas as if they were buckets of their own.
SIGNALS_SQL = (
    "SELECT namespace, signal.entity_id AS entity_id, signal.signal AS signal, event_ts AS bucket_start, "
    "signal.count AS count, signal.weight_millionths AS weight_sum, 1 AS deltas "
    "FROM read_parquet('{files}/*/*.parquet', hive_partitioning = false) WHERE kind = 'signal'"
)


def write_deltas(home: Home, *, rows: int, entities: int, hours: int, minutes: int, seed: int) -> None:
    """Fill `deltas` with signals of so many entities, evenly over the hours, in the first `minutes` of each hour."""
    random = np.random.default_rng(seed)
    path = _made(home, DELTAS)
    names = _names(entities)
    bounds = np.linspace(0, rows, hours + 1).astype(np.int64)
    actions = [
        _write_hour(path, random, START_US + hour * HOUR_US, int(bounds[hour]), int(bounds[hour + 1]), names, minutes)
        for hour in range(hours)
    ]
    _commit(path, 1, actions)


def write_late(home: Home, hour_us: int, *, entities: int) -> None:
    """One more delta, of an hour that is long over."""
    path, place = home.lake / DELTAS.name, 1 << 40
    random = np.random.default_rng(place)
    _commit(path, 2, [_write_hour(path, random, hour_us, place, place + 1, _names(entities), 60)])


def write_sums(home: Home) -> None:
    """All tiers as they follow from `deltas`, a file for each partition, without a JVM: there are thousands."""
    sources = {DELTAS.name: SIGNALS_SQL.format(files=home.lake / DELTAS.name)}
    for made_from, spec in CHAIN:
        path = _made(home, spec)
        more = "".join(f", min({column.name}) AS {column.name}" for column in EXTREMES if column in spec.columns)
        with quiet_database() as database:
            for setting in ("threads = 1", "TimeZone = 'UTC'"):
                database.execute(f"SET {setting}")
            source = sources[made_from.name]
            database.execute(
                f"COPY (SELECT {sums_sql(spec)}{more} FROM ({source}) GROUP BY ALL ORDER BY {spec.partition_by}) "
                f"TO '{path}' (FORMAT parquet, COMPRESSION zstd, PARTITION_BY ({spec.partition_by}), APPEND)"
            )
        files = sorted(path.glob(f"{spec.partition_by}=*/*.parquet"))
        _commit(path, 1, [_added(path, file, spec.partition_by) for file in files])
        own = ", bucket_start AS first_minute, count AS lowest_minute" if spec is MINUTE_COUNTS else ""
        sources[spec.name] = f"SELECT *{own} FROM read_parquet('{path}/*/*.parquet', hive_partitioning = false)"


def sums_sql(spec: TableSpec) -> str:
    """SQL: the columns that all tiers have, from those of a finer tier."""
    unit = "minute" if spec is MINUTE_COUNTS else spec.grain.name
    return (
        f"namespace, entity_id, signal, date_trunc('{unit}', bucket_start) AS bucket_start, "
        "sum(count)::BIGINT AS count, sum(weight_sum)::BIGINT AS weight_sum, sum(deltas)::BIGINT AS deltas, "
        f"date_trunc('{spec.grain.name}', bucket_start::TIMESTAMP) AS {spec.partition_by}"
    )


def _names(entities: int) -> pa.Array:
    return pa.array([f"item-{number:07d}-{number * 2654435761 % 2**32:08x}" for number in range(entities)])


def _made(home: Home, spec: TableSpec) -> Path:
    lake = Lake(home, _no_session)
    lake.ensure(spec)
    return lake.path(spec.name)


def _commit(path: Path, version: int, actions: Iterable[dict[str, object]]) -> None:
    info = {"commitInfo": {"timestamp": START_US // 1_000, "operation": "WRITE", "engineInfo": "Tidemark"}}
    text = "".join(json.dumps(action) + "\n" for action in (info, *actions))
    (path / "_delta_log" / f"{version:020d}.json").write_text(text)


def _added(path: Path, file: Path, partition_by: str) -> dict[str, object]:
    return {
        "add": {
            "path": quote(str(file.relative_to(path)), safe="/="),
            "partitionValues": {partition_by: unquote(file.parent.name.removeprefix(f"{partition_by}="))},
            "size": file.stat().st_size,
            "modificationTime": START_US // 1_000,
            "dataChange": True,
            "stats": json.dumps({"numRecords": pq.read_metadata(file).num_rows}),
        }
    }


def _write_hour(
    path: Path, random: np.random.Generator, start: int, first: int, last: int, names: pa.Array, minutes: int
) -> dict[str, object]:
    count = last - first
    # Half of all signals go to a tenth of the entities.
    ranks = (len(names) * random.random(count) ** 3.3).astype(np.int64)
    entity = names.take(pa.array(ranks))
    times = np.sort(start + random.integers(0, minutes * MINUTE_US, count))
    place = np.arange(first, last)
    signal = pa.StructArray.from_arrays(
        [
            entity,
            pa.array(SIGNALS[random.integers(0, len(SIGNALS), count)]),
            pa.array(random.integers(-1, 4, count)),
            pa.array(random.integers(-1_000_000, 5_000_000, count)),
        ],
        names=["entity_id", "signal", "count", "weight_millionths"],
    )
    given = {
        "shard": pa.array(np.zeros(count), pa.int32()),
        "epoch": pa.array(place // 1_000 + 1),
        "ordinal": pa.array(place % 1_000, pa.int32()),
        "namespace": pa.array(["shop"] * count),
        "kind": pa.array(["signal"] * count),
        "key": entity,
        "delta_id": pa.array([f"d{number}" for number in range(first, last)]),
        "event_ts": pa.array(times, pa.timestamp("us", tz="UTC")),
        "received_ts": pa.array(times, pa.timestamp("us", tz="UTC")),
        "identity_hash": pa.array(random.integers(-(2**62), 2**62, count)),
        "signal": signal,
    }
    columns = [column for column in DELTAS.columns if column.name != DELTAS.partition_by]
    table = pa.table(
        {
            column.name: given[column.name].cast(column.type) if column.name in given else pa.nulls(count, column.type)
            for column in columns
        }
    )
    hour = f"{from_us(start):%Y-%m-%d %H:%M:%S}"
    file = path / f"event_hour={hour.replace(':', '%3A')}" / f"part-{first}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, file, compression="zstd")
    return _added(path, file, DELTAS.partition_by)


def _no_session() -> "SparkSession":
    raise AssertionError("data is written without a JVM")
