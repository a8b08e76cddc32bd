"""The exact comparison: which of the suspects are duplicates, and which rows become dead letters.

Belongs here: taking the few suspects through Spark, into the dead letters and out of `deltas`. Does not belong here:
which rows are suspects (`prefilter.py`), which of two came first (`transform.py`), writing tables.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from assets.ingest.prefilter import Suspects
from assets.ingest.schema import DEAD_LETTERS, KNOWN_DDL, LOG_DDL
from assets.ingest.transform import dead_letters, later_copies, without_copies
from tidemark.model.deltas import Verdict

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# Up to this many rows are broadcast to every task (tens of megabytes); more are joined by a shuffle.
BROADCAST_ROWS = 1_000_000


@dataclass(frozen=True)
class Duplicates:
    """What became of the suspects: refused rows, and duplicates of deltas that were there before."""

    refused: "DataFrame"
    copies: "DataFrame"
    suspects: int  # at most this many are duplicates

    @property
    def letters(self) -> "DataFrame":
        """Rows of `dead_letters`; they are few, so one file per hour is enough."""
        return dead_letters(self.refused, self.copies).repartition(DEAD_LETTERS.partition_by)

    def drop_copies(self, deltas: "DataFrame") -> "DataFrame":
        """The accepted deltas without the duplicates that were found."""
        return without_copies(deltas, _few(self.copies, self.suspects)) if self.suspects else deltas


def find_duplicates(spark: "SparkSession", aside: Suspects, *, known_files: Sequence[str]) -> Duplicates:
    """Compare the suspects; `known_files` are the data files of `deltas` that may hold the original of a duplicate."""
    nothing = spark.createDataFrame([], LOG_DDL)
    rows = spark.read.schema(LOG_DDL).parquet(str(aside.file)) if aside.file else nothing
    refused = rows.where(F.col("verdict") == Verdict.REFUSED.value)
    if not aside.suspects:
        return Duplicates(refused, nothing, 0)
    suspects = rows.where(F.col("verdict") == Verdict.ACCEPTED.value)
    known = spark.read.schema(KNOWN_DDL).parquet(*known_files) if known_files else spark.createDataFrame([], KNOWN_DDL)
    hashes = _few(suspects.select("identity_hash"), aside.suspects)
    known = known.join(hashes, on="identity_hash", how="left_semi")
    return Duplicates(refused, later_copies(suspects, known), aside.suspects)


def _few(rows: "DataFrame", number: int) -> "DataFrame":
    return F.broadcast(rows) if number <= BROADCAST_ROWS else rows
