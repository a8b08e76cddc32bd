"""Made-up rows of `deltas` as files of a table, and the commits that name them: what the data of benchmarks shares.

Belongs here: how rows and files are written, without a JVM. Does not belong here: how entities and times are drawn
(`rollups_data.py`, `windows_data.py`, `vectors_data.py`).
"""

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from assets.ingest.schema import DELTAS
from resources.lake import Lake, TableSpec
from tidemark.model.timegrid import to_us
from tidemark.storage.home import Home
from tidemark.tables.known_table import KnownTableFile

START_US = to_us(datetime(2026, 3, 2, tzinfo=UTC))
TIMESTAMP = pa.timestamp("us", tz="UTC")

Numbers = npt.NDArray[Any]


def made(home: Home, spec: TableSpec) -> Path:
    """The folder of an empty table."""
    lake = Lake(home)
    lake.ensure(spec)
    return lake.path(spec.name)


def commit(home: Home, table: str, version: int, actions: Iterable[dict[str, object]]) -> None:
    """Write a commit of these actions into the table's log, and record it as ours: it is no edit by somebody else."""
    path = home.lake / table
    info = {"commitInfo": {"timestamp": START_US // 1_000, "operation": "WRITE", "engineInfo": "Tidemark"}}
    text = "".join(json.dumps(action) + "\n" for action in (info, *actions))
    (path / "_delta_log" / f"{version:020d}.json").write_text(text)
    KnownTableFile(home.plans, table).record_commit(path)


def added(file: str, size: int, values: dict[str, str], stats: dict[str, Any]) -> dict[str, object]:
    """The action that adds a file to a table."""
    return {
        "add": {
            "path": file,
            "partitionValues": values,
            "size": size,
            "modificationTime": START_US // 1_000,
            "dataChange": True,
            "stats": json.dumps(stats),
        }
    }


def rows_of(
    kind: str, places: Numbers, keys: pa.Array, event: Numbers, received: Numbers, **more: pa.Array
) -> pa.Table:
    """Deltas of one kind, a thousand to an epoch."""
    count = len(places)
    given = {
        "shard": pa.array(np.zeros(count), pa.int32()),
        "epoch": pa.array(places // 1_000 + 1),
        "ordinal": pa.array(places % 1_000, pa.int32()),
        "namespace": pa.array(["shop"] * count),
        "kind": pa.array([kind] * count),
        "key": keys,
        "delta_id": pa.array([f"d{number}" for number in places.tolist()]),
        "event_ts": pa.array(event, TIMESTAMP),
        "received_ts": pa.array(received, TIMESTAMP),
        **more,
    }
    return pa.table(
        {
            column.name: given[column.name].cast(column.type) if column.name in given else pa.nulls(count, column.type)
            for column in DELTAS.columns
            if column.name != DELTAS.partition_by
        }
    )


def signal_rows(
    random: np.random.Generator,
    places: Numbers,
    entities: pa.Array,
    words: Numbers,
    event: Numbers,
    received: Numbers,
    **more: pa.Array,
) -> pa.Table:
    """Signals of these entities; counts and weights are drawn."""
    count = len(places)
    fields = {
        "entity_id": entities,
        "signal": pa.array(words),
        "count": pa.array(random.integers(-1, 4, count)),
        "weight_millionths": pa.array(random.integers(-1_000_000, 5_000_000, count)),
    }
    signal = pa.StructArray.from_arrays(list(fields.values()), names=list(fields))
    hashes = pa.array(random.integers(-(2**62), 2**62, count))
    return rows_of("signal", places, entities, event, received, signal=signal, identity_hash=hashes, **more)
