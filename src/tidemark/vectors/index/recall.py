"""The recall of a search, and how many lists it must probe for a target recall (V3).

Belongs here: measuring recall, and choosing probes by it.

A vector of the true k is found exactly when its list is probed: any vector nearer than it is among the true k too. So
one look at the truth, and at the place of each true neighbour's list in the order in which a query probes them, gives
the recall for every number of probes at once.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidemark.vectors.index.blocks import NOBODY, queries_of
from tidemark.vectors.index.metrics import Matrix, Metric, matrix_of
from tidemark.vectors.index.search import Neighbours, Searcher, brute_force
from tidemark.vectors.index.state import Probing, VectorIndex, Vectors
from tidemark.vectors.index.training import is_held_out

TARGET_RECALL = 0.95
NEIGHBOURS = 10
# Ten thousand neighbours: the mean is then known to a third of a hundredth.
SAMPLE = 1_024
# The target must be met by the mean less two of its standard errors, so that other queries meet it, too.
STANDARD_ERRORS = 2.0
# A standard error of fewer says nothing.
FEWEST_QUERIES = 30


class Recall(NamedTuple):
    """The mean over queries of the share of true neighbours that were found, and its standard error."""

    mean: float
    standard_error: float


def measure_recall(
    searcher: Searcher, truth: Neighbours, queries: npt.ArrayLike, *, k: int, probes: int, metric: Metric
) -> Recall:
    """The recall of a search for these queries, whose true neighbours were found by brute force."""
    found = searcher.nearest(queries, k=k, probes=probes, metric=metric)
    is_true = truth.ranks[:, :k] != NOBODY
    hits = [len(np.intersect1d(mine, true)) for mine, true in zip(_known(found, k), _known(truth, k), strict=True)]
    return _recall(np.array(hits, np.float64), is_true.sum(axis=1))


def with_probing(index: VectorIndex, *, seed: int, metrics: tuple[Metric, ...] = tuple(Metric)) -> VectorIndex:
    """The index with the least number of probes that meets the target, for each metric, and the recall there.

    The queries are vectors of the index that no centroid was trained on, by seed, each searched among the others. An
    index with too few of those cannot tell: then all lists are probed, which finds everything.
    """
    held_out = np.flatnonzero(is_held_out(index.dictionary.internal_ids))
    if len(held_out) < FEWEST_QUERIES:
        return replace(index, probing=tuple(Probing(metric, len(index.centroids), 1.0) for metric in metrics))
    random = np.random.Generator(np.random.PCG64(seed))
    own = np.sort(random.permutation(held_out)[:SAMPLE])
    searcher, vectors = Searcher(index), index.vectors()
    chosen = (_probing(searcher, vectors, own, metric) for metric in metrics)
    return replace(index, probing=tuple(chosen))


def _probing(searcher: Searcher, vectors: Vectors, own: npt.NDArray[np.int64], metric: Metric) -> Probing:
    queries: Matrix = matrix_of("Queries", vectors.values[own], searcher.dimension)
    ranks = brute_force(vectors, queries, k=NEIGHBOURS + 1, metric=metric).ranks
    # The true neighbours besides the query itself, which by the product need not be its own nearest.
    is_true = (ranks != NOBODY) & (ranks != own[:, None])
    is_true &= np.cumsum(is_true, axis=1) <= NEIGHBOURS
    probed = searcher.probed(queries_of(queries), searcher.lists, metric)
    turns = np.argsort(probed, axis=1)  # at which turn each list is probed
    lists = searcher.list_of(np.where(is_true, ranks, 0))
    turn = np.where(is_true, np.take_along_axis(turns, lists, axis=1), searcher.lists)
    # How many neighbours each query has found after 1, 2, … probes.
    found = np.zeros((len(own), searcher.lists + 1), np.int64)
    np.add.at(found, (np.arange(len(own))[:, None], turn), 1)
    found = np.cumsum(found[:, :-1], axis=1)
    for probes in range(1, searcher.lists + 1):
        recall = _recall(found[:, probes - 1].astype(np.float64), is_true.sum(axis=1))
        if recall.mean - STANDARD_ERRORS * recall.standard_error >= TARGET_RECALL or probes == searcher.lists:
            return Probing(metric, probes, recall.mean)
    raise AssertionError("an index has a list at least")


def _recall(hits: npt.NDArray[np.float64], true: npt.NDArray[np.int64]) -> Recall:
    shares = hits[true > 0] / true[true > 0]
    if not len(shares):
        return Recall(1.0, 0.0)  # there was nothing to find
    return Recall(float(shares.mean()), float(shares.std() / np.sqrt(len(shares))))


def _known(found: Neighbours, k: int) -> list[npt.NDArray[np.int64]]:
    return [ranks[ranks != NOBODY] for ranks in found.ranks[:, :k]]
