"""From any Arrow type to the log's: each field of a delta in columns, and the unproven rows.

Belongs here: for each kind of field the types that mean the same as in a row, converted for all rows at once, and the
unproven rows. A row is unproven if the door for rows might refuse it, or if its value has a type that is not converted
here: then that door looks at it (`column_door.py`) and decides. So nothing is decided here, and a type that is missing
here costs time but no delta.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.arrays.columns import Mask, nulls, numbers_of
from tidemark.door.decode_values import FIRST_US, LAST_US, clear_millionths
from tidemark.door.row_objects import NS_PER_US, US_PER_UNIT, unwrapped
from tidemark.model.log_schema import TIMESTAMP

INT32_MIN, INT32_MAX, INT64_MAX = -(2**31), 2**31 - 1, 2**63 - 1


class Taken(NamedTuple):
    """A field in the log's type, and the unproven rows, whose values there mean nothing."""

    column: pa.Array
    doubts: Mask | None = None  # None: no row


def either(*masks: Mask | None) -> Mask | None:
    """Rows that are in any of these; None means no rows."""
    found = [mask for mask in masks if mask is not None]
    return np.logical_or.reduce(found) if found else None


def unknown(column: pa.Array | None) -> Mask | None:
    """Rows with a value in a column that is no field of a delta."""
    return None if column is None or column.null_count == len(column) else np.asarray(column.is_valid())


def texts(column: pa.Array | None, rows: int, *, is_required: bool, default: pa.Array | None = None) -> Taken:
    """A field of texts. A missing value is the default, if there is one."""
    taken = _texts(column, rows)
    if not taken.column.null_count:
        return taken
    if is_required:
        return Taken(taken.column, either(taken.doubts, np.asarray(taken.column.is_null())))
    return taken if default is None else Taken(pc.coalesce(taken.column, default), taken.doubts)


def _texts(column: pa.Array | None, rows: int) -> Taken:
    if column is None:
        return Taken(nulls(rows, pa.string()))
    column = unwrapped(column)
    if pa.types.is_string(column.type):
        return Taken(column)
    if pa.types.is_large_string(column.type):
        return Taken(column.cast(pa.string()))
    return Taken(nulls(rows, pa.string()), unknown(column))


def times(column: pa.Array | None, rows: int) -> Taken:
    """The time of an event: a timestamp of any unit and zone, or microseconds."""
    if column is None:
        return Taken(nulls(rows, TIMESTAMP), np.ones(rows, dtype=np.bool_))
    column = unwrapped(column)
    missing = np.asarray(column.is_null()) if column.null_count else None
    if pa.types.is_timestamp(column.type):
        found, unit = numbers_of(column.view(pa.int64())), column.type.unit
        if unit == "ns":
            return Taken(_moments(found // NS_PER_US, missing), missing)
        per_unit = US_PER_UNIT[unit]
        doubts = either(missing, _outside(found, -(-FIRST_US // per_unit), LAST_US // per_unit))
        if column.type == TIMESTAMP:
            return Taken(column, doubts)
        return Taken(_moments(np.where(False if doubts is None else doubts, 0, found) * per_unit, doubts), doubts)
    taken = whole_numbers(column, rows)
    moments = numbers_of(taken.column)
    doubts = either(missing, taken.doubts, _outside(moments, FIRST_US, LAST_US))
    return Taken(_moments(moments, doubts), doubts)


def _moments(moments_us: npt.NDArray[np.int64], missing: Mask | None) -> pa.Array:
    return pa.array(moments_us, mask=missing).view(TIMESTAMP)


def is_outside(numbers: npt.NDArray[np.int64], low: int, high: int) -> bool:
    """Whether one of these lies outside of a range (both ends included)."""
    return bool(len(numbers)) and bool(numbers.min() < low or numbers.max() > high)


def _outside(numbers: npt.NDArray[np.int64], low: int, high: int) -> Mask | None:
    return (numbers < low) | (numbers > high) if is_outside(numbers, low, high) else None


def whole_numbers(column: pa.Array | None, rows: int, default: int | None = None) -> Taken:
    """A field of whole numbers, of any width."""
    if column is None:
        column = pa.nulls(rows)
    column = unwrapped(column)
    kind, doubts = column.type, None
    if pa.types.is_null(kind):
        column = nulls(rows, pa.int64())
    elif pa.types.is_integer(kind):
        if pa.types.is_uint64(kind):
            doubts = _some(pc.fill_null(pc.greater(column, pa.scalar(INT64_MAX, pa.uint64())), False))
        column = column if pa.types.is_int64(kind) else column.cast(pa.int64(), safe=False)
    else:
        column, doubts = nulls(rows, pa.int64()), unknown(column)
    return Taken(column if default is None or not column.null_count else column.fill_null(default), doubts)


def numbers(column: pa.Array | None, rows: int, *, is_required: bool = False) -> Taken:
    """A field of 64-bit floats; whole numbers are allowed."""
    column = unwrapped(pa.nulls(rows) if column is None else column)
    kind, doubts = column.type, None
    if pa.types.is_floating(kind) or pa.types.is_integer(kind):
        column = column if pa.types.is_float64(kind) else column.cast(pa.float64(), safe=False)
    else:
        column, doubts = nulls(rows, pa.float64()), unknown(column)
    return Taken(column, either(doubts, np.asarray(column.is_null())) if is_required and column.null_count else doubts)


def weights(weight: pa.Array | None, millionths: pa.Array | None, rows: int, limit: int) -> Taken:
    """A weight in millionths: from the weight, or from the column in which tables keep it."""
    exact = whole_numbers(millionths, rows)
    doubts = either(exact.doubts, _outside(numbers_of(exact.column), -limit, limit))
    if weight is None or weight.null_count == rows:
        return Taken(exact.column.fill_null(0) if exact.column.null_count else exact.column, doubts)
    taken = numbers(weight, rows)
    found, is_clear = clear_millionths(np.asarray(taken.column.fill_null(0.0)))
    both = None if millionths is None else _some(pc.and_(weight.is_valid(), millionths.is_valid()))
    column = pc.if_else(exact.column.is_valid(), exact.column, pa.array(found))
    return Taken(column, either(doubts, taken.doubts, both, None if is_clear.all() else ~is_clear))


def lists(column: pa.Array | None, rows: int, kind: pa.ListType) -> Taken:
    """A field of lists of numbers: of 32-bit floats, or of whole numbers of 32 bits."""
    column = unwrapped(pa.nulls(rows) if column is None else column)
    if column.null_count == rows:
        return Taken(column if column.type == kind else nulls(rows, kind))
    found = column.type
    # Views of lists are left to the other door: Arrow converts slices of them incorrectly.
    is_list = pa.types.is_list(found) or pa.types.is_large_list(found) or pa.types.is_fixed_size_list(found)
    wants_floats = pa.types.is_floating(kind.value_type)
    element = found.value_type if is_list else None
    if element is None or not (pa.types.is_integer(element) or (wants_floats and pa.types.is_floating(element))):
        return Taken(nulls(rows, kind), unknown(column))
    doubts = None
    elements = column.flatten()
    if not wants_floats and not pa.types.is_int32(element):
        wide = whole_numbers(elements, len(elements))
        doubts = _any_in_row(column, either(wide.doubts, _outside(numbers_of(wide.column), INT32_MIN, INT32_MAX)))
    if elements.null_count:
        doubts = either(doubts, _any_in_row(column, np.asarray(elements.is_null())))
    if wants_floats and found != kind:
        # By way of 64 bits, like a number in a row.
        column = column.cast(pa.list_(pa.float64()), safe=False)
    return Taken(column if column.type == kind else column.cast(kind, safe=False), doubts)


def maps(column: pa.Array | None, rows: int, kind: pa.MapType, *, is_required: bool = False) -> Taken:
    """A field of maps, each in the order of its names."""
    column = unwrapped(pa.nulls(rows) if column is None else column)
    missing = np.asarray(column.is_null()) if is_required and column.null_count else None
    if column.null_count == rows:
        return Taken(column if column.type == kind else nulls(rows, kind), missing)
    if not pa.types.is_map(column.type):
        return Taken(nulls(rows, kind), either(missing, unknown(column)))
    found = _converted(column, kind, has_all_items=is_required)
    if found is None:
        return Taken(nulls(rows, kind), np.ones(rows, dtype=np.bool_))
    column, entries_in_doubt = found
    return _in_order(column, either(missing, _any_in_row(column, entries_in_doubt)))


def _converted(column: pa.MapArray, kind: pa.MapType, *, has_all_items: bool) -> tuple[pa.MapArray, Mask | None] | None:
    """Maps in the log's types, and the unproven entries of those that belong to a row; None if names are no texts."""
    names, is_clock = _texts(column.keys, len(column.keys)), pa.types.is_integer(kind.item_type)
    taken = (whole_numbers if is_clock else _texts)(column.items, len(column.items))
    if names.doubts is not None:
        return None
    if column.type != kind:
        column = _maps(_offsets(column), names.column, taken.column, column, kind)
    doubts = taken.doubts
    if is_clock:  # counted from 0, and never missing
        doubts = either(doubts, _some(pc.fill_null(pc.less(taken.column, 0), True)))
    elif has_all_items and taken.column.null_count:
        doubts = either(doubts, np.asarray(taken.column.is_null()))
    first, last = _span(column)
    return column, None if doubts is None else doubts[first:last]


def _in_order(column: pa.MapArray, doubts: Mask | None) -> Taken:
    first, last = _span(column)
    names = column.keys.slice(first, last - first)
    if len(names) < 2:
        return Taken(column, doubts)
    row = _row_of_entries(column)
    same_row = row[1:] == row[:-1]
    rises = np.asarray(pc.less(names.slice(0, len(names) - 1), names.slice(1)))
    if rises[same_row].all():
        return Taken(column, doubts)
    order = np.asarray(
        pc.sort_indices(pa.table({"row": row, "name": names}), [("row", "ascending"), ("name", "ascending")])
    )
    sorted_names = names.take(pa.array(order))
    again = np.asarray(pc.equal(sorted_names.slice(0, len(names) - 1), sorted_names.slice(1))) & same_row
    repeated = np.zeros(len(column), dtype=np.bool_)
    repeated[row[1:][again]] = True
    items = column.items.slice(first, last - first).take(pa.array(order))
    made = _maps(_offsets(column) - first, sorted_names, items, column, column.type)
    return Taken(made, either(doubts, repeated if repeated.any() else None))


def _maps(
    offsets: npt.NDArray[np.int32], names: pa.Array, items: pa.Array, like: pa.MapArray, kind: pa.MapType
) -> pa.MapArray:
    """Maps of these entries, null where the original maps are."""
    mask = like.is_null() if like.null_count else None
    return pa.MapArray.from_arrays(pa.array(offsets, pa.int32()), names, items, type=kind, mask=mask)


def _offsets(column: pa.Array) -> npt.NDArray[np.int32]:
    return np.frombuffer(column.buffers()[1], dtype=np.int32, count=len(column) + 1, offset=4 * column.offset)


def _span(column: pa.Array) -> tuple[int, int]:
    """Where the entries of these rows begin and end among all entries of the column."""
    offsets = _offsets(column)
    return int(offsets[0]), int(offsets[-1])


def _row_of_entries(column: pa.Array) -> npt.NDArray[np.int64]:
    return np.repeat(np.arange(len(column)), np.diff(_offsets(column)))


def _any_in_row(column: pa.Array, wrong: Mask | None) -> Mask | None:
    """Rows with a wrong element; for lists, `wrong` covers the elements of non-null rows."""
    if wrong is None or not wrong.any():
        return None
    if pa.types.is_map(column.type):
        row = _row_of_entries(column)
    else:
        lengths = np.asarray(pc.fill_null(pc.list_value_length(column), 0)).astype(np.int64)
        row = np.repeat(np.arange(len(column)), lengths)
    found = np.zeros(len(column), dtype=np.bool_)
    found[row[wrong]] = True
    return found


def _some(mask: pa.Array) -> Mask | None:
    found = np.asarray(mask)
    return found if found.any() else None
