"""Every expectation of `windowed_counts` is able to fail, by the row that contradicts it, and spares the others (O4).

Two moments, two months apart: at the later one all is well, at the earlier one there is a broken row for each.
"""

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assets.tables import TABLES
from expectations.results import examples_of, name_of
from expectations.runner import run_suite
from expectations.suite import read_suite
from resources.session import frame_of
from tidemark.counts.windows import Window, velocity
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE, MINUTE_US, WEEK, from_us
from tidemark.tables.table_spec import TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Row = dict[str, Any]
EARLY = WEEK.start("2026-01-05") + 2 * DAY_US + 10 * HOUR_US + 30 * MINUTE_US
LATE = EARLY + 60 * DAY_US
FIRST = EARLY - 10 * MINUTE_US


def good(entity: str, as_of: int) -> Row:
    """Two counts in one minute, ten minutes before the earlier moment."""
    row: Row = {"namespace": "shop", "entity_id": entity, "signal": "view", "as_of": from_us(as_of)}
    for window in Window:
        is_in = window.length_us is None or as_of - window.length_us <= FIRST
        row |= {f"count_{window}": 2 * is_in, f"weight_sum_{window}": 5 * is_in}
        row[f"velocity_{window}"] = velocity(2 * is_in, window, as_of, FIRST)
    return row | {"deltas_all": 1, "decay": [("1h", 1.5)], "first_minute": from_us(FIRST), "lowest_minute": 2}


def bucket(entity: str, start: int, partition: int, column: str) -> Row:
    keys = {"namespace": "shop", "entity_id": entity, "signal": "view", "bucket_start": from_us(start)}
    extremes = {"first_minute": from_us(FIRST), "lowest_minute": 2}
    return keys | {"count": 2, "weight_sum": 5, "deltas": 1, column: from_us(partition)} | extremes


def setting(**values: Any) -> Callable[[Row], list[Row]]:
    return lambda row: [row | values]


# What is done to the row of the entity that has the expectation's name.
BREAKS: dict[str, Callable[[Row], list[Row]]] = {
    "keys_are_complete": setting(as_of=from_us(EARLY + 1)),
    "keys_are_unique": lambda row: [row, row],
    "counts_are_of_something": setting(deltas_all=0),
    "windows_hold_one_another": setting(count_1h=3),
    "velocities_are_counts_by_time": setting(velocity_7d=2.0),
    "scores_are_of_the_counts": setting(decay=[("1h", 2.5)]),
    "windows_equal_the_minutes": setting(weight_sum_30d=6),
    "all_equals_the_weeks": lambda _: [],
}
VIEWS: dict[str, dict[str, Row]] = {
    "levels_are_in_order": {"shards": {"durable_epoch": 5}},
    "nothing_falls_back": {"records": {"watermark_us": 7}},
    "rows_are_as_recorded": {"records": {"rows_out": 99}},
    "nobody_else_wrote_here": {"edits": {"version": 7, "operation": "UPDATE"}},
}


def frame(spark: "SparkSession", rows: list[Row], columns: dict[str, pa.DataType]) -> "DataFrame":
    return frame_of(spark, pa.Table.from_pylist(rows, schema=pa.schema(list(columns.items()))))


def views_of(spark: "SparkSession") -> dict[str, "DataFrame"]:
    """What the queries may name: at the later moment as it should be, at the earlier one as it must not."""
    good_views: dict[str, Row] = {
        "records": {"rows_out": 8, "rows_found": 8, "watermark_us": 9, "previous_watermark_us": 8},
        "shards": {"shard": 0, "applied_epoch": 3, "flushed_epoch": 3, "durable_epoch": 2}
        | {"previous_durable_epoch": 1, "highest_epoch": 1},
    }
    rows: dict[str, list[Row]] = {name: [{"as_of": from_us(LATE)} | row] for name, row in good_views.items()}
    rows["edits"] = []
    for name, row in (good_views | {"edits": {}}).items():
        broken = {key: value for breaks in VIEWS.values() for key, value in breaks.get(name, {}).items()}
        rows[name].append({"as_of": from_us(EARLY)} | row | broken)
    kinds = {"as_of": TIMESTAMP, "shard": pa.int32(), "operation": pa.string()}
    views = {
        name: frame(spark, found, {column: kinds.get(column, pa.int64()) for column in found[-1]})
        for name, found in rows.items()
    }
    hour, week = FIRST - FIRST % HOUR_US, WEEK.floor(FIRST)
    for table, of in (("minute_counts", (FIRST, hour, "bucket_hour")), ("weekly_counts", (week, week, "bucket_week"))):
        columns = {column.name: column.type for column in TABLES[table].columns}
        views[table] = frame(spark, [bucket(entity, *of) for entity in BREAKS], columns)
    return views


def test_every_expectation_of_the_windows_can_fail_by_its_own_row(spark: "SparkSession") -> None:
    suite = read_suite("windowed_counts")
    assert {each.name for each in suite.expectations} == {*BREAKS, *VIEWS}, "each has a case here"
    rows = [good(entity, LATE) for entity in BREAKS]
    rows += [row for entity, break_it in BREAKS.items() for row in break_it(good(entity, EARLY))]
    batch = frame(spark, rows, {column.name: column.type for column in TABLES["windowed_counts"].columns})
    keys = [MINUTE.key(EARLY), MINUTE.key(LATE)]

    early, late = run_suite(suite, batch, partitions=keys, views=views_of(spark))

    assert late.passed, late.message
    failed = {name_of(each): json.dumps(examples_of(each), separators=(",", ":")) for each in early.failed}
    for name in (*BREAKS, *VIEWS):
        assert name in failed, f"{name} must be able to fail"
    for name in BREAKS:
        assert f'"entity_id":"{name}"' in failed[name], f"{name} must be contradicted by the row that was broken for it"
