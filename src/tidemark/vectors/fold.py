"""The fold of deltas into states, batch after batch, in the memory of one vector (D3, D4, K1).

Belongs here: which columns go into the compiled loop and which states come out. Columns are explained in `schema.py`,
the effect of a delta in `tidemark/model/operations.py` and, on the numbers, in `loops.py`; metadata and clocks are in
`maps.py`.

A delta without effect changes nothing in the state: neither values nor metadata nor clock. It still was folded: it
counts among `deltas`, its epoch among those folded, the place of the state moves on to it, and it may be the delta that
arrived last. That is on purpose: whether another delta has an effect may depend on one that has none (a parent without
effect gives its child a place), so a vector's internal id is made from the latest arrival of all (V1). It distinguishes
two states as long as no delta loses or changes its place; that is rare, but possible (see `places.py`).
"""

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from tidemark.model.operations import CODES, RULES
from tidemark.vectors import loops
from tidemark.vectors.errors import RemovedPayloadError, UnknownOperationError
from tidemark.vectors.loops import Bytes, Codes, Doubles, Numbers, Singles, Table
from tidemark.vectors.maps import MapRows, Maps
from tidemark.vectors.order import LastRow, begins_vector, first_rows, key_of
from tidemark.vectors.schema import CHECKPOINT, FOLD_INPUT, STATES

# At most so many numbers of states are returned at once: as float32 and float64, these are 12 MB.
GIVEN_AT_ONCE = 1 << 20
# Bytes of a float64.
DOUBLE = 8

_OPERATIONS = {**{operation.value: code for operation, code in CODES.items()}, CHECKPOINT: loops.START}
# Operations that need values.
_VALUED = [CODES[operation] for operation, rule in RULES.items() if "values" in rule.needs]
# In the order of the table that the loop takes.
_START_COLUMNS = ("exists", "is_dead", "first_epoch", "deltas", "no_base", "no_effect")
_ABOUT_COLUMNS = {
    "exists": loops.EXISTS,
    "is_dead": loops.IS_DEAD,
    "shard": loops.SHARD,
    "last_epoch": loops.LAST_EPOCH,
    "last_ordinal": loops.LAST_ORDINAL,
    "first_epoch": loops.FIRST_EPOCH,
    "deltas": loops.DELTAS,
    "no_base": loops.WITHOUT_BASE,
    "no_effect": loops.WITHOUT_EFFECT,
}
_COPIED = ("namespace", "vector_id", "eff_us", "depth", "event_us", "origin", "delta_id")


class _Rows(NamedTuple):
    """A batch as the loop takes it, in the loop's order."""

    order: Numbers
    ops: Bytes
    is_first: Bytes
    is_emitted: Bytes
    value_offsets: Codes
    values: Singles
    index_offsets: Codes
    indices: Codes
    factors: Doubles
    amounts: Doubles
    shards: Codes
    epochs: Numbers
    ordinals: Codes
    starts: Table
    start_offsets: Codes
    start_states: Doubles

    def longest(self) -> int:
        """The greatest length that a vector could get from these rows."""
        return int(max(np.diff(self.value_offsets).max(), np.diff(self.start_offsets).max()))


class _Given(NamedTuple):
    """Buffers for returned states, in the loop's order."""

    rows: Numbers
    about: Table
    offsets: Codes
    values: Singles
    state_offsets: Codes
    states: Doubles

    @classmethod
    def room(cls, states: int, numbers: int) -> "_Given":
        return cls(
            np.empty(states + 1, np.int64),
            np.empty((states, loops.ABOUT), np.int64),
            np.empty(states + 1, np.int32),
            _pooled(numbers, np.dtype(np.float32)),
            np.empty(states + 1, np.int32),
            _pooled(numbers, np.dtype(np.float64)),
        )


def _pooled(count: int, dtype: np.dtype[Any]) -> Any:
    """A buffer from Arrow's pool, which reuses freed memory, while NumPy would ask the system each time."""
    return np.frombuffer(pa.allocate_buffer(max(count, 1) * dtype.itemsize), dtype)[:count]


class Folder:
    """Folds batches of rows (`FOLD_INPUT`) one after the other; a vector may continue in the next batch.

    It keeps the state of one vector, however many deltas that has, and the states that are being returned.
    """

    def __init__(self, given_at_once: int = GIVEN_AT_ONCE) -> None:
        self._given_at_once = given_at_once
        self._state: Doubles = np.empty(0, np.float64)
        self._about: Numbers = np.zeros(loops.ABOUT, np.int64)
        self._maps = Maps()
        self._last: LastRow | None = None

    def fold(self, batch: pa.RecordBatch, effects: Bytes | None = None) -> Iterator[pa.RecordBatch]:
        """States (`STATES`) after the rows of the batch that say so; take all of them before the next batch.

        `effects`, if given, has a place for every row and is filled with the row's effect (see `loops.py`).
        """
        if not batch.num_rows:
            return
        is_first, self._last = first_rows(batch, self._last)
        is_emitted = np.asarray(batch.column("emit").fill_null(False)).astype(np.int8)
        order = np.arange(batch.num_rows, dtype=np.int64)
        yield from self.fold_in_order(batch, order, is_first, is_emitted, effects)

    def fold_in_order(
        self,
        batch: pa.RecordBatch,
        order: Numbers,
        is_first: Bytes,
        is_emitted: Bytes,
        effects: Bytes | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """The same for rows in any order, which are folded in the given one.

        `is_first` and `is_emitted` say of each step whether it is the first of its vector, and whether the state after
        it is returned. The order is not checked to be canonical.
        """
        rows = _rows_of(batch, order, is_first, is_emitted)
        effects = np.empty(len(order), np.int8) if effects is None else effects
        longest = max(rows.longest(), int(self._about[loops.LENGTH]))
        if longest > len(self._state):
            self._state = np.concatenate([self._state, np.empty(longest - len(self._state))])
        maps = MapRows(
            rows.ops[order], effects, is_first, is_emitted, order, batch.column("metadata"), batch.column("clock")
        )
        step = 0
        while step < len(order):
            left = int(is_emitted[step:].sum())
            given = _Given.room(left, max(min(left * longest, self._given_at_once), longest))
            begin, step = step, int(loops.fold_rows(step, *rows, self._state, self._about, effects, *given))
            metadata, clocks = self._maps.follow(maps, begin, step)
            if given.rows[-1]:
                yield _states_of(batch, given, metadata, clocks)


def fold_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The states of all vectors whose rows these are."""
    folder = Folder()
    for batch in batches:
        yield from folder.fold(batch)


def emit_last(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches with an `emit` after the last row of every vector. This delays the output by one batch."""
    held: pa.RecordBatch | None = None
    for batch in batches:
        if batch.num_rows:
            if held is not None:
                yield _emitting(held, key_of(held, held.num_rows - 1) != key_of(batch, 0))
            held = batch
    if held is not None:
        yield _emitting(held, True)


def starting_states(states: pa.RecordBatch) -> pa.RecordBatch:
    """States in the fold's form for continuing: the first row of each vector. They are not returned again."""
    rows = states.num_rows
    renamed = {"epoch": "last_epoch", "ordinal": "last_ordinal"}
    made = {"op": pa.repeat(CHECKPOINT, rows), "emit": pa.repeat(False, rows)}
    columns = []
    for field in FOLD_INPUT:
        name = renamed.get(field.name, field.name)
        known = made.get(name, states.column(name) if name in states.schema.names else pa.nulls(rows, field.type))
        columns.append(known)
    return pa.RecordBatch.from_arrays(columns, schema=FOLD_INPUT)


def whole_states(states: pa.RecordBatch) -> pa.Array:
    """The stored part of each state (`state`), in the longer form that tables may have: always all numbers."""
    found: list[bytes | None] = []
    for values, kept in zip(states.column("values").to_pylist(), states.column("state").to_pylist(), strict=True):
        if kept is None or len(kept) == DOUBLE * len(values):
            found.append(kept)
            continue
        numbers, pairs = np.array(values, np.float64), np.frombuffer(kept, np.float64)
        numbers[pairs[::2].astype(np.int64)] = pairs[1::2]
        found.append(numbers.tobytes())
    return pa.array(found, pa.binary())


def _emitting(batch: pa.RecordBatch, is_last: bool) -> pa.RecordBatch:
    emit = pa.array(np.append(begins_vector(batch), is_last))
    place = batch.schema.get_field_index("emit")
    return batch.append_column("emit", emit) if place < 0 else batch.set_column(place, "emit", emit)


def _rows_of(batch: pa.RecordBatch, order: Numbers, is_first: Bytes, is_emitted: Bytes) -> _Rows:
    value_offsets, values = _lists(batch, "values")
    index_offsets, indices = _lists(batch, "indices")
    ops = _operations(batch.column("op"))
    _refuse_removed(batch, ops, order)
    starts, start_offsets, start_states = _starts(batch, has_any=bool((ops == loops.START).any()))
    return _Rows(
        order,
        ops,
        is_first,
        is_emitted,
        value_offsets,
        values,
        index_offsets,
        indices,
        _column(batch, "factor"),
        _column(batch, "amount"),
        _column(batch, "shard"),
        _column(batch, "epoch"),
        _column(batch, "ordinal"),
        starts,
        start_offsets,
        start_states,
    )


def _starts(batch: pa.RecordBatch, *, has_any: bool) -> tuple[Table, Codes, Doubles]:
    if not has_any:
        return np.empty((0, loops.STARTS), np.int64), np.zeros(batch.num_rows + 1, np.int32), np.empty(0, np.float64)
    columns = [np.asarray(batch.column(name).cast(pa.int64()).fill_null(0)) for name in _START_COLUMNS]
    return np.ascontiguousarray(np.stack(columns, axis=1)), *_packed(batch.column("state"))


def _column(batch: pa.RecordBatch, name: str) -> Any:
    column = batch.column(name)
    filled = column.fill_null(0) if column.null_count else column
    return np.ascontiguousarray(filled, FOLD_INPUT.field(name).type.to_pandas_dtype())


def _lists(batch: pa.RecordBatch, name: str) -> tuple[Codes, Any]:
    """Where each row's numbers begin and end, and all numbers."""
    column, wanted = batch.column(name), FOLD_INPUT.field(name).type
    if pa.types.is_null(column.type) or column.type.value_type != wanted.value_type:
        column = column.cast(wanted)
    numbers = np.ascontiguousarray(column.values, wanted.value_type.to_pandas_dtype())
    return np.ascontiguousarray(column.offsets, np.int32), numbers


def _packed(states: pa.Array) -> tuple[Codes, Doubles]:
    """Where each row's float64 begin and end, and all of them, from their bytes."""
    if pa.types.is_null(states.type):
        states = states.cast(pa.binary())
    _, offsets, numbers = states.buffers()
    ends = np.frombuffer(offsets, np.int32)[states.offset : states.offset + len(states) + 1] // DOUBLE
    # A column of only nulls has no bytes at all.
    return ends, np.frombuffer(numbers, np.float64, int(ends[-1])) if ends[-1] else np.empty(0, np.float64)


def _operations(words: pa.Array) -> Bytes:
    encoded = words.dictionary_encode()
    known = encoded.dictionary.to_pylist()
    unknown = [word for word in known if word not in _OPERATIONS] + [None] * bool(words.null_count)
    if unknown:
        raise UnknownOperationError(unknown[0])
    codes = np.array([_OPERATIONS[word] for word in known], np.int8)
    return np.ascontiguousarray(codes[np.asarray(encoded.indices)])


def _refuse_removed(batch: pa.RecordBatch, ops: Bytes, order: Numbers) -> None:
    """Raise if a row lacks the values that its operation needs: it was accepted with them, so they were removed."""
    values = batch.column("values")
    if not values.null_count:
        return
    found = order[(np.isin(ops, _VALUED) & np.asarray(values.is_null()))[order]]
    if found.size:
        names = ("namespace", "vector_id", "delta_id")
        raise RemovedPayloadError(*(batch.column(name)[int(found[0])].as_py() for name in names))


def _states_of(batch: pa.RecordBatch, given: _Given, metadata: pa.Array, clocks: pa.Array) -> pa.RecordBatch:
    count = int(given.rows[-1])
    about = given.about[:count]
    lives = (about[:, loops.EXISTS] == 1) & (about[:, loops.IS_DEAD] == 0)
    columns = {name: batch.column(name).take(pa.array(given.rows[:count])) for name in _COPIED}
    columns |= {name: pa.array(np.ascontiguousarray(about[:, place])) for name, place in _ABOUT_COLUMNS.items()}
    columns["values"] = _listed(given.offsets[: count + 1], given.values, ~lives)
    columns["state"] = _bytes_of(given.state_offsets[: count + 1], given.states)
    columns["metadata"], columns["clock"] = metadata, clocks
    return pa.RecordBatch.from_arrays([columns[field.name].cast(field.type) for field in STATES], schema=STATES)


def _bytes_of(offsets: Codes, numbers: Doubles) -> pa.Array:
    """Numbers as bytes, or null without numbers. A mostly unused buffer is not kept for them."""
    bits = pa.array(np.diff(offsets) > 0).buffers()[1]
    used = int(offsets[-1])
    kept = numbers[:used].copy() if 2 * used < len(numbers) else numbers
    buffers = [bits, pa.py_buffer(offsets * np.int32(DOUBLE)), pa.py_buffer(kept)]
    return pa.Array.from_buffers(pa.binary(), len(offsets) - 1, buffers)


def _listed(offsets: Codes, numbers: Any, is_null: Any) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(numbers[: int(offsets[-1])]), mask=pa.array(is_null))
