"""Vectors in the layout of the loops, and the nearest of them found by these loops.

Belongs here: the layout in memory, and one call that answers many queries. `search.py` decides which lists to probe.

A list's vectors lie together, dimension by dimension, so that probing it reads one piece of memory from its start to
its end. Pairs of list and query are taken list by list: a list that many queries probe is fetched from memory once.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidemark.vectors.index import kernels
from tidemark.vectors.index.kernels import CHUNK, Floats, FloatTable, Numbers, NumberTable, Singles
from tidemark.vectors.index.metrics import Matrix, Metric

# Greater than every rank: the empty entry of a heap.
NOBODY = np.iinfo(np.int64).max
_CODES = {Metric.L2: kernels.L2, Metric.DOT: kernels.DOT, Metric.COSINE: kernels.COSINE}


class Blocks(NamedTuple):
    """Lists of vectors. A vector's rank identifies it, and decides which of equally near ones comes first."""

    dimension: int
    offsets: Numbers
    values: Singles
    squares: Floats
    ranks: Numbers

    @property
    def lists(self) -> int:
        """How many lists there are, empty ones too."""
        return len(self.offsets) - 1


class Queries(NamedTuple):
    """Queries in 64 bits, and each one's product with itself."""

    values: FloatTable
    squares: Floats


class Nearest(NamedTuple):
    """For each query the ranks of the nearest vectors, in order, and their distances; `NOBODY` where there is none."""

    ranks: NumberTable
    distances: FloatTable


def blocks_of(rows: Matrix, ranks: Numbers, order: Numbers, offsets: Numbers) -> Blocks:
    """Rows in lists: list `i` has the rows `order[offsets[i]:offsets[i + 1]]`."""
    values, squares = np.empty(len(order) * rows.shape[1], np.float32), np.empty(len(order))
    kernels.lay_out(rows, order, offsets, values, squares)
    return Blocks(rows.shape[1], offsets, values, squares, np.ascontiguousarray(ranks[order]))


def blocks_in_order(rows: Matrix) -> Blocks:
    """Rows in their order, in lists of a handy length, each identified by its place."""
    places = np.arange(len(rows))
    return blocks_of(rows, places, places, np.append(np.arange(0, len(rows), CHUNK), len(rows)))


def queries_of(rows: Matrix) -> Queries:
    """Rows to compare with blocks."""
    queries = Queries(rows.astype(np.float64), np.empty(len(rows)))
    kernels.square_up(*queries)
    return queries


def nearest_of_all(blocks: Blocks, queries: Queries, k: int, metric: Metric) -> Nearest:
    """The nearest of all vectors."""
    number = len(queries.values)
    lists = np.repeat(np.arange(blocks.lists), number)
    return _nearest(blocks, queries, k, metric, lists, np.tile(np.arange(number), blocks.lists))


def nearest_of(blocks: Blocks, queries: Queries, k: int, metric: Metric, probed: NumberTable) -> Nearest:
    """The nearest of the vectors in the lists that each query probes."""
    by_list = np.argsort(probed, axis=None, kind="stable")
    return _nearest(blocks, queries, k, metric, probed.reshape(-1)[by_list], by_list // probed.shape[1])


def _nearest(
    blocks: Blocks, queries: Queries, k: int, metric: Metric, lists: Numbers, asking: npt.NDArray[np.int64]
) -> Nearest:
    room = max(min(k, len(blocks.ranks)), 1)
    shape = (len(queries.values), room)
    found = Nearest(np.full(shape, NOBODY), np.full(shape, np.inf))
    scratch = np.empty(CHUNK)
    kernels.scan(
        *(blocks.values, blocks.offsets, blocks.squares, blocks.ranks, lists, asking),
        *(queries.values, queries.squares, _CODES[metric], scratch, found.distances, found.ranks),
    )
    kernels.sort_heaps(found.distances, found.ranks)
    return found
