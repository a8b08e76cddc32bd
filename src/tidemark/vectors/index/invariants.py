"""What is wrong with an index, if anything: the invariants of V1 and V2, each as a sentence.

Belongs here: pure checks of a whole index. They are written against the definitions, and use none of the code that
makes an index except the loop that finds the nearest centroid.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from tidemark.vectors.index.state import SHOWN, VectorIndex, ids_of
from tidemark.vectors.index.training import assign


def problems(index: VectorIndex) -> list[str]:
    """Every violation of an invariant; empty if there is none."""
    return [*_of_dictionary(index), *_of_postings(index), *_of_lists(index)]


def _of_dictionary(index: VectorIndex) -> Iterator[str]:
    known = index.dictionary
    if len(known.vector_ids) != len(known.internal_ids):
        yield "The dictionary has texts without internal ids, or the reverse."
    repeated = len(known.vector_ids) - len(known.vector_ids.unique())
    if repeated:
        yield f"{repeated:,} texts are in the dictionary more than once."
    if not pc.all(pc.less_equal(known.vector_ids[:-1], known.vector_ids[1:])).as_py() and len(known.vector_ids) > 1:
        yield "The dictionary is not in the order of its texts."
    yield from _repeated("in the dictionary", known.internal_ids)
    dead = np.intersect1d(known.internal_ids, ids_of(index.deleted))
    yield from _problem("internal ids are in the dictionary and deleted", dead)


def _of_postings(index: VectorIndex) -> Iterator[str]:
    entries, live = index.postings.internal_ids, index.dictionary.internal_ids
    yield from _repeated("in posting lists", entries)
    yield from _problem("live vectors are in no posting list", np.setdiff1d(live, entries))
    unknown = np.setdiff1d(np.setdiff1d(entries, live), ids_of(index.deleted))
    yield from _problem("entries are neither live nor deleted, and would be returned", unknown)


def _of_lists(index: VectorIndex) -> Iterator[str]:
    postings = index.postings
    offsets = postings.offsets
    if len(offsets) != len(index.centroids) + 1 or offsets[0] or offsets[-1] != len(postings.internal_ids):
        yield "The posting lists do not begin and end where their entries do."
        return
    right = assign(np.ascontiguousarray(postings.values), index.centroids).centroids
    yield from _problem(
        "entries are not in the list of their nearest centroid", postings.internal_ids[right != postings.centroid_ids]
    )


def _repeated(where: str, ids: npt.NDArray[np.int64]) -> Iterator[str]:
    found, times = np.unique(ids, return_counts=True)
    yield from _problem(f"internal ids are {where} more than once", found[times > 1])


def _problem(what: str, ids: npt.NDArray[np.int64]) -> Iterator[str]:
    if len(ids):
        yield f"{len(ids):,} {what}, such as {ids[:SHOWN].tolist()}."
