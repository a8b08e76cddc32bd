"""Canonical places: the place of each delta of a vector in the order of the fold (D3).

Belongs here: places of whole columns, in time linear in the rows. `fold.py` folds the rows.

A place is (eff_us, depth, event_us, origin, delta_id). Texts order by their UTF-8 bytes, as in Python and in Spark.
`eff_us` is the delta's own time, or its parent's `eff_us` if that is later; `depth` is one more than the parent's if
the delta's own time is not later than the parent's `eff_us`, and 0 otherwise. So a child comes after its parent.

A parent's id names a delta of the same vector. The same id at another time is another delta (Q3): if a vector has
several, the one with the smallest (event_us, origin) is meant. So if such a twin arrives and is older than the others,
the children of that id, and all below them, get other places, or lose theirs if the twin has none. No other arrival
moves a delta that has a place.

Each delta is passed once (no duplicates) and with an origin: the caller fills in the producer if it is missing.
"""

from enum import StrEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.arrays.compiled import compiled, inlined

Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]

PLACE_COLUMNS = ("eff_us", "depth", "event_us", "origin", "delta_id")


class Standing(StrEnum):
    """Whether a delta has a place; a column of them has the places in this list."""

    PLACED = "placed"
    PARKED = "parked"  # its parent, or an ancestor, has not arrived
    CYCLE = "cycle"  # on a cycle of parents, or below one


class Places(NamedTuple):
    """The columns of each row. Without a place, `eff_us` is the delta's own time and `depth` is 0."""

    eff_us: Numbers
    depth: Codes
    standing: Bytes  # by its number in `Standing`


_PLACED, _PARKED, _CYCLE = range(3)
# Instead of the row of a parent.
_NO_PARENT, _MISSING = -1, -2
# The progress of a row.
_NEW, _ON_PATH, _DONE = 0, 1, 2
_SPREAD = -7046029254386353131  # 2^64 divided by the golden ratio: neighbouring numbers fall far apart
_HALF = 32


def with_places(deltas: pa.Table) -> pa.Table:
    """The table with `eff_us`, `depth` and `standing` (a word of `Standing`) after its columns.

    It has `namespace`, `vector_id`, `event_us`, `origin`, `delta_id` and `parent_id`, of any number of vectors.
    """
    places = place(
        vector_codes(deltas["namespace"], deltas["vector_id"]),
        np.asarray(deltas["event_us"]),
        deltas["origin"],
        deltas["delta_id"],
        deltas["parent_id"],
    )
    words = pa.DictionaryArray.from_arrays(pa.array(places.standing), pa.array(list(Standing), pa.string()))
    return (
        deltas.append_column("eff_us", pa.array(places.eff_us))
        .append_column("depth", pa.array(places.depth))
        .append_column("standing", words.cast(pa.string()))
    )


def vector_codes(namespaces: pa.ChunkedArray | pa.Array, vector_ids: pa.ChunkedArray | pa.Array) -> Numbers:
    """One number for every (namespace, vector id) of this call."""
    spaces, _ = _codes(namespaces)
    ids, different = _codes(vector_ids)
    return np.asarray(spaces.astype(np.int64) * max(different, 1) + ids)


def place(
    vectors: Numbers,
    event_us: Numbers,
    origins: pa.ChunkedArray | pa.Array,
    delta_ids: pa.ChunkedArray | pa.Array,
    parent_ids: pa.ChunkedArray | pa.Array,
) -> Places:
    """Places of deltas of any number of vectors, distinguished by their numbers; rows in any order."""
    event_us = np.ascontiguousarray(event_us, np.int64)
    rows = len(event_us)
    eff_us, depth, standing = event_us.copy(), np.zeros(rows, np.int32), np.zeros(rows, np.int8)
    if parent_ids.null_count == rows:
        return Places(eff_us, depth, standing)
    named = _combined(parent_ids).dictionary_encode()
    wanted = _numbers(named.indices)
    known = _numbers(pc.index_in(_combined(delta_ids), value_set=named.dictionary))
    slots = np.full(1 << (2 * int((known >= 0).sum()) + 1).bit_length(), -1, np.int64)
    parents = np.empty(rows, np.int64)
    _find_parents(
        np.ascontiguousarray(vectors, np.int64), known, wanted, event_us, _origin_ranks(origins), slots, parents
    )
    _walk(parents, event_us, eff_us, depth, standing, np.zeros(rows, np.int8), np.empty(rows, np.int64))
    return Places(eff_us, depth, standing)


def _combined(texts: pa.ChunkedArray | pa.Array) -> pa.Array:
    """One array, with room for more than two gigabytes of text."""
    large = texts.cast(pa.large_string())
    return large.combine_chunks() if isinstance(large, pa.ChunkedArray) else large


def _codes(texts: pa.ChunkedArray | pa.Array) -> tuple[Codes, int]:
    encoded = _combined(texts).dictionary_encode()
    return _numbers(encoded.indices), len(encoded.dictionary)


def _numbers(codes: pa.Array) -> Codes:
    """Codes of texts; -1 for null."""
    return np.ascontiguousarray(codes.fill_null(-1), np.int32)


def _origin_ranks(origins: pa.ChunkedArray | pa.Array) -> Codes:
    """The rank of every origin, by its bytes."""
    encoded = _combined(origins).dictionary_encode()
    ranks = np.empty(len(encoded.dictionary) + 1, np.int32)
    ranks[np.asarray(pc.sort_indices(encoded.dictionary))] = np.arange(len(encoded.dictionary), dtype=np.int32)
    ranks[-1] = -1  # none: before all others
    return np.ascontiguousarray(ranks[_numbers(encoded.indices)])


@inlined
def _slot(slots: Numbers, vectors: Numbers, known: Codes, vector: int, code: int) -> int:
    """Where a delta's row stands, or is to stand; there are always free slots."""
    last = len(slots) - 1
    mixed = (vector * _SPREAD + code) * _SPREAD
    slot = (mixed ^ (mixed >> _HALF)) & last
    while slots[slot] >= 0 and (vectors[slots[slot]] != vector or known[slots[slot]] != code):
        slot = (slot + 1) & last
    return slot


@compiled
def _find_parents(
    vectors: Numbers, known: Codes, wanted: Codes, event_us: Numbers, origins: Codes, slots: Numbers, parents: Numbers
) -> None:
    """The row of every row's parent. `known` are the codes of rows that may be one, `wanted` those of parents."""
    for row in range(len(vectors)):
        if known[row] >= 0:
            slot = _slot(slots, vectors, known, vectors[row], known[row])
            other = slots[slot]
            if (
                other < 0
                or event_us[row] < event_us[other]
                or (event_us[row] == event_us[other] and origins[row] < origins[other])
            ):
                slots[slot] = row
    for row in range(len(vectors)):
        parents[row] = _NO_PARENT
        if wanted[row] >= 0:
            found = slots[_slot(slots, vectors, known, vectors[row], wanted[row])]
            parents[row] = found if found >= 0 else _MISSING


@compiled
def _walk(
    parents: Numbers, event_us: Numbers, eff_us: Numbers, depth: Codes, standing: Bytes, progress: Bytes, path: Numbers
) -> None:
    """From every row up to what is settled already, and back down: each row is settled once."""
    for start in range(len(parents)):
        steps = 0
        row = start
        while row >= 0 and progress[row] == _NEW:
            progress[row] = _ON_PATH
            path[steps] = row
            steps += 1
            row = parents[row]
        # Who comes back to its own path has gone in a circle; everything on the path leads into it.
        above = _PARKED if row == _MISSING else _CYCLE if row >= 0 and progress[row] == _ON_PATH else _PLACED
        while steps > 0:
            steps -= 1
            row, parent = path[steps], parents[path[steps]]
            progress[row] = _DONE
            standing[row] = above if above != _PLACED or parent < 0 else standing[parent]
            if standing[row] == _PLACED and parent >= 0 and event_us[row] <= eff_us[parent]:
                eff_us[row] = eff_us[parent]
                depth[row] = depth[parent] + 1
