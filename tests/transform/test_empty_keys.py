"""Streams and joins without a key (N1, N2, N4): one row a window for all deltas, proven by the suites of the tables."""

from collections import Counter
from itertools import product
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from pyspark.sql import functions as F

from assets.joins.rows import delta_pairs, session_pairs
from assets.windows.adaptive import Batch, batch_rows, count_batches
from assets.windows.open_schema import open_table
from assets.windows.session_rows import closed_by_hour, closed_rows, open_rows, parts_of
from assets.windows.transform import count_windows
from expectations import templates
from expectations.runner import run_suite
from expectations.templates import suite_of
from tests.support.suites import columns_of, frame
from tests.support.windows import Event, deltas_of, fixed, sliding, stream, tumbling, windows_of
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR, HOUR_US, MINUTE_US, from_us
from tidemark.streams import Join, JoinForm, Stream, Streams, WindowSpec, WindowType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZE_US, GAP_US = 20 * MINUTE_US, 15 * MINUTE_US
HOURS = Range(0, 3 * HOUR_US)
OF_RECORDS = ("rows_out", "rows_found", "watermark_us", "previous_watermark_us")
OF_SHARDS = ("applied_epoch", "flushed_epoch", "durable_epoch", "previous_durable_epoch", "highest_epoch")
SHARDS = {"a": 0, "b": 1}
# Deltas of two keys and shards, across a border of hours, and in two sessions by the gap.
EVENTS = [
    Event(at * MINUTE_US, entity=entity, amount=place, received_us=at * MINUTE_US, shard=SHARDS[entity])
    for place, (at, entity) in enumerate([(1, "a"), (2, "b"), (19, "a"), (50, "b"), (58, "a"), (65, "b"), (100, "a")])
]
PANES = [
    tumbling(SIZE_US, key=(), name="tumbled"),
    sliding(SIZE_US, 5 * MINUTE_US, key=(), name="slid"),
    fixed(SIZE_US, key=(), name="received"),
    tumbling(SIZE_US, key=(), name="shifted", offset_us=7 * MINUTE_US),
    sliding(SIZE_US, 5 * MINUTE_US, key=(), name="slid_shifted", offset_us=2 * MINUTE_US),
]
VISITS = stream(WindowSpec(WindowType.SESSION, gap_us=GAP_US), key=(), name="visits")
STAYS = stream(WindowSpec(WindowType.SESSION, gap_us=2 * GAP_US), key=(), name="stays")
BATCHES = stream(WindowSpec(WindowType.ADAPTIVE), key=(), name="batches")
SAME_PANE = Join("pairs", "tumbled", "tumbled", JoinForm.SAME_PANE)
SLIDES = Join("near", "tumbled", "slid", JoinForm.PANE_AND_SLIDES)
SHIFTED = Join("shifted_near", "shifted", "slid_shifted", JoinForm.PANE_AND_SLIDES)
MEETING = Join("meeting", "visits", "stays", JoinForm.SESSIONS)
KNOWN = Streams(
    {each.name: each for each in (*PANES, VISITS, STAYS, BATCHES)},
    {each.name: each for each in (SAME_PANE, SLIDES, SHIFTED, MEETING)},
)


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "STREAMS", KNOWN)


def oracle(events: list[Event], gap_us: int) -> list[tuple[int, int, int]]:
    """Sessions as first event, last event, deltas: sort, and begin anew where the gap is exceeded."""
    found: list[list[int]] = []
    for at_us in sorted(event.at_us for event in events):
        if found and at_us - found[-1][-1] <= gap_us:
            found[-1].append(at_us)
        else:
            found.append([at_us])
    return [(each[0], each[-1], len(each)) for each in found]


def is_proven(spark: "SparkSession", table: str, rows: "DataFrame", **views: "DataFrame") -> bool:
    """Whether the suite of a table holds for the rows of all hours, whose records say how many there are."""
    suite = suite_of(table)
    hour, starts = {suite.partition: pa.timestamp("us", tz="UTC")}, range(-HOUR_US, HOURS.end_us, HOUR_US)
    found = Counter(row[0] for row in rows.selectExpr(f"unix_micros({suite.partition})").collect())
    records = [
        {suite.partition: from_us(start), "rows_out": found[start], "rows_found": found[start]} for start in starts
    ]
    always = {
        "records": frame(spark, hour | dict.fromkeys(OF_RECORDS, pa.int64()), records),
        "shards": frame(spark, {**hour, "shard": pa.int32(), **dict.fromkeys(OF_SHARDS, pa.int64())}),
        "edits": frame(spark, {**hour, "version": pa.int64(), "operation": pa.string()}),
    }
    results = run_suite(suite, rows, partitions=[HOUR.key(start) for start in starts], views=always | views)
    return all(result.passed for result in results)


def assert_proven(spark: "SparkSession", table: str, rows: "DataFrame", **views: "DataFrame") -> None:
    """The suite of a table holds for these rows, and not without the first of them."""
    name = rows.columns[0]
    assert is_proven(spark, table, rows, **views)
    fewer = rows.where(F.col(name) != rows.agg(F.min(name)).collect()[0][0])
    assert not is_proven(spark, table, fewer, **views)


@pytest.mark.parametrize("of", PANES, ids=lambda of: of.name)
def test_panes_without_a_key_hold_the_deltas_of_all_keys(spark: "SparkSession", of: Stream) -> None:
    deltas = deltas_of(spark, EVENTS)
    rows = count_windows(deltas, of, Range(-HOUR_US, HOURS.end_us))
    found = {
        ("", row.start): (row.deltas, row.late, row.total, row.first, row.last, tuple(map(tuple, row.epochs)))
        for row in rows.selectExpr(
            "*",
            "unix_micros(window_start) AS start",
            "unix_micros(min_event_ts) AS first",
            "unix_micros(max_event_ts) AS last",
        ).collect()
    }
    assert found == windows_of([event._replace(entity="") for event in EVENTS], of)
    assert_proven(spark, of.name, rows, deltas=deltas)


def test_sessions_without_a_key_follow_the_deltas_of_all_keys(spark: "SparkSession") -> None:
    deltas = deltas_of(spark, EVENTS)
    parts = parts_of(deltas, frame(spark, columns_of(open_table(VISITS))), VISITS, HOURS)
    closed, opened = closed_rows(parts, VISITS, HOURS), open_rows(parts, VISITS, HOURS)
    timed = closed.selectExpr("*", "unix_micros(min_event_ts) AS first", "unix_micros(max_event_ts) AS last")
    assert sorted((row.first, row.last, row.deltas) for row in timed.collect()) == oracle(EVENTS, GAP_US)
    assert_proven(spark, "visits_open", opened, deltas=deltas, visits_open=opened)
    by_hour = closed_by_hour(deltas, opened, VISITS, HOURS)
    assert sorted(map(str, by_hour.collect())) == sorted(map(str, closed.collect()))
    assert_proven(spark, "visits", closed, deltas=deltas, visits_open=opened, visits=closed)


def test_batches_without_a_key_are_a_row_each(spark: "SparkSession") -> None:
    recorded = batch_rows(spark, [Batch(0, 1, "count", 1, 4, 0, 1), Batch(1, 1, "count", 1, 9, 0, 2)])
    rows = count_batches(deltas_of(spark, EVENTS), recorded, BATCHES)
    assert sorted((row.window_id, row.deltas) for row in rows.collect()) == [("0/1", 2), ("1/1", 3)]
    assert is_proven(spark, "batches", rows)


def test_joins_without_a_key_pair_every_two_deltas_in_a_pane(spark: "SparkSession") -> None:
    deltas = deltas_of(spark, EVENTS)
    for join in (SAME_PANE, SLIDES, SHIFTED):
        left, right = KNOWN.streams[join.left], KNOWN.streams[join.right]
        offset_us = left.window.offset_us
        rows = delta_pairs(deltas, join, left, right, Range(-HOUR_US, HOURS.end_us))
        expected = sorted(
            (f"d{one}", f"d{other}")
            for (one, a), (other, b) in product(enumerate(EVENTS), repeat=2)
            if (a.at_us - offset_us) // SIZE_US == (b.at_us - offset_us) // SIZE_US
        )
        assert sorted((row.left_delta_id, row.right_delta_id) for row in rows.collect()) == expected
        assert_proven(spark, join.name, rows, deltas=deltas)


def test_joins_without_a_key_pair_every_two_sessions_that_meet(spark: "SparkSession") -> None:
    deltas = deltas_of(spark, EVENTS)
    visits, stays = (
        closed_rows(parts_of(deltas, frame(spark, columns_of(open_table(of))), of, HOURS), of, HOURS)
        for of in (VISITS, STAYS)
    )
    rows = session_pairs(visits, stays, MEETING, VISITS, STAYS, HOURS)
    expected = sorted(
        (one[2], other[2])
        for one, other in product(oracle(EVENTS, GAP_US), oracle(EVENTS, 2 * GAP_US))
        if one[0] <= other[1] + 2 * GAP_US and other[0] <= one[1] + GAP_US
    )
    assert sorted((row.left_deltas, row.right_deltas) for row in rows.collect()) == expected
    assert_proven(spark, "meeting", rows, visits=visits, stays=stays)
