"""An index made from all vectors, and one that follows changes: upserts and deletes, without training (V1, V2).

Belongs here: building, folding, and when it is time to build again. How well the result finds is in `recall.py`.

A fold appends entries to posting lists and ids to the bitmap; it moves nothing. So what it costs follows from the
changes, and what it leaves behind are dead entries and centroids that fit less and less. A rebuild removes both.
"""

from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import FrozenBitMap64

from resources.vectors.index.errors import RepeatedError, StaleChangeError
from resources.vectors.index.internal_ids import Ids, arrival_order
from resources.vectors.index.metrics import Matrix, Metric, matrix_of
from resources.vectors.index.state import (
    SHOWN,
    Training,
    VectorIndex,
    Vectors,
    dictionary_of,
    ids_of,
    postings_of,
    texts,
)
from resources.vectors.index.training import assign, train

# A search reads dead entries only while it loads, but every table keeps them: a fifth is what that may cost.
DEAD_SHARE = 0.2
# With twice the vectors, lists are twice as long; with half of them, half of the centroids are compared for nothing.
GROWTH = 2.0
# Below so many entries a rebuild costs less than thinking about it, but is not worth one either.
FEWEST = 1_000


class Due(StrEnum):
    """Why a rebuild is due."""

    DEAD = "dead"
    GROWN = "grown"
    SHRUNK = "shrunk"


@dataclass(frozen=True)
class Changes:
    """What became of some vectors: new states under new internal ids, and ids of vectors that are gone."""

    upserts: Vectors
    deleted: pa.StringArray


class Appended(NamedTuple):
    """Entries that posting lists get."""

    centroid_ids: Ids
    internal_ids: Ids
    values: Matrix


@dataclass(frozen=True)
class Folded:
    """The index after some changes, and what has to be written for them.

    The dictionary gets `upserts` and loses `removed`; posting lists get `appended`; the bitmap gets `dead`.
    """

    index: VectorIndex
    upserts: Vectors
    removed: pa.StringArray
    appended: Appended
    dead: Ids


def vectors_of(vector_ids: "pa.Array | list[str]", internal_ids: npt.ArrayLike, values: npt.ArrayLike) -> Vectors:
    """Vectors as the index takes them; checks that values are numbers and all rows have one length."""
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
    """An index of these vectors with new centroids. Nothing is dead in it."""
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
    """The index after these changes. What it holds already is not changed by being told again."""
    upserts = changes.upserts
    rows = matrix_of("Changed vectors", upserts.values, index.dimension)
    _check_once(changes)
    known = index.dictionary
    places = _places(upserts.vector_ids, known.vector_ids)
    old = np.where(places >= 0, known.internal_ids[places] if len(known.internal_ids) else -1, -1)
    _check_fresh(index, upserts, old)
    is_new = old != upserts.internal_ids
    upserts = Vectors(upserts.vector_ids.filter(pa.array(is_new)), upserts.internal_ids[is_new], rows[is_new])
    replaced = places[is_new & (places >= 0)]
    gone = _places(changes.deleted, known.vector_ids)
    gone = gone[gone >= 0]
    stays = np.ones(len(known.internal_ids), np.bool_)
    stays[replaced] = stays[gone] = False
    dead = np.sort(known.internal_ids[~stays])
    appended = Appended(assign(upserts.values, index.centroids).centroids, upserts.internal_ids, upserts.values)
    before = index.postings
    after = replace(
        index,
        postings=postings_of(
            np.concatenate([before.centroid_ids, appended.centroid_ids]),
            np.concatenate([before.internal_ids, appended.internal_ids]),
            np.concatenate([before.values, appended.values]),
            len(index.centroids),
        ),
        dictionary=dictionary_of(
            pa.concat_arrays([known.vector_ids.filter(pa.array(stays)), upserts.vector_ids]),
            np.concatenate([known.internal_ids[stays], upserts.internal_ids]),
        ),
        deleted=index.deleted | FrozenBitMap64(dead.tolist()),
    )
    return Folded(after, upserts, known.vector_ids.take(pa.array(gone)), appended, dead)


def rebuild(index: VectorIndex, *, epoch: int, seed: int) -> VectorIndex:
    """The same live vectors under new centroids; dead entries and the bitmap that hid them are gone."""
    return build(index.namespace, index.vectors(), epoch=epoch, seed=seed, default_metric=index.default_metric)


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
    """Where texts are among others; -1 where they are not."""
    found = pc.fill_null(pc.index_in(wanted, value_set=among), -1)
    return np.asarray(found.to_numpy(zero_copy_only=False), np.int64)


def _check_once(changes: Changes) -> None:
    named = pa.concat_arrays([changes.upserts.vector_ids, changes.deleted])
    if len(named.unique()) < len(named):
        raise RepeatedError(
            "A vector occurs twice among the changes. Give each vector once: what became of it at last."
        )


def _check_fresh(index: VectorIndex, upserts: Vectors, old: Ids) -> None:
    new = upserts.internal_ids
    is_older = (old >= 0) & (arrival_order(new) < arrival_order(old))
    stale = np.flatnonzero(is_older | np.isin(new, ids_of(index.deleted)))
    if len(stale):
        raise StaleChangeError(upserts.vector_ids.take(pa.array(stale[:SHOWN])).to_pylist(), len(stale))
