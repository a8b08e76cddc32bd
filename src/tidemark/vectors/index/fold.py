"""An index made from all vectors, and one that follows changes: upserts and deletes, without training (V1, V2).

Belongs here: building, folding, and when it is time to build again. How well the result finds is in `recall.py`.

A fold appends entries to posting lists and ids to the bitmap; it moves nothing. So its cost depends on the changes, and
it leaves behind dead entries and centroids that fit less and less. A rebuild removes both.

Nearly always a changed vector has a later internal id than before. It can have the same one, or one that is dead
already: when a delta that was folded loses its place (see `vectors/places.py`). Then the entry of that id is removed
from its list, and another one takes its place. So whatever states are folded, the index has exactly those.
"""

from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import FrozenBitMap64

from tidemark.vectors.index.errors import RepeatedError
from tidemark.vectors.index.internal_ids import Ids
from tidemark.vectors.index.metrics import Metric, matrix_of
from tidemark.vectors.index.state import Training, VectorIndex, Vectors, dictionary_of, places_of, postings_of, texts
from tidemark.vectors.index.training import assign, train

# A search reads dead entries only while it loads, but every table stores them: a fifth is the most that is allowed.
DEAD_SHARE = 0.2
# With twice the vectors, lists are twice as long; with half of them, half of the centroids are compared for nothing.
GROWTH = 2.0
# Below this many entries a rebuild is cheap, but not worth it.
FEWEST = 1_000


class Due(StrEnum):
    """Why a rebuild is due."""

    DEAD = "dead"
    GROWN = "grown"
    SHRUNK = "shrunk"


@dataclass(frozen=True)
class Changes:
    """Changes of some vectors: their states, changed or not, and ids of vectors that must not be found."""

    upserts: Vectors
    deleted: pa.StringArray


@dataclass(frozen=True)
class Folded:
    """The index after some changes, and what they changed."""

    index: VectorIndex
    upserts: Vectors  # the states that were new
    removed: pa.StringArray  # ids removed from the dictionary
    dead: Ids  # ids added to the bitmap
    lists: Ids  # posting lists that have other entries than before

    @property
    def is_changed(self) -> bool:
        """Whether the index differs from the one before."""
        return bool(len(self.upserts.internal_ids) or len(self.removed))


def vectors_of(vector_ids: "pa.Array | list[str]", internal_ids: npt.ArrayLike, values: npt.ArrayLike) -> Vectors:
    """Vectors in the form that the index needs: values within 32 bits, and all rows of one length."""
    rows = np.asarray(values)
    return Vectors(
        texts(vector_ids),
        np.ascontiguousarray(internal_ids, np.int64),
        matrix_of("Vectors", rows, rows.shape[-1]),
    )


def build(
    namespace: str,
    vectors: Vectors,
    *,
    epoch: int,
    seed: int,
    default_metric: Metric = Metric.L2,
) -> VectorIndex:
    """An index of these vectors with new centroids, and without dead entries."""
    dictionary = dictionary_of(vectors.vector_ids, vectors.internal_ids)
    centroids = train(vectors.internal_ids, vectors.values, seed=seed)
    nearest = assign(vectors.values, centroids).centroids
    return VectorIndex(
        namespace,
        centroids,
        postings_of(nearest, vectors.internal_ids, vectors.values, len(centroids)),
        dictionary,
        FrozenBitMap64(),
        Training(epoch, seed, len(vectors.internal_ids)),
        default_metric=default_metric,
    )


def fold(index: VectorIndex, changes: Changes) -> Folded:
    """The index after these changes. States that it has already do not change it."""
    given = changes.upserts
    rows = matrix_of("Changed vectors", given.values, index.dimension)
    _check_once(changes)
    known, before = index.dictionary, index.postings
    places = _places(given.vector_ids, known.vector_ids)
    old = np.where(places >= 0, known.internal_ids[places] if len(known.internal_ids) else -1, -1)
    is_new = old != given.internal_ids
    same = np.flatnonzero(~is_new)
    stored = before.values[places_of(given.internal_ids[same], before.internal_ids)]
    is_new[same] = (stored != rows[same]).any(axis=1)
    upserts = Vectors(given.vector_ids.filter(pa.array(is_new)), given.internal_ids[is_new], rows[is_new])
    gone = _places(changes.deleted, known.vector_ids)
    gone = gone[gone >= 0]
    stays = np.ones(len(known.internal_ids), np.bool_)
    stays[places[is_new & (places >= 0)]] = stays[gone] = False
    dead = np.setdiff1d(known.internal_ids[~stays], upserts.internal_ids)
    # An id that comes again has one entry, and that is the new one.
    is_kept = ~np.isin(before.internal_ids, upserts.internal_ids)
    nearest, was_in = assign(upserts.values, index.centroids).centroids, before.centroid_ids
    after = replace(
        index,
        postings=postings_of(
            np.concatenate([was_in[is_kept], nearest]),
            np.concatenate([before.internal_ids[is_kept], upserts.internal_ids]),
            np.concatenate([before.values[is_kept], upserts.values]),
            len(index.centroids),
        ),
        dictionary=dictionary_of(
            pa.concat_arrays([known.vector_ids.filter(pa.array(stays)), upserts.vector_ids]),
            np.concatenate([known.internal_ids[stays], upserts.internal_ids]),
        ),
        deleted=(index.deleted | FrozenBitMap64(dead.tolist())) - FrozenBitMap64(upserts.internal_ids.tolist()),
    )
    lists = np.union1d(nearest, was_in[~is_kept])
    return Folded(after, upserts, known.vector_ids.take(pa.array(gone)), dead, lists)


def rebuild_due(index: VectorIndex) -> Due | None:
    """Why a rebuild is due, if it is."""
    entries = len(index.postings.internal_ids)
    if max(entries, index.training.vectors) < FEWEST:
        return None
    if index.dead > DEAD_SHARE * entries:
        return Due.DEAD
    if index.live > GROWTH * index.training.vectors:
        return Due.GROWN
    return Due.SHRUNK if index.live * GROWTH < index.training.vectors else None


def _places(wanted: pa.StringArray, among: pa.StringArray) -> Ids:
    """The places of texts among others; -1 for missing ones."""
    found = pc.fill_null(pc.index_in(wanted, value_set=among), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)


def _check_once(changes: Changes) -> None:
    named = pa.concat_arrays([changes.upserts.vector_ids, changes.deleted])
    if len(named.unique()) < len(named):
        raise RepeatedError("A vector occurs twice among the changes. Give each vector once, in its latest state.")
