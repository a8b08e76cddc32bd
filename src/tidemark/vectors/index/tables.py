"""An index as Arrow tables, and the pointer row that publishes them together (V1).

Belongs here: schemas, and converting an index to tables and back. Reading and writing Delta is done elsewhere.

| table | one row for | columns |
| --- | --- | --- |
| `vector_dictionary` | a live vector | namespace, vector_id, internal_id |
| `vector_centroids` | a posting list | namespace, centroid_id, values |
| `vector_postings` | an entry, dead ones too | namespace, centroid_id, internal_id, values |
| `vector_deleted` | a namespace | namespace, bitmap (64-bit roaring, in its portable form) |
| `vector_index` | a namespace | the versions of these four, and how the index was made and finds |

A reader takes the pointer row first and reads each table at the version that it names. Counts in the row verify that
everything was read.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import FrozenBitMap64

from tidemark.vectors.index.errors import IndexDamageError
from tidemark.vectors.index.internal_ids import Ids
from tidemark.vectors.index.metrics import Matrix, Metric
from tidemark.vectors.index.state import Probing, Training, VectorIndex, dictionary_of, postings_of, texts

_VALUES = pa.list_(pa.field("element", pa.float32(), nullable=False))
_NAMESPACE = pa.field("namespace", pa.string(), nullable=False)


def _schema(*fields: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([_NAMESPACE, *(pa.field(name, kind, nullable=False) for name, kind in fields)])


DICTIONARY = _schema(("vector_id", pa.string()), ("internal_id", pa.int64()))
CENTROIDS = _schema(("centroid_id", pa.int64()), ("values", _VALUES))
POSTINGS = _schema(("centroid_id", pa.int64()), ("internal_id", pa.int64()), ("values", _VALUES))
DELETED = _schema(("bitmap", pa.binary()))
PROBING = pa.struct([("metric", pa.string()), ("probes", pa.int64()), ("recall", pa.float64())])
POINTER = _schema(
    ("dictionary_version", pa.int64()),
    ("centroids_version", pa.int64()),
    ("postings_version", pa.int64()),
    ("deleted_version", pa.int64()),
    ("vectors_version", pa.int64()),
    ("trained_epoch", pa.int64()),
    ("trained_vectors", pa.int64()),
    ("seed", pa.int64()),
    ("dimension", pa.int64()),
    ("lists", pa.int64()),
    ("entries", pa.int64()),
    ("live", pa.int64()),
    ("dead", pa.int64()),
    ("left_out", pa.int64()),
    ("measured_entries", pa.int64()),
    ("default_metric", pa.string()),
    ("probing", pa.list_(PROBING)),
)


class Tables(NamedTuple):
    """The tables of an index."""

    dictionary: pa.Table
    centroids: pa.Table
    postings: pa.Table
    deleted: pa.Table


class Versions(NamedTuple):
    """The versions of the tables that together are the index."""

    dictionary: int
    centroids: int
    postings: int
    deleted: int


def to_tables(index: VectorIndex) -> Tables:
    """All rows of an index."""
    postings = index.postings
    return Tables(
        _table(DICTIONARY, index.namespace, index.dictionary.vector_ids, index.dictionary.internal_ids),
        _table(CENTROIDS, index.namespace, np.arange(len(index.centroids)), _lists(index.centroids)),
        _table(POSTINGS, index.namespace, postings.centroid_ids, postings.internal_ids, _lists(postings.values)),
        _table(DELETED, index.namespace, pa.array([index.deleted.serialize()], pa.binary())),
    )


class Origin(NamedTuple):
    """What an index was made from: a version of `vectors`, and how many of its live vectors cannot be in an index."""

    vectors_version: int
    left_out: int = 0
    measured_entries: int = 0  # how many entries there were when recall was measured


def pointer_row(index: VectorIndex, versions: Versions, origin: Origin) -> pa.Table:
    """The row of `vector_index` that publishes the index."""
    row = {
        "namespace": index.namespace,
        **{f"{name}_version": version for name, version in versions._asdict().items()},
        **origin._asdict(),
        "trained_epoch": index.training.epoch,
        "trained_vectors": index.training.vectors,
        "seed": index.training.seed,
        "dimension": index.dimension,
        "lists": len(index.centroids),
        "entries": len(index.postings.internal_ids),
        "live": index.live,
        "dead": index.dead,
        "default_metric": index.default_metric.value,
        "probing": [known._asdict() | {"metric": known.metric.value} for known in index.probing],
    }
    return pa.Table.from_pylist([row], POINTER)


def versions_of(pointer: pa.Table) -> Versions:
    """The versions in a pointer row."""
    row = _only_row(pointer)
    return Versions(*(row[f"{name}_version"] for name in Versions._fields))


def origin_of(pointer: pa.Table) -> Origin:
    """The origin in a pointer row."""
    row = _only_row(pointer)
    return Origin(*(row[name] for name in Origin._fields))


def from_tables(pointer: pa.Table, tables: Tables) -> VectorIndex:
    """The index of a pointer row and the tables at its versions; rows of other namespaces are left out."""
    row = _only_row(pointer)
    name, dimension = row["namespace"], row["dimension"]
    dictionary, centroids, postings, deleted = (table.filter(pc.equal(table["namespace"], name)) for table in tables)
    for what, expected, found in (
        ("vector_dictionary", row["live"], dictionary.num_rows),
        ("vector_centroids", row["lists"], centroids.num_rows),
        ("vector_postings", row["entries"], postings.num_rows),
        ("vector_deleted", 1, deleted.num_rows),
    ):
        if expected != found:
            raise IndexDamageError(
                f"The index of {name} has {expected:,} rows in {what}, and {found:,} were read. "
                "Read each table at the version that the pointer row names; if that was done, rebuild the index."
            )
    order = np.argsort(_numbers(centroids, "centroid_id"))
    return VectorIndex(
        name,
        np.ascontiguousarray(_matrix(centroids, dimension)[order]),
        postings_of(
            _numbers(postings, "centroid_id"),
            _numbers(postings, "internal_id"),
            _matrix(postings, dimension),
            row["lists"],
        ),
        dictionary_of(texts(dictionary["vector_id"]), _numbers(dictionary, "internal_id")),
        FrozenBitMap64.deserialize(deleted["bitmap"][0].as_py()),
        Training(row["trained_epoch"], row["seed"], row["trained_vectors"]),
        tuple(Probing(Metric(known["metric"]), known["probes"], known["recall"]) for known in row["probing"]),
        Metric(row["default_metric"]),
    )


def _table(schema: pa.Schema, namespace: str, *columns: "pa.Array | Ids") -> pa.Table:
    arrays = [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
    return pa.Table.from_arrays([pa.repeat(namespace, len(arrays[0])), *arrays], schema=schema)


def _lists(rows: Matrix) -> pa.ListArray:
    """Rows as lists, without a copy."""
    offsets = pa.array(np.arange(len(rows) + 1, dtype=np.int32) * np.int32(rows.shape[1]))
    return pa.ListArray.from_arrays(offsets, pa.array(rows.reshape(-1)), type=_VALUES)


def _matrix(table: pa.Table, dimension: int) -> Matrix:
    column = table["values"].combine_chunks()
    if not pc.all(pc.equal(pc.list_value_length(column), dimension), min_count=0).as_py():
        raise IndexDamageError(
            f"A stored vector is not of {dimension:,} dimensions, as all should be. Rebuild the index."
        )
    return np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.float32).reshape(-1, dimension)


def _numbers(table: pa.Table, name: str) -> Ids:
    return np.asarray(table[name].to_numpy(), np.int64)


def _only_row(pointer: pa.Table) -> dict[str, Any]:
    if pointer.num_rows != 1:
        raise IndexDamageError(
            f"{pointer.num_rows} pointer rows were given for one index. Take one namespace's row of vector_index."
        )
    return dict(pointer.to_pylist()[0])
