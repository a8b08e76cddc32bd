"""A stored index: the pointer, the tables at the versions that it names, and later changes.

Belongs here: reading, without a JVM. The parts of an index are in `index/`; it is written by
`assets/vectors/index_asset.py` and searched by `nearest.py`.

`vectors` is written bucket by bucket: a file that existed at the version that an index was made from has nothing new.
So only the other files are read. Which of their vectors have changed is found by the fold, from internal ids and
values.
"""

from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from deltalake.exceptions import DeltaError

from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.vectors.index import tables as stored
from tidemark.vectors.index.errors import IndexDamageError
from tidemark.vectors.index.fold import Changes, vectors_of
from tidemark.vectors.index.internal_ids import Ids, internal_ids
from tidemark.vectors.index.metrics import Matrix
from tidemark.vectors.index.state import VectorIndex, texts
from tidemark.vectors.index.tables import Tables, from_tables, versions_of
from tidemark.vectors.tables import CENTROIDS, DELETED, DICTIONARY, INDEX, POSTINGS, VECTORS

# For each part: its table, and the columns that are read.
PARTS = Tables(
    *(
        (DICTIONARY, stored.DICTIONARY),
        (CENTROIDS, stored.CENTROIDS),
        (POSTINGS, stored.POSTINGS),
        (DELETED, stored.DELETED),
    )
)
_STATE = pa.schema(
    [
        ("namespace", pa.string()),
        ("vector_id", pa.string()),
        ("values", pa.list_(pa.float32())),
        ("shard", pa.int32()),
        ("last_epoch", pa.int64()),
        ("last_ordinal", pa.int32()),
    ]
)


class States(NamedTuple):
    """The current states of some vectors of a namespace, live ones and others."""

    vector_ids: pa.StringArray
    internal_ids: Ids  # -1 for those without values
    epochs: Ids
    values: pa.ListArray


class Chosen(NamedTuple):
    """The changes for an index, and how many live vectors cannot be in it."""

    changes: Changes
    left_out: int


def pointers(home: Home, version: int | None = None) -> dict[str, pa.Table]:
    """Namespace → the row of `vector_index` that publishes its index."""
    table = lake_files.open_table(home.lake / INDEX, version)
    if table is None:
        return {}
    rows = _rows(home.lake / INDEX, table.version(), stored.POINTER)
    return {name.as_py(): rows.filter(pc.equal(rows["namespace"], name)) for name in rows["namespace"].unique()}


def read_index(home: Home, pointer: pa.Table) -> VectorIndex:
    """The index of a pointer row."""
    named = versions_of(pointer)
    found = (
        _rows(home.lake / table, getattr(named, part), columns) for part, (table, columns) in PARTS._asdict().items()
    )
    return from_tables(pointer, Tables(*found))


def files_since(home: Home, after: int | None, upto: int) -> list[str]:
    """Files of `vectors` at a version that did not exist at an earlier one; all of them, if that one is unknown."""
    path = home.lake / VECTORS
    now = _files(path, upto)
    try:
        before = set() if after is None else set(_files(path, after))
    except IndexDamageError:
        before = set()
    return [file for file in now if file not in before]


def namespaces_in(files: Collection[str]) -> list[str]:
    """The namespaces with rows in these files of `vectors`."""
    if not files:
        return []
    found = ds.dataset(list(files), format="parquet", partitioning=None).to_table(columns=["namespace"])
    return sorted(found["namespace"].unique().to_pylist())


def states_in(files: Collection[str], namespace: str) -> States:
    """The vectors of a namespace with rows in these files of `vectors`."""
    rows = _STATE.empty_table()
    if files:
        source = ds.dataset(list(files), _STATE, format="parquet", partitioning=None)
        rows = source.to_table(filter=ds.field("namespace") == namespace)
    return states_of(rows)


def states_of(rows: pa.Table) -> States:
    """Rows of `vectors` in the form that the index needs."""
    rows = rows.combine_chunks()
    has_values = np.asarray(rows["values"].is_valid())
    arrival = (
        np.asarray(pc.fill_null(rows[name], 0)).astype(np.int64) for name in ("shard", "last_epoch", "last_ordinal")
    )
    shards, epochs, ordinals = (np.where(has_values, numbers, 0) for numbers in arrival)
    lists = rows["values"].combine_chunks() if rows.num_rows else pa.array([], pa.list_(pa.float32()))
    return States(
        texts(rows["vector_id"]), np.where(has_values, internal_ids(shards, epochs, ordinals), -1), epochs, lists
    )


def chosen_of(states: States, dimension: int) -> Chosen:
    """Vectors of the right length whose values are all numbers; the others must not be found.

    Building an index and folding both take their vectors from here, so that both have the same numbers.
    """
    is_live = states.internal_ids >= 0
    lengths = np.asarray(pc.fill_null(pc.list_value_length(states.values), -1)).astype(np.int64)
    places = np.flatnonzero(is_live & (lengths == dimension))
    flat = np.asarray(states.values.take(pa.array(places)).flatten(), np.float32)
    rows: Matrix = flat.reshape(len(places), dimension)
    is_number = ~np.isnan(rows).any(axis=1)
    places, rows = places[is_number], rows[is_number]
    is_chosen: npt.NDArray[np.bool_] = np.zeros(len(is_live), np.bool_)
    is_chosen[places] = True
    upserts = vectors_of(states.vector_ids.take(pa.array(places)), states.internal_ids[places], rows)
    changes = Changes(upserts, states.vector_ids.filter(pa.array(~is_chosen)))
    return Chosen(changes, int((is_live & ~is_chosen).sum()))


def dimension_of(states: States) -> int | None:
    """The length that most live vectors have, the smaller one in a tie; None without a live vector."""
    lengths = np.asarray(pc.list_value_length(states.values).filter(pa.array(states.internal_ids >= 0)))
    found, times = np.unique(lengths[lengths > 0], return_counts=True)
    return int(found[times.argmax()]) if len(found) else None


def _rows(path: Path, version: int, columns: pa.Schema) -> pa.Table:
    files = _files(path, version)
    if not files:
        return columns.empty_table()
    try:
        return ds.dataset(files, columns, format="parquet", partitioning=None).to_table()
    except (OSError, pa.ArrowInvalid) as error:
        raise IndexDamageError(
            f"A file of {path.name} at version {version} cannot be read ({error}). "
            "Materialize vector_index: missing parts are made again from vectors."
        ) from error


def _files(path: Path, version: int) -> list[str]:
    try:
        parts = lake_files.partitions(path, version)
    except DeltaError as error:
        raise IndexDamageError(
            f"{path.name} no longer has version {version} ({error}). "
            "Materialize vector_index: missing parts are made again from vectors."
        ) from error
    return [file for part in parts.values() for file in part.files]
