"""From deltas to minutes, from minutes to hours, from hours to weeks: pure functions of DataFrames (R1).

Belongs here: the sums. Minutes are the only counts that look at deltas; everything coarser is a sum of finer ones.
All sums are of 64-bit integers, so they are exact and in any order the same; an overflow is an error, not a number.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.rollups.schema import HOURLY_COUNTS, MINUTE_COUNTS, WEEKLY_COUNTS
from resources.coordinator.model import Kind


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
    hours = minutes.withColumn("bucket_start", F.col("bucket_hour"))
    return _sum_up(hours, "bucket_hour").select(*HOURLY_COUNTS.names)


def count_weeks(hours: DataFrame) -> DataFrame:
    """Sums of hours per entity and week."""
    weeks = hours.withColumn("bucket_week", monday_of("bucket_start")).withColumn("bucket_start", F.col("bucket_week"))
    return _sum_up(weeks, "bucket_week").select(*WEEKLY_COUNTS.names)


def monday_of(time: str) -> Column:
    """Monday 00:00 of the week that holds the time in column `time`."""
    return F.date_trunc("WEEK", F.col(time))


def _sum_up(rows: DataFrame, partition: str) -> DataFrame:
    grouped = rows.groupBy("namespace", "entity_id", "signal", "bucket_start", partition)
    return grouped.agg(
        F.sum("count").alias("count"), F.sum("weight_sum").alias("weight_sum"), F.sum("deltas").alias("deltas")
    )
