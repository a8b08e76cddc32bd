"""Adaptive windows: the coordinator's recorded batches, as windows of a stream's own deltas (N1, C5).

Belongs here: which batch a delta is in, and what a batch holds for each key. The segments record batches (decisions
0013 and 0038); a batch is a range of epochs of one shard, and every accepted delta is in exactly one. No delta is ever
late for a batch: it holds the deltas that came. Nothing is written.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.graph import By
from assets.windows.lateness import floor_us
from assets.windows.schema import WINDOW_HOUR
from assets.windows.transform import shown, window_id, windows_by
from assets.windows.view import view_of
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US
from tidemark.observe.log_index import hours_of
from tidemark.observe.sealed_log import Log, touched_hours
from tidemark.streams import Stream

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
    event_hours: list[int]  # the hours of their deltas; perhaps others, too

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


def closed_batches(log: Log, upto: Mapping[int, int], hours: Range) -> Batches:
    """Batches that were closed in the hours, by the committed segments: those before `upto`."""
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
        for entry in log.below(upto)
        if any(map(hours.holds, hours_of(entry, By.BATCH)))
        for batch in log.batches_of(entry)
        if hours.holds(batch.closed_us)
    ]
    touched = touched_hours(log.within(Batches(batches, []).epochs))
    return Batches(sorted(batches), sorted(touched.event))


def batch_rows(spark: "SparkSession", batches: Sequence[Batch]) -> DataFrame:
    """The batches as a table, small enough to broadcast."""
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
    """What each batch holds for each key of a stream, as rows of the stream's table."""
    of_batch = ["batch", "trigger", "opened_us", "closed_us"]
    placed = assign_batches(view_of(deltas, stream), batches)
    # A batch belongs to one shard, and its number is only unique there.
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
