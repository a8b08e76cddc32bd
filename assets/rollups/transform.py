"""From deltas to minutes, and from finer buckets to coarser ones: pure functions of DataFrames (R1).

Belongs here: the sums. Only minute counts look at deltas; everything coarser is a sum of finer counts. All sums are
of 64-bit integers, so they are exact and the same in any order; an overflow is an error, not a number.
"""

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.rollups.schema import COUNTS, MEASURES, MINUTE_COUNTS
from tidemark.model.deltas import Kind
from tidemark.tables.tiers import Tier


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


def count_tier(tier: Tier) -> Callable[[DataFrame], DataFrame]:
    """The function that computes the buckets of a tier from the rows of its input."""
    if tier.made_from is None:
        return count_minutes

    def count(finer: DataFrame) -> DataFrame:
        if tier.made_from is Tier.MINUTE:
            # A minute is its own first one, and its own lowest.
            finer = finer.withColumns({"first_minute": F.col("bucket_start"), "lowest_minute": F.col("count")})
        return _coarser(finer, COUNTS[tier].partition_by, tier.grain.name).select(*COUNTS[tier].names)

    return count


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
