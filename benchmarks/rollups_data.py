"""Signals as a table `deltas`: the input of `bench rollups`. For a year of them, also their sums.

Belongs here: the shape of the data, as files of the tables and commits to their logs; both sides read these files. Text
ids, skewed as traffic is; the number of groups follows from how many entities there are and how finely they act.
"""

from pathlib import Path
from urllib.parse import quote, unquote

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from assets.ingest.schema import DELTAS
from assets.rollups.schema import CHAIN, EXTREMES, MINUTE_COUNTS
from benchmarks.lake_data import START_US, added, commit, made, signal_rows
from resources.lake import TableSpec
from tidemark.model.timegrid import HOUR_US, MINUTE_US, from_us
from tidemark.storage.home import Home
from tidemark.tables.lake_files import quiet_database

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
    path = made(home, DELTAS)
    names = _names(entities)
    bounds = np.linspace(0, rows, hours + 1).astype(np.int64)
    actions = [
        _write_hour(path, random, START_US + hour * HOUR_US, int(bounds[hour]), int(bounds[hour + 1]), names, minutes)
        for hour in range(hours)
    ]
    commit(home, DELTAS.name, 1, actions)


def write_late(home: Home, hour_us: int, *, entities: int) -> None:
    """One more delta, of an hour that is long over."""
    path, place = home.lake / DELTAS.name, 1 << 40
    random = np.random.default_rng(place)
    commit(home, DELTAS.name, 2, [_write_hour(path, random, hour_us, place, place + 1, _names(entities), 60)])


def write_sums(home: Home) -> None:
    """All tiers as they follow from `deltas`, a file for each partition, without a JVM: there are thousands."""
    sources = {DELTAS.name: SIGNALS_SQL.format(files=home.lake / DELTAS.name)}
    for made_from, spec in CHAIN:
        path = made(home, spec)
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
        commit(home, spec.name, 1, [_added(path, file, spec.partition_by) for file in files])
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


def _added(path: Path, file: Path, partition_by: str) -> dict[str, object]:
    name = quote(str(file.relative_to(path)), safe="/=")
    values = {partition_by: unquote(file.parent.name.removeprefix(f"{partition_by}="))}
    return added(name, file.stat().st_size, values, {"numRecords": pq.read_metadata(file).num_rows})


def _write_hour(
    path: Path, random: np.random.Generator, start: int, first: int, last: int, names: pa.Array, minutes: int
) -> dict[str, object]:
    count = last - first
    # Half of all signals go to a tenth of the entities.
    ranks = (len(names) * random.random(count) ** 3.3).astype(np.int64)
    times = np.sort(start + random.integers(0, minutes * MINUTE_US, count))
    words = SIGNALS[random.integers(0, len(SIGNALS), count)]
    table = signal_rows(random, np.arange(first, last), names.take(pa.array(ranks)), words, times, times)
    hour = f"{from_us(start):%Y-%m-%d %H:%M:%S}"
    file = path / f"event_hour={hour.replace(':', '%3A')}" / f"part-{first}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, file, compression="zstd")
    return _added(path, file, DELTAS.partition_by)
