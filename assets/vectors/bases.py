"""Bases: the checkpoint of a vector below which payloads may go (K1, K4, K5). Pure functions of DataFrames.

Belongs here: how far a base reaches, and which old deltas it does not hold. Does not belong here: when a cut may be
relied on (`orchestration/compact.py`), which payloads are removed then (`assets/ingest/removal.py`).

A base holds the longest run of deltas, from the first one on, of which each takes effect and was received before the
cut. So every state as of the cut or later, or by a write received since, contains all of it. A base is final: a delta
that belongs below it would have happened before the cut, and the log refuses that.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.vectors.histories import as_checkpoints, fold_marked, placed_envelopes, so_far, whole_vector
from assets.vectors.transform import ARRIVAL, KEYS
from tidemark.vectors.places import PLACE_COLUMNS

# The value in the column `strategy` of a base.
HORIZON = "horizon"

_PLACED = "standing = 'placed'"


def plan_bases(deltas: DataFrame, checkpoints: DataFrame, *, cut_us: int) -> DataFrame:
    """Deltas of the vectors that get a base, or a later one: `number`, whether the base holds it (`is_held`), `emit`.

    Old deltas that the base does not hold are among them, with and without a place. `start` is the number of deltas in
    the vector's present base, and `reach` the number in the new one.
    """
    bases = checkpoints.where("is_base").select(*KEYS, F.col("deltas").alias("start"))
    placed = placed_envelopes(_with_old(deltas, cut_us)).join(bases, on=list(KEYS), how="left")
    # Deltas without a place come last: they break no run.
    up_to_here = so_far("is_unplaced", *PLACE_COLUMNS)
    numbered = placed.withColumns(
        {"start": F.coalesce("start", F.lit(0)), "is_unplaced": F.expr(f"NOT {_PLACED}")}
    ).withColumns(
        {
            "number": F.count(F.lit(1)).over(up_to_here),
            "is_broken": F.max((F.col("eff_us") >= cut_us) | (F.col("received_us") >= cut_us)).over(up_to_here),
        }
    )
    numbered = numbered.withColumn("is_held", F.expr(f"{_PLACED} AND NOT is_broken"))
    reach = F.coalesce(F.max(F.when(F.col("is_held"), F.col("number"))).over(whole_vector()), F.lit(0))
    is_old = (F.col("event_us") < cut_us) & (F.col("received_us") < cut_us)
    known = numbered.withColumn("reach", reach).where(F.col("reach") > F.col("start"))
    return known.where(F.col("is_held") | is_old).select(
        *(*KEYS, *ARRIVAL, *PLACE_COLUMNS, "number", "start", "reach", "is_held"),
        (F.col("is_held") & (F.col("number") == F.col("reach"))).alias("emit"),
    )


def new_bases(plan: DataFrame, deltas: DataFrame, checkpoints: DataFrame, *, cut_us: int) -> DataFrame:
    """The bases that a plan asks for, as rows of the table."""
    folded = plan.where("is_held AND number > start")
    begun = checkpoints.where("is_base").join(folded.select(*KEYS).distinct(), on=list(KEYS), how="left_semi")
    left_out = plan.where("NOT is_held").groupBy(*KEYS)
    kept = left_out.agg(F.array_sort(F.collect_list(F.struct(*ARRIVAL))).alias("kept"))
    of_base = {
        "kept": F.coalesce("kept", F.expr("array()")),
        "cut_ts": F.timestamp_micros(F.lit(cut_us)),
        "is_base": F.lit(True),
        "strategy": F.lit(HORIZON),
    }
    states = fold_marked(folded, deltas, begun).join(kept, on=list(KEYS), how="left")
    return as_checkpoints(states.withColumns(of_base))


def foreseen_bases(plan: DataFrame, checkpoints: DataFrame, *, cut_us: int) -> DataFrame:
    """The bases as they will be after a plan: only the columns that the removal of payloads needs, and no state."""
    left_out = F.collect_list(F.when(~F.col("is_held"), F.struct(*ARRIVAL)))
    moved = plan.groupBy(*KEYS).agg(F.timestamp_micros(F.lit(cut_us)).alias("cut_ts"), left_out.alias("kept"))
    stay = checkpoints.where("is_base").join(moved, on=list(KEYS), how="left_anti")
    return stay.select(*moved.columns).unionByName(moved)


def checkpoints_above(plan: DataFrame, checkpoints: DataFrame) -> DataFrame:
    """The checkpoints that stay: of vectors that get a base, those that stand above it."""
    reach = plan.where("emit").select(*KEYS, "reach")
    left = checkpoints.join(reach, on=list(KEYS), how="left").where("reach IS NULL OR deltas > reach")
    return left.select(*checkpoints.columns)


def _with_old(deltas: DataFrame, cut_us: int) -> DataFrame:
    """All deltas of the vectors that have one that is old, and whose payload is there."""
    own = deltas.where("kind = 'vector'")
    is_old = (F.unix_micros("event_ts") < cut_us) & (F.unix_micros("received_ts") < cut_us)
    old = own.where(is_old & F.col("removed_bytes").isNull()).select("namespace", "key").distinct()
    return own.join(old, on=["namespace", "key"], how="left_semi")
