"""A 64-bit hash of Arrow columns, row by row, computed for a whole batch at once.

Belongs here: one function of values that never changes, because its results are stored: slots are chosen by it and
tables keep it. It is fast and spreads well, but it is no proof of equality: whoever finds two equal hashes compares
the values. Pinned by a test.

Bytes of a row are multiplied by fixed random odd numbers, one per position, and summed modulo 2^64; the sum is mixed.
A value inside a list is a byte string of eight; maps and structs combine the hashes of what they hold.
"""

from typing import cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Hashes = npt.NDArray[np.uint64]

_NULL = np.uint64(0x9E3779B97F4A7C15)
_POSITION_SEED = np.uint64(0x243F6A8885A308D3)


def mix(values: Hashes) -> Hashes:
    """The finalizer of splitmix64: every bit of the input reaches every bit of the output."""
    z = values + np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def combine(*parts: Hashes) -> Hashes:
    """One hash of several, in order."""
    result = np.zeros(len(parts[0]), dtype=np.uint64)
    for part in parts:
        result = mix(result * np.uint64(31) + part)
    return result


def hash_array(array: pa.Array) -> Hashes:
    """Hash every value of an Arrow array; equal values of one type have equal hashes, nulls are equal to nulls."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        hashes = _hash_bytes(array)
    elif pa.types.is_struct(kind):
        hashes = combine(*(hash_array(child) for child in array.flatten()))
    elif pa.types.is_map(kind):
        entries = combine(hash_array(_children(array, array.keys)), hash_array(_children(array, array.items)))
        # The order of a map's entries means nothing, so they are summed.
        hashes = mix(_sum_by_row(entries, _offsets(array)))
    elif pa.types.is_list(kind):
        offsets = _offsets(array)
        elements = hash_array(_children(array, array.values))
        hashes = mix(_sum_by_row(elements * _multipliers(_positions(offsets)), offsets) + _lengths(offsets))
    else:
        hashes = mix(_as_words(array))
    if array.null_count:
        hashes = np.where(np.asarray(array.is_null()), _NULL, hashes)
    return hashes


def _as_words(array: pa.Array) -> Hashes:
    """Fixed-width values as 64-bit words; nulls are zero here and are replaced by the caller."""
    kind = array.type
    if pa.types.is_floating(kind):
        values = np.asarray(array.cast(pa.float64()).fill_null(0.0)) + 0.0  # -0.0 becomes 0.0: they are equal values
        return cast(Hashes, values.view(np.uint64))
    integers = array.cast(pa.int64()) if not pa.types.is_boolean(kind) else array.cast(pa.int8()).cast(pa.int64())
    return cast(Hashes, np.asarray(integers.fill_null(0)).view(np.uint64))


def _hash_bytes(array: pa.Array) -> Hashes:
    offsets = _offsets(array)
    data = array.buffers()[2]
    begin, end = int(offsets[0]), int(offsets[-1])
    flat = np.frombuffer(data, dtype=np.uint8)[begin:end] if data is not None else np.empty(0, dtype=np.uint8)
    offsets = offsets - begin
    # One is added so that trailing zero bytes count.
    terms = (flat.astype(np.uint64) + np.uint64(1)) * _multipliers(_positions(offsets))
    return mix(_sum_by_row(terms, offsets) + _lengths(offsets))


def _offsets(array: pa.Array) -> npt.NDArray[np.int64]:
    raw = np.frombuffer(array.buffers()[1], dtype=np.int32)
    return raw[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _children(array: pa.Array, values: pa.Array) -> pa.Array:
    """The part of a list's or map's children that its rows use (`values` ignores the parent's slice)."""
    offsets = _offsets(array)
    return values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))


def _positions(offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """For each element its place within its row."""
    starts = offsets[:-1] - offsets[0]
    return np.asarray(np.arange(offsets[-1] - offsets[0]) - np.repeat(starts, np.diff(offsets)))


def _lengths(offsets: npt.NDArray[np.int64]) -> Hashes:
    return np.diff(offsets).astype(np.uint64)


def _sum_by_row(terms: Hashes, offsets: npt.NDArray[np.int64]) -> Hashes:
    sums = np.zeros(len(terms) + 1, dtype=np.uint64)
    np.cumsum(terms, out=sums[1:])
    starts = offsets - offsets[0]
    return cast(Hashes, sums[starts[1:]] - sums[starts[:-1]])


_table: Hashes = mix(np.arange(1024, dtype=np.uint64) + _POSITION_SEED) | np.uint64(1)


def _multipliers(positions: npt.NDArray[np.int64]) -> Hashes:
    global _table  # noqa: PLW0603 - a cache that only grows; the values are constants
    if len(positions) and (need := int(positions.max()) + 1) > len(_table):
        _table = mix(np.arange(2 * need, dtype=np.uint64) + _POSITION_SEED) | np.uint64(1)
    return _table[positions]
