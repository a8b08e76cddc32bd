"""Adaptive windows: the coordinator's recorded batches, as windows of a stream's own deltas (N1, C5).

Belongs here: which batch a delta is in, and what a batch holds of each key. The records stand in the manifest (decision
0013); a batch is a range of epochs of one shard, and every accepted delta is in exactly one. Nothing is ever late for a
batch: it holds what came. Pure functions.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.windows.lateness import floor_us
from assets.windows.schema import WINDOW_HOUR
from assets.windows.transform import shown, window_id, windows_by
from assets.windows.view import view_of
from resources.coordinator.manifest import Entry
from resources.ranges import Range
from resources.streams import Stream
from resources.timegrid import HOUR_US, hour_start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Batches are looked up by blocks of epochs: most batches lie in one or two, and few share one.
BLOCK_EPOCHS = 128
BATCHES_DDL = (
    "shard int, batch bigint, trigger string, from_epoch bigint, to_epoch bigint, opened_us bigint, closed_us bigint"
)


class Batch(NamedTuple):
    """A closed batch: a range of epochs of a shard, and when and why it was closed."""

    shard: int
    batch: int
    trigger: str
    from_epoch: int
    to_epoch: int
    opened_us: int
    closed_us: int


class Batches(NamedTuple):
    """The batches that were closed in a range of hours, and where their deltas are."""

    batches: list[Batch]
    event_hours: list[int]  # in which their deltas lie; perhaps others, too

    @property
    def epochs(self) -> dict[int, tuple[int, int]]:
        """Shard → first epoch of any of the batches, and the one after the last."""
        shards = {batch.shard for batch in self.batches}
        return {
            shard: (
                min(batch.from_epoch for batch in self.batches if batch.shard == shard),
                max(batch.to_epoch for batch in self.batches if batch.shard == shard),
            )
            for shard in sorted(shards)
        }


def closed_batches(entries: Iterable[Entry], hours: Range) -> Batches:
    """Batches that were closed in the hours, by the entries of all segments that are committed."""
    known = list(entries)
    batches = [
        Batch(
            entry.shard,
            batch.number,
            batch.trigger.value,
            batch.from_epoch,
            batch.to_epoch,
            batch.opened_us,
            batch.closed_us,
        )
        for entry in known
        for batch in entry.batches
        if hours.holds(batch.closed_us)
    ]
    ranges = Batches(batches, []).epochs
    touched = {
        hour_start(key)
        for entry in known
        if entry.shard in ranges
        and entry.from_epoch < ranges[entry.shard][1]
        and entry.to_epoch > ranges[entry.shard][0]
        for key, counts in entry.event_hours.items()
        if key and counts.accepted
    }
    return Batches(sorted(batches), sorted(touched))


def batch_rows(spark: "SparkSession", batches: Sequence[Batch]) -> DataFrame:
    """The batches as a table, small enough to be sent along with the deltas."""
    return spark.createDataFrame(list(batches), BATCHES_DDL)


def assign_batches(deltas: DataFrame, batches: DataFrame) -> DataFrame:
    """Each delta with its batch (`batch`, `trigger`, `opened_us`, `closed_us`); those of other batches are left out."""
    blocks = F.sequence(
        F.floor(F.col("from_epoch") / F.lit(BLOCK_EPOCHS)), F.floor((F.col("to_epoch") - 1) / F.lit(BLOCK_EPOCHS))
    )
    known = batches.where("from_epoch < to_epoch").withColumn("block", F.explode(blocks))
    placed = deltas.withColumn("block", F.floor(F.col("epoch") / F.lit(BLOCK_EPOCHS)))
    in_block = placed.join(F.broadcast(known), on=["shard", "block"], how="inner")
    is_in = (F.col("epoch") >= F.col("from_epoch")) & (F.col("epoch") < F.col("to_epoch"))
    return in_block.where(is_in).select(*deltas.columns, "batch", "trigger", "opened_us", "closed_us")


def count_batches(deltas: DataFrame, batches: DataFrame, stream: Stream) -> DataFrame:
    """What each batch holds of each key of a stream, as rows of the stream's table."""
    of_batch = ["batch", "trigger", "opened_us", "closed_us"]
    placed = assign_batches(view_of(deltas, stream), batches)
    # A batch is one shard's, and its number is only unique there.
    numbered = placed.withColumn("of_shard", F.col("shard"))
    rows = windows_by(numbered, stream, ["of_shard", *of_batch], F.lit(0).cast("bigint"))
    columns = {
        "window_id": window_id(stream, F.col("of_shard"), F.col("batch")),
        "window_start": F.timestamp_micros("opened_us"),
        "window_end": F.timestamp_micros("closed_us"),
        "close_reason": F.col("trigger"),
        WINDOW_HOUR: F.timestamp_micros(floor_us(F.col("closed_us"), HOUR_US)),
    }
    return shown(rows, stream, columns)
