"""Where a vector begins among rows, and whether each vector's rows are in canonical order.

Belongs here: comparisons of neighbouring rows, whole columns at once. A fold in another order would give another state
without any sign of it, so rows out of order are refused.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.vectors.errors import UnsortedError
from tidemark.vectors.loops import Bytes
from tidemark.vectors.places import PLACE_COLUMNS
from tidemark.vectors.schema import CHECKPOINT, KEY

# Of the row before: namespace, vector_id, and its place.
LastRow = tuple[Any, ...]
Flags = npt.NDArray[np.bool_]

_WRONG_ORDER = "one does not sort after the one before it"


def first_rows(batch: pa.RecordBatch, last: LastRow | None) -> tuple[Bytes, LastRow]:
    """Which rows are the first of their vector, and the batch's last row. Refuses rows that are out of order."""
    rows = batch.num_rows
    is_first = np.zeros(rows, np.int8)
    is_first[1:] = begins_vector(batch)
    first_row = _row(batch, 0)
    if last is None or first_row[: len(KEY)] != last[: len(KEY)]:
        is_first[0] = 1
    elif first_row <= last:
        raise UnsortedError(first_row[1], _WRONG_ORDER)
    is_wrong = (is_first[1:] == 0) & ~_sorts_after(batch)
    if is_wrong.any():
        raise UnsortedError(_row(batch, int(is_wrong.argmax()) + 1)[1], _WRONG_ORDER)
    is_late_start = np.asarray(pc.fill_null(pc.equal(batch.column("op"), CHECKPOINT), False)) & (is_first == 0)
    if is_late_start.any():
        raise UnsortedError(_row(batch, int(is_late_start.argmax()))[1], "a starting state is not its first row")
    return is_first, _row(batch, rows - 1)


def begins_vector(batch: pa.RecordBatch) -> Flags:
    """For every row but the first, whether its vector is another than that of the row before."""
    columns = [batch.column(name) for name in KEY]
    differs = [np.asarray(pc.not_equal(column[1:], column[:-1])) for column in columns]
    return np.asarray(np.logical_or.reduce(differs))


def key_of(batch: pa.RecordBatch, row: int) -> LastRow:
    """The vector of a row."""
    return _row(batch, row)[: len(KEY)]


def _row(batch: pa.RecordBatch, row: int) -> LastRow:
    return tuple(batch.column(name)[row].as_py() for name in (*KEY, *PLACE_COLUMNS))


def _sorts_after(batch: pa.RecordBatch) -> Flags:
    """Whether each row's place comes after that of the row before, regardless of the vectors."""
    is_after = np.zeros(batch.num_rows - 1, np.bool_)
    is_equal = np.ones(batch.num_rows - 1, np.bool_)
    for name in PLACE_COLUMNS:
        rows = np.flatnonzero(is_equal)
        if not len(rows):
            break
        column = batch.column(name)
        # For few rows the texts matter; if they matter for all, no row is picked.
        if len(rows) == len(is_equal):
            before, after = column[:-1], column[1:]
        else:
            before, after = column.take(pa.array(rows)), column.take(pa.array(rows + 1))
        is_after[rows] = np.asarray(pc.greater(after, before))
        is_equal[rows] = np.asarray(pc.equal(after, before))
    return is_after
