"""The vector index beside NumPy's brute force: 100,000 vectors of 64 dimensions, 1,000 queries, in one process.

Belongs here: the seeded vectors, both sides, and their figures. Which command shows them is for `vectors.py`.

Vectors are drawn around 1,000 centres as wide apart as they scatter (both by a standard normal), so that clusters touch
and one list does not hold all that is near. Both sides store 32 bits; NumPy adds up in 32, the index in 64. CPU-seconds
are of this process with all its threads, the best of some rounds; loading machine code is not among them.
"""

import time
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from benchmarks.harness import Result
from tidemark.vectors.index.fold import build, vectors_of
from tidemark.vectors.index.metrics import Matrix, Metric
from tidemark.vectors.index.recall import TARGET_RECALL, measure_recall, with_probing
from tidemark.vectors.index.search import Neighbours, Searcher, brute_force
from tidemark.vectors.index.state import Vectors

VECTORS, DIMENSION, CLUSTERS, QUERIES, NEIGHBOURS = 100_000, 64, 1_000, 1_000, 10
SEED = 20_240_601
# Of brute force's CPU-seconds.
SHARE = 0.1
ROUNDS = 3
# As many queries as NumPy is quickest with: 40 MB of distances.
AT_ONCE = 100
T = TypeVar("T")


class Figures(NamedTuple):
    """The measurements."""

    build_cpu_s: float
    brute_force_cpu_s: float
    nearest_cpu_s: float
    all_lists_cpu_s: float
    lists: int
    probes: int
    recall: float
    is_equal: bool
    agrees_with_numpy: float


def clustered(random: np.random.Generator, rows: int, centres: npt.NDArray[np.float64]) -> Matrix:
    """Rows around centres that are drawn for each."""
    chosen = centres[random.integers(0, len(centres), rows)]
    made: Matrix = (chosen + random.standard_normal(chosen.shape)).astype(np.float32)
    return made


def numpy_brute_force(rows: Matrix, queries: Matrix, k: int) -> npt.NDArray[np.int64]:
    """The k nearest rows by L2, nearest first: one matrix product for many queries, then a partition of each row."""
    squares = np.einsum("ij,ij->i", rows, rows)
    found = []
    for start in range(0, len(queries), AT_ONCE):
        distances = queries[start : start + AT_ONCE] @ rows.T
        distances *= -2
        distances += squares
        least = np.argpartition(distances, k, axis=1)[:, :k]
        order = np.take_along_axis(distances, least, axis=1).argsort(axis=1)
        found.append(np.take_along_axis(least, order, axis=1))
    return np.concatenate(found)


def measured(vectors: int = VECTORS, queries: int = QUERIES) -> Figures:
    """Make the vectors, build the index, and ask both sides."""
    random = np.random.default_rng(SEED)
    centres = random.standard_normal((CLUSTERS, DIMENSION))
    rows, asked = clustered(random, vectors, centres), clustered(random, queries, centres)
    # In the order of their places, so a rank is a place.
    made: Vectors = vectors_of([f"v{place:09d}" for place in range(vectors)], np.arange(vectors), rows)
    index, build_s = _timed(lambda: build("bench", made, epoch=1, seed=SEED))
    index = with_probing(index, seed=SEED, metrics=(Metric.L2,))
    searcher, probes = Searcher(index), index.probing[0].probes
    searcher.nearest(asked[:1], k=NEIGHBOURS)
    theirs, brute_s = _best(lambda: numpy_brute_force(rows, asked, NEIGHBOURS))
    _, nearest_s = _best(lambda: searcher.nearest(asked, k=NEIGHBOURS, probes=probes))
    every, every_s = _timed(lambda: searcher.nearest(asked, k=NEIGHBOURS, probes=searcher.lists))
    truth = brute_force(made, asked, k=NEIGHBOURS, metric=Metric.L2)
    recall = measure_recall(searcher, truth, asked, k=NEIGHBOURS, probes=probes, metric=Metric.L2)
    return Figures(
        *(build_s, brute_s, nearest_s, every_s, searcher.lists, probes, recall.mean),
        is_equal=_is_equal(every, truth),
        agrees_with_numpy=float((truth.ranks == theirs).mean()),
    )


def results() -> Iterator[Result]:
    """The figures beside their targets."""
    figures = measured()
    share = figures.nearest_cpu_s / figures.brute_force_cpu_s
    # Two 32-bit sums in another order may put two neighbours the other way round; more than a few would be an error.
    is_same = figures.is_equal and figures.agrees_with_numpy > 0.999
    name = f"{QUERIES:,} queries, {figures.probes} of {figures.lists} lists"
    yield Result(
        *(name, figures.nearest_cpu_s, figures.brute_force_cpu_s, "NumPy's brute force", "CPU-seconds", share),
        target=SHARE,
        met=share <= SHARE,
        equal=is_same,
    )
    is_met = figures.recall >= TARGET_RECALL
    yield Result(
        "recall@10", figures.recall, 1.0, "brute force", "of 1", figures.recall, TARGET_RECALL, is_met, is_same
    )


def _is_equal(found: Neighbours, truth: Neighbours) -> bool:
    """To the last bit: the same vectors in the same order, at the same distances."""
    return found.ranks.tobytes() == truth.ranks.tobytes() and found.distances.tobytes() == truth.distances.tobytes()


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    started = time.process_time()
    done = work()
    return done, time.process_time() - started


def _best(work: Callable[[], T]) -> tuple[T, float]:
    rounds = [_timed(work) for _ in range(ROUNDS)]
    return min(rounds, key=lambda each: each[1])
