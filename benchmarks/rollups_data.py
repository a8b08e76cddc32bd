"""A month of signals as a table `deltas`: what `bench rollups` sums up.

Belongs here: the shape of the data, as files of the table and one commit to its log; both sides read these files. Text
ids, skewed as traffic is; the number of groups follows from how many entities there are and how finely they act.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from assets.ingest.schema import DELTAS
from resources.home import Home
from resources.lake import Lake
from resources.timegrid import HOUR_US, MINUTE_US, from_us, to_us

START_US = to_us(datetime(2026, 3, 2, tzinfo=UTC))
SIGNALS = np.array(["view", "click", "cart", "purchase", "return"])


def write_deltas(home: Home, *, rows: int, entities: int, hours: int, minutes: int, seed: int) -> None:
    """Fill `deltas` with signals of so many entities, evenly over the hours, in the first `minutes` of each hour."""
    random = np.random.default_rng(seed)
    lake = Lake(home, _no_session)
    lake.ensure(DELTAS)
    path = lake.path(DELTAS.name)
    names = pa.array([f"item-{number:07d}-{number * 2654435761 % 2**32:08x}" for number in range(entities)])
    bounds = np.linspace(0, rows, hours + 1).astype(np.int64)
    actions = [
        _write_hour(path, random, START_US + hour * HOUR_US, int(bounds[hour]), int(bounds[hour + 1]), names, minutes)
        for hour in range(hours)
    ]
    commit = path / "_delta_log" / f"{1:020d}.json"
    info = {"commitInfo": {"timestamp": START_US // 1_000, "operation": "WRITE", "engineInfo": "Tidemark"}}
    commit.write_text("".join(json.dumps(action) + "\n" for action in (info, *actions)))


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
    file = f"event_hour={hour.replace(':', '%3A')}/part-{start}.parquet"
    (path / file).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path / file, compression="zstd")
    return {
        "add": {
            "path": file.replace("%", "%25").replace(" ", "%20"),
            "partitionValues": {"event_hour": hour},
            "size": (path / file).stat().st_size,
            "modificationTime": START_US // 1_000,
            "dataChange": True,
            "stats": json.dumps({"numRecords": count}),
        }
    }


def _no_session() -> "object":  # type: ignore[type-arg]
    raise AssertionError("data is written without a JVM")
