"""Fast checks of Arrow columns, and columns that repeat a value: they make a million deltas a second possible.

Belongs here: tests that clear nearly every row by its bytes alone, without deciding about the others, and building
columns without a value per row in Python. Only `verdicts/checks.py` says what is right or wrong: it looks at the rows
that are not cleared.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Rows = npt.NDArray[np.int64]  # numbers of rows, rising
Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Bytes = npt.NDArray[np.uint8]
Words = Mapping[str, frozenset[str]]  # every text that occurs in a column, for columns with few texts and no nulls

NO_WORDS: Words = {}
NO_ROWS: Rows = np.empty(0, dtype=np.int64)
_SMALL = 256
# Texts that are repeated in every group: `signal`, `normal`, the namespace. A constant column is a slice of a longer
# one in a cache, if that has no more bytes than this; so all of them together stay below 64 MB, and mostly far below.
_REMEMBERED_CONSTANTS = 64
_REMEMBERED_BYTES = 512 * 1024
# Null columns are slices of one that is this long.
_MANY_NULLS = 128 * 1024
_ZEROS = bytes(8 * _MANY_NULLS + 8)


def constant_of(texts: pa.Array) -> str | None:
    """The text that every row has; None if they differ, or if one has none."""
    rows = len(texts)
    if not rows or texts.null_count:
        return None
    value: str = texts[0].as_py()
    # Two checks that find nearly every difference, before one of every row.
    if texts[rows - 1].as_py() != value or len(bytes_of(texts)[1]) != rows * len(value.encode()):
        return None
    return value if texts.equals(constant(value, rows)) else None


def odd_ids(texts: pa.Array, limit: int) -> Rows:
    """Rows that may not be a proper id: 1 to `limit` bytes, no control character, the first one visible ASCII."""
    offsets, data = bytes_of(texts)
    lengths = offsets[1:] - offsets[:-1]
    if not len(lengths):
        return NO_ROWS
    is_plain = not texts.null_count and lengths.min() > 0 and lengths.max() <= limit
    if is_plain and data.min() > 0x20 and data.max() < 0x7F:
        return NO_ROWS
    odd = (lengths < 1) | (lengths > limit)
    first = _first_bytes(offsets, data)
    odd |= (first <= 0x20) | (first >= 0x7F)
    odd[_rows_of((data < 0x20) | (data == 0x7F), offsets)] = True
    return _with_nulls(odd, texts)


def odd_names(texts: pa.Array) -> Rows:
    """Rows that may not be a plain name: a lower-case letter, then up to 62 of a-z, 0-9 and _."""
    offsets, data = bytes_of(texts)
    lengths = offsets[1:] - offsets[:-1]
    if not len(lengths):
        return NO_ROWS
    # Below zero a byte wraps around to a large number, so one comparison tests both ends of a range.
    is_part = (data - np.uint8(ord("a"))) < 26
    is_part |= (data - np.uint8(ord("0"))) < 10
    is_part |= data == ord("_")
    first = _first_bytes(offsets, data)
    odd = (first - np.uint8(ord("a"))) >= 26
    odd |= (lengths < 1) | (lengths > 63)
    if not is_part.all():
        odd[_rows_of(~is_part, offsets)] = True
    return _with_nulls(odd, texts)


def missing(column: pa.Array) -> Rows:
    """Rows without a value."""
    return np.flatnonzero(np.asarray(column.is_null())) if column.null_count else NO_ROWS


def bytes_of(texts: pa.Array) -> tuple[npt.NDArray[np.int32], Bytes]:
    """Offsets of a text column, and the bytes that they point into, both cut to the rows of the column."""
    _, offsets, data = texts.buffers()
    if offsets is None:  # as Arrow makes it for no rows
        return np.zeros(1, dtype=np.int32), np.empty(0, dtype=np.uint8)
    places = np.frombuffer(offsets, dtype=np.int32, count=len(texts) + 1, offset=4 * texts.offset)
    first = int(places[0])
    return places, np.frombuffer(data or b"", dtype=np.uint8)[first : int(places[-1])]


def numbers_of(column: pa.Array) -> Numbers:
    """A 64-bit column (numbers or times) as numbers; 0 where there is none."""
    if column.null_count:
        column = column.fill_null(0)
    return np.frombuffer(column.buffers()[1], dtype=np.int64, count=len(column), offset=8 * column.offset)


def repeated(values: Sequence[str], counts: Numbers) -> pa.Array:
    """A text column with each value as often as its count says."""
    if len(values) == 1:
        return constant(values[0], int(counts[0]))
    if len(counts) == counts.sum():
        return pa.array(values, pa.string())
    encoded = [value.encode() for value in values]
    lengths = np.repeat(np.array([len(value) for value in encoded], dtype=np.int32), counts)
    data = b"".join([value * count for value, count in zip(encoded, counts.tolist(), strict=True)])
    return _texts(lengths, data)


def constant(value: str, rows: int) -> pa.Array:
    """A text column with the same value on every row."""
    width = len(value.encode())
    longer = 1 << max(rows - 1, _SMALL - 1).bit_length()
    if max(width, 4) * longer > _REMEMBERED_BYTES:
        return _constant(value, rows)
    _, offsets, data = _remembered_constant(value, longer).buffers()
    buffers = [None, offsets.slice(0, 4 * rows + 4), data.slice(0, width * rows)]
    return pa.Array.from_buffers(pa.string(), rows, buffers, 0)


def nulls(rows: int, kind: pa.DataType) -> pa.Array:
    """A column of nulls. Unlike Arrow's own it takes no space below its maps, which would go into the log."""
    return _many_nulls(kind).slice(0, rows) if rows <= _MANY_NULLS else _nulls(rows, kind, bytes(8 * rows + 8))


@lru_cache
def _many_nulls(kind: pa.DataType) -> pa.Array:
    return _nulls(_MANY_NULLS, kind, _ZEROS)


def _nulls(rows: int, kind: pa.DataType, zeros: bytes) -> pa.Array:
    """Build a null column of shared zeros: a column of any width costs no memory of its own."""
    whole = pa.py_buffer(zeros)
    missing, offsets = whole.slice(0, rows // 8 + 1), whole.slice(0, 4 * rows + 4)
    if pa.types.is_struct(kind):
        children = [_nulls(rows, field.type, zeros) for field in kind]
        return pa.Array.from_buffers(kind, rows, [missing], rows, children=children)
    if pa.types.is_map(kind) or pa.types.is_list(kind):
        kind_of_entries = kind.value_type if pa.types.is_list(kind) else pa.struct([kind.key_field, kind.item_field])
        return pa.Array.from_buffers(kind, rows, [missing, offsets], rows, children=[pa.array([], kind_of_entries)])
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.Array.from_buffers(kind, rows, [missing, offsets, whole.slice(0, 0)], rows)
    return pa.Array.from_buffers(kind, rows, [missing, whole.slice(0, kind.bit_width * rows // 8)], rows)


def _constant(value: str, rows: int) -> pa.Array:
    encoded = value.encode()
    offsets = np.arange(0, len(encoded) * (rows + 1) if encoded else rows + 1, len(encoded) or 1, dtype=np.int32)
    if not encoded:
        offsets = np.zeros(rows + 1, dtype=np.int32)
    return pa.Array.from_buffers(pa.string(), rows, [None, pa.py_buffer(offsets), pa.py_buffer(encoded * rows)], 0)


_remembered_constant = lru_cache(_REMEMBERED_CONSTANTS)(_constant)


def _texts(lengths: npt.NDArray[np.int32], data: bytes) -> pa.Array:
    offsets = np.zeros(len(lengths) + 1, dtype=np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.Array.from_buffers(pa.string(), len(lengths), [None, pa.py_buffer(offsets), pa.py_buffer(data)], 0)


def _first_bytes(offsets: npt.NDArray[np.int32], data: Bytes) -> Bytes:
    """The first byte of every row; for an empty row, some other byte."""
    if not len(data):
        return np.zeros(len(offsets) - 1, dtype=np.uint8)
    first: Bytes = data.take(offsets[:-1] - offsets[0], mode="clip")
    return first


def _rows_of(is_odd: npt.NDArray[np.bool_], offsets: npt.NDArray[np.int32]) -> Rows:
    """The rows that contain these bytes."""
    places = is_odd.nonzero()[0]
    return np.searchsorted(offsets, places + offsets[0], side="right") - 1 if len(places) else NO_ROWS


def _with_nulls(odd: npt.NDArray[np.bool_], column: pa.Array) -> Rows:
    if column.null_count:
        odd = odd | column.is_null().to_numpy(zero_copy_only=False)
    return odd.nonzero()[0]
