"""Counts are summed up by minute and row exactly, whether they differ or are all the same."""

from collections import defaultdict

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tidemark.counts.warm.buckets import by_minute

FAR = 1 << 37  # beyond what fits into one number with a row
PLACES = st.tuples(st.sampled_from([-FAR, -60, -1, 0, 1, 59, 60, FAR]), st.sampled_from([0, 1, 2, (1 << 32) - 2]))
COUNTS = st.sampled_from([-(2**40), -1, 0, 1, 2, 2**40])
DIFFERENT = st.lists(st.tuples(PLACES, COUNTS), max_size=30)
EQUAL = st.builds(lambda places, count: [(place, count) for place in places], st.lists(PLACES, max_size=30), COUNTS)


@given(st.one_of(DIFFERENT, EQUAL))
def test_every_row_of_a_minute_has_the_sum_of_its_counts_and_none_has_zero(
    given_counts: list[tuple[tuple[int, int], int]],
) -> None:
    expected: dict[int, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for (minute, row), count in given_counts:
        expected[minute][row] += count
    columns = [(row, minute, count) for (minute, row), count in given_counts]
    rows, minutes, counts = np.array(columns, np.int64).reshape(-1, 3).T
    found = by_minute(rows, minutes, counts)
    assert {
        minute: dict(zip(bucket.rows.tolist(), bucket.counts.tolist(), strict=True)) for minute, bucket in found.items()
    } == {
        minute: {row: count for row, count in sorted(sums.items()) if count}
        for minute, sums in expected.items()
        if any(sums.values())
    }
    assert all(bucket.rows.tolist() == sorted(bucket.rows.tolist()) for bucket in found.values())
