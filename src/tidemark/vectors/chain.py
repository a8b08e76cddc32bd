"""One vector: its deltas in canonical order with the effect of each, and its state at any time or epoch (D3, K6).

Belongs here: places and fold together for a single vector, in memory. Spark sorts many vectors at once.

Deltas are a table with the columns of a delta (`DELTA_FIELDS` in `schema.py`, without places and `emit`) and
`parent_id`, in any order. With a checkpoint (a row of `STATES`), the deltas that it covers are still passed, because
others may be their children, but only as envelopes: their payloads may be gone (K5).
"""

from bisect import bisect_right
from enum import StrEnum
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.vectors.errors import BeforeCheckpointError, StaleCheckpointError
from tidemark.vectors.fold import Folder, starting_states
from tidemark.vectors.places import PLACE_COLUMNS, Standing, with_places
from tidemark.vectors.schema import FOLD_INPUT, STATES


class Effect(StrEnum):
    """The effect of a delta; the first four by the numbers that the loop gives."""

    APPLIED = "applied"
    NO_BASE = "no_base"  # nothing was ever created before it
    AFTER_DELETE = "after_delete"
    OUT_OF_RANGE = "out_of_range"  # an index points beyond the vector's length at that place
    COVERED = "covered"  # held by the checkpoint
    PARKED = "parked"
    CYCLE = "cycle"


_BY_NUMBER = pa.array([Effect.APPLIED, Effect.NO_BASE, Effect.AFTER_DELETE, Effect.OUT_OF_RANGE], pa.string())
_BY_PLACE = [(name, "ascending") for name in PLACE_COLUMNS]
# A million rows of a few numbers are folded in pieces, so that none of them is copied whole.
_ROWS_AT_ONCE = 1 << 16


class _Line(NamedTuple):
    """A vector's deltas: those that the checkpoint covers, those after it, both in order, and those without a place."""

    covered: pa.Table
    after: pa.Table
    unplaced: pa.Table


def chain(deltas: pa.Table, checkpoint: pa.Table | None = None) -> pa.Table:
    """The deltas in canonical order with `eff_us`, `depth` and `effect`; those without a place come last."""
    line = _line_of(deltas, checkpoint)
    _, effects = _fold(line.after, checkpoint)
    covered = pa.repeat(pa.scalar(Effect.COVERED, pa.string()), line.covered.num_rows)
    # A delta without a place has the same word for its standing and its effect.
    unplaced = line.unplaced["standing"]
    parts = zip(line, (covered, effects, unplaced), strict=True)
    return pa.concat_tables([part.drop_columns(["standing"]).append_column("effect", said) for part, said in parts])


def state_of(
    deltas: pa.Table,
    checkpoint: pa.Table | None = None,
    as_of_us: int | None = None,
    upto_epoch: int | None = None,
) -> pa.Table:
    """The vector's state (one row of `STATES`), or no row if no delta has a place.

    `upto_epoch` leaves out what arrived later, also as a parent: its children are parked then. `as_of_us` leaves out
    deltas that took effect later; deltas of exactly that time are included.
    """
    if checkpoint is not None:
        if upto_epoch is not None and upto_epoch < checkpoint["last_epoch"][0].as_py():
            raise BeforeCheckpointError.epoch(upto_epoch)
        if as_of_us is not None and as_of_us < checkpoint["eff_us"][0].as_py():
            raise BeforeCheckpointError.as_of(as_of_us)
    if upto_epoch is not None:
        deltas = deltas.filter(pc.less_equal(deltas["epoch"], upto_epoch))
    after = _line_of(deltas, checkpoint).after
    if as_of_us is not None:
        after = after.filter(pc.less_equal(after["eff_us"], as_of_us))
    states, _ = _fold(after, checkpoint)
    return states


def _line_of(deltas: pa.Table, checkpoint: pa.Table | None) -> _Line:
    placed = with_places(deltas)
    has_place = pc.equal(placed["standing"], Standing.PLACED)
    unplaced = placed.filter(pc.invert(has_place)).sort_by(_BY_PLACE)
    ordered = placed.filter(has_place).sort_by(_BY_PLACE)
    covered = 0
    if checkpoint is not None:
        last_place = _place(checkpoint, 0)
        covered = bisect_right(range(ordered.num_rows), last_place, key=lambda row: _place(ordered, row))
        _refuse_stale(ordered.slice(0, covered), checkpoint)
    return _Line(ordered.slice(0, covered), ordered.slice(covered), unplaced)


def _refuse_stale(covered: pa.Table, checkpoint: pa.Table) -> None:
    """K4: a delta that arrived after the last one of the checkpoint is not in it, and must not be skipped.

    A delta that arrived before and has a place now had it then: it could only have waited for a parent, which would be
    among the covered ones itself and have arrived later.
    """
    late = covered.filter(pc.greater(covered["epoch"], checkpoint["last_epoch"][0]))
    if late.num_rows:
        raise StaleCheckpointError(late["delta_id"][0].as_py())


def _place(table: pa.Table, row: int) -> tuple[object, ...]:
    return tuple(table[name][row].as_py() for name in PLACE_COLUMNS)


def _fold(after: pa.Table, checkpoint: pa.Table | None) -> tuple[pa.Table, pa.Array]:
    """The state at the end, and the effect of every delta."""
    rows = _as_input(after)
    started = 0
    if checkpoint is not None:
        starts = map(starting_states, checkpoint.cast(STATES).to_batches())
        rows = pa.concat_tables([pa.Table.from_batches(starts, FOLD_INPUT), rows])
        started = checkpoint.num_rows
    is_last = np.arange(1, rows.num_rows + 1) == rows.num_rows
    rows = rows.set_column(rows.schema.get_field_index("emit"), "emit", pa.array(is_last))
    effects = np.empty(rows.num_rows, np.int8)
    folder, begin = Folder(), 0
    states: list[pa.RecordBatch] = []
    for batch in rows.to_batches(max_chunksize=_ROWS_AT_ONCE):
        states += folder.fold(batch, effects[begin : begin + batch.num_rows])
        begin += batch.num_rows
    return pa.Table.from_batches(states, STATES), _BY_NUMBER.take(pa.array(effects[started:]))


def _as_input(deltas: pa.Table) -> pa.Table:
    there = deltas.schema.names
    columns = [
        deltas[field.name].cast(field.type) if field.name in there else pa.nulls(deltas.num_rows, field.type)
        for field in FOLD_INPUT
    ]
    return pa.Table.from_arrays(columns, schema=FOLD_INPUT)
