"""From deltas to minutes, to hours, to days, to weeks: pure functions of DataFrames (R1).

Belongs here: the sums. Minutes are the only counts that look at deltas; everything coarser is a sum of finer ones.
All sums are of 64-bit integers, so they are exact and in any order the same; an overflow is an error, not a number.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.rollups.schema import DAILY_COUNTS, HOURLY_COUNTS, MEASURES, MINUTE_COUNTS, WEEKLY_COUNTS
from tidemark.model.deltas import Kind


def count_minutes(deltas: DataFrame) -> DataFrame:
    """Signals per entity and minute."""
    signals = deltas.where(F.col("kind") == Kind.SIGNAL.value).select(
        "namespace",
        F.col("signal.entity_id").alias("entity_id"),
        F.col("signal.signal").alias("signal"),
        F.date_trunc("MINUTE", "event_ts").alias("bucket_start"),
        F.col("event_hour").alias("bucket_hour"),
        F.col("signal.count").alias("count"),
        F.col("signal.weight_millionths").alias("weight_sum"),
        F.lit(1).cast("bigint").alias("deltas"),
    )
    return _sum_up(signals, "bucket_hour").select(*MINUTE_COUNTS.names)


def count_hours(minutes: DataFrame) -> DataFrame:
    """Sums of minutes per entity and hour."""
    own = minutes.withColumns({"first_minute": F.col("bucket_start"), "lowest_minute": F.col("count")})
    return _coarser(own, "bucket_hour", "HOUR").select(*HOURLY_COUNTS.names)


def count_days(hours: DataFrame) -> DataFrame:
    """Sums of hours per entity and day."""
    return _coarser(hours, "bucket_day", "DAY").select(*DAILY_COUNTS.names)


def count_weeks(days: DataFrame) -> DataFrame:
    """Sums of days per entity and week, from Monday."""
    return _coarser(days, "bucket_week", "WEEK").select(*WEEKLY_COUNTS.names)


def _coarser(rows: DataFrame, partition: str, unit: str) -> DataFrame:
    """The buckets that hold the rows' buckets; each is a partition of its own."""
    bucket = F.date_trunc(unit, F.col("bucket_start"))
    return _sum_up(
        rows.withColumn("bucket_start", bucket).withColumn(partition, F.col("bucket_start")),
        partition,
        F.min("first_minute").alias("first_minute"),
        F.min("lowest_minute").alias("lowest_minute"),
    )


def _sum_up(rows: DataFrame, partition: str, *more: Column) -> DataFrame:
    grouped = rows.groupBy("namespace", "entity_id", "signal", "bucket_start", partition)
    return grouped.agg(*(F.sum(measure).alias(measure) for measure in MEASURES), *more)
