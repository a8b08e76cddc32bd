"""A 64-bit hash of Arrow columns, row by row, computed for a whole batch at once.

Belongs here: one function of values that never changes, because its results are stored: slots are chosen by it and
tables store it. It is fast and spreads well, but it is no proof of equality: after finding two equal hashes, compare
the values. Pinned by a test.

A byte string is split into words of eight bytes (little-endian, the last one padded with zeros), each of which is
mixed into a state that starts with the length. A fixed-width value is one word; a list is the byte string of its
elements' hashes; the hashes of a map's entries are summed, because their order means nothing; a struct combines its
fields in order.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.arrays.columns import bytes_of, numbers_of
from tidemark.arrays.compiled import compiled, inlined

Hashes = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int32]
Bytes = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]
# A column, or the text of all its rows.
Column: TypeAlias = pa.Array | str

_NO_GAPS: Mask = np.empty(0, dtype=np.bool_)
_8, _27, _28, _30, _31 = (np.uint64(number) for number in (8, 27, 28, 30, 31))
_GAMMA, _FIRST, _SECOND = (np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_NULL = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0x9FB21C651E98DF25)
_REMEMBERED_TEXTS = 1_024


def hash_array(array: pa.Array) -> Hashes:
    """Hash every value of an Arrow array; equal values of one type have equal hashes, nulls are equal to nulls."""
    hashes = np.empty(len(array), dtype=np.uint64)
    _write(hashes, array)
    return hashes


def hash_rows(columns: Sequence[Column], rows: int) -> Hashes:
    """One hash of every row: the hashes of its values, combined in order."""
    state = np.uint64(0)
    for place, column in enumerate(columns):
        same = _hash_of_all(column)
        if same is None:
            states = np.full(rows, state)
            for differing in columns[place:]:
                _combine(states, differing)
            return states
        state = _combined(state, same)
    return np.full(rows, state)


def hash_of_texts(texts: tuple[str | None, ...]) -> np.uint64:
    """The hash of a row of texts; None means null, of any type."""
    state = np.uint64(0)
    for text in texts:
        state = _combined(state, _NULL if text is None else _hash_of_text(text))
    return state


def combine(*parts: Hashes) -> Hashes:
    """One hash of several, in order."""
    states = np.zeros(len(parts[0]), dtype=np.uint64)
    for part in parts:
        _combine_hashes(states, part)
    return states


def _combine(states: Hashes, column: Column) -> None:
    """Combine a column's hashes with the state so far, in place."""
    if isinstance(column, str):
        _combine_one(states, _hash_of_text(column))
    elif column.null_count == len(column):
        _combine_one(states, _NULL)
    elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        _combine_texts(states, *bytes_of(column), _gaps(column))
    elif pa.types.is_int64(column.type) or pa.types.is_timestamp(column.type):
        _combine_words(states, numbers_of(column), _gaps(column))
    else:
        _combine_hashes(states, hash_array(column))


def _write(hashes: Hashes, array: pa.Array) -> None:
    kind, gaps = array.type, _gaps(array)
    if array.null_count == len(array):
        hashes[:] = _NULL
        return
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        _hash_texts(hashes, *bytes_of(array), gaps)
        return
    if pa.types.is_struct(kind):
        hashes[:] = 0
        for child in array.flatten():
            _combine(hashes, child)
    elif pa.types.is_map(kind):
        keys, items = (hash_array(_children(array, values)) for values in (array.keys, array.items))
        _sum_by_row(hashes, combine(keys, items), _offsets(array))
    elif pa.types.is_list(kind):
        elements = hash_array(_children(array, array.values))
        _hash_words_by_row(hashes, elements, _offsets(array))
    else:
        _hash_words(hashes, _as_words(array))
    if len(gaps):
        hashes[gaps] = _NULL


def _hash_of_all(column: Column) -> np.uint64 | None:
    """The hash that every row has, if it is known without a look at each."""
    if isinstance(column, str):
        return _hash_of_text(column)
    return _NULL if column.null_count == len(column) else None


@lru_cache(_REMEMBERED_TEXTS)
def _hash_of_text(text: str) -> np.uint64:
    return np.uint64(hash_array(pa.array([text], pa.string()))[0])


@lru_cache(_REMEMBERED_TEXTS)
def _combined(state: np.uint64, hashed: np.uint64) -> np.uint64:
    states = np.array([state])
    _combine_one(states, hashed)
    return np.uint64(states[0])


def _gaps(array: pa.Array) -> Mask:
    return np.asarray(array.is_null()) if array.null_count else _NO_GAPS


def _as_words(array: pa.Array) -> npt.NDArray[np.int64]:
    """Fixed-width values as 64-bit words; nulls are zero here and are replaced by the caller."""
    kind = array.type
    if pa.types.is_floating(kind):
        values = np.asarray(array.cast(pa.float64()).fill_null(0.0)) + 0.0  # -0.0 becomes 0.0: they are equal values
        return np.asarray(values, dtype=np.float64).view(np.int64)
    integers = array.cast(pa.int8()).cast(pa.int64()) if pa.types.is_boolean(kind) else array.cast(pa.int64())
    return numbers_of(integers)


def _offsets(array: pa.Array) -> Offsets:
    """Offsets of lists and maps, counted from the first row's beginning."""
    raw: Offsets = np.frombuffer(array.buffers()[1], dtype=np.int32, count=len(array) + 1, offset=4 * array.offset)
    return np.asarray(raw - raw[0])


def _children(array: pa.Array, values: pa.Array) -> pa.Array:
    """The part of a list's or map's children that its rows use (`values` ignores the parent's slice)."""
    raw = np.frombuffer(array.buffers()[1], dtype=np.int32, count=len(array) + 1, offset=4 * array.offset)
    return values.slice(int(raw[0]), int(raw[-1] - raw[0]))


# The steps for every row. A byte string's bytes begin where the offsets of its column do: at `offsets[0]`.


@inlined
def mix(word: np.uint64) -> np.uint64:
    """The finalizer of splitmix64: every bit of the input reaches every bit of the output."""
    word = word + _GAMMA
    word = (word ^ (word >> _30)) * _FIRST
    word = (word ^ (word >> _27)) * _SECOND
    return word ^ (word >> _31)


@inlined
def chain(state: np.uint64, hashed: np.uint64) -> np.uint64:
    """The hash of what came before and of what comes now."""
    return mix(state * _31 + hashed)


@inlined
def stir(state: np.uint64, word: np.uint64) -> np.uint64:
    """Mix one word of a byte string into the state."""
    state = (state ^ word) * _MULTIPLIER
    return state ^ (state >> _28)


@inlined
def word_at(data: Bytes, at: int) -> np.uint64:
    """Eight bytes as a word. Written out, and from a place that cannot be negative: so it becomes a single load."""
    first = np.uint64(at)
    return np.uint64(
        np.uint64(data[first])
        | np.uint64(data[first + np.uint64(1)]) << np.uint64(8)
        | np.uint64(data[first + np.uint64(2)]) << np.uint64(16)
        | np.uint64(data[first + np.uint64(3)]) << np.uint64(24)
        | np.uint64(data[first + np.uint64(4)]) << np.uint64(32)
        | np.uint64(data[first + np.uint64(5)]) << np.uint64(40)
        | np.uint64(data[first + np.uint64(6)]) << np.uint64(48)
        | np.uint64(data[first + np.uint64(7)]) << np.uint64(56)
    )


@inlined
def word_of(data: Bytes, begin: int, end: int) -> np.uint64:
    """Fewer than eight bytes as a word."""
    word = np.uint64(0)
    for at in range(begin, end):
        word |= np.uint64(data[at]) << (_8 * np.uint64(at - begin))
    return word


@inlined
def hash_text(data: Bytes, begin: int, end: int) -> np.uint64:
    """The hash of the bytes from `begin` to `end`."""
    state = mix(np.uint64(end - begin))
    at = begin
    while at + 8 <= end:
        state = stir(state, word_at(data, at))
        at += 8
    if at < end:
        # Of a text of eight bytes or more, the last eight are read as one, and those that were read before shifted out.
        if end - begin >= 8:
            state = stir(state, word_at(data, end - 8) >> (_8 * np.uint64(8 - (end - at))))
        else:
            state = stir(state, word_of(data, at, end))
    return mix(state)


@compiled
def _hash_texts(hashes: Hashes, offsets: Offsets, data: Bytes, gaps: Mask) -> None:
    for row in range(len(hashes)):
        if len(gaps) and gaps[row]:
            hashes[row] = _NULL
        else:
            hashes[row] = hash_text(data, offsets[row] - offsets[0], offsets[row + 1] - offsets[0])


@compiled
def _hash_words(hashes: Hashes, words: npt.NDArray[np.int64]) -> None:
    for row in range(len(hashes)):
        hashes[row] = mix(np.uint64(words[row]))


@compiled
def _hash_words_by_row(hashes: Hashes, words: Hashes, offsets: Offsets) -> None:
    for row in range(len(hashes)):
        state = mix(np.uint64(8 * (offsets[row + 1] - offsets[row])))
        for place in range(offsets[row], offsets[row + 1]):
            state = stir(state, words[place])
        hashes[row] = mix(state)


@compiled
def _sum_by_row(hashes: Hashes, terms: Hashes, offsets: Offsets) -> None:
    for row in range(len(hashes)):
        total = np.uint64(0)
        for place in range(offsets[row], offsets[row + 1]):
            total += terms[place]
        hashes[row] = mix(total)


@compiled
def _combine_hashes(states: Hashes, hashes: Hashes) -> None:
    for row in range(len(states)):
        states[row] = chain(states[row], hashes[row])


@compiled
def _combine_one(states: Hashes, hashed: np.uint64) -> None:
    for row in range(len(states)):
        states[row] = chain(states[row], hashed)


@compiled
def _combine_texts(states: Hashes, offsets: Offsets, data: Bytes, gaps: Mask) -> None:
    for row in range(len(states)):
        hashed = _NULL
        if not (len(gaps) and gaps[row]):
            hashed = hash_text(data, offsets[row] - offsets[0], offsets[row + 1] - offsets[0])
        states[row] = chain(states[row], hashed)


@compiled
def _combine_words(states: Hashes, words: npt.NDArray[np.int64], gaps: Mask) -> None:
    for row in range(len(states)):
        hashed = _NULL if len(gaps) and gaps[row] else mix(np.uint64(words[row]))
        states[row] = chain(states[row], hashed)
