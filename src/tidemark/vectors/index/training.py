"""Centroids: a seeded k-means, and the nearest one of each vector (V2).

Belongs here: how many centroids there are, where they are, and the assignment to them.

The same vectors and the same seed give the same bytes: rows are taken in the order of their internal ids, every sum is
added up in that order by one compiled loop, and BLAS, whose sums depend on the number of its threads, is not used.
Training looks at a sample once there are many vectors; the assignment always looks at all. Some vectors, chosen by a
hash of their internal ids, are never trained on: a measurement with those also holds for queries from elsewhere.
"""

import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tidemark.vectors.index import kernels
from tidemark.vectors.index.blocks import blocks_of
from tidemark.vectors.index.internal_ids import scattered
from tidemark.vectors.index.kernels import CHUNK, Floats, Numbers
from tidemark.vectors.index.metrics import Matrix

# FAISS advises 4 to 16 times the root. A query compares itself with every centroid and with the lists it probes: with
# four times the root, and the few lists that clustered vectors need, neither costs much more than the other.
LISTS_PER_ROOT = 4.0
# Enough for a meaningful mean, and so that few vectors start as a centroid of their own; FAISS asks for 39, and 64
# found nothing better here.
SAMPLE_PER_CENTROID = 32
# One vector in so many is kept out of training.
HELD_OUT = 16
# After these, few vectors still change their list.
ROUNDS = 10


class Assignment(NamedTuple):
    """For each row its nearest centroid, and its squared distance from it."""

    centroids: Numbers
    squared: Floats


def number_of_lists(vectors: int) -> int:
    """How many centroids so many vectors get."""
    return max(1, min(vectors, round(LISTS_PER_ROOT * math.sqrt(vectors))))


def is_held_out(internal_ids: Numbers) -> npt.NDArray[np.bool_]:
    """Which vectors no centroids are trained on, whatever other vectors there are."""
    return np.equal(scattered(internal_ids, HELD_OUT), 0)


def train(internal_ids: Numbers, rows: Matrix, *, seed: int) -> Matrix:
    """Centroids for these vectors, in whatever order they come. Without any vector there is one, of zeros."""
    if not len(rows):
        return np.zeros((1, rows.shape[1]), np.float32)
    random = np.random.Generator(np.random.PCG64(seed))
    lists = number_of_lists(len(rows))
    order = np.argsort(internal_ids, kind="stable")
    held_out = is_held_out(internal_ids[order])
    order = order if held_out.all() else order[~held_out]
    if len(order) > lists * SAMPLE_PER_CENTROID:
        order = order[np.sort(random.permutation(len(order))[: lists * SAMPLE_PER_CENTROID])]
    sample = np.ascontiguousarray(rows[order])
    centroids = _first_centroids(sample, random.random(lists))
    before = None
    for _ in range(ROUNDS):
        assignment = assign(sample, centroids)
        if before is not None and np.array_equal(before, assignment.centroids):
            break
        before = assignment.centroids
        centroids = _means(sample, assignment, centroids)
    members = np.bincount(assign(sample, centroids).centroids, minlength=len(centroids))
    return np.ascontiguousarray(centroids[members > 0])


def assign(rows: Matrix, centroids: Matrix) -> Assignment:
    """Each row's nearest centroid; of equally near ones that with the smaller id."""
    found = Assignment(np.empty(len(rows), np.int64), np.empty(len(rows)))
    dimension = rows.shape[1]
    laid_out = _in_one_list(centroids)
    kernels.assign(rows, laid_out, len(centroids), np.empty(dimension), np.empty(CHUNK), *found)
    return found


def _first_centroids(sample: Matrix, draws: Floats) -> Matrix:
    chosen, far = np.empty(len(draws), np.int64), np.full(len(sample), np.inf)
    values, query = _in_one_list(sample), np.empty(sample.shape[1])
    number = kernels.choose_far_apart(values, sample, draws, query, np.empty(CHUNK), far, chosen)
    return np.ascontiguousarray(sample[chosen[:number]])


def _means(sample: Matrix, assignment: Assignment, centroids: Matrix) -> Matrix:
    """The means of each centroid's rows. A centroid without rows takes the row that is farthest from its own."""
    sums, members = np.zeros(centroids.shape), np.zeros(len(centroids), np.int64)
    kernels.add_up(sample, assignment.centroids, sums, members)
    means: Matrix = centroids.copy()
    has_members = members > 0
    means[has_members] = sums[has_members] / members[has_members, None]
    empty = np.flatnonzero(~has_members)
    if len(empty):
        farthest = np.argsort(-assignment.squared, kind="stable")[: len(empty)]
        means[empty[: len(farthest)]] = sample[farthest]
    return means


def _in_one_list(rows: Matrix) -> kernels.Singles:
    places = np.arange(len(rows))
    return blocks_of(rows, places, places, np.array([0, len(rows)])).values
