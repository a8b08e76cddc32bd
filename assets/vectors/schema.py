"""Columns of `vectors`, `vector_checkpoints` and `vector_conflicts`, and their meaning.

Belongs here: the declarations of the tables. A state has the columns of the fold (`tidemark/vectors/schema.py`), with
times as timestamps. Rows are in buckets by a hash of their vector: a change rewrites the buckets that it touches, and
a reader without a JVM knows which bucket to open. Each bucket is a partition of the orchestrator, with its own record
and its own check result.
"""

import pyarrow as pa

from tidemark.tables.table_spec import PROPERTIES, STATISTICS, TIMESTAMP, Column, TableSpec
from tidemark.vectors.schema import CLOCK, METADATA
from tidemark.vectors.tables import BUCKET, BUCKET_SQL, BUCKETS

__all__ = ["BUCKET", "BUCKETS", "BUCKET_SQL", "VECTORS", "VECTOR_CHECKPOINTS", "VECTOR_CONFLICTS"]

_VECTOR = (
    Column("namespace", pa.string(), "The namespace of the vector.", is_required=True),
    Column("vector_id", pa.string(), "The vector's name.", is_required=True),
)
_STATE = (
    Column("exists", pa.bool_(), "Whether a create has had an effect; if not, only the counts say something."),
    Column("is_dead", pa.bool_(), "Whether it was deleted: a tombstone."),
    Column("values", pa.list_(pa.float32()), "The vector; null unless it lives."),
    Column("state", pa.binary(), "What values do not say of the float64 that the fold goes on from; null if nothing."),
    Column("metadata", METADATA, "Its metadata; null where there is none."),
    Column("clock", CLOCK, "The maximum of all clocks that had an effect; null where there is none."),
)
_PLACE = (
    Column("eff_ts", TIMESTAMP, "When the last delta folded takes effect: first part of its canonical place."),
    Column("depth", pa.int32(), "Second part of the place: how many parents deep at that moment."),
    Column("event_ts", TIMESTAMP, "Third part of the place: when the last delta folded happened."),
    Column("origin", pa.string(), "Fourth part of the place: its first producer."),
    Column("delta_id", pa.string(), "Fifth part of the place: its producer's name for it."),
)
_REACH = (
    Column("shard", pa.int32(), "The shard that all deltas of the vector are in."),
    Column("first_epoch", pa.int64(), "The smallest epoch folded."),
    Column("last_epoch", pa.int64(), "The greatest epoch folded."),
    Column("last_ordinal", pa.int32(), "Place in its write of the delta folded that arrived last."),
    Column("deltas", pa.int64(), "How many deltas were folded, with or without effect."),
    Column("no_base", pa.int64(), "How many of them had no effect because nothing was ever created before them."),
    Column("no_effect", pa.int64(), "How many of them had none after a delete, or with an index beyond the vector."),
)
_BUCKET = Column(BUCKET, pa.int32(), "Bucket of namespace and vector_id.", is_required=True)

VECTORS = TableSpec(
    name="vectors",
    description="The current state of every vector, one row each; tombstones are known.",
    columns=(
        *_VECTOR,
        *_STATE,
        *_PLACE,
        *_REACH,
        Column("parked", pa.int64(), "Deltas that wait for a parent that has not arrived, and are not folded."),
        Column("cycles", pa.int64(), "Deltas that are on a cycle of parents, or below one, and are not folded."),
        Column("has_parents", pa.bool_(), "Whether any delta of the vector names a parent."),
        _BUCKET,
    ),
    partition_by=BUCKET,
    properties={**PROPERTIES, STATISTICS: "namespace,vector_id"},
    order_by=("namespace", "vector_id"),
    buckets=BUCKETS,
    has_bucket_partitions=True,
)

VECTOR_CHECKPOINTS = TableSpec(
    name="vector_checkpoints",
    description="States of vectors at places of their history, from which a fold can go on.",
    columns=(
        *_VECTOR,
        *_STATE,
        *_PLACE,
        *_REACH,
        Column("strategy", pa.string(), "By which strategy it stands where it does."),
        Column("is_base", pa.bool_(), "Whether payloads below it may be gone: then nothing before it can be read."),
        Column("cut_ts", TIMESTAMP, "Of a base: the cut that the log had when it was made; null otherwise."),
        Column(
            "kept",
            pa.list_(pa.struct([("shard", pa.int32()), ("epoch", pa.int64()), ("ordinal", pa.int32())])),
            "Of a base: the deltas before the cut that it does not hold, whose payloads stay.",
        ),
        _BUCKET,
    ),
    partition_by=BUCKET,
    properties={**PROPERTIES, STATISTICS: "namespace,vector_id"},
    order_by=("namespace", "vector_id", "eff_ts", "depth", "event_ts", "origin", "delta_id"),
    buckets=BUCKETS,
    has_bucket_partitions=True,
)

_SIDE = (
    ("delta_id", pa.string(), "its producer's name for it"),
    ("origin", pa.string(), "its first producer"),
    ("event_ts", TIMESTAMP, "when it happened"),
    ("eff_ts", TIMESTAMP, "when it takes effect"),
    ("epoch", pa.int64(), "the write that it came in"),
    ("op", pa.string(), "what it does"),
    ("clock", CLOCK, "its clock"),
)

VECTOR_CONFLICTS = TableSpec(
    name="vector_conflicts",
    description="Pairs of a vector's deltas: neither knew of the other, by their clocks, or they are inverted.",
    columns=(
        *_VECTOR,
        Column("kind", pa.string(), "concurrent: neither clock dominates. inverted: the earlier one's does.", True),
        *(Column(f"earlier_{name}", kind, f"Of the delta that sorts first: {said}.") for name, kind, said in _SIDE),
        *(Column(f"later_{name}", kind, f"Of the delta that sorts second: {said}.") for name, kind, said in _SIDE),
        _BUCKET,
    ),
    partition_by=BUCKET,
    properties={**PROPERTIES, STATISTICS: "namespace,vector_id"},
    order_by=("namespace", "vector_id", "later_eff_ts", "later_delta_id", "earlier_eff_ts", "earlier_delta_id"),
    buckets=BUCKETS,
    has_bucket_partitions=True,
)
