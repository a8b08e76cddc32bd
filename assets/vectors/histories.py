"""Every vector's deltas in canonical order, counted, with its checkpoints between them.

Belongs here: the number of each delta, whether each checkpoint still holds the deltas below it (K4), and the fold that
gives states after marked deltas. The first two need no payload. Does not belong here: where checkpoints go
(`checkpoints.py`, `bases.py`), reading and writing (`compaction.py`).
"""

from functools import partial

import pyarrow as pa
from pyspark.sql import DataFrame, Window, WindowSpec
from pyspark.sql import functions as F

from assets.vectors.schema import BUCKET, BUCKET_SQL, VECTOR_CHECKPOINTS
from assets.vectors.transform import ARRIVAL, KEYS, PAYLOAD, placed, starts_of, vector_deltas
from tidemark.tables.table_spec import sql_type
from tidemark.vectors.fold import fold_batches
from tidemark.vectors.places import PLACE_COLUMNS
from tidemark.vectors.schema import DELTA_FIELDS, STATES

_KINDS = {**dict(DELTA_FIELDS), "received_us": pa.int64(), "standing": pa.string()}
_PLACED = (*KEYS, *ARRIVAL, *PLACE_COLUMNS, "received_us", "standing")
_PLACED_DDL = ", ".join(f"`{name}` {sql_type(_KINDS[name])}" for name in _PLACED)
_STATES_DDL = ", ".join(f"`{field.name}` {sql_type(field.type)}" for field in STATES)


def so_far(*order_by: str) -> WindowSpec:
    """All rows of a vector up to the row itself."""
    return Window.partitionBy(*KEYS).orderBy(*order_by).rowsBetween(Window.unboundedPreceding, Window.currentRow)


def whole_vector() -> WindowSpec:
    """All rows of a vector."""
    return Window.partitionBy(*KEYS).rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)


def placed_envelopes(deltas: DataFrame) -> DataFrame:
    """The vector deltas among rows of `deltas`, whole vectors of them, with their places and without their payloads."""
    envelopes = vector_deltas(deltas, ("parent_id",), F.unix_micros("received_ts").alias("received_us"))
    return envelopes.repartition(*KEYS).sortWithinPartitions(*KEYS).mapInArrow(partial(placed, _PLACED), _PLACED_DDL)


def counted(placed: DataFrame, checkpoints: DataFrame) -> DataFrame:
    """Deltas that have a place, and checkpoints, with `number`: how many deltas there are up to there, counting itself.

    `total` is the number of deltas of the vector. A checkpoint is stale when it does not hold exactly the deltas up to
    it: a late delta came below it, or one left because its parent was named again (K4). A base is never stale: the log
    refuses deltas below it. A vector without deltas among the given ones is left out: a delta without a parent has a
    place, and every history begins with one.
    """
    held = checkpoints.select(
        *KEYS,
        F.unix_micros("eff_ts").alias("eff_us"),
        "depth",
        F.unix_micros("event_ts").alias("event_us"),
        *("origin", "delta_id", "last_epoch"),
        F.col("deltas").alias("held"),
        F.lit(True).alias("is_checkpoint"),
        "is_base",
    )
    rows = (
        placed.where("standing = 'placed'")
        .drop("standing")
        .withColumn("is_checkpoint", F.lit(False))
        .unionByName(held, allowMissingColumns=True)
    )
    # A delta at the place of a checkpoint comes before it.
    up_to_here = so_far(*PLACE_COLUMNS, "is_checkpoint")
    numbered = rows.withColumns(
        {
            "number": F.count_if(~F.col("is_checkpoint")).over(up_to_here),
            "epoch_so_far": F.max("epoch").over(up_to_here),
        }
    )
    known = numbered.withColumn("total", F.max("number").over(whole_vector())).where("total > 0")
    is_stale = F.expr("is_checkpoint AND NOT is_base AND NOT (held <=> number AND last_epoch <=> epoch_so_far)")
    return known.withColumn("is_stale", is_stale).drop("epoch_so_far", "is_base")


def fold_marked(marked: DataFrame, deltas: DataFrame, starts: DataFrame) -> DataFrame:
    """States (`STATES`) after the deltas that are marked with `emit`.

    `marked` are deltas with their places: all deltas of a vector from its start, which is a row of `starts` (from
    `vector_checkpoints`) or its first delta. Their payloads are taken from `deltas`.
    """
    payloads = vector_deltas(deltas).select(*ARRIVAL, *PAYLOAD[:-1])
    rows = marked.select(*KEYS, *ARRIVAL, *PLACE_COLUMNS, "emit").join(payloads, on=list(ARRIVAL), how="inner")
    together = rows.unionByName(starts_of(starts).withColumn("emit", F.lit(False)), allowMissingColumns=True)
    ordered = together.repartition(*KEYS).sortWithinPartitions(*KEYS, *PLACE_COLUMNS)
    return ordered.mapInArrow(fold_batches, _STATES_DDL)


def as_checkpoints(states: DataFrame) -> DataFrame:
    """States as rows of `vector_checkpoints`; columns that they lack are null."""
    times = {"eff_ts": F.timestamp_micros("eff_us"), "event_ts": F.timestamp_micros("event_us")}
    whole = states.withColumns({**times, BUCKET: F.expr(BUCKET_SQL)})
    known = {*whole.columns}
    return whole.select(
        *(
            (F.col(column.name) if column.name in known else F.lit(None)).cast(column.sql).alias(column.name)
            for column in VECTOR_CHECKPOINTS.columns
        )
    )


def place_of_checkpoint() -> list[str]:
    """The columns of the table that tell a vector's checkpoints apart."""
    return [*KEYS, "eff_ts", "depth", "event_ts", "origin", "delta_id"]
