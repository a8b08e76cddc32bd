"""The rows of some vectors after more of their deltas: a pure function of Arrow tables (D3, K4, K5).

Belongs here: from which state each vector goes on, which deltas are folded onto it and in which order, and which
vectors must be folded from all of their deltas instead. `fold.py` applies a delta; `bucket_files.py` and `packed.py`
read rows and deltas.

A vector goes on from its row, from its base if it has no row, or from nothing. Deltas at or below that state in
canonical order are in it, and are left out. If a delta names a parent, all deltas of the vector are passed, because
places depend on them; for any other vector the new deltas are enough.
"""

from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.vectors.fold import Folder, starting_states
from tidemark.vectors.loops import Numbers
from tidemark.vectors.places import Places, Standing, place
from tidemark.vectors.schema import CURRENT, FOLD_INPUT, KEY, STATES

Flags = npt.NDArray[np.bool_]

# The columns of a delta without its payload.
ENVELOPE = [*KEY, "shard", "event_us", "origin", "delta_id", "parent_id"]
_STANDINGS = list(Standing)
# If no delta of a vector has a place, the vector still has a row for its counts.
_NOTHING = {"exists": False, "is_dead": False, "deltas": 0, "no_base": 0, "no_effect": 0}


class Picked(NamedTuple):
    """Some deltas (`ARRIVED`), the number of each, and the positions of the requested ones among them."""

    rows: pa.Table
    numbers: Numbers
    places: Numbers


class Deltas(Protocol):
    """Deltas by number; their payloads need not be in memory all at once."""

    envelopes: pa.Table  # their columns without the payload (`ENVELOPE`), in one chunk
    at_once: int  # how many are picked at a time, at most

    def pick(self, numbers: Numbers) -> Picked:
        """Some of them, with their payloads."""


class InMemory:
    """A table of deltas (`ARRIVED`)."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.envelopes = table.select(ENVELOPE).combine_chunks()
        self.at_once = max(int(table.num_rows), 1)

    def pick(self, numbers: Numbers) -> Picked:
        """The table itself, without a copy."""
        return Picked(self._table, np.arange(self._table.num_rows), numbers)


class _Starts(NamedTuple):
    """States that vectors go on from, with their vectors."""

    states: pa.Table
    vectors: Numbers

    def is_passed_by(self, deltas: pa.Table, vectors: Numbers, places: Places) -> Flags:
        """Whether each delta comes after the state that its vector goes on from; true without such a state."""
        if not len(self.vectors):
            return np.ones(deltas.num_rows, np.bool_)
        start_of = np.full(1 + max(int(vectors.max()), int(self.vectors.max())), -1, np.int64)
        start_of[self.vectors] = np.arange(len(self.vectors))
        start = start_of[vectors]
        is_after, is_equal = start < 0, start >= 0
        event_us = np.asarray(deltas["event_us"])
        for name, own in (("eff_us", places.eff_us), ("depth", places.depth), ("event_us", event_us)):
            other = np.asarray(self.states[name])[start]
            is_after |= is_equal & (own > other)
            is_equal &= own == other
        rows = np.flatnonzero(is_equal)
        of_deltas, of_states = _texts(deltas, rows), _texts(self.states, start[rows])
        is_after[rows] = [mine > theirs for mine, theirs in zip(of_deltas, of_states, strict=True)]
        return is_after


def go_on(rows: pa.Table, deltas: Deltas, bases: pa.Table | None = None) -> pa.Table:
    """Rows (`CURRENT`) after more deltas: the given ones, and one for every new vector.

    Rows of vectors without a delta come first and as they were; the others are in the order of their names. `bases` are
    states that vectors go on from if they have no row.
    """
    envelopes = deltas.envelopes
    if not envelopes.num_rows:
        return rows
    bases = STATES.empty_table() if bases is None else bases
    of_rows, of_bases, vectors = _numbered(rows, bases, envelopes)
    is_touched = np.zeros(1 + max(int(each.max(initial=0)) for each in (of_rows, of_bases, vectors)), np.bool_)
    is_touched[vectors] = True
    starts = _starts_of(rows, bases, of_rows, of_bases, is_touched)
    names = (envelopes[name] for name in ("origin", "delta_id", "parent_id"))
    places = place(vectors, np.asarray(envelopes["event_us"]), *names)
    is_placed = places.standing == _STANDINGS.index(Standing.PLACED)
    is_folded = is_placed & starts.is_passed_by(envelopes, vectors, places)
    of_states, states = _folded(starts, deltas, vectors, places, is_folded)
    named = np.zeros(len(is_touched), np.bool_)
    named[of_rows] = np.asarray(rows["has_parents"].fill_null(False))
    named[vectors[np.asarray(envelopes["parent_id"].is_valid())]] = True
    of_waiting = np.setdiff1d(vectors[~is_placed], of_states)
    counts = [
        np.bincount(vectors[places.standing == _STANDINGS.index(each)], minlength=len(is_touched))
        for each in (Standing.PARKED, Standing.CYCLE)
    ]
    touched = pa.concat_tables([states, _without_place(envelopes, vectors, of_waiting)])
    numbers = np.concatenate([of_states, of_waiting])
    for field, known in zip(list(CURRENT)[len(STATES) :], (*counts, named), strict=True):
        touched = touched.append_column(field, pa.array(known[numbers], field.type))
    if len(of_waiting):
        touched = touched.take(pa.array(np.argsort(numbers)))
    return pa.concat_tables([rows.filter(pa.array(~is_touched[of_rows])), touched])


def unable_to_go_on(rows: pa.Table, deltas: pa.Table, bases: pa.Table | None = None) -> pa.Table:
    """Names (`KEY`) of the vectors that have new deltas (`ENVELOPE`) and cannot go on: late ones, or parents.

    A vector without a row has only these deltas. A delta that a base holds is not late: it is in the row already.
    """
    if not rows.num_rows:
        return rows.select(list(KEY))
    bases = STATES.empty_table() if bases is None else bases
    of_rows, of_bases, vectors = _numbered(rows, bases, deltas)
    is_touched = np.zeros(1 + max(int(each.max(initial=0)) for each in (of_rows, of_bases, vectors)), np.bool_)
    is_touched[vectors] = True
    is_unable = np.zeros(len(is_touched), np.bool_)
    own = Places(np.asarray(deltas["event_us"]), np.zeros(len(vectors), np.int32), np.zeros(len(vectors), np.int8))
    starts = _starts_of(rows, STATES.empty_table(), of_rows, of_bases[:0], is_touched)
    is_late = ~starts.is_passed_by(deltas, vectors, own) & _Starts(bases, of_bases).is_passed_by(deltas, vectors, own)
    is_unable[vectors[is_late | np.asarray(deltas["parent_id"].is_valid())]] = True
    is_unable[of_rows[np.asarray(rows["has_parents"].fill_null(False))]] = True
    return rows.select(list(KEY)).filter(pa.array((is_unable & is_touched)[of_rows]))


def in_order(rows: pa.Table) -> pa.Table:
    """Rows in the order of their vectors' names."""
    order = np.asarray(pc.sort_indices(rows, [(name, "ascending") for name in KEY]))
    return rows if (order == np.arange(len(order), dtype=order.dtype)).all() else rows.take(pa.array(order))


def _numbered(*tables: pa.Table) -> list[Numbers]:
    """For every table, the numbers of its rows' vectors: the same in all tables, and in the order of their names."""
    ranks = []
    for name in KEY:
        chunks = [chunk.cast(pa.large_string()) for table in tables for chunk in table[name].chunks]
        encoded = pa.chunked_array(chunks, pa.large_string()).combine_chunks().dictionary_encode()
        rank = np.empty(len(encoded.dictionary), np.int64)
        rank[np.asarray(pc.sort_indices(encoded.dictionary))] = np.arange(len(rank))
        ranks.append(rank[np.asarray(encoded.indices)])
    spaces, ids = ranks
    _, numbers = np.unique(spaces * (1 + ids.max(initial=0)) + ids, return_inverse=True)
    ends = np.cumsum([table.num_rows for table in tables])
    return np.split(np.asarray(numbers, np.int64), ends[:-1])


def _starts_of(rows: pa.Table, bases: pa.Table, of_rows: Numbers, of_bases: Numbers, is_touched: Flags) -> _Starts:
    """The states that touched vectors go on from."""
    # A row may exist for its counts alone; then nothing was folded yet.
    chosen_rows = np.flatnonzero(is_touched[of_rows] & (np.asarray(rows["deltas"]) > 0))
    has_row = np.zeros(len(is_touched), np.bool_)
    has_row[of_rows] = True
    chosen_bases = np.flatnonzero((is_touched & ~has_row)[of_bases])
    states = [rows.select(STATES.names).take(pa.array(chosen_rows)), bases.take(pa.array(chosen_bases))]
    return _Starts(pa.concat_tables(states), np.concatenate([of_rows[chosen_rows], of_bases[chosen_bases]]))


def _folded(
    starts: _Starts, deltas: Deltas, vectors: Numbers, places: Places, is_folded: Flags
) -> tuple[Numbers, pa.Table]:
    """The vectors that have a state, in order, and their states (`STATES`) after their deltas."""
    order = _canonical_order(starts, deltas.envelopes, vectors, places, np.flatnonzero(is_folded))
    own = np.concatenate([starts.vectors, vectors])[order]
    is_first = np.ones(len(own), np.int8)
    is_first[1:] = own[1:] != own[:-1]
    is_last = np.append(is_first[1:], np.int8(1))[: len(own)]
    folder, states = Folder(), list[pa.RecordBatch]()
    for begin in range(0, len(order), deltas.at_once):
        part = slice(begin, begin + deltas.at_once)
        rows, steps = _picked(starts, deltas, places, order[part])
        states += folder.fold_in_order(rows, steps, is_first[part], is_last[part])
    return own[is_last == 1], pa.Table.from_batches(states, STATES)


def _canonical_order(
    starts: _Starts, envelopes: pa.Table, vectors: Numbers, places: Places, folded: Numbers
) -> Numbers:
    """Steps, vector by vector: the state that it goes on from, then its deltas by their places.

    States have the first numbers, and deltas the numbers after them.
    """
    started = len(starts.vectors)
    chosen = np.concatenate([np.arange(started), started + folded])
    event_us, depth, eff_us, of_vector = (
        np.concatenate([np.asarray(of_states), of_deltas[folded]])
        for of_states, of_deltas in (
            (starts.states["event_us"], np.asarray(envelopes["event_us"])),
            (starts.states["depth"], places.depth),
            (starts.states["eff_us"], places.eff_us),
            (starts.vectors, vectors),
        )
    )
    is_delta = chosen >= started
    keys = [event_us, depth, eff_us, is_delta, of_vector]
    # Most of these columns are the same in all rows, or follow from another: without parents, only the time is left.
    is_needed = [(event_us != eff_us).any(), depth.any(), True, not is_delta.all(), True]
    by_numbers = np.lexsort([key for key, needed in zip(keys, is_needed, strict=True) if needed])
    is_tie = np.ones(max(len(chosen) - 1, 0), np.bool_)
    for key in keys:
        sorted_key = key[by_numbers]
        is_tie &= sorted_key[1:] == sorted_key[:-1]
    order = chosen[by_numbers]
    if is_tie.any():
        _settle_ties(order, is_tie, envelopes, started)
    return order


def _settle_ties(order: Numbers, is_tie: Flags, envelopes: pa.Table, started: int) -> None:
    """Order deltas whose numbers are all equal by the texts of their places. There are few."""
    steps = np.flatnonzero(np.append(is_tie, False) | np.append(False, is_tie))
    texts = dict(zip(steps.tolist(), _texts(envelopes, order[steps] - started), strict=True))
    run = np.concatenate([[0], np.cumsum(~is_tie)])
    by_text = sorted(texts, key=lambda step: (run[step], texts[step]))
    order[steps] = order[by_text]


def _picked(starts: _Starts, deltas: Deltas, places: Places, order: Numbers) -> tuple[pa.RecordBatch, Numbers]:
    """The states and deltas of some steps, as the fold takes them, and their order."""
    started = len(starts.vectors)
    is_delta = order >= started
    states = starts.states.take(pa.array(order[~is_delta]))
    picked = deltas.pick(order[is_delta] - started)
    known = {"eff_us": pa.array(places.eff_us[picked.numbers]), "depth": pa.array(places.depth[picked.numbers])}
    there, count = picked.rows.schema.names, picked.rows.num_rows
    columns = [
        known.get(field.name, picked.rows[field.name] if field.name in there else pa.nulls(count, field.type))
        for field in FOLD_INPUT
    ]
    parts = [pa.Table.from_arrays(columns, schema=FOLD_INPUT)]
    if states.num_rows:
        [batch] = states.combine_chunks().to_batches()
        parts.insert(0, pa.Table.from_batches([starting_states(batch)]))
    [rows] = pa.concat_tables(parts).combine_chunks().to_batches()
    steps = np.empty(len(order), np.int64)
    steps[~is_delta] = np.arange(states.num_rows)
    steps[is_delta] = states.num_rows + picked.places
    return rows, steps


def _without_place(deltas: pa.Table, vectors: Numbers, waiting: Numbers) -> pa.Table:
    """States of vectors whose deltas are all parked."""
    numbers, first = np.unique(vectors, return_index=True)
    names = deltas.select(list(KEY)).take(pa.array(first[np.searchsorted(numbers, waiting)]))
    shards = np.full(1 + int(vectors.max()), -1, np.int32)
    np.maximum.at(shards, vectors, np.asarray(deltas["shard"]))
    known = {**{name: names[name] for name in KEY}, "shard": pa.array(shards[waiting])}
    known |= {name: pa.repeat(pa.scalar(value), len(waiting)) for name, value in _NOTHING.items()}
    columns = [
        known[field.name].cast(field.type) if field.name in known else pa.nulls(len(waiting), field.type)
        for field in STATES
    ]
    return pa.Table.from_arrays(columns, schema=STATES)


def _texts(rows: pa.Table | pa.RecordBatch, chosen: Numbers) -> list[tuple[str, str]]:
    """The texts of the places of some rows; Python orders them as their bytes do."""
    columns = (rows.column(name).take(pa.array(chosen)).to_pylist() for name in ("origin", "delta_id"))
    return list(zip(*columns, strict=True))
