"""Vector deltas as a table `deltas`: the input of `bench vectors`.

Belongs here: the shape of the data, as files of the table and one commit to its log; all sides read these files. Every
vector is created once and then changed a few dimensions at a time, set or added to, at times spread over the hours.
"""

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from assets.ingest.schema import DELTAS
from benchmarks.lake_data import START_US, commit, made, rows_of
from benchmarks.windows_data import added_file
from tidemark.model.log_schema import VECTOR
from tidemark.model.timegrid import HOUR_US, SECOND_US
from tidemark.storage.home import Home


def write_vector_deltas(
    home: Home,
    *,
    deltas: int,
    vectors: int,
    dimensions: int,
    changed: int,
    hours: int,
    seed: int,
    is_chained: bool = False,
) -> None:
    """Fill `deltas`: one create per vector, in the first hour, and changes of some dimensions for the rest of them.

    Deltas of a single vector may be chained: each names the one before it as its parent.
    """
    random = np.random.default_rng(seed)
    path = made(home, DELTAS)
    names = pa.array([f"vector-{number:07d}" for number in range(vectors)])
    whose = np.concatenate([random.permutation(vectors), random.integers(0, vectors, deltas - vectors)])
    bounds = [0, *np.linspace(vectors, deltas, hours).astype(np.int64).tolist()]
    actions = []
    for hour, (first, last) in enumerate(pairwise(bounds)):
        event = np.sort(START_US + hour * HOUR_US + random.integers(0, HOUR_US, last - first))
        payload = _creates(random, last - first, dimensions)
        if hour:
            payload = _changes(random, last - first, dimensions, changed)
        if is_chained:
            payload["parent_id"] = pa.array([f"d{number - 1}" if number else None for number in range(first, last)])
        table = _rows(np.arange(first, last), names.take(pa.array(whose[first:last])), event, payload)
        start = START_US + hour * HOUR_US
        actions.append(added_file(path, table, start, event, event + SECOND_US))
    commit(home, DELTAS.name, 1, actions)


def _creates(random: np.random.Generator, count: int, dimensions: int) -> dict[str, pa.Array]:
    values = random.standard_normal(count * dimensions, np.float32)
    return {"op": pa.array(["create"] * count), "values": _lists(values, dimensions)}


def _changes(random: np.random.Generator, count: int, dimensions: int, changed: int) -> dict[str, pa.Array]:
    # A stretch of neighbours, so that no dimension is named twice; which of them does not matter to the fold.
    first = random.integers(0, dimensions, (count, 1))
    indices = np.sort((first + np.arange(changed)) % dimensions, axis=1).astype(np.int32)
    values = random.standard_normal(count * changed, np.float32)
    op = np.where(random.random(count) < 0.5, "set_dims", "add_dims")
    return {"op": pa.array(op), "values": _lists(values, changed), "indices": _lists(indices.ravel(), changed)}


def _lists(numbers: np.ndarray[Any, Any], length: int) -> pa.Array:
    offsets = np.arange(0, len(numbers) + 1, length, dtype=np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(numbers))


def _rows(
    places: np.ndarray[Any, Any], keys: pa.Array, event: np.ndarray[Any, Any], payload: dict[str, pa.Array]
) -> pa.Table:
    count = len(places)
    parts = {"vector_id": keys, **payload}
    vector = pa.StructArray.from_arrays(
        [parts.get(field.name, pa.nulls(count, field.type)).cast(field.type) for field in VECTOR], fields=list(VECTOR)
    )
    more = {"producer": pa.array(["bench"] * count), "origin": pa.array(["bench"] * count)}
    hashes = pa.array(places)
    return rows_of("vector", places, keys, event, event + SECOND_US, vector=vector, identity_hash=hashes, **more)
