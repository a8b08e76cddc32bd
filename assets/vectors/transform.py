"""From deltas to the current state of every vector: a pure function of rows (D3, K1).

Belongs here: which rows are folded, from which starting state, in which order, as one plan. What a delta does is in
`resources/vectors`; it runs here as Arrow batches between two operators of Spark, in memory bounded by a batch. Does
not belong here: which versions are read, and what was new in them (`news.py`, `asset.py`).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from assets.vectors.schema import BUCKET, BUCKET_SQL, VECTORS
from resources.table_spec import sql_type
from resources.vectors.fold import emit_last, fold_batches
from resources.vectors.order import begins_vector
from resources.vectors.places import PLACE_COLUMNS, Standing, with_places
from resources.vectors.schema import CHECKPOINT, DELTA_FIELDS, START_FIELDS, STATES

KEYS = ("namespace", "vector_id")
# Where a delta stands in the log; no two have the same.
ARRIVAL = ("shard", "epoch", "ordinal")
# What tells a delta's place, without its payload.
ENVELOPE = (*KEYS, *ARRIVAL, "event_us", "origin", "delta_id", "parent_id")
# Envelopes of whole vectors are placed together, about so many rows at once.
PLACED_AT_ONCE = 1 << 16

_STATES_DDL = ", ".join(f"`{field.name}` {sql_type(field.type)}" for field in STATES)
_DELTA_NAMES = [name for name, _ in DELTA_FIELDS if name != "emit"]
_START_NAMES = [name for name, _ in START_FIELDS]
_PLACES = [("eff_us", pa.int64()), ("depth", pa.int32()), ("standing", pa.string())]
_ENVELOPES_DDL = ", ".join(
    f"`{name}` {sql_type(kind)}" for name, kind in [*((name, dict(DELTA_FIELDS)[name]) for name in ARRIVAL), *_PLACES]
)


def vector_deltas(deltas: DataFrame) -> DataFrame:
    """The vector deltas among rows of `deltas`, as the fold names their columns; none has a place yet."""
    payload = ("op", "values", "indices", "factor", "amount", "metadata", "clock", "parent_id")
    return deltas.where("kind = 'vector'").select(
        "namespace",
        F.col("key").alias("vector_id"),
        *ARRIVAL,
        F.unix_micros("event_ts").alias("event_us"),
        F.coalesce("origin", "producer").alias("origin"),
        "delta_id",
        *(F.col(f"vector.{name}").alias(name) for name in payload),
    )


def parented_vectors(deltas: DataFrame) -> DataFrame:
    """The vectors in which some delta names a parent: the others need no look at all of their deltas to be placed."""
    return deltas.where("parent_id IS NOT NULL").select(*KEYS).distinct()


def place_alone(deltas: DataFrame) -> DataFrame:
    """Deltas of vectors in which none names a parent: each stands at its own time."""
    own = {"eff_us": F.col("event_us"), "depth": F.lit(0), "standing": F.lit(Standing.PLACED.value)}
    return deltas.withColumns(own)


def place_families(deltas: DataFrame) -> DataFrame:
    """Deltas of vectors in which some name parents, with their places, or why they have none.

    Only envelopes are brought together: a vector's payloads need not fit anywhere at once.
    """
    envelopes = deltas.select(*ENVELOPE).repartition(*KEYS).sortWithinPartitions(*KEYS)
    return deltas.join(envelopes.mapInArrow(_placed, _ENVELOPES_DDL), list(ARRIVAL), how="inner")


def starts_of(states: DataFrame) -> DataFrame:
    """Rows of `vectors` or `vector_checkpoints` as what a fold starts from: the first row of each vector."""
    renamed = {"epoch": "last_epoch", "ordinal": "last_ordinal", "eff_us": "eff_ts", "event_us": "event_ts"}
    made = {"op": F.lit(CHECKPOINT)}
    columns = [
        made[name]
        if name in made
        else F.unix_micros(renamed[name])
        if name in ("eff_us", "event_us")
        else F.col(renamed.get(name, name))
        if renamed.get(name, name) in states.columns
        else F.lit(None).cast(sql_type(kind))
        for name, kind in (*DELTA_FIELDS, *START_FIELDS)
        if name != "emit"
    ]
    names = [*_DELTA_NAMES, *_START_NAMES]
    return states.select(*(column.alias(name) for column, name in zip(columns, names, strict=True)))


def fold(placed: DataFrame, starts: DataFrame | None = None) -> DataFrame:
    """The states (`STATES`) of all vectors that have a placed delta or a starting state, those of a bucket together.

    Vectors are sorted by a hash first: a number decides nearly every comparison, where their names share a beginning.
    """
    rows = placed.where(F.col("standing") == Standing.PLACED.value).select(*_DELTA_NAMES)
    if starts is not None:
        rows = rows.unionByName(starts, allowMissingColumns=True)
    bucketed = together(with_bucket(rows)).withColumn("hash", F.xxhash64(*KEYS))
    ordered = bucketed.sortWithinPartitions("hash", *KEYS, *PLACE_COLUMNS).drop("hash", BUCKET)
    return ordered.mapInArrow(_folded, _STATES_DDL)


def fold_vectors(deltas: DataFrame, *, parented: DataFrame | None, starts: DataFrame | None = None) -> DataFrame:
    """Rows of `vectors` from all deltas of some vectors (`vector_deltas`), those of a bucket together.

    `parented` are those vectors that have parents, if any has; `starts` are the states from which some of them begin,
    whose own deltas are among the given ones only as envelopes.
    """
    if parented is None:
        return current_rows(fold(_remaining(place_alone(deltas), starts), starts))
    ways: dict[str, DataFrame] = {}
    for how, placed_by in (("left_anti", place_alone), ("left_semi", place_families)):
        own = None if starts is None else starts.join(parented, list(KEYS), how=how)
        placed = deltas.join(parented, list(KEYS), how=how).transform(placed_by)
        waiting = _waiting(placed) if how == "left_semi" else None
        ways[how] = current_rows(fold(_remaining(placed, own), own), waiting)
    return together(ways["left_anti"].unionByName(ways["left_semi"]))


def go_on(new: DataFrame, present: DataFrame, touched: DataFrame) -> DataFrame:
    """Rows of the touched vectors that may go on from where they are: from their rows, with the new deltas."""
    rows, more = (each.join(touched.where("is_fast"), list(KEYS), how="left_semi") for each in (present, new))
    return current_rows(fold(place_alone(more), starts_of(rows)))


def to_fold_anew(deltas: DataFrame, touched: DataFrame) -> DataFrame:
    """All deltas of the touched vectors that cannot go on from where they are."""
    return deltas.join(touched.where("NOT is_fast"), list(KEYS), how="left_semi")


def untouched(present: DataFrame, touched: DataFrame) -> DataFrame:
    """Rows of the vectors that stay as they are."""
    return present.join(touched, list(KEYS), how="left_anti").select(*present.columns)


def current_rows(states: DataFrame, waiting: DataFrame | None = None) -> DataFrame:
    """States as rows of `vectors`; a vector all of whose deltas wait has a row that counts them."""
    counts: dict[str, Column] = {"parked": F.lit(0), "cycles": F.lit(0), "has_parents": F.lit(False)}
    if waiting is not None:
        numbers = ("deltas", "no_base", "no_effect")
        known = {name: F.coalesce(name, F.lit(False)) for name in ("exists", "is_dead")}
        known |= {name: F.coalesce(name, F.lit(0)) for name in numbers}
        states = states.join(waiting, list(KEYS), how="full_outer").withColumns(
            {**known, "shard": F.coalesce("shard", "waiting_shard")}
        )
        counts = {name: F.coalesce(f"waiting_{name}", F.lit(0)) for name in ("parked", "cycles")}
        counts["has_parents"] = F.lit(True)
    times = {"eff_ts": F.timestamp_micros("eff_us"), "event_ts": F.timestamp_micros("event_us")}
    whole = states.withColumns({**times, **counts, BUCKET: F.expr(BUCKET_SQL)})
    return whole.select(*(F.col(column.name).cast(column.sql).alias(column.name) for column in VECTORS.columns))


def _remaining(placed: DataFrame, starts: DataFrame | None) -> DataFrame:
    """The deltas that the vector's starting state does not hold: those that stand after it, or have no place."""
    if starts is None:
        return placed
    held = starts.select(*KEYS, F.struct(*PLACE_COLUMNS).alias("held"))
    is_after = f"held IS NULL OR standing <> '{Standing.PLACED}' OR struct({', '.join(PLACE_COLUMNS)}) > held"
    return placed.join(held, list(KEYS), how="left").where(is_after).drop("held")


def _waiting(placed: DataFrame) -> DataFrame:
    """Of each vector, how many of its deltas have no place."""
    return placed.groupBy(*KEYS).agg(
        F.max("shard").alias("waiting_shard"),
        F.count_if(F.col("standing") == Standing.PARKED.value).alias("waiting_parked"),
        F.count_if(F.col("standing") == Standing.CYCLE.value).alias("waiting_cycles"),
    )


def new_deltas(deltas: DataFrame, covered: Mapping[int, int]) -> DataFrame:
    """Those that arrived after the last epoch that is covered, shard by shard."""
    cases = " ".join(f"WHEN {int(shard)} THEN {int(epoch)}L" for shard, epoch in covered.items())
    last = f"CASE shard {cases} ELSE 0L END" if cases else "0L"
    # The least of them besides, as a plain number: by that, whole files are passed over.
    return deltas.where(f"epoch > {min(covered.values(), default=0)}L AND epoch > {last}")


def touched_vectors(new: DataFrame, vectors: DataFrame) -> DataFrame:
    """The vectors that have new deltas: whether each may go on from its row (`is_fast`), and whether it has parents."""
    own = (F.col("event_us"), F.lit(0), F.col("event_us"), F.col("origin"), F.col("delta_id"))
    touched = new.groupBy(*KEYS).agg(
        F.min(_place_of(*own)).alias("first"), F.max(F.col("parent_id").isNotNull()).alias("names_parent")
    )
    place = (F.unix_micros("eff_ts"), F.col("depth"), F.unix_micros("event_ts"), F.col("origin"), F.col("delta_id"))
    last = F.when(F.col("deltas") > 0, _place_of(*place))
    rows = vectors.select(*KEYS, F.col("has_parents").alias("had_parents"), last.alias("last"))
    has_parents = F.col("names_parent") | F.coalesce("had_parents", F.lit(False))
    is_fast = ~has_parents & F.coalesce(F.col("first") > F.col("last"), F.lit(False))
    joined = touched.join(rows, list(KEYS), how="left")
    return joined.select(
        *KEYS, is_fast.alias("is_fast"), has_parents.alias("has_parents"), F.expr(BUCKET_SQL).alias(BUCKET)
    )


def _place_of(*parts: Column) -> Column:
    """A canonical place that can be compared with others."""
    return F.struct(*(part.alias(name) for part, name in zip(parts, PLACE_COLUMNS, strict=True)))


def latest_bases(checkpoints: DataFrame) -> DataFrame:
    """Of each vector that has any, the base that reaches furthest (K5)."""
    by_reach = Window.partitionBy(*KEYS).orderBy(F.desc("cut_ts"), F.desc("deltas"))
    ranked = checkpoints.where("is_base").withColumn("rank", F.row_number().over(by_reach))
    return ranked.where("rank = 1").drop("rank")


def with_bucket(rows: DataFrame) -> DataFrame:
    """Rows that name a vector, with the bucket that it lies in."""
    return rows.withColumn(BUCKET, F.expr(BUCKET_SQL))


def together(rows: DataFrame) -> DataFrame:
    """Rows with those of a bucket in one task, so that they become one file."""
    return rows.repartition(BUCKET)


def arranged(rows: DataFrame, order_by: Sequence[str]) -> DataFrame:
    """Rows from anywhere as they are written: a bucket's together and in order, so that each is one file."""
    return in_order(together(rows), order_by)


def in_order(rows: DataFrame, order_by: Sequence[str]) -> DataFrame:
    """Rows that lie together bucket by bucket, in the order in which they are written and looked up."""
    return rows.sortWithinPartitions(BUCKET, *order_by)


def _folded(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return fold_batches(emit_last(batches))


def _placed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Places of the envelopes of whole vectors, which lie together."""
    for table in whole_vectors(batches, PLACED_AT_ONCE):
        yield from with_places(table).select([*ARRIVAL, *(name for name, _ in _PLACES)]).combine_chunks().to_batches()


def whole_vectors(batches: Iterable[pa.RecordBatch], rows_at_once: int) -> Iterator[pa.Table]:
    """The rows again, cut between vectors: as soon as there are enough, all that are known to be complete."""
    held: list[pa.RecordBatch] = []
    wanted = rows_at_once
    for batch in batches:
        held.append(batch)
        if sum(each.num_rows for each in held) < wanted:
            continue
        table = pa.Table.from_batches(held)
        begins = begins_vector(table).nonzero()[0]
        if len(begins):
            end = int(begins[-1]) + 1
            yield table.slice(0, end)
            held = table.slice(end).to_batches()
        # One vector that is larger is looked at again when it has doubled, and not at every batch.
        wanted = max(rows_at_once, 2 * sum(each.num_rows for each in held))
    if held:
        yield pa.Table.from_batches(held)
