"""The compiled loop that folds rows into the state of the vector they belong to (D3).

Belongs here: numbers and arrays. Does not belong here: column names, metadata and clocks (`fold.py`, `maps.py`).

Each operation is one float64 operation for each number that it changes (`x * factor`, `x + amount`, `x + value`, `x =
value`), in canonical order, never fused and never reordered, so a state is the same bit for bit wherever the rows were
split.
"""

import numpy as np
import numpy.typing as npt

from tidemark.arrays.compiled import compiled, inlined
from tidemark.model.operations import CODES

Numbers = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.int8]
Singles = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]

# Operations by their numbers, and that of a starting state, which is none.
CREATE, REPLACE, SET_DIMS, ADD_DIMS, SCALE, OFFSET, DELETE = CODES.values()
START = len(CODES)
# The effect of a row.
APPLIED, NO_BASE, AFTER_DELETE, OUT_OF_RANGE, STARTED = range(5)

# The position of each number about the vector; those from EXISTS on are returned.
LENGTH, EXISTS, IS_DEAD, SHARD, LAST_EPOCH, LAST_ORDINAL, FIRST_EPOCH, DELTAS, WITHOUT_BASE, WITHOUT_EFFECT = range(10)
ABOUT = 10
# Columns of the table of starting states, one row for each row.
START_EXISTS, START_IS_DEAD, START_FIRST_EPOCH, START_DELTAS, START_NO_BASE, START_NO_EFFECT = range(6)
STARTS = 6


@inlined
def _forget(about: Numbers) -> None:
    """A vector of which nothing is known."""
    for place in range(ABOUT):
        about[place] = 0
    about[LAST_EPOCH] = -1


@inlined
def _arrive(about: Numbers, shard: int, epoch: int, ordinal: int, first_epoch: int) -> None:
    """Note the arrival of what is folded; the last one by (epoch, ordinal, shard) stays."""
    if about[LAST_EPOCH] < 0 or first_epoch < about[FIRST_EPOCH]:
        about[FIRST_EPOCH] = first_epoch
    last_epoch, last_ordinal = about[LAST_EPOCH], about[LAST_ORDINAL]
    if epoch > last_epoch or (
        epoch == last_epoch and (ordinal > last_ordinal or (ordinal == last_ordinal and shard > about[SHARD]))
    ):
        about[LAST_EPOCH], about[LAST_ORDINAL], about[SHARD] = epoch, ordinal, shard


@inlined
def _fill(state: Doubles, about: Numbers, values: Singles, begin: int, end: int) -> None:
    for place in range(begin, end):
        state[place - begin] = np.float64(values[place])
    about[LENGTH] = end - begin


@inlined
def _start(
    about: Numbers, state: Doubles, starts: Table, row: int, values: Singles, begin: int, end: int, doubles: Doubles,
    double_begin: int, double_end: int,
) -> int:  # fmt: skip
    """Go on from a starting state: from its values, and what its doubles say instead of some or all of them."""
    about[EXISTS], about[IS_DEAD] = starts[row, START_EXISTS], starts[row, START_IS_DEAD]
    about[DELTAS], about[WITHOUT_BASE] = starts[row, START_DELTAS], starts[row, START_NO_BASE]
    about[WITHOUT_EFFECT] = starts[row, START_NO_EFFECT]
    _fill(state, about, values, begin, end)
    if double_end - double_begin == end - begin:
        for place in range(double_begin, double_end):
            state[place - double_begin] = doubles[place]
    else:
        for place in range(double_begin, double_end - 1, 2):
            if 0 <= doubles[place] < about[LENGTH]:  # whatever a table says, nothing is written beside the state
                state[np.int64(doubles[place])] = doubles[place + 1]
    return STARTED


@inlined
def _change_some(
    op: int, state: Doubles, length: int, values: Singles, begin: int, end: int, indices: Codes, index_begin: int,
    index_end: int,
) -> int:  # fmt: skip
    """`set_dims` and `add_dims`: all of it, or nothing if one index has nothing to point at."""
    if index_end - index_begin != end - begin:
        return OUT_OF_RANGE
    for place in range(index_begin, index_end):
        if indices[place] < 0 or indices[place] >= length:
            return OUT_OF_RANGE
    shift = begin - index_begin
    if op == SET_DIMS:
        for place in range(index_begin, index_end):
            state[indices[place]] = np.float64(values[place + shift])
    else:
        for place in range(index_begin, index_end):
            state[indices[place]] += np.float64(values[place + shift])
    return APPLIED


@inlined
def _apply(
    op: int, state: Doubles, about: Numbers, values: Singles, begin: int, end: int, indices: Codes, index_begin: int,
    index_end: int, factor: float, amount: float,
) -> int:  # fmt: skip
    """What a delta does to the state, and what became of it (D4)."""
    if op == CREATE:
        _fill(state, about, values, begin, end)
        about[EXISTS], about[IS_DEAD] = 1, 0
        return APPLIED
    if not about[EXISTS]:
        about[WITHOUT_BASE] += 1
        return NO_BASE
    if about[IS_DEAD]:
        about[WITHOUT_EFFECT] += 1
        return AFTER_DELETE
    length = about[LENGTH]
    if op == REPLACE:
        _fill(state, about, values, begin, end)
    elif op == SCALE:
        for place in range(length):
            state[place] *= factor
    elif op == OFFSET:
        for place in range(length):
            state[place] += amount
    elif op == DELETE:
        about[IS_DEAD], about[LENGTH] = 1, 0
    else:
        effect = _change_some(op, state, length, values, begin, end, indices, index_begin, index_end)
        about[WITHOUT_EFFECT] += effect == OUT_OF_RANGE
        return effect
    return APPLIED


@inlined
def _give(state: Doubles, length: int, values: Singles, begin: int, doubles: Doubles, double_begin: int) -> int:
    """Write a state out as float32 and, behind what is there, what these do not say; how many doubles that took.

    None if they say everything; a place and a number for each that differs, while that is shorter; else all numbers.
    """
    differing = 0
    for place in range(length):
        value = np.float32(state[place])
        values[begin + place] = value
        differing += np.float64(value) != state[place]
    if 2 * differing >= length:
        if differing == 0:
            return 0
        for place in range(length):
            doubles[double_begin + place] = state[place]
        return length
    end = double_begin
    for place in range(length):
        if np.float64(values[begin + place]) != state[place]:
            doubles[end], doubles[end + 1] = place, state[place]
            end += 2
    return end - double_begin


@compiled
def fold_rows(
    step: int,
    order: Numbers,
    ops: Bytes,
    is_first: Bytes,
    is_emitted: Bytes,
    value_offsets: Codes,
    values: Singles,
    index_offsets: Codes,
    indices: Codes,
    factors: Doubles,
    amounts: Doubles,
    shards: Codes,
    epochs: Numbers,
    ordinals: Codes,
    starts: Table,
    start_offsets: Codes,
    start_states: Doubles,
    state: Doubles,
    about: Numbers,
    effects: Bytes,
    given_rows: Numbers,
    given_about: Table,
    given_offsets: Codes,
    given_values: Singles,
    given_state_offsets: Codes,
    given_states: Doubles,
) -> int:
    """Fold from a step on; gives the first step that was not taken, because its state might find no room.

    Rows are folded in the `order` that is given: `is_first`, `is_emitted` and `effects`, which says what became of each
    row, are by step, all else is by row. `state` and `about` are those of the vector of the step before. States are
    given from the beginning of the `given` arrays: the row, the numbers about the vector, its values, and its state
    (empty where the values say it exactly). How many were given is in the last place of `given_rows`.
    """
    given = 0
    given_offsets[0] = given_state_offsets[0] = 0
    while step < len(order):
        row = order[step]
        begin, end = value_offsets[row], value_offsets[row + 1]
        if is_emitted[step]:
            room = max(about[LENGTH], end - begin, start_offsets[row + 1] - start_offsets[row])
            if given_offsets[given] + room > len(given_values):
                break
        if is_first[step]:
            _forget(about)
        if ops[row] == START:
            effects[step] = _start(
                about, state, starts, row, values, begin, end, start_states, start_offsets[row], start_offsets[row + 1]
            )
            _arrive(about, shards[row], epochs[row], ordinals[row], starts[row, START_FIRST_EPOCH])
        else:
            effects[step] = _apply(
                ops[row], state, about, values, begin, end, indices, index_offsets[row], index_offsets[row + 1],
                factors[row], amounts[row],
            )  # fmt: skip
            about[DELTAS] += 1
            _arrive(about, shards[row], epochs[row], ordinals[row], epochs[row])
        if is_emitted[step]:
            length, doubles = about[LENGTH], given_state_offsets[given]
            taken = _give(state, length, given_values, given_offsets[given], given_states, doubles)
            given_rows[given] = row
            for place in range(ABOUT):
                given_about[given, place] = about[place]
            given += 1
            given_offsets[given] = given_offsets[given - 1] + length
            given_state_offsets[given] = doubles + taken
        step += 1
    given_rows[-1] = given
    return step
