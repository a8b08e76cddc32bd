"""From rows of the log to rows of `deltas` and `dead_letters`: pure functions of DataFrames.

Belongs here: which row becomes what, and which of several deltas with one identity came first (Q3). Does not belong
here: which few rows are compared at all (`prefilter.py`), reading and writing. Drain and rebuild call the same
functions, so they cannot disagree.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from assets.ingest.schema import DEAD_LETTERS, DELTAS, IDENTITY, PLACE
from tidemark.model.deltas import PAYLOADS, Reason, Verdict
from tidemark.model.log_schema import LOG_SCHEMA, RAW_LIMIT


def hour_of(time: str) -> Column:
    """Start of the hour that holds the time in column `time`."""
    return F.date_trunc("HOUR", F.col(time))


def accepted_deltas(log: DataFrame) -> DataFrame:
    """The deltas that the log accepted, as rows of `deltas`, still with the duplicates that the log could not see."""
    accepted = log.where(F.col("verdict") == Verdict.ACCEPTED.value)
    # New deltas keep their payloads: the log refuses a change to a vector before any payload below it is removed (K4).
    # So a drain never has a payload to remove; a rebuild of drained hours may have (`removal.py`).
    added = {"event_hour": hour_of("event_ts"), "removed_bytes": F.lit(None).cast("bigint")}
    return accepted.withColumns(added).select(*DELTAS.names)


def without_copies(deltas: DataFrame, copies: DataFrame) -> DataFrame:
    """The deltas without the rows whose place in the log is in `copies`."""
    return deltas.join(copies.select(*PLACE), on=list(PLACE), how="left_anti").select(*DELTAS.names)


def later_copies(suspects: DataFrame, known: DataFrame) -> DataFrame:
    """Accepted rows of the log that are duplicates of an earlier row, with the reason.

    The first one, by (epoch, ordinal), is the delta, and all others are its duplicates. Rows of the table came
    before: `known` rows are ranked with the others and never reported. Whole identities are compared, never hashes.
    """
    before = known.select(*IDENTITY, *PLACE, "content_hash", F.lit(True).alias("is_known"))
    compared = suspects.withColumn("is_known", F.lit(False)).unionByName(before, allowMissingColumns=True)
    arrivals = Window.partitionBy(*IDENTITY).orderBy("epoch", "ordinal", "shard")
    arrivals = arrivals.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    ranked = compared.withColumns(
        {
            "place": F.row_number().over(arrivals),
            "first": F.first(F.struct("epoch", "ordinal", "content_hash")).over(arrivals),
        }
    )
    copies = ranked.where(~F.col("is_known") & (F.col("place") > 1))
    return copies.withColumns(_reason_to_set_aside()).select(*LOG_SCHEMA.names)


def dead_letters(refused: DataFrame, copies: DataFrame) -> DataFrame:
    """The refused rows as they were sent, and the duplicates, each in the hour of its receipt."""
    return refused.unionByName(copies).withColumn("received_hour", hour_of("received_ts")).select(*DEAD_LETTERS.names)


def _reason_to_set_aside() -> dict[str, Column]:
    """Reason, words and payload of a duplicate; the payload is JSON, cut to the same length as a refused row's."""
    is_same = F.col("content_hash").eqNullSafe(F.col("first.content_hash"))
    payload = F.coalesce(*(F.to_json(name) for name in PAYLOADS)).cast("binary")
    return {
        "reason": F.when(is_same, Reason.DUPLICATE.value).otherwise(Reason.ID_REUSE.value),
        "detail": F.format_string(
            "%s epoch %d, ordinal %d",
            F.when(is_same, "a copy of the delta at").otherwise("another delta under the identity of the one at"),
            F.col("first.epoch"),
            F.col("first.ordinal"),
        ),
        "raw": F.substring(payload, 1, RAW_LIMIT),
        "raw_bytes": F.octet_length(payload).cast("bigint"),
    }
