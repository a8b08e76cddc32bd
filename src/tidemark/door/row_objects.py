"""Rows of Arrow columns as the objects that a producer would have sent as rows.

Belongs here: the Python value for each Arrow type, and no checks. A null is a missing field; in a map or a list it is a
null. A weight in millionths, as tables keep it, becomes the weight. A time is cut to microseconds; one that Python
cannot represent is a number of microseconds. A value that JSON cannot express (bytes, a duration) stays a Python
object, so that the door for rows refuses it by its name.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.door.decode_values import FIRST_US, LAST_US
from tidemark.door.decoded import Sent
from tidemark.model.deltas import KINDS
from tidemark.model.timegrid import from_us

# Microseconds in one unit of a timestamp, or how many of its units are one.
US_PER_UNIT = {"s": 1_000_000, "ms": 1_000, "us": 1}
NS_PER_US = 1_000
# Rows are rendered together, fewer where they are large: a call costs as much as ten small rows.
_MOST_ROWS, _MOST_BYTES = 1_024, 256 * 1024
# Of payloads: the fields kept in millionths, with the names under which they are sent; and which payloads have maps.
_MILLIONTHS = [
    (kind.value, name, field.millionths_of)
    for kind, rule in KINDS.items()
    for name, field in rule.fields.items()
    if field.millionths_of
]
_WITH_MAPS = [kind.value for kind, rule in KINDS.items() if rule.maps]


class _Pairs(dict[str, Any]):
    """A map that repeats a name, in the form from which JSON is written."""

    def __init__(self, pairs: list[tuple[Any, Any]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> Any:
        """All entries."""
        return self._pairs


class ArrowValue:
    """A value that only Arrow can represent, such as a date beyond the year 9999."""

    def __init__(self, value: pa.Scalar) -> None:
        try:
            self._text = f"{value.cast(pa.int64())} ({value.type})"
        except pa.lib.ArrowException:
            self._text = str(value.type)

    def __str__(self) -> str:
        return self._text


def row_objects(
    columns: Mapping[str, pa.Array], rows: Sequence[int], few_elements: int | None = None
) -> Iterator[Sent]:
    """The deltas in these rows; with `few_elements`, no more than so many of each list and map."""
    total = sum(int(column.nbytes) for column in columns.values())
    length = max((len(column) for column in columns.values()), default=0)
    at_once = _MOST_ROWS if few_elements else max(1, min(_MOST_ROWS, _MOST_BYTES * length // max(total, 1)))
    for start in range(0, len(rows), at_once):
        chosen = pa.array(rows[start : start + at_once], pa.int64())
        values = {name: _column(column, chosen, few_elements) for name, column in columns.items()}
        for place in range(len(chosen)):
            found = {name: column[place] for name, column in values.items() if column[place] is not None}
            yield _as_sent(found)


def combined(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """A column in one piece."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def unwrapped(column: pa.Array) -> pa.Array:
    """The same values without their wrappers: extensions, dictionaries, runs, views of texts."""
    while True:
        kind = column.type
        if isinstance(kind, pa.BaseExtensionType):
            column = column.storage
        elif pa.types.is_dictionary(kind):
            column = column.dictionary_decode()
        elif pa.types.is_run_end_encoded(kind):
            column = pc.run_end_decode(column)
        elif pa.types.is_string_view(kind):
            column = column.cast(pa.large_string())
        elif pa.types.is_binary_view(kind):
            column = column.cast(pa.large_binary())
        else:
            return column


def _as_sent(found: dict[str, Any]) -> Sent:
    for name, kept, sent in _MILLIONTHS:
        payload = found.get(name)
        if isinstance(payload, dict) and isinstance(payload.get(kept), int) and sent not in payload:
            payload[sent] = payload.pop(kept) / 1_000_000
    for name in _WITH_MAPS:
        payload = found.get(name)
        if isinstance(payload, dict) and any(type(value) is _Pairs for value in payload.values()):
            return json.dumps(found, default=str).encode()
    return found


def _column(column: pa.Array, rows: pa.Array, few: int | None) -> list[Any]:
    try:
        return _rendered(_take(column, rows), few)
    except Exception:  # noqa: BLE001 - what cannot be rendered is shown as what it is, and refused by the door for rows (C14)
        return [ArrowValue(column[row]) if column[row].is_valid else None for row in rows.to_pylist()]


def _take(column: pa.Array, rows: pa.Array) -> pa.Array:
    column = unwrapped(column)
    try:
        return column.take(rows)
    except pa.ArrowNotImplementedError:
        return pa.concat_arrays([column.slice(row, 1) for row in rows.to_pylist()])


def _rendered(column: pa.Array, few: int | None) -> list[Any]:
    """A value for each row, or None."""
    column = unwrapped(column)
    kind = column.type
    if column.null_count == len(column):
        return [None] * len(column)
    if pa.types.is_struct(kind):
        return _structs(column, few)
    if pa.types.is_map(kind) or _is_list(kind):
        render = _map if pa.types.is_map(kind) else _list
        return [render(each, few) if each.is_valid else None for each in column]
    if pa.types.is_timestamp(kind):
        return [None if value is None else _moment(value, kind.unit) for value in _integers(column)]
    try:
        found: list[Any] = column.to_pylist()
    except Exception:  # noqa: BLE001 - for example a time that Python cannot represent; then Arrow renders it
        return [_scalar(each) for each in column]
    return found


def _scalar(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except Exception:  # noqa: BLE001 - see above
        return ArrowValue(value)


def _integers(column: pa.Array) -> list[int | None]:
    found: list[int | None] = column.cast(pa.int64()).to_pylist()
    return found


def _moment(value: int, unit: str) -> Any:
    moment_us = value // NS_PER_US if unit == "ns" else value * US_PER_UNIT[unit]
    return from_us(moment_us) if FIRST_US <= moment_us <= LAST_US else moment_us


def _structs(column: pa.StructArray, few: int | None) -> list[Any]:
    names = [field.name for field in column.type]
    # Not `flatten`: below a missing struct it crashes the process if a field is a union.
    children = [_rendered(column.field(place), few) for place in range(len(names))]
    return [
        {name: child[place] for name, child in zip(names, children, strict=True) if child[place] is not None}
        if is_there
        else None
        for place, is_there in enumerate(np.asarray(column.is_valid()).tolist())
    ]


def _list(value: pa.ListScalar, few: int | None) -> list[Any]:
    return _rendered(_few(value.values, few), few)


def _map(value: pa.MapScalar, few: int | None) -> dict[Any, Any]:
    entries = _few(value.values, few)
    names, items = (_rendered(entries.field(place), few) for place in range(2))
    pairs = list(zip(names, items, strict=True))
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Pairs(pairs)


def _few(values: pa.Array, few: int | None) -> pa.Array:
    return values if few is None else values.slice(0, few + 1)


def _is_list(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(kind)
        or pa.types.is_large_list(kind)
        or pa.types.is_fixed_size_list(kind)
        or pa.types.is_list_view(kind)
        or pa.types.is_large_list_view(kind)
    )
