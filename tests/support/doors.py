"""Columns of every Arrow type, and the rows that say the same: what the law of the two doors is tried out on.

Belongs here: which types a field may come in, with values for each, right and hostile, and what each value is in a row.
"""

import math
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from operator import add
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from tests.support.live import TEN_O_CLOCK
from tidemark.door.decode_values import FIRST_US, LAST_US
from tidemark.model.timegrid import from_us

TEN_S = TEN_O_CLOCK // 1_000_000


def _same(value: Any) -> Any:
    return value


class Encoding(NamedTuple):
    """A type of a column, values for it, and what a value is in a row."""

    name: str
    make: Callable[[list[Any]], pa.Array]
    values: st.SearchStrategy[Any]
    row: Callable[[Any], Any] = _same


class Field(NamedTuple):
    """A column as it was drawn: the array, and what stands in each row (None: no such field)."""

    array: pa.Array
    rows: list[Any]


def typed(kind: pa.DataType, values: st.SearchStrategy[Any], row: Callable[[Any], Any] = _same) -> Encoding:
    return Encoding(str(kind), lambda found: pa.array(found, kind), values, row)


def _storage(kind: pa.DataType) -> Callable[[list[Any]], pa.Array]:
    return lambda found: pa.ExtensionArray.from_storage(kind, pa.array(found, kind.storage_type))


def _runs(found: list[Any]) -> pa.Array:
    return pc.run_end_encode(pa.array(found, pa.string()))


def text_encodings(values: st.SearchStrategy[str]) -> list[Encoding]:
    kinds = [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.dictionary(pa.int8(), pa.string()),
        pa.dictionary(pa.uint32(), pa.large_string()),
    ]
    return [
        *(typed(kind, values) for kind in kinds),
        Encoding("runs", _runs, values),
        Encoding("json", _storage(pa.json_()), values),
    ]


integers = st.sampled_from([0, 1, 2, 7, 100, 127])
HOSTILE = [
    Encoding("null", lambda found: pa.nulls(len(found)), st.none()),
    typed(pa.binary(), st.sampled_from([b"", b"a", b"\xff"])),
    typed(pa.large_binary(), st.just(b"a")),
    typed(pa.binary_view(), st.just(b"a")),
    typed(pa.binary(2), st.just(b"ab")),
    typed(pa.bool_(), st.booleans()),
    typed(pa.int8(), integers),
    typed(pa.uint64(), st.sampled_from([0, 2**63, 2**64 - 1])),
    typed(pa.float64(), st.sampled_from([0.0, 1.0, 1.5, math.inf])),
    typed(pa.decimal128(10, 2), st.sampled_from([Decimal("1.50"), Decimal("2.00")])),
    typed(pa.date32(), st.just(date(2026, 3, 2))),
    typed(pa.time64("us"), st.just(time(10))),
    typed(pa.duration("us"), st.just(timedelta(seconds=1))),
    typed(pa.list_(pa.string()), st.lists(st.sampled_from(["a", None]), max_size=2)),
    typed(pa.list_(pa.int64()), st.lists(st.integers(0, 3), max_size=2)),
    typed(pa.struct([("a", pa.int64())]), st.fixed_dictionaries({"a": integers})),
    typed(pa.map_(pa.string(), pa.string()), st.just([("a", "b")]), dict),
    typed(pa.string(), st.sampled_from(["1", "a", ""])),
    typed(pa.timestamp("us", "UTC"), st.just(TEN_O_CLOCK), from_us),
    Encoding("uuid", lambda found: pa.array(found, pa.uuid()), st.just(b"0123456789abcdef")),
]


def _moment(per_second: int) -> Callable[[int], Any]:
    def row(value: int) -> Any:
        moment_us = value * 1_000_000 // per_second
        return from_us(moment_us) if FIRST_US <= moment_us <= LAST_US else moment_us

    return row


def _nanoseconds(value: int) -> str:
    """As a text, which is how a row says it."""
    seconds, rest = divmod(value, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def _in_units(per_second: int, moment_us: int) -> int:
    return moment_us * per_second // 1_000_000


def time_encodings() -> list[Encoding]:
    near = st.integers(-5, 5)
    far_us = st.sampled_from([FIRST_US - 1, FIRST_US, LAST_US, LAST_US + 1, 2**63 - 1, -(2**63) + 1])
    found = []
    for unit, per_second in (("s", 1), ("ms", 1_000), ("us", 1_000_000)):
        values = (
            near.map(partial(add, TEN_S * per_second))
            | far_us.map(partial(_in_units, per_second))
            | st.sampled_from([2**62, -(2**62)])
        )
        found += [typed(pa.timestamp(unit, zone), values, _moment(per_second)) for zone in (None, "UTC", "Asia/Tokyo")]
    nanos = near.map(lambda by: TEN_S * 10**9 + by * 999) | st.sampled_from([-1, -999, -1_000, 0, 2**62])
    found += [typed(pa.timestamp("ns", zone), nanos, _nanoseconds) for zone in (None, "UTC")]
    found += [typed(pa.int64(), near.map(lambda by: TEN_O_CLOCK + by) | far_us)]
    found += [typed(pa.uint64(), st.sampled_from([TEN_O_CLOCK, 2**63, 2**64 - 1]))]
    found += [typed(kind, integers) for kind in (pa.int8(), pa.uint16())]
    texts = st.sampled_from(
        ["2026-03-02T10:00:00Z", "2026-03-02", "2026-03-02T10:00:00.1234567Z", "soon", "", "2026-03-02t10:00:00z"]
    )
    return [*found, *text_encodings(texts)]


def whole_encodings(*more: int) -> list[Encoding]:
    kinds = [
        pa.int8(),
        pa.uint8(),
        pa.int16(),
        pa.uint32(),
        pa.int64(),
        pa.uint64(),
        pa.dictionary(pa.int8(), pa.int64()),
    ]
    wide = st.sampled_from([-(2**63), 2**63 - 1, 10**12, 10**12 + 1, -1, *more])
    return [*(typed(kind, integers) for kind in kinds), typed(pa.int64(), wide), typed(pa.uint64(), st.just(2**63))]


numbers = st.sampled_from([0.0, -0.0, 1.0, -2.5, 0.1, 5e-7, 1.5e-6, 1e6, 1e13, 1e300, math.nan, math.inf, -math.inf])


def number_encodings() -> list[Encoding]:
    narrow = [(pa.float16(), np.float16), (pa.float32(), np.float32)]
    return [
        typed(pa.float64(), numbers),
        *(typed(kind, st.sampled_from([0.0, 1.5, 0.1, 3e4]).map(of), float) for kind, of in narrow),
        typed(pa.int64(), st.sampled_from([0, 1, -3, 2**53 + 1, 2**63 - 1])),
        typed(pa.uint64(), st.sampled_from([1, 2**64 - 1])),
        typed(pa.decimal128(12, 3), st.sampled_from([Decimal("1.250"), Decimal("-3.000")])),
    ]


def list_encodings(element: pa.DataType, values: st.SearchStrategy[Any]) -> list[Encoding]:
    lists = st.lists(values, max_size=4)
    kinds = [pa.list_, pa.large_list, pa.list_view, pa.large_list_view]
    return [
        *(typed(kind(element), lists) for kind in kinds),
        typed(pa.list_(element, 2), st.lists(values, min_size=2, max_size=2)),
    ]


def values_encodings() -> list[Encoding]:
    some = st.sampled_from([0.0, 1.0, -1.5, 0.1, 1e39, math.nan]) | st.none()
    wide = st.sampled_from([0, 1, 2**53 + 1, 2**63 - 1])
    return [
        *list_encodings(pa.float32(), st.sampled_from([0.0, 1.0, -1.5])),
        *list_encodings(pa.float64(), some),
        *list_encodings(pa.int64(), wide | st.none()),
        *list_encodings(pa.uint64(), st.just(2**64 - 1)),
        typed(pa.list_(pa.float16()), st.lists(st.sampled_from([0.5, 1.0]).map(np.float16), max_size=4), _floats),
        typed(pa.list_(pa.bool_()), st.lists(st.booleans(), max_size=2)),
        typed(pa.list_(pa.decimal128(5, 1)), st.lists(st.just(Decimal("1.5")), max_size=2)),
        typed(pa.list_(pa.dictionary(pa.int8(), pa.float32())), st.lists(st.just(1.5), max_size=2)),
    ]


def _floats(found: list[Any]) -> list[float]:
    return [float(value) for value in found]


def index_encodings() -> list[Encoding]:
    return [
        *list_encodings(pa.int32(), st.integers(0, 4) | st.none()),
        *list_encodings(pa.int64(), st.sampled_from([0, 1, -1, 2**31, 2**40])),
        *list_encodings(pa.uint64(), st.sampled_from([0, 2**63])),
        typed(pa.list_(pa.float64()), st.lists(st.just(1.0), max_size=2)),
        typed(pa.list_(pa.uint8()), st.lists(st.integers(0, 3), max_size=3)),
    ]


def map_encodings(item: pa.DataType, items: st.SearchStrategy[Any]) -> list[Encoding]:
    """Maps in any order of their names. A map with a name twice has no row of its own: see `test_doors.py`."""
    names = st.sampled_from(["a", "b", "host", "é", "", "a\n"])
    pairs = st.dictionaries(names, items, max_size=3).flatmap(lambda found: st.permutations(list(found.items())))
    kinds = [
        pa.map_(pa.string(), item),
        pa.map_(pa.large_string(), item),
        pa.map_(pa.dictionary(pa.int8(), pa.string()), item),
    ]
    return [
        *(typed(kind, pairs, dict) for kind in kinds),
        typed(
            pa.struct([("a", item), ("b", item)]), st.fixed_dictionaries({}, optional={"a": items, "b": items}), _some
        ),
        typed(pa.map_(pa.int64(), item), st.just([]), dict),
    ]


def _some(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if value is not None}
