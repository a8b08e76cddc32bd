"""Adaptive windows (N1, C5): every delta lies in the one batch that was recorded for its epoch."""

import random
from typing import TYPE_CHECKING

from assets.graph import By
from assets.windows.adaptive import Batch, assign_batches, batch_rows, closed_batches
from tests.support.entries import LogOf, batch, entry
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US
from tidemark.observe.log_index import hours_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The record of a batch may stand in the entry after the one that its deltas are in.
ENTRIES = [
    entry(1, 1, 200, [0], batch(1, 1, 100, HOUR_US - 1)),
    entry(2, 200, 300, [-HOUR_US, 5 * HOUR_US], batch(2, 100, 250, HOUR_US), batch(3, 250, 260, 2 * HOUR_US)),
]


def test_a_batch_belongs_to_the_hour_in_which_it_was_closed_and_its_deltas_are_found_by_the_manifest() -> None:
    assert [hours_of(each, By.BATCH) for each in ENTRIES] == [[0], [HOUR_US, 2 * HOUR_US]]
    found = closed_batches(LogOf(ENTRIES), {0: 10**6}, Range(HOUR_US, 2 * HOUR_US))
    assert [batch.batch for batch in found.batches] == [2]
    assert found.epochs == {0: (100, 250)}
    assert found.event_hours == [-HOUR_US, 0, 5 * HOUR_US]
    assert closed_batches(LogOf(ENTRIES), {0: 10**6}, Range(0, HOUR_US)).event_hours == [0]


def test_every_delta_is_in_the_one_batch_that_holds_its_epoch(spark: "SparkSession") -> None:
    pick = random.Random(5)
    batches: list[Batch] = []
    expected: dict[tuple[int, int], int] = {}
    for shard in (0, 1):
        start = 1
        for number in range(1, 40):
            end = start + pick.choice((1, 2, 100, 128, 300))
            batches.append(Batch(shard, number, "time", start, end, number, number + 1))
            expected |= {(shard, epoch): number for epoch in range(start, end)}
            start = end
    deltas = [(shard, epoch) for shard, epoch in expected for _ in range(2)]
    others = [(0, 0), (0, 10**6), (7, 1)]
    rows = spark.createDataFrame(pick.sample(deltas + others, len(deltas) + len(others)), "shard int, epoch bigint")
    found = assign_batches(rows, batch_rows(spark, batches)).collect()
    assert len(found) == len(deltas)
    assert {(row.shard, row.epoch): row.batch for row in found} == expected


def test_a_range_without_batches_has_no_deltas(spark: "SparkSession") -> None:
    nothing = closed_batches(LogOf(ENTRIES), {0: 10**6}, Range(9 * HOUR_US, 10 * HOUR_US))
    assert nothing == ([], [])
    assert (
        assign_batches(spark.createDataFrame([(0, 1)], "shard int, epoch bigint"), batch_rows(spark, [])).count() == 0
    )
