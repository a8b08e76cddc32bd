"""Counts per minute, hour, day, week and month (R1): sums of sums equal a count over the raw deltas."""

from collections import defaultdict
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assets.rollups.schema import TIERS
from assets.rollups.transform import count_tier
from tidemark.model.timegrid import GRAINS, HOUR_US, floor_to, from_us, to_us
from tidemark.tables.tiers import Tier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

DDL = (
    "namespace string, kind string, event_ts timestamp, event_hour timestamp, "
    "signal struct<entity_id: string, signal: string, count: bigint, weight_millionths: bigint>"
)
SUNDAY = datetime(2026, 3, 1, 23, 59, 59, 999_999, tzinfo=UTC)
# The last microsecond of a Sunday, of a leap day and its month, and of a year that ends in the middle of a week.
LAST_MOMENTS = [
    SUNDAY,
    datetime(2024, 2, 29, 23, 59, 59, 999_999, tzinfo=UTC),
    datetime(2025, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
]
Signal = tuple[datetime, str, str, int, int]
Sums = dict[tuple[str, str, datetime], tuple[int, int, int]]


def deltas_of(spark: "SparkSession", signals: list[Signal], *, kind: str = "signal") -> "DataFrame":
    rows = [
        ("shop", kind, time, from_us(floor_to(to_us(time), HOUR_US)), (entity, name, count, weight))
        for time, entity, name, count, weight in signals
    ]
    return spark.createDataFrame(rows, DDL)


def brute_force(signals: list[Signal], bucket: str) -> Sums:
    sums: Sums = defaultdict(lambda: (0, 0, 0))
    for time, entity, name, count, weight in signals:
        # A month by the date, so that its sums do not rest on the grid that they are to prove.
        first = time.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        key = (entity, name, first if bucket == "month" else from_us(GRAINS[bucket].floor(to_us(time))))
        sums[key] = (sums[key][0] + count, sums[key][1] + weight, sums[key][2] + 1)
    return dict(sums)


def tiers_of(deltas: "DataFrame") -> "dict[str, DataFrame]":
    made: dict[str, DataFrame] = {}
    for tier in Tier:
        made[tier] = count_tier(tier)(deltas if tier.made_from is None else made[tier.made_from])
    return made


def collected(tiers: "dict[str, DataFrame]") -> "dict[str, list[Row]]":
    """The rows of all tiers, by one job: each of its own would compute the finer ones again."""
    from pyspark.sql import functions as F

    marked = [counts.withColumn("tier", F.lit(bucket)) for bucket, counts in tiers.items()]
    found: dict[str, list[Row]] = {bucket: [] for bucket in tiers}
    for row in reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), marked).collect():
        found[row.tier].append(row)
    return found


def sums_of(rows: "list[Row]") -> Sums:
    return {
        (row.entity_id, row.signal, row.bucket_start.astimezone(UTC)): (row["count"], row.weight_sum, row.deltas)
        for row in rows
    }


SIGNALS = st.lists(
    st.tuples(
        st.builds(
            lambda last, seconds, beyond: last + timedelta(seconds=seconds, microseconds=beyond),
            st.sampled_from(LAST_MOMENTS),
            st.one_of(st.integers(-(10 * 24 * 3600), 10 * 24 * 3600), st.sampled_from([-3600, -60, 0, 60, 3600])),
            st.integers(0, 1),
        ),
        st.sampled_from(["a", "b"]),
        st.sampled_from(["view", "buy"]),
        st.integers(-3, 3),
        st.integers(-(10**9), 10**9),
    ),
    min_size=1,
    max_size=12,
)


@settings(max_examples=4, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(signals=SIGNALS)
def test_coarser_counts_are_sums_of_finer_ones_and_of_the_deltas(spark: "SparkSession", signals: list[Signal]) -> None:
    for bucket, rows in collected(tiers_of(deltas_of(spark, signals))).items():
        assert sums_of(rows) == brute_force(signals, bucket), bucket


@settings(max_examples=3, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(signals=SIGNALS)
def test_coarser_counts_keep_their_first_and_their_lowest_minute(spark: "SparkSession", signals: list[Signal]) -> None:
    minutes = brute_force(signals, "minute")
    for bucket, rows in collected(tiers_of(deltas_of(spark, signals))).items():
        for row in () if bucket == "minute" else rows:
            start = row.bucket_start.astimezone(UTC)
            mine = {
                minute: sums[0]
                for (entity, name, minute), sums in minutes.items()
                if (entity, name, from_us(GRAINS[bucket].floor(to_us(minute)))) == (row.entity_id, row.signal, start)
            }
            assert (row.first_minute.astimezone(UTC), row.lowest_minute) == (min(mine), min(mine.values()))


def test_only_signals_are_counted_and_columns_are_as_declared(spark: "SparkSession") -> None:
    samples = deltas_of(spark, [(SUNDAY, "a", "view", 1, 1)], kind="sample")
    tiers = list(tiers_of(samples).values())
    assert [counts.columns for counts in tiers] == [spec.names for spec in TIERS]
    assert tiers[-1].count() == 0


def test_weeks_start_on_monday(spark: "SparkSession") -> None:
    signals = [(SUNDAY, "a", "view", 1, 0), (SUNDAY + timedelta(microseconds=1), "a", "view", 2, 0)]
    weeks = tiers_of(deltas_of(spark, signals))["week"]
    assert {key[2].strftime("%A %F"): value[0] for key, value in sums_of(weeks.collect()).items()} == {
        "Monday 2026-02-23": 1,
        "Monday 2026-03-02": 2,
    }


def test_a_sum_beyond_64_bits_is_an_error_and_not_a_number(spark: "SparkSession") -> None:
    from pyspark.errors import PySparkException

    signals = [(SUNDAY, "a", "view", 2**63 - 1, 0), (SUNDAY, "a", "view", 1, 0)]
    with pytest.raises(PySparkException, match="ARITHMETIC_OVERFLOW"):
        count_tier(Tier.MINUTE)(deltas_of(spark, signals)).collect()


def test_a_count_is_one_plan_without_python_rows(spark: "SparkSession", capsys: pytest.CaptureFixture[str]) -> None:
    plan = tiers_of(deltas_of(spark, [(SUNDAY, "a", "view", 1, 1)]))["week"]
    plan.explain()
    text = capsys.readouterr().out
    assert "HashAggregate" in text or "SortAggregate" in text
    assert "Python" not in text.replace("PythonRDD", "")
