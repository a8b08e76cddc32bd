"""The parts of an index of one namespace: dictionary, deleted ids, centroids, posting lists, and how it was made.

Belongs here: the parts, as immutable values. Their tables are in `tables.py`, changes to them in `fold.py`.

Posting lists grow between two rebuilds: an entry whose internal id is in the bitmap is dead and stays where it is,
unless that id comes again. Everything is in one order (lists by centroid and internal id, the dictionary by text), so
that two indexes with the same content are equal, whatever happened before.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import FrozenBitMap64

from tidemark.vectors.index.errors import RepeatedError
from tidemark.vectors.index.internal_ids import Ids
from tidemark.vectors.index.metrics import Matrix, Metric

SHOWN = 5


class Vectors(NamedTuple):
    """Vectors with both of their ids."""

    vector_ids: pa.StringArray
    internal_ids: Ids
    values: Matrix


class Dictionary(NamedTuple):
    """Live vectors in the order of their texts (of their UTF-8 bytes), each with its internal id."""

    vector_ids: pa.StringArray
    internal_ids: Ids


class Postings(NamedTuple):
    """Entries of all lists, in the order of centroids and then of internal ids; dead ones too."""

    offsets: Ids
    internal_ids: Ids
    values: Matrix

    @property
    def centroid_ids(self) -> Ids:
        """The list of each entry."""
        return np.repeat(np.arange(len(self.offsets) - 1), np.diff(self.offsets))


class Probing(NamedTuple):
    """How many lists a search probes by default, and the recall measured with it."""

    metric: Metric
    probes: int
    recall: float


@dataclass(frozen=True)
class Training:
    """Where the centroids come from: the last folded epoch, the seed, and how many vectors there were."""

    epoch: int
    seed: int
    vectors: int


@dataclass(frozen=True)
class VectorIndex:
    """The index of one namespace."""

    namespace: str
    centroids: Matrix
    postings: Postings
    dictionary: Dictionary
    deleted: FrozenBitMap64
    training: Training
    probing: tuple[Probing, ...] = ()
    default_metric: Metric = Metric.L2

    @property
    def dimension(self) -> int:
        """Length of its vectors."""
        return int(self.centroids.shape[1])

    @property
    def live(self) -> int:
        """Vectors that can be found."""
        return len(self.dictionary.internal_ids)

    @property
    def dead(self) -> int:
        """Entries of posting lists that cannot be found."""
        return len(self.postings.internal_ids) - self.live

    def is_live(self) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        """Which entries of the posting lists are not in the bitmap."""
        return ~np.isin(self.postings.internal_ids, ids_of(self.deleted))

    def vectors(self) -> Vectors:
        """The live vectors, in the order of the dictionary."""
        places = places_of(self.dictionary.internal_ids, self.postings.internal_ids)
        return Vectors(*self.dictionary, np.ascontiguousarray(self.postings.values[places]))


def texts(vector_ids: "pa.StringArray | pa.ChunkedArray | Sequence[str]") -> pa.StringArray:
    """Texts as one Arrow array."""
    if isinstance(vector_ids, pa.ChunkedArray):
        return vector_ids.combine_chunks().cast(pa.string())
    return vector_ids.cast(pa.string()) if isinstance(vector_ids, pa.Array) else pa.array(vector_ids, pa.string())


def dictionary_of(vector_ids: pa.StringArray, internal_ids: Ids) -> Dictionary:
    """A dictionary of vectors in any order; each text and each internal id may occur once."""
    order = pc.sort_indices(vector_ids)
    ordered = vector_ids.take(order)
    if len(ordered) > 1 and pc.any(pc.equal(ordered[1:], ordered[:-1])).as_py():
        twice = ordered[1:].filter(pc.equal(ordered[1:], ordered[:-1]))[:SHOWN].to_pylist()
        raise RepeatedError(f"Vectors occur twice, such as {twice}. Give each vector once, in its latest state.")
    if len(np.unique(internal_ids)) < len(internal_ids):
        raise RepeatedError(
            "Two vectors share an internal id, though no two deltas share a place in the log. "
            "Derive each vector's id from the latest delta of its own."
        )
    return Dictionary(ordered, internal_ids[order.to_numpy()])


def postings_of(centroid_ids: Ids, internal_ids: Ids, values: Matrix, lists: int) -> Postings:
    """Entries in any order as posting lists."""
    order = np.lexsort((internal_ids, centroid_ids))
    offsets = np.zeros(lists + 1, np.int64)
    np.cumsum(np.bincount(centroid_ids, minlength=lists), out=offsets[1:])
    return Postings(offsets, internal_ids[order], np.ascontiguousarray(values[order]))


def ids_of(bitmap: FrozenBitMap64) -> Ids:
    """The ids in a bitmap, in order."""
    return np.array(bitmap.to_array(), np.uint64).astype(np.int64)


def places_of(wanted: Ids, among: Ids) -> Ids:
    """The place of each wanted id among others; -1 if it is missing. If an id occurs twice, its first place."""
    order = np.argsort(among, kind="stable")
    if not len(order):
        return np.full(len(wanted), -1)
    found = order[np.minimum(np.searchsorted(among, wanted, sorter=order), len(order) - 1)]
    return np.where(among[found] == wanted, found, -1)
