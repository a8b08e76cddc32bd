"""Every expectation of every table is able to fail, and then names the partition that is wrong and no other (O4).

One run of each suite: a partition in which all is well, and one for each expectation in which just that is broken.
The suite of `windowed_counts`, which holds one moment at a time, is tried in `test_windowed_expectations.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from assets.tables import TABLES
from expectations.runner import run_suite
from expectations.templates import suite_of
from resources.session import frame_of
from tests.support.suites import failures
from tidemark.model.timegrid import GRAINS, WEEK, Grain, from_us
from tidemark.tables.table_spec import TIMESTAMP

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

INTEGERS = pa.int64()
MINUTE = timedelta(minutes=1)
FIRST_MONDAY = WEEK.start("2026-03-02")

# Views that queries may name, with their columns besides the partition.
VIEWS: dict[str, dict[str, pa.DataType]] = {
    "records": dict.fromkeys(("rows_out", "rows_found", "watermark_us", "previous_watermark_us"), INTEGERS),
    "shards": {"shard": pa.int32()}
    | dict.fromkeys(
        ("applied_epoch", "flushed_epoch", "durable_epoch", "previous_durable_epoch", "highest_epoch"), INTEGERS
    ),
    "edits": {"version": INTEGERS, "operation": pa.string()},
    "arrivals": dict.fromkeys(("accepted", "duplicate", "refused"), INTEGERS),
}
LOG_VIEWS: dict[str, dict[str, pa.DataType]] = {
    "segments": {"shard": pa.int32()}
    | dict.fromkeys(
        (
            *("number", "from_epoch", "to_epoch", "rows", "accepted", "duplicate", "refused"),
            *("turned_away", "turned_away_in_all"),
        ),
        INTEGERS,
    ),
    "lost": {"shard": pa.int32(), "from_epoch": INTEGERS, "to_epoch": INTEGERS},
}

Row = dict[str, Any]


@dataclass
class Case:
    """One partition: its rows and what else there is to know of it. Each has a shard of its own."""

    table: str
    start: datetime
    shard: int
    rows: list[Row] = field(default_factory=list)
    views: dict[str, list[Row]] = field(default_factory=dict)

    def row(self, view: str) -> Row:
        return self.views[view][0]


def good_delta(case: Case, ordinal: int) -> Row:
    entity = f"item-{ordinal}"
    return {
        "shard": case.shard,
        "epoch": 1,
        "ordinal": ordinal,
        "namespace": "shop",
        "kind": "signal",
        "key": entity,
        "delta_id": f"d{ordinal}",
        "event_ts": case.start + ordinal * MINUTE,
        "received_ts": case.start + ordinal * MINUTE,
        "producer": "web",
        "sequence": 1,
        "origin": "web",
        "source": "local",
        "priority": "normal",
        "identity_hash": ordinal,
        "content_hash": ordinal,
        "signal": {"entity_id": entity, "signal": "view", "count": 2, "weight_millionths": 5},
        "event_hour": case.start,
    }


def good_letter(case: Case, ordinal: int) -> Row:
    common = ("shard", "epoch", "namespace", "kind", "key", "delta_id", "event_ts", "received_ts", "producer")
    delta = good_delta(case, ordinal)
    is_copy = ordinal == 0
    return {name: delta[name] for name in (*common, "sequence", "origin", "source", "priority")} | {
        "ordinal": 10 + ordinal,
        "verdict": "accepted" if is_copy else "refused",
        "reason": "duplicate" if is_copy else "malformed",
        "detail": "said in words",
        "raw": b"{}",
        "raw_bytes": 2,
        "received_hour": case.start,
    }


def good_count(case: Case, ordinal: int, bucket: datetime, partition: str) -> Row:
    keys = {"namespace": "shop", "entity_id": f"item-{ordinal}", "signal": "view", "bucket_start": bucket}
    extremes = {"first_minute": case.start, "lowest_minute": 2}
    return keys | {"count": 2, "weight_sum": 5, "deltas": 1, partition: case.start} | extremes


def nth(grain: Grain, number: int) -> int:
    """Start of one of the partitions from the first Monday on."""
    start = grain.ceil(FIRST_MONDAY)
    for _ in range(number):
        start = grain.next(start)
    return start


def good_case(table: str, number: int) -> Case:
    spec = TABLES[table]
    case = Case(table, from_us(nth(spec.grain, number)), number)
    makers: dict[str, Callable[[int], Row]] = {
        "deltas": lambda n: good_delta(case, n),
        "dead_letters": lambda n: good_letter(case, n),
        "minute_counts": lambda n: good_count(case, n, case.start + n * MINUTE, "bucket_hour"),
        "hourly_counts": lambda n: good_count(case, n, case.start, "bucket_hour"),
        "daily_counts": lambda n: good_count(case, n, case.start, "bucket_day"),
        "weekly_counts": lambda n: good_count(case, n, case.start, "bucket_week"),
        "monthly_counts": lambda n: good_count(case, n, case.start, "bucket_month"),
    }
    case.rows = [makers[table](n) for n in (0, 1)]
    case.views = {
        "records": [{"rows_out": 2, "rows_found": 2, "watermark_us": 9, "previous_watermark_us": 8}],
        "shards": [
            {
                "shard": number,
                "applied_epoch": 3,
                "flushed_epoch": 3,
                "durable_epoch": 2,
                "previous_durable_epoch": 1,
                "highest_epoch": 1,
            }
        ],
        "edits": [],
        "arrivals": [{"accepted": 3 if table == "deltas" else 2, "duplicate": 0, "refused": 1}],
        "segments": [
            {
                "shard": number,
                "number": 1,
                "from_epoch": 1,
                "to_epoch": 4,
                "rows": 4,
                "accepted": 3,
                "duplicate": 0,
                "refused": 1,
                "turned_away": 5,
                "turned_away_in_all": 5,
            }
        ],
        "lost": [],
        "deltas": [good_delta(case, n) for n in (0, 1)],
        "dead_letters": [good_letter(case, n) for n in (0, 1)],
        "minute_counts": [good_count(case, n, case.start, "bucket_hour") for n in (0, 1)],
        "hourly_counts": [good_count(case, n, case.start, "bucket_hour") for n in (0, 1)],
        "daily_counts": [good_count(case, n, case.start, "bucket_day") for n in (0, 1)],
    }
    return case


def setting(**values: Any) -> Callable[[Case], None]:
    return lambda case: case.rows[1].update(values)


def in_view(view: str, **values: Any) -> Callable[[Case], None]:
    return lambda case: case.row(view).update(values)


def adding(view: str, **values: Any) -> Callable[[Case], None]:
    return lambda case: case.views[view].append(values)


def again(**values: Any) -> Callable[[Case], None]:
    """A second copy of a row, with some values of its own."""
    return lambda case: case.rows.append({**case.rows[1], **values})


def later(column: str, by: timedelta) -> Callable[[Case], None]:
    return lambda case: case.rows[1].update({column: case.rows[1][column] + by})


EVERYWHERE: dict[str, Callable[[Case], None]] = {
    "levels_are_in_order": in_view("shards", durable_epoch=5),
    "nothing_falls_back": in_view("records", watermark_us=7),
    "rows_are_as_recorded": in_view("records", rows_out=1),
    "nobody_else_wrote_here": adding("edits", version=7, operation="UPDATE"),
}
COUNTS: dict[str, Callable[[Case], None]] = {
    "keys_are_complete": setting(entity_id=None),
    "counts_are_of_something": setting(deltas=0),
    "keys_are_unique": again(),
    "bucket_lies_in_its_partition": later("bucket_start", timedelta(seconds=1)),
}
SUMS = {**COUNTS, "first_minute_lies_in_its_bucket": later("first_minute", timedelta(days=-1))}
BREAKS: dict[str, dict[str, Callable[[Case], None]]] = {
    "deltas": {
        "envelope_is_complete": setting(producer=None),
        "kind_is_known": setting(kind="nonsense"),
        "source_is_known": setting(source="nowhere"),
        "priority_is_known": setting(priority="whenever"),
        "payload_is_that_of_the_kind": setting(kind="vector"),
        "hour_is_that_of_the_event": later("event_ts", timedelta(hours=1)),
        "identities_are_unique": again(ordinal=7),
        "places_are_unique": again(delta_id="another"),
        "rows_are_durable": in_view("shards", highest_epoch=3),
        "epochs_have_no_hole": in_view("segments", from_epoch=2),
        "accepted_deltas_are_accounted_for": in_view("arrivals", accepted=9),
    },
    "dead_letters": {
        "place_is_known": setting(detail=None),
        "verdict_is_known": setting(verdict="perhaps"),
        "reason_is_known": setting(reason="just so"),
        "reason_is_given": setting(reason=None),
        "drain_sets_aside_copies_only": setting(verdict="accepted"),
        "original_bytes_are_kept": setting(raw_bytes=1),
        "hour_is_that_of_the_arrival": later("received_ts", timedelta(hours=1)),
        "places_are_unique": again(),
        "rows_are_durable": in_view("shards", highest_epoch=3),
        "refused_deltas_are_accounted_for": in_view("arrivals", refused=9),
        "every_delta_has_one_outcome": in_view("segments", accepted=9),
        "turned_away_deltas_are_counted_once": in_view("segments", turned_away=9),
        "copies_have_a_first": lambda case: case.rows[0].update(delta_id="never seen"),
    },
    "minute_counts": {**COUNTS, "counts_equal_the_deltas": setting(count=3)},
    "hourly_counts": {**SUMS, "counts_equal_the_minutes": setting(weight_sum=6)},
    "daily_counts": {**SUMS, "counts_equal_the_hours": setting(lowest_minute=1)},
    "weekly_counts": {**SUMS, "counts_equal_the_days": lambda case: case.rows.pop()},  # type: ignore[dict-item]
    "monthly_counts": {**SUMS, "counts_equal_the_days": setting(deltas=2)},
}


def frame(spark: "SparkSession", rows: list[Row], columns: dict[str, pa.DataType]) -> "DataFrame":
    schema = pa.schema([pa.field(name, kind) for name, kind in columns.items()])
    return frame_of(spark, pa.Table.from_pylist(rows, schema=schema))


def columns_of(table: str) -> dict[str, pa.DataType]:
    return {column.name: column.type for column in TABLES[table].columns}


@pytest.mark.parametrize("table", BREAKS)
def test_every_expectation_can_fail_and_names_its_partition_and_no_other(table: str, spark: "SparkSession") -> None:
    suite = suite_of(table)
    breaks = {**BREAKS[table], **EVERYWHERE}
    assert {expectation.name for expectation in suite.expectations} == breaks.keys(), "each has a case here"
    cases = [good_case(table, number) for number in range(len(breaks) + 1)]
    grain = GRAINS[suite.grain]
    keys = [grain.key(nth(grain, number)) for number in range(len(cases))]
    for case, break_it in zip(cases[1:], breaks.values(), strict=True):
        break_it(case)
    views = {
        name: frame(
            spark,
            [{suite.partition: case.start, **row} for case in cases for row in case.views[name]],
            {suite.partition: TIMESTAMP, **columns},
        )
        for name, columns in VIEWS.items()
    }
    for name in [*LOG_VIEWS, *suite.reads]:
        columns = LOG_VIEWS.get(name) or columns_of(name)
        views[name] = frame(spark, [row for case in cases for row in case.views[name]], columns)
    batch = frame(spark, [row for case in cases for row in case.rows], columns_of(table))

    good, *wrong = run_suite(suite, batch, partitions=keys, views=views)

    assert good.passed, good.message
    for name, result in zip(breaks, wrong, strict=True):
        assert name in failures(result), f"{name} must be able to fail"
        assert not result.passed
