"""From rows of the log to rows of `deltas` and `dead_letters`: pure functions of DataFrames.

Belongs here: which row becomes what. Does not belong here: which rows of the log are looked at (`sift.py`), reading
and writing. Drain and rebuild call the same functions, so they cannot disagree.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from assets.ingest.schema import DEAD_LETTERS, DELTAS
from resources.coordinator.model import Reason, Verdict
from resources.coordinator.schema import RAW_LIMIT

# Two deltas with the same four are the same delta (Q3).
IDENTITY = ("namespace", "key", "event_ts", "delta_id")
PLACE = ("shard", "epoch", "ordinal")
ARRIVAL_ORDER = ("epoch", "ordinal", "shard")


def hour_of(time: str) -> Column:
    """Start of the hour that holds the time in column `time`."""
    return F.date_trunc("HOUR", F.col(time))


def accepted_deltas(log: DataFrame) -> DataFrame:
    """What the log accepted, as rows of `deltas`; copies that the log could not see are still among them."""
    accepted = log.where(F.col("verdict") == Verdict.ACCEPTED.value).withColumn("event_hour", hour_of("event_ts"))
    return accepted.select(*DELTAS.names)


def find_copies(suspects: DataFrame, known: DataFrame | None = None) -> DataFrame:
    """Those among `suspects` (accepted rows of the log) that are not the first of their identity.

    `known` are rows of `deltas` that were there before: whoever came first, by (epoch, ordinal), is the delta, and all
    others are copies of it. Whole identities are compared, never hashes. Adds the place and content of the first.
    """
    judged = suspects.withColumn("is_known", F.lit(False))
    if known is not None:
        judged = judged.unionByName(
            known.select(*IDENTITY, *PLACE, "content_hash").withColumn("is_known", F.lit(True)),
            allowMissingColumns=True,
        )
    by_arrival = Window.partitionBy(*IDENTITY).orderBy(*ARRIVAL_ORDER)
    from_the_first = by_arrival.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = judged.withColumns(
        {
            "place": F.row_number().over(by_arrival),
            "first_epoch": F.first("epoch").over(from_the_first),
            "first_ordinal": F.first("ordinal").over(from_the_first),
            "first_content": F.first("content_hash").over(from_the_first),
        }
    )
    is_copy = (F.col("place") > 1) & ~F.col("is_known")
    return ranked.where(is_copy).select(*suspects.columns, "first_epoch", "first_ordinal", "first_content")


def without_copies(deltas: DataFrame, copies: DataFrame) -> DataFrame:
    """`deltas` without the rows in `copies`, by their place in the log."""
    return deltas.join(copies.select(*PLACE), on=list(PLACE), how="left_anti").select(*DELTAS.names)


def refused_letters(log: DataFrame) -> DataFrame:
    """What the log refused, as rows of `dead_letters`."""
    refused = log.where(F.col("verdict") == Verdict.REFUSED.value)
    return refused.withColumn("received_hour", hour_of("received_ts")).select(*DEAD_LETTERS.names)


def copied_letters(copies: DataFrame) -> DataFrame:
    """Copies, as `find_copies` gives them, as rows of `dead_letters`: with a reason, and the payload as it was sent."""
    is_same = F.col("content_hash").eqNullSafe(F.col("first_content"))
    first = F.concat(F.lit("epoch "), F.col("first_epoch"), F.lit(", ordinal "), F.col("first_ordinal"))
    payload = F.coalesce(F.to_json("vector"), F.to_json("sample"), F.to_json("signal")).cast("binary")
    letters = copies.withColumns(
        {
            "reason": F.when(is_same, Reason.DUPLICATE.value).otherwise(Reason.ID_REUSE.value),
            "detail": F.concat(
                F.when(is_same, "a copy of the delta at ").otherwise("another delta under the identity of the one at "),
                first,
            ),
            "raw": F.substring(payload, 1, RAW_LIMIT),
            "raw_bytes": F.octet_length(payload).cast("bigint"),
            "received_hour": hour_of("received_ts"),
        }
    )
    return letters.select(*DEAD_LETTERS.names)
