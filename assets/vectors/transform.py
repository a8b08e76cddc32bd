"""Vector deltas and the rows made from them, in DataFrames, shared by conflicts and checkpoints.

Belongs here: the columns of deltas and of states to go on from, places, and which rows are new or stay. Does not belong
here: the current state of every vector, which tasks fold from files (`job.py`), and reading and writing (`asset.py`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from assets.vectors.schema import BUCKET, BUCKET_SQL
from tidemark.model.ranges import bucket_predicate
from tidemark.tables.table_spec import sql_type
from tidemark.vectors.order import begins_vector
from tidemark.vectors.places import Standing, with_places
from tidemark.vectors.schema import CHECKPOINT, DELTA_FIELDS, START_FIELDS

KEYS = ("namespace", "vector_id")
# The place of a delta in the log; no two deltas share one.
ARRIVAL = ("shard", "epoch", "ordinal")
# The columns that decide a delta's place, without its payload.
ENVELOPE = (*KEYS, *ARRIVAL, "event_us", "origin", "delta_id", "parent_id")
# What an operation does, and on top of which delta.
PAYLOAD = ("op", "values", "indices", "factor", "amount", "metadata", "clock", "parent_id")
# Envelopes of whole vectors are placed together, about so many rows at once.
PLACED_AT_ONCE = 1 << 16

_DELTA_NAMES = [name for name, _ in DELTA_FIELDS if name != "emit"]
_START_NAMES = [name for name, _ in START_FIELDS]
_PLACES = [("eff_us", pa.int64()), ("depth", pa.int32()), ("standing", pa.string())]
_ENVELOPES_DDL = ", ".join(
    f"`{name}` {sql_type(kind)}" for name, kind in [*((name, dict(DELTA_FIELDS)[name]) for name in ARRIVAL), *_PLACES]
)


def vector_deltas(deltas: DataFrame, payload: Sequence[str] = PAYLOAD, *more: Column) -> DataFrame:
    """The vector deltas among rows of `deltas`, as the fold names their columns; none has a place yet."""
    return deltas.where("kind = 'vector'").select(
        "namespace",
        F.col("key").alias("vector_id"),
        *ARRIVAL,
        F.unix_micros("event_ts").alias("event_us"),
        F.coalesce("origin", "producer").alias("origin"),
        "delta_id",
        *(F.col(f"vector.{name}").alias(name) for name in payload),
        *more,
    )


def parented_vectors(deltas: DataFrame) -> DataFrame:
    """The vectors in which some delta names a parent: the others can be placed delta by delta."""
    return deltas.where("parent_id IS NOT NULL").select(*KEYS).distinct()


def place_alone(deltas: DataFrame) -> DataFrame:
    """Deltas of vectors in which none names a parent: the place of each is its own time."""
    own = {"eff_us": F.col("event_us"), "depth": F.lit(0), "standing": F.lit(Standing.PLACED.value)}
    return deltas.withColumns(own)


def place_families(deltas: DataFrame) -> DataFrame:
    """Deltas of vectors in which some name parents, with their places, or why they have none.

    Only envelopes are brought together, so a vector's payloads need not fit in memory at once.
    """
    envelopes = deltas.select(*ENVELOPE).repartition(*KEYS).sortWithinPartitions(*KEYS)
    places = envelopes.mapInArrow(partial(placed, (*ARRIVAL, *(name for name, _ in _PLACES))), _ENVELOPES_DDL)
    return deltas.join(places, list(ARRIVAL), how="inner")


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


def untouched(present: DataFrame, touched: DataFrame) -> DataFrame:
    """Rows of the vectors that stay as they are."""
    return present.join(touched, list(KEYS), how="left_anti").select(*present.columns)


def new_in_buckets(covered: Mapping[int, Mapping[int, int] | None]) -> str:
    """SQL: the deltas that their bucket does not cover, with the bucket; all deltas if a bucket covers nothing."""
    alike = defaultdict[str, list[int]](list)
    for bucket, epochs in covered.items():
        alike[_is_later(epochs or {})].append(bucket)
    found = (f"({bucket_predicate(BUCKET, buckets)} AND {is_later})" for is_later, buckets in alike.items())
    return " OR ".join(found) or "false"


def _is_later(covered: Mapping[int, int]) -> str:
    """SQL: whether a delta arrived after the last epoch that is covered, shard by shard."""
    cases = " ".join(f"WHEN {int(shard)} THEN {int(epoch)}L" for shard, epoch in sorted(covered.items()))
    last = f"CASE shard {cases} ELSE 0L END" if cases else "0L"
    # Also the least of them as a plain number, so that Spark can skip whole files.
    return f"epoch > {min(covered.values(), default=0)}L AND epoch > {last}"


def latest_bases(checkpoints: DataFrame) -> DataFrame:
    """The base that reaches furthest, for each vector that has one (K5)."""
    by_reach = Window.partitionBy(*KEYS).orderBy(F.desc("cut_ts"), F.desc("deltas"))
    ranked = checkpoints.where("is_base").withColumn("rank", F.row_number().over(by_reach))
    return ranked.where("rank = 1").drop("rank")


def with_bucket(rows: DataFrame) -> DataFrame:
    """Rows that name a vector, with the bucket that it lies in."""
    return rows.withColumn(BUCKET, F.expr(BUCKET_SQL))


def arranged(rows: DataFrame, order_by: Sequence[str]) -> DataFrame:
    """Rows arranged for writing: those of a bucket together and in order, so that each bucket is one file."""
    return rows.repartition(BUCKET).sortWithinPartitions(BUCKET, *order_by)


def placed(names: Sequence[str], batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Envelopes of whole vectors, those of one together, with their places: the columns of these names."""
    for table in whole_vectors(batches, PLACED_AT_ONCE):
        yield from with_places(table).select(list(names)).combine_chunks().to_batches()


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
        # A single larger vector is checked again when it has doubled, and not at every batch.
        wanted = max(rows_at_once, 2 * sum(each.num_rows for each in held))
    if held:
        yield pa.Table.from_batches(held)
