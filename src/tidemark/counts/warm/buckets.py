"""Minutes in memory: which rows counted how much in one minute, and how several are combined.

Belongs here: pure functions of NumPy arrays. A row is the number of one (namespace, entity, signal), a minute the
number of a minute since 1970. All sums are of 64-bit integers: exact, and the same in any order.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from tidemark.arrays.compiled import compiled
from tidemark.model.timegrid import MINUTE_US

Rows = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]
# A minute and a row in one number; rows are fewer than 2^32, and minutes are counted from the first one that occurs.
_ROW_BITS = 32
_ROW = (1 << _ROW_BITS) - 1
_FARTHEST = 1 << 31  # four thousand years of minutes: beyond it, the number would need more than 64 bits
_ONES = np.ones(1 << 14, np.int64)
_ONES.flags.writeable = False
_WIDTHS = (np.int8, np.int16, np.int32, np.int64)


class Bucket(NamedTuple):
    """One minute: rows in order, each once, and their counts, which are never 0, in as few bytes as they need."""

    rows: npt.NDArray[np.uint32]
    counts: npt.NDArray[Any]


EMPTY = Bucket(np.empty(0, np.uint32), np.empty(0, np.int8))


def plain(numbers: npt.ArrayLike) -> Numbers:
    """The same numbers in the form that compiled loops take: 64 bits, without gaps."""
    return np.ascontiguousarray(numbers, np.int64)


def ones(length: int) -> Numbers:
    """An array of ones, not to be changed: callers share it."""
    return _ONES[:length] if length <= len(_ONES) else np.ones(length, np.int64)


def minutes_of(times_us: Numbers) -> Numbers:
    """The minutes of times; floor division, so that times before 1970 get the right minute."""
    return times_us // MINUTE_US


def bucket_of(rows: npt.NDArray[Any], counts: npt.NDArray[Any]) -> Bucket:
    """Counts of rows that may repeat, summed up."""
    found = by_minute(rows, np.zeros(len(rows), np.int64), counts)
    return found.get(0, EMPTY)


def bucket_of_dense(dense: Numbers) -> Bucket:
    """A minute from an array with a place for every row."""
    rows = dense.nonzero()[0]
    return Bucket(rows.astype(np.uint32), narrowed(dense[rows])) if len(rows) else EMPTY


def by_minute(rows: npt.NDArray[Any], minutes: Numbers, counts: npt.NDArray[Any]) -> dict[int, Bucket]:
    """Counts of rows in minutes, summed up; minutes with a sum of 0 everywhere are left out."""
    if not len(rows):
        return {}
    first = int(minutes.min())
    if int(minutes.max()) - first >= _FARTHEST:
        return _by_far_minutes(rows, minutes, counts)
    keys = (minutes - first) << _ROW_BITS | rows
    kept, sums = np.empty((2, len(keys)), np.int64)
    count = int(counts[0])
    if (counts == count).all():  # mostly all are 1, and keys alone are sorted in a fraction of the time
        keys.sort()
        number = _sum_up_equal(keys, count, kept, sums)
    else:
        number = _sum_up(keys, plain(counts), np.argsort(keys), kept, sums)
    keys, sums = kept[:number], sums[:number]
    offsets = keys >> _ROW_BITS
    edges = np.concatenate(([0], np.flatnonzero(offsets[1:] != offsets[:-1]) + 1, [number]))
    return {
        int(offsets[begin]) + first: Bucket((keys[begin:end] & _ROW).astype(np.uint32), narrowed(sums[begin:end]))
        for begin, end in pairwise(edges.tolist())
        if begin < end
    }


@compiled
def _sum_up(keys: Numbers, counts: Numbers, order: Numbers, kept: Numbers, sums: Numbers) -> int:
    """Each key once, in order, with the sum of its counts; gives how many there are whose sum is not 0."""
    number = at = 0
    while at < len(order):
        key, total = keys[order[at]], 0
        while at < len(order) and keys[order[at]] == key:
            total += counts[order[at]]
            at += 1
        if total != 0:
            kept[number], sums[number] = key, total
            number += 1
    return number


@compiled
def _sum_up_equal(keys: Numbers, count: int, kept: Numbers, sums: Numbers) -> int:
    """The same for keys that are in order, where all counts are equal."""
    number = at = 0
    while at < len(keys) and count != 0:
        begin = at
        while at < len(keys) and keys[at] == keys[begin]:
            at += 1
        kept[number], sums[number] = keys[begin], (at - begin) * count
        number += 1
    return number


def _by_far_minutes(rows: npt.NDArray[Any], minutes: Numbers, counts: npt.NDArray[Any]) -> dict[int, Bucket]:
    """The same for minutes that lie thousands of years apart: in two halves, each with a smaller range."""
    is_early = minutes < (int(minutes.min()) + int(minutes.max())) // 2
    parts = (by_minute(rows[part], minutes[part], counts[part]) for part in (is_early, ~is_early))
    return {minute: bucket for part in parts for minute, bucket in part.items()}


def together(buckets: Iterable[Bucket]) -> Bucket:
    """Several buckets as one."""
    given = [bucket for bucket in buckets if len(bucket.rows)]
    if len(given) < 2:
        return given[0] if given else EMPTY
    return bucket_of(
        np.concatenate([bucket.rows for bucket in given]),
        np.concatenate([bucket.counts.astype(np.int64) for bucket in given]),
    )


def look_up(bucket: Bucket, rows: Rows) -> Numbers:
    """The counts of these rows; 0 for a row without one, such as the row -1."""
    found = np.zeros(len(rows), np.int64)
    if len(bucket.rows):
        places = np.minimum(np.searchsorted(bucket.rows, rows), len(bucket.rows) - 1)
        is_there = bucket.rows[places] == rows
        found[is_there] = bucket.counts[places[is_there]]
    return found


def narrowed(counts: Numbers) -> npt.NDArray[Any]:
    """The same numbers in the narrowest integers that fit them all: most counts are 1."""
    if not len(counts):
        return counts.astype(np.int8)
    low, high = int(counts.min()), int(counts.max())
    for width in _WIDTHS:
        bounds = np.iinfo(width)
        if bounds.min <= low and high <= bounds.max:
            return counts.astype(width)
    raise AssertionError("64 bits hold every 64-bit integer")


def hours_of(start: int, end: int) -> Iterator[int]:
    """First minutes of the hours that overlap a range of minutes."""
    yield from range(start // 60 * 60, end, 60) if start < end else ()
