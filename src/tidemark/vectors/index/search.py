"""`nearest`: the k vectors nearest to a query, of the lists that are nearest to it (V3).

Belongs here: searching, and brute force beside it, which knows nothing of lists. Both take distances from `kernels.py`,
so that they are equal to the last bit when all lists are probed.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.vectors.index.blocks import (
    NOBODY,
    Blocks,
    Nearest,
    Queries,
    blocks_in_order,
    blocks_of,
    nearest_of,
    nearest_of_all,
    queries_of,
)
from tidemark.vectors.index.errors import IndexDamageError, SearchError
from tidemark.vectors.index.internal_ids import Ids
from tidemark.vectors.index.kernels import FloatTable, NumberTable
from tidemark.vectors.index.metrics import Metric, matrix_of
from tidemark.vectors.index.state import SHOWN, Dictionary, VectorIndex, Vectors, dictionary_of, places_of

# This many queries share a pass over the lists: their heaps stay in the cache beside a list.
QUERIES_AT_ONCE = 1024


class Neighbour(NamedTuple):
    """A vector that was found."""

    vector_id: str
    internal_id: int
    distance: float


class Neighbours(NamedTuple):
    """The nearest vectors of each query, in order: places in the dictionary, `NOBODY` where there was no more."""

    dictionary: Dictionary
    ranks: NumberTable
    distances: FloatTable

    def of(self, query: int) -> list[Neighbour]:
        """The neighbours of one query."""
        ranks = self.ranks[query][self.ranks[query] != NOBODY]
        return [
            Neighbour(*found)
            for found in zip(
                self.dictionary.vector_ids.take(pa.array(ranks)).to_pylist(),
                self.dictionary.internal_ids[ranks].tolist(),
                self.distances[query].tolist(),
                strict=False,  # distances go on where there is no neighbour
            )
        ]


class Searcher:
    """An index in the form in which it is searched. It has live vectors only, and any thread may use it."""

    def __init__(self, index: VectorIndex) -> None:
        self.dictionary, self.dimension = index.dictionary, index.dimension
        self.default_metric = index.default_metric
        self.default_probes = {known.metric: known.probes for known in index.probing}
        self._centroids = blocks_in_order(index.centroids)
        self._blocks = _live_blocks(index)

    @property
    def lists(self) -> int:
        """How many lists there are: this many probes find everything."""
        return self._blocks.lists

    def nearest(
        self, queries: npt.ArrayLike, *, k: int, probes: int | None = None, metric: Metric | None = None
    ) -> Neighbours:
        """The k nearest vectors for each query; of equally near ones those whose ids come first.

        Without `probes` as many lists are probed as reached the target recall; all of them, if that was not measured.
        """
        metric = metric or self.default_metric
        if probes is None:
            probes = self.default_probes.get(metric, self.lists)
        if probes < 1:
            raise SearchError(f"{probes} lists cannot be searched. Probe 1 at least; {self.lists:,} are all.")
        rows = _checked(queries, k, self.dimension)
        parts = [
            nearest_of(self._blocks, part, k, metric, self.probed(part, probes, metric)) for part in _in_parts(rows)
        ]
        return _together(self.dictionary, parts)

    def probed(self, queries: Queries, probes: int, metric: Metric) -> NumberTable:
        """The lists that queries probe, in this order: those with the nearest centroids, the smaller id of equals."""
        return nearest_of_all(self._centroids, queries, min(probes, self.lists), metric).ranks

    def list_of(self, ranks: Ids) -> Ids:
        """The list of each of these vectors, given by their places in the dictionary."""
        lists = np.empty(len(self._blocks.ranks), np.int64)
        lists[self._blocks.ranks] = np.repeat(np.arange(self.lists), np.diff(self._blocks.offsets))
        return lists[ranks]


def brute_force(vectors: Vectors, queries: npt.ArrayLike, *, k: int, metric: Metric) -> Neighbours:
    """The k nearest of all vectors, compared with every one of them."""
    dictionary = dictionary_of(vectors.vector_ids, vectors.internal_ids)
    places = places_of(dictionary.internal_ids, vectors.internal_ids)
    blocks = blocks_in_order(np.ascontiguousarray(vectors.values[places]))
    rows = _checked(queries, k, blocks.dimension)
    return _together(dictionary, [nearest_of_all(blocks, part, k, metric) for part in _in_parts(rows)])


def _checked(queries: npt.ArrayLike, k: int, dimension: int) -> Queries:
    if k < 1:
        raise SearchError(f"The nearest {k} vectors were requested. Request 1 at least.")
    return queries_of(matrix_of("Queries", queries, dimension))


def _in_parts(queries: Queries) -> list[Queries]:
    starts = range(0, len(queries.values), QUERIES_AT_ONCE)
    return [Queries(*(part[start : start + QUERIES_AT_ONCE] for part in queries)) for start in starts]


def _together(dictionary: Dictionary, parts: list[Nearest]) -> Neighbours:
    if not parts:
        return Neighbours(dictionary, np.empty((0, 0), np.int64), np.empty((0, 0)))
    ranks, distances = zip(*parts, strict=True)
    return Neighbours(dictionary, np.concatenate(ranks), np.concatenate(distances))


def _live_blocks(index: VectorIndex) -> Blocks:
    """The live entries of all lists, each with its place in the dictionary: texts in order are numbers in order."""
    live = np.flatnonzero(index.is_live())
    ranks = places_of(index.postings.internal_ids, index.dictionary.internal_ids)
    if (ranks[live] < 0).any():
        unknown = index.postings.internal_ids[live[ranks[live] < 0]]
        raise IndexDamageError(
            f"Posting lists of {index.namespace} hold {len(unknown):,} internal ids that are neither in the dictionary "
            f"nor deleted, such as {unknown[:SHOWN].tolist()}. Rebuild the index."
        )
    counts = np.bincount(index.postings.centroid_ids[live], minlength=len(index.centroids))
    return blocks_of(index.postings.values, ranks, live, np.append(0, np.cumsum(counts)))
