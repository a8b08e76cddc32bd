"""A 64-bit hash of Arrow columns, row by row, computed for a whole batch at once.

Belongs here: one function of values that never changes, because its results are stored: slots are chosen by it and
tables keep it. It is fast and spreads well, but it is no proof of equality: whoever finds two equal hashes compares
the values. Pinned by a test.

A byte string is taken in words of eight bytes (little-endian, the last one filled up with zeros), each of which is
mixed into a state that starts with the length. A fixed-width value is one word; a list is the byte string of its
elements' hashes; the hashes of a map's entries are summed, because their order means nothing; a struct combines its
fields in order.
"""

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]
Offsets = npt.NDArray[np.int64]

_WORD = 8
_NOTHING_YET = np.zeros(1, dtype=np.uint64)
_PADDING = np.zeros(_WORD, dtype=np.uint8)
_27, _28, _30, _31 = (np.uint64(number) for number in (27, 28, 30, 31))
_GAMMA, _FIRST, _SECOND = (np.uint64(number) for number in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_NULL = np.uint64(0x9E3779B97F4A7C15)
_MULTIPLIER = np.uint64(0x9FB21C651E98DF25)
# Keeps the first `n` bytes of a word, for n = 0 … 8.
_KEEP = np.array([0, *(2 ** (8 * size) - 1 for size in range(1, 9))], dtype=np.uint64)


def mix(values: Hashes) -> Hashes:
    """The finalizer of splitmix64: every bit of the input reaches every bit of the output."""
    return mix_in_place(values + np.uint64(0))


def mix_in_place(z: Hashes) -> Hashes:
    """The same, written over the input."""
    z += _GAMMA
    high = z >> _30
    z ^= high
    z *= _FIRST
    np.right_shift(z, _27, out=high)
    z ^= high
    z *= _SECOND
    np.right_shift(z, _31, out=high)
    z ^= high
    return z


def combine(*parts: Hashes, start: Hashes = _NOTHING_YET) -> Hashes:
    """One hash of several, in order, behind those in `start`; one number stands for as many of the same."""
    result = start
    for part in parts:
        result = mix_in_place(result * _31 + part)
    return result


def hash_array(array: pa.Array) -> Hashes:
    """Hash every value of an Arrow array; equal values of one type have equal hashes, nulls are equal to nulls."""
    kind = array.type
    if array.null_count == len(array):
        return np.full(len(array), _NULL)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashes = hash_bytes(np.frombuffer(array.buffers()[2] or b"", dtype=np.uint8), _offsets(array))
    elif pa.types.is_struct(kind):
        hashes = combine(*(hash_array(child) for child in array.flatten()))
    elif pa.types.is_map(kind):
        entries = combine(hash_array(_children(array, array.keys)), hash_array(_children(array, array.items)))
        hashes = mix(_sum_by_row(entries, _offsets(array)))
    elif pa.types.is_list(kind):
        offsets = _offsets(array)
        elements = hash_array(_children(array, array.values))
        hashes = hash_bytes(elements.view(np.uint8), (offsets - offsets[0]) * _WORD)
    else:
        hashes = mix(_as_words(array))
    if array.null_count:
        hashes = np.where(np.asarray(array.is_null()), _NULL, hashes)
    return hashes


def hash_bytes(data: npt.NDArray[np.uint8], offsets: Offsets | npt.NDArray[np.int32]) -> Hashes:
    """Hash byte strings that lie behind one another; each ends where the next begins."""
    lengths = offsets[1:] - offsets[:-1]
    shortest, longest = (int(lengths.min()), int(lengths.max())) if len(lengths) else (0, 0)
    padded = np.concatenate((data[offsets[0] : offsets[-1]], _PADDING))
    if 0 < shortest == longest:
        return _hash_of_one_length(padded, len(lengths), shortest)
    state = mix_in_place(lengths.astype(np.uint64))
    # Every byte position as the start of a word: an unaligned view, nothing is copied.
    words = np.ndarray((len(padded) - _WORD + 1,), np.dtype("<u8"), padded, strides=(1,))
    starts = offsets[:-1] - offsets[0]
    at = 0
    while at + _WORD <= shortest:  # a whole word in every row: nothing has to be picked out
        _stir(state, words[starts + at])
        at += _WORD
    if at < shortest:  # a part of a word in every row
        _stir(state, words[starts + at] & _KEEP[np.minimum(lengths - at, _WORD)])
        at += _WORD
    rows = (lengths > at).nonzero()[0]
    while len(rows):
        rest = lengths[rows] - at
        word = words[starts[rows] + at] & _KEEP[np.minimum(rest, _WORD)]
        state[rows] = _stir(state[rows], word)
        rows = rows[rest > _WORD]
        at += _WORD
    return mix_in_place(state)


def _hash_of_one_length(padded: npt.NDArray[np.uint8], rows: int, length: int) -> Hashes:
    """The same where all strings are equally long, as ids mostly are: their words lie at equal distances."""
    state = np.repeat(mix_in_place(np.array([length], dtype=np.uint64)), rows)
    for at in range(0, length, _WORD):
        word = np.ndarray((rows,), np.dtype("<u8"), padded, offset=at, strides=(length,))
        _stir(state, word if at + _WORD <= length else word & _KEEP[length - at])
    return mix_in_place(state)


def _stir(state: Hashes, word: Hashes) -> Hashes:
    """Mix one word into each state, in place."""
    state ^= word
    state *= _MULTIPLIER
    state ^= state >> _28
    return state


def _as_words(array: pa.Array) -> Hashes:
    """Fixed-width values as 64-bit words; nulls are zero here and are replaced by the caller."""
    kind = array.type
    if pa.types.is_floating(kind):
        values = np.asarray(array.cast(pa.float64()).fill_null(0.0)) + 0.0  # -0.0 becomes 0.0: they are equal values
        return np.asarray(values, dtype=np.float64).view(np.uint64)
    integers = array.cast(pa.int8()).cast(pa.int64()) if pa.types.is_boolean(kind) else array.cast(pa.int64())
    return np.asarray(integers.fill_null(0), dtype=np.int64).view(np.uint64)


def _offsets(array: pa.Array) -> Offsets:
    raw = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return raw[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _children(array: pa.Array, values: pa.Array) -> pa.Array:
    """The part of a list's or map's children that its rows use (`values` ignores the parent's slice)."""
    offsets = _offsets(array)
    return values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _sum_by_row(terms: Hashes, offsets: Offsets) -> Hashes:
    sums = np.zeros(len(terms) + 1, dtype=np.uint64)
    np.cumsum(terms, out=sums[1:])
    starts = offsets - offsets[0]
    return np.asarray(sums[starts[1:]] - sums[starts[:-1]])
