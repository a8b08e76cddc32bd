"""An upper bound of a row's length as JSON, found from offsets alone.

Belongs here: this bound, so that rows that are clearly below the limit of one delta need not be rendered.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.arrays.columns import Mask, bytes_of

# A byte of a text may become six (`\u0000`); a number has at most 25 characters; the longest name of a field has 17.
_PER_TEXT_BYTE, _PER_VALUE, _PER_ELEMENT = 6, 64, 32
# The same for any byte of any column: an element has at least four, an entry of a map eight. A row has 26 fields.
_PER_BYTE, _PER_ROW = 8, 32 * _PER_VALUE

Sizes: TypeAlias = npt.NDArray[np.integer[Any]]
# All sizes, or the largest of them.
_Reduce: TypeAlias = Callable[[Sizes], Any]


def is_surely_below(batch: pa.RecordBatch, limit: int) -> bool:
    """Whether no row can be longer than the limit, because all of them together are not: a check without a loop."""
    return bool(_PER_BYTE * batch.nbytes + _PER_ROW <= limit)


def may_exceed(columns: list[pa.Array], limit: int) -> Mask | None:
    """Rows that may be longer than the limit; None if there are none."""
    rows = len(columns[0]) if columns else 0
    if not rows:
        return None
    if _most(columns, lambda sizes: int(sizes.max())) <= limit:
        return None
    sizes = _most(columns, lambda sizes: sizes.astype(np.int64))
    return np.broadcast_to(np.asarray(sizes), (rows,)) > limit


def _most(columns: list[pa.Array], reduce: _Reduce) -> Any:
    return sum(_most_of(column, reduce) for column in columns)


def _most_of(column: pa.Array, reduce: _Reduce) -> Any:
    kind = column.type
    if column.null_count == len(column):
        return 0
    if pa.types.is_struct(kind):
        return _PER_VALUE + _most([column.field(place) for place in range(kind.num_fields)], reduce)
    if pa.types.is_string(kind):
        offsets, _ = bytes_of(column)
        return _PER_VALUE + _PER_TEXT_BYTE * reduce(np.diff(offsets))
    if pa.types.is_map(kind):
        texts = [child for child in (column.keys, column.items) if pa.types.is_string(child.type)]
        entries = sum(np.diff(bytes_of(child)[0]).astype(np.int64) for child in texts) * _PER_TEXT_BYTE + _PER_VALUE
        ends = np.concatenate(([0], np.cumsum(entries)))
        offsets = np.frombuffer(column.buffers()[1], dtype=np.int32, count=len(column) + 1, offset=4 * column.offset)
        return _PER_VALUE + reduce(ends[offsets[1:]] - ends[offsets[:-1]])
    if pa.types.is_list(kind):
        offsets = np.frombuffer(column.buffers()[1], dtype=np.int32, count=len(column) + 1, offset=4 * column.offset)
        return _PER_VALUE + _PER_ELEMENT * reduce(np.diff(offsets))
    return _PER_VALUE
