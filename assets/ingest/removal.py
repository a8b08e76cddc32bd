"""Which deltas of vectors lose their payload, and which of their fields stay (K5).

Belongs here: the rule, as pure functions of DataFrames. It applies when payloads are removed, and again in every
rebuild of an hour, so that they do not come back. Does not belong here: how a base is made (`assets/vectors`), and the
order of the steps (`orchestration/compact.py`).

A delta loses its payload when its vector has a base, when it happened and was received before the base's cut, and when
it is not one of the deltas that the base does not hold (`kept`). The fields that other tables are made from stay: the
envelope, `op`, `parent_id` and `clock`, the two numbers `scale` and `offset`, which streams may sum up, and the number
of bytes, which windows have.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from assets.ingest.schema import DELTAS, PLACE
from assets.vectors.schema import VECTOR_CHECKPOINTS
from tidemark.model.deltas import REMOVABLE_BYTES, Kind
from tidemark.model.log_schema import VECTOR
from tidemark.tables.table_spec import sql_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

    from resources.lake import Lake

# These fields go: all that grow with a vector's length or with what its producer says about it.
REMOVED = ("values", "indices", "metadata")

# What happens to a payload when the payloads before a cut are removed.
GOES, HAPPENED_SINCE, RECEIVED_SINCE, IN_NO_BASE = "goes", "happened_since", "received_since", "in_no_base"


def bases_of(lake: "Lake") -> "DataFrame | None":
    """The base of every vector that has one; None if no vector was ever compacted, which costs nothing."""
    if lake.version(VECTOR_CHECKPOINTS.name) is None:
        return None
    return lake.read(VECTOR_CHECKPOINTS.name).where("is_base").select("namespace", "vector_id", "cut_ts", "kept")


def with_fate(deltas: "DataFrame", bases: "DataFrame", cut_us: int) -> "DataFrame":
    """The vector deltas that still have a payload, each with its `fate`: it goes, or a condition keeps it.

    Only the columns that decide this are read, and no payload.
    """
    cut = F.timestamp_micros(F.lit(cut_us))
    fate = (
        F.when(F.col("is_covered"), GOES)
        .when(F.col("event_ts") >= cut, HAPPENED_SINCE)
        .when(F.col("received_ts") >= cut, RECEIVED_SINCE)
        .otherwise(IN_NO_BASE)
    )
    there = deltas.where(f"kind = '{Kind.VECTOR.value}' AND removed_bytes IS NULL")
    return _with_cover(there, bases).select(*deltas.columns, fate.alias("fate"))


def without_payloads(deltas: "DataFrame", bases: "DataFrame") -> "DataFrame":
    """The same rows of `deltas`, without the payloads that the bases hold."""
    covered = F.col("is_covered")
    removed_bytes = F.when(covered, F.expr(REMOVABLE_BYTES).cast("bigint")).otherwise(F.col("removed_bytes"))
    emptied = F.when(covered, _emptied()).otherwise(F.col("vector"))
    return (
        _with_cover(deltas, bases)
        .withColumns({"removed_bytes": removed_bytes, "vector": emptied})
        .select(*DELTAS.names)
    )


def _emptied() -> "Column":
    vector = F.col("vector")
    for name in REMOVED:
        vector = vector.withField(name, F.lit(None).cast(sql_type(VECTOR.field(name).type)))
    return vector


def _with_cover(deltas: "DataFrame", bases: "DataFrame") -> "DataFrame":
    """The rows with `is_covered`. Deltas that a base does not hold are joined row by row: there may be very many."""
    cuts = bases.select("namespace", F.col("vector_id").alias("key"), "cut_ts", F.lit(Kind.VECTOR.value).alias("kind"))
    kept = bases.select(F.explode("kept").alias("kept")).select("kept.*", F.lit(True).alias("is_kept"))
    is_before = (F.col("event_ts") < F.col("cut_ts")) & (F.col("received_ts") < F.col("cut_ts"))
    return (
        deltas.join(cuts, on=["namespace", "kind", "key"], how="left")
        .join(kept, on=list(PLACE), how="left")
        .withColumn("is_covered", F.coalesce(is_before & F.col("is_kept").isNull(), F.lit(False)))
    )
