"""From rows of the log to rows of `deltas` and `dead_letters`: pure functions of DataFrames.

Belongs here: which row becomes what. Does not belong here: which of the accepted rows are copies (`sift.py` and
`judge.py`), reading and writing. Drain and rebuild call the same functions, so they cannot disagree.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.ingest.schema import DEAD_LETTERS, DELTAS, PLACE
from resources.coordinator.model import Verdict


def hour_of(time: str) -> Column:
    """Start of the hour that holds the time in column `time`."""
    return F.date_trunc("HOUR", F.col(time))


def accepted_deltas(log: DataFrame) -> DataFrame:
    """What the log accepted, as rows of `deltas`; copies that the log could not see are still among them."""
    accepted = log.where(F.col("verdict") == Verdict.ACCEPTED.value).withColumn("event_hour", hour_of("event_ts"))
    return accepted.select(*DELTAS.names)


def without_copies(deltas: DataFrame, copies: DataFrame) -> DataFrame:
    """`deltas` without the rows whose place in the log is in `copies`."""
    return deltas.join(copies.select(*PLACE), on=list(PLACE), how="left_anti").select(*DELTAS.names)


def received_letters(letters: DataFrame) -> DataFrame:
    """Dead letters, each in the hour of its receipt."""
    return letters.withColumn("received_hour", hour_of("received_ts")).select(*DEAD_LETTERS.names)
