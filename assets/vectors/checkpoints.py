"""Which vectors are due, and after which of their deltas a checkpoint goes, in DataFrames (K2, K3).

Belongs here: the rules of `tidemark/vectors/checkpoints.py` as columns of Spark, for all vectors at once and in time
linear in their deltas; a test compares the two. Does not belong here: reading and writing (`compaction.py`).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.vectors.histories import (
    as_checkpoints,
    counted,
    fold_marked,
    place_of_checkpoint,
    placed_envelopes,
    whole_vector,
)
from assets.vectors.transform import KEYS
from tidemark.model.timegrid import DAY_US
from tidemark.vectors.checkpoints import CompactionRules, DueReason, Strategy
from tidemark.vectors.places import PLACE_COLUMNS
from tidemark.vectors.reading.reads import RATE_SPAN_US

HOURS_OF_RATES = RATE_SPAN_US / (DAY_US / 24)
# Why a vector is touched that is not due: one of its checkpoints was thrown away (K4), or the run forces it.
REFOLD, FORCED = "refold", "forced"
# A merge replaces the merges before it; states of intervals stay, because each one is read by its time.
MERGES = (Strategy.FULL_MERGE, Strategy.TIERED_MERGE)

# When the next delta takes effect, ignoring the checkpoints in between.
_NEXT_US = (
    "lead(if(is_checkpoint, NULL, eff_us)) IGNORE NULLS OVER "
    f"(PARTITION BY {', '.join(KEYS)} ORDER BY {', '.join(PLACE_COLUMNS)}, is_checkpoint)"
)


def with_news(deltas: DataFrame, checkpoints: DataFrame) -> DataFrame:
    """The vector deltas of those vectors that have more deltas than their latest checkpoint holds."""
    own = deltas.where("kind = 'vector'")
    counts = own.groupBy("namespace", "key").agg(F.count(F.lit(1)).alias("deltas"))
    held = checkpoints.groupBy("namespace", F.col("vector_id").alias("key")).agg(F.max("deltas").alias("held"))
    news = counts.join(held, on=["namespace", "key"], how="left").where("held IS NULL OR deltas > held")
    return own.join(news.select("namespace", "key"), on=["namespace", "key"], how="left_semi")


def plan_checkpoints(
    deltas: DataFrame,
    checkpoints: DataFrame,
    *,
    now_us: int,
    rules: CompactionRules,
    is_forced: bool = False,
    reads: DataFrame | None = None,
) -> DataFrame:
    """The work to do: deltas to fold, those with `emit` into a checkpoint, and checkpoints to throw away.

    `reads` has `reads_per_hour` of vectors, which only `adaptive` needs. `pending` is the number of deltas that a read
    has to fold now, `left` the number afterwards. With `is_forced` every vector is due that has anything pending.
    """
    lines = counted(placed_envelopes(with_news(deltas, checkpoints)), checkpoints)
    is_delta, vector = ~F.col("is_checkpoint"), whole_vector()
    known = lines.withColumns(
        {
            "start": F.coalesce(F.max(F.when(~is_delta & ~F.col("is_stale"), F.col("held"))).over(vector), F.lit(0)),
            "has_stale": F.max("is_stale").over(vector),
            "writes_per_hour": F.count_if(is_delta & (F.col("received_us") >= now_us - RATE_SPAN_US)).over(vector)
            / HOURS_OF_RATES,
        }
    ).withColumns(
        {
            "pending": F.col("total") - F.col("start"),
            "oldest_us": F.min(F.when(is_delta & (F.col("number") > F.col("start")), F.col("received_us"))).over(
                vector
            ),
        }
    )
    chosen = _with_strategy(known, rules, reads).withColumn("reason", due_reason(now_us, rules, is_forced=is_forced))
    marked = chosen.withColumn("emit", is_delta & (F.col("number") > F.col("start")) & is_position(now_us, rules))
    last = F.max(F.when(F.col("emit"), F.col("number"))).over(vector)
    is_folded = is_delta & (F.col("reason") != DueReason.NONE.value) & (F.col("number") > F.col("start"))
    return (
        marked.withColumns({"last": last, "left": F.col("total") - last})
        .where((is_folded & (F.col("number") <= F.col("last"))) | F.col("is_stale"))
        .select(*PLANNED)
    )


PLANNED = (
    *(*KEYS, "shard", "epoch", "ordinal", *PLACE_COLUMNS),
    *("number", "emit", "is_stale", "strategy", "reason", "start", "pending", "left"),
)


def due_reason(now_us: int, rules: CompactionRules, *, is_forced: bool = False) -> Column:
    """Why a vector is due for compaction, from `pending`, `oldest_us` and `strategy` (K3)."""
    pending = F.col("pending")
    keep = F.when(F.col("strategy") == Strategy.TIERED_MERGE.value, rules.keep_recent).otherwise(0)
    has_some = pending > keep
    return (
        F.when(pending >= rules.hard_limit, DueReason.HARD_LIMIT.value)
        .when(has_some & (pending >= rules.threshold), DueReason.THRESHOLD.value)
        .when(has_some & (F.lit(now_us) - F.col("oldest_us") >= rules.max_age_us), DueReason.AGE.value)
        .when(has_some & F.lit(is_forced), FORCED)
        .when(F.col("has_stale"), REFOLD)
        .otherwise(DueReason.NONE.value)
    )


def is_position(now_us: int, rules: CompactionRules) -> Column:
    """Whether a checkpoint goes after a delta, from `number`, `total`, `eff_us` and `strategy` (K2)."""
    interval_end = F.expr(f"eff_us - pmod(eff_us, {rules.interval_us}L) + {rules.interval_us}L")
    is_end = F.coalesce(F.expr(_NEXT_US) >= interval_end, F.lit(True))
    return (
        F.when(F.col("strategy") == Strategy.FULL_MERGE.value, F.col("number") == F.col("total"))
        .when(F.col("strategy") == Strategy.TIERED_MERGE.value, F.col("number") == F.col("total") - rules.keep_recent)
        .otherwise(is_end & (interval_end <= now_us))
    )


def new_checkpoints(plan: DataFrame, deltas: DataFrame, checkpoints: DataFrame) -> DataFrame:
    """The new checkpoints of a plan, as rows of the table."""
    folded = plan.where("NOT is_stale")
    starts = folded.select(*KEYS, F.col("start").alias("deltas")).distinct()
    # A stale checkpoint may have the same number of deltas as one that is not stale.
    valid = checkpoints.join(_stale(plan), on=place_of_checkpoint(), how="left_anti")
    begun = valid.join(starts, on=[*KEYS, "deltas"], how="left_semi")
    strategies = folded.where("emit").select(*KEYS, "strategy").distinct()
    states = fold_marked(folded, deltas, begun).join(strategies, on=list(KEYS), how="inner")
    return as_checkpoints(states.withColumn("is_base", F.lit(False)))


def kept_checkpoints(plan: DataFrame, checkpoints: DataFrame, *, rules: CompactionRules) -> DataFrame:
    """The checkpoints that stay: no stale ones, no merges of vectors that are merged again, one state per interval."""
    made = plan.where("emit")
    merged = made.select(*KEYS, F.lit(True).alias("is_merged")).distinct()
    is_merge = F.col("strategy").isin([each.value for each in MERGES])
    own_interval = F.expr(f"unix_micros(eff_ts) - pmod(unix_micros(eff_ts), {rules.interval_us}L)")
    intervals = made.where(F.col("strategy") == Strategy.TIME_BOUNDARY.value).select(
        *KEYS, F.expr(f"eff_us - pmod(eff_us, {rules.interval_us}L)").alias("interval"), F.lit(True).alias("is_ended")
    )
    left = checkpoints.join(_stale(plan), on=place_of_checkpoint(), how="left_anti").withColumn(
        "interval", own_interval
    )
    left = left.join(merged, on=list(KEYS), how="left").join(intervals, on=[*KEYS, "interval"], how="left")
    is_replaced = ~F.col("is_base") & F.when(is_merge, F.col("is_merged")).otherwise(F.col("is_ended"))
    return left.where(~F.coalesce(is_replaced, F.lit(False))).select(*checkpoints.columns)


def _stale(plan: DataFrame) -> DataFrame:
    times = {"eff_ts": F.timestamp_micros("eff_us"), "event_ts": F.timestamp_micros("event_us")}
    return plan.where("is_stale").withColumns(times).select(*place_of_checkpoint())


def _with_strategy(lines: DataFrame, rules: CompactionRules, reads: DataFrame | None) -> DataFrame:
    """The strategy of every vector; with `adaptive`, the first of its rules that holds (K2)."""
    if rules.strategy is not Strategy.ADAPTIVE:
        return lines.withColumn("strategy", F.lit(rules.strategy.value))
    read, written = F.lit(0.0), F.col("writes_per_hour")
    if reads is not None:
        lines = lines.join(F.broadcast(reads), on=list(KEYS), how="left")
        read = F.coalesce("reads_per_hour", F.lit(0.0))
    is_merged = (written < rules.busy_writes_per_hour) & (read >= rules.reads_per_write * written)
    strategy = (
        F.when(read < rules.rare_reads_per_hour, Strategy.TIME_BOUNDARY.value)
        .when(is_merged, Strategy.FULL_MERGE.value)
        .otherwise(Strategy.TIERED_MERGE.value)
    )
    return lines.withColumn("strategy", strategy)
