"""The nearest vectors, without a JVM: those in the index, and later changes (V3).

Belongs here: a handle that searches the index of a namespace, and its answers. How a search works is in `index/`,
how an index is read in `stored_index.py`.

    with open_index(Home.locate(), "shop") as index:
        index.nearest([0.1, 0.2, 0.3], k=10)
        index.nearest_to("item-7", k=10, metric=Metric.COSINE)

A search never returns deleted vectors: before it answers, it looks for changes since the version of `vectors` that
the index was made from, and in `deltas` since the one that `vectors` was made from. Deleted vectors are hidden, and
changed ones are put into the posting lists in memory, as the next run of the asset will do it. So an answer is as of
`deltas` at its committed version, however far tables are behind. Only training is left to the asset, and with it the
length of the vectors that can be found.

The cost of a search: a look at some tables' logs; and if something has changed, reading the changed vectors' rows and
laying out the lists again, which takes about as long as copying all of them. If the rows of `vectors` cannot be relied
on, its vectors are folded from their deltas, once for each change of the tables: that is slow, and right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, structs

from tidemark.storage.home import Home
from tidemark.tables.table_snapshot import TableSnapshot
from tidemark.vectors.errors import VectorsError
from tidemark.vectors.index.errors import DimensionError, SearchError
from tidemark.vectors.index.fold import fold
from tidemark.vectors.index.metrics import Metric
from tidemark.vectors.index.search import Neighbour, Searcher
from tidemark.vectors.index.state import VectorIndex
from tidemark.vectors.index.tables import origin_of
from tidemark.vectors.reading.answers import NOWHERE, Vector
from tidemark.vectors.reading.reader import Vectors
from tidemark.vectors.reading.snapshot import Snapshot
from tidemark.vectors.reading.stored_index import (
    States,
    chosen_of,
    files_since,
    pointers,
    read_index,
    states_in,
    states_of,
)
from tidemark.vectors.tables import INDEX, VECTORS

NEIGHBOURS = 10


class NoIndexError(VectorsError):
    """There is no index to search."""


class Found(Struct, frozen=True):
    """The result of a search, nearest first, and how far it searched."""

    namespace: str
    metric: Metric
    probes: int  # posting lists that were searched
    lists: int  # posting lists in the index
    recall: float | None  # measured with so many probes; 1.0 with all of them, None if it was not measured
    neighbours: list[Neighbour]
    live: int  # vectors that could be found
    changed: int  # vectors that have changed since the index was made, and were searched in their current state
    versions: dict[str, int]  # table → version
    epochs: dict[int, int]  # shard → last epoch looked at


@dataclass(frozen=True)
class _Ready:
    """An index in memory, with all later changes."""

    pointer: TableSnapshot
    snapshot: Snapshot
    index: VectorIndex
    made_from: int  # version of `vectors`
    searcher: Searcher
    changed: int
    epochs: dict[int, int]


class Index:
    """A handle on the index of a namespace: it follows the tables, and caches what it has read. For one thread."""

    def __init__(self, home: Home, namespace: str) -> None:
        self.namespace = namespace
        self._home = home
        self._vectors = Vectors(home, counts_reads=False)
        self._ready: _Ready | None = None

    def nearest(
        self,
        query: npt.ArrayLike,
        *,
        k: int = NEIGHBOURS,
        probes: int | None = None,
        metric: Metric | None = None,
    ) -> Found:
        """The k vectors nearest to a query; of equally near ones those whose ids come first.

        Without `probes`, as many lists are probed as reached the target recall when the index was made, at most all.
        Probing all of them finds exactly what brute force finds.
        """
        return self._search(self._look(), query, k, probes, metric)

    def nearest_to(
        self, vector_id: str, *, k: int = NEIGHBOURS, probes: int | None = None, metric: Metric | None = None
    ) -> Found:
        """The k vectors nearest to this one, which itself is left out."""
        vector = self._vectors.vector(vector_id, namespace=self.namespace)
        if vector.values is None:
            raise SearchError(f"The vector {vector_id!r} is not there ({vector.status}), so nothing is near to it.")
        found = self._search(self._look(), vector.values, k + 1, probes, metric)
        others = [each for each in found.neighbours if each.vector_id != vector_id][:k]
        return structs.replace(found, neighbours=others)

    def close(self) -> None:
        """Release the cache."""
        self._ready = None
        self._vectors.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _search(self, ready: _Ready, query: npt.ArrayLike, k: int, probes: int | None, metric: Metric | None) -> Found:
        searcher, metric = ready.searcher, metric or ready.searcher.default_metric
        values = np.asarray(query)
        if values.ndim != 1:
            raise DimensionError("A query", values.shape, searcher.dimension)
        default = searcher.default_probes.get(metric, searcher.lists)
        used = min(default if probes is None else probes, searcher.lists)
        found = searcher.nearest(values, k=k, probes=used, metric=metric)
        return Found(
            self.namespace,
            metric,
            used,
            searcher.lists,
            _recall(ready.index, metric, used),
            found.of(0),
            len(searcher.dictionary.internal_ids),
            ready.changed,
            {INDEX: ready.pointer.version or 0, **ready.snapshot.versions},
            ready.epochs,
        )

    def _look(self) -> _Ready:
        """The index with everything that is committed now; the cached one as long as nothing has changed."""
        known = self._ready
        # The pointer first: then `vectors` is never behind the version that the index was made from.
        pointer, index, made_from = self._published(known)
        snapshot = self._vectors.snapshot
        if known and known.pointer is pointer and known.snapshot is snapshot:
            return known
        states = self._states_since(index, made_from, snapshot)
        folded = fold(index, chosen_of(states, index.dimension).changes)
        changed = len(folded.upserts.internal_ids) + len(folded.removed)
        self._ready = _Ready(
            pointer, snapshot, index, made_from, Searcher(folded.index), changed=changed, epochs=snapshot.epochs
        )
        return self._ready

    def _published(self, known: _Ready | None) -> tuple[TableSnapshot, VectorIndex, int]:
        if known and known.pointer.is_current():
            return known.pointer, known.index, known.made_from
        pointer = TableSnapshot(self._home, INDEX)
        rows = pointers(self._home, pointer.version) if pointer.version is not None else {}
        if self.namespace not in rows:
            raise no_index(self.namespace, sorted(rows))
        row = rows[self.namespace]
        return pointer, read_index(self._home, row), origin_of(row).vectors_version

    def _states_since(self, index: VectorIndex, made_from: int, snapshot: Snapshot) -> States:
        """The states of vectors since a version of `vectors`: its rows, and a fold of the deltas not in it."""
        if snapshot.vectors.version is None:
            raise NoIndexError(
                f"The table {VECTORS} is gone, from which the index of {self.namespace} was made. "
                "It is folded again from deltas, and the index follows: ./tidemark drain."
            )
        rows = states_in(files_since(self._home, made_from, snapshot.vectors.version), self.namespace)
        known = (name for ids in (index.dictionary.vector_ids, rows.vector_ids) for name in ids.to_pylist())
        unfolded = self._vectors.unfolded(self.namespace, snapshot, known)
        is_folded = pc.invert(pc.is_in(rows.vector_ids, value_set=pa.array(list(unfolded), pa.string())))
        return _together(rows, is_folded, states_of(_table(unfolded)))


def open_index(home: Home, namespace: str | None = None) -> Index:
    """The index of a namespace, which may be left out if there is only one."""
    found = sorted(pointers(home))
    if namespace is None and len(found) > 1:
        raise NoIndexError(f"{', '.join(found)} have an index. Choose one with --namespace.")
    if namespace is None and not found:
        raise no_index(None, found)
    return Index(home, namespace or found[0])


def no_index(namespace: str | None, known: Sequence[str]) -> NoIndexError:
    """The error if there is no index."""
    there = f" There is one of {', '.join(known)}." if known else ""
    of = f" of {namespace}" if namespace else ""
    return NoIndexError(f"There is no index{of} yet.{there} One is made of live vectors: ./tidemark drain.")


def _recall(index: VectorIndex, metric: Metric, probes: int) -> float | None:
    if probes >= len(index.centroids):
        return 1.0
    return next((each.recall for each in index.probing if (each.metric, each.probes) == (metric, probes)), None)


def _table(vectors: Mapping[str, Vector | None]) -> pa.Table:
    """Vectors as rows of `vectors`; those that do not exist have no values."""
    found = [(None, NOWHERE) if each is None else (each.values, each.arrival) for each in vectors.values()]
    return pa.table(
        {
            "vector_id": pa.array(list(vectors), pa.string()),
            "values": pa.array([values for values, _ in found], pa.list_(pa.float32())),
            "shard": pa.array([arrival.shard for _, arrival in found], pa.int32()),
            "last_epoch": pa.array([arrival.last_epoch for _, arrival in found], pa.int64()),
            "last_ordinal": pa.array([arrival.last_ordinal for _, arrival in found], pa.int32()),
        }
    )


def _together(rows: States, is_kept: pa.Array, others: States) -> States:
    kept = np.asarray(is_kept)
    return States(
        pa.concat_arrays([rows.vector_ids.filter(is_kept), others.vector_ids]),
        np.concatenate([rows.internal_ids[kept], others.internal_ids]),
        np.concatenate([rows.epochs[kept], others.epochs]),
        pa.concat_arrays([rows.values.filter(is_kept), others.values]),
    )
