"""What the fold takes and what it gives: columns and their meaning.

Belongs here: Arrow schemas. All times are microseconds since 1970, UTC. Where a vector's deltas lie in the log is in
`tidemark/model/log_schema.py`.
"""

import pyarrow as pa

METADATA = pa.map_(pa.string(), pa.string())
CLOCK = pa.map_(pa.string(), pa.int64())

# The operation of a starting state. No delta has it: ingest refuses unknown operations (D4).
CHECKPOINT = "checkpoint"

# What names a vector.
KEY = ("namespace", "vector_id")

_VECTOR: list[tuple[str, pa.DataType]] = [(name, pa.string()) for name in KEY]
# The canonical place (D3): of the row, and of the last row that was folded into a state.
_PLACE: list[tuple[str, pa.DataType]] = [
    ("eff_us", pa.int64()),
    ("depth", pa.int32()),
    ("event_us", pa.int64()),
    ("origin", pa.string()),  # never null: without one, it is the producer
    ("delta_id", pa.string()),
]
# How many deltas were folded, and how many of them changed nothing.
_COUNTS: list[tuple[str, pa.DataType]] = [
    ("deltas", pa.int64()),  # all, with or without effect
    ("no_base", pa.int64()),  # there had never been a `create` before
    ("no_effect", pa.int64()),  # after a `delete`, or with an index beyond the vector's present length
]

# One row for each delta. The rows of a vector lie together and in the order of their places.
DELTA_FIELDS: list[tuple[str, pa.DataType]] = [
    *_VECTOR,
    *_PLACE,
    ("shard", pa.int32()),
    ("epoch", pa.int64()),
    ("ordinal", pa.int32()),
    ("op", pa.string()),
    ("values", pa.list_(pa.float32())),  # of the operations that need them
    ("indices", pa.list_(pa.int32())),
    ("factor", pa.float64()),
    ("amount", pa.float64()),
    ("metadata", METADATA),  # a patch: null removes the key
    ("clock", CLOCK),
    ("emit", pa.bool_()),  # whether the state after this row is given out
]

# What a starting state has besides: it is a row of STATES under the names of a delta (`starting_states` in fold.py).
START_FIELDS: list[tuple[str, pa.DataType]] = [
    ("exists", pa.bool_()),
    ("is_dead", pa.bool_()),
    ("state", pa.binary()),
    ("first_epoch", pa.int64()),
    *_COUNTS,
]

# Input of the fold. The columns of starting states may be left out where there are none; otherwise they are null in
# the rows of deltas, as are those of deltas that a starting state has no use for.
FOLD_INPUT = pa.schema(DELTA_FIELDS + START_FIELDS)

# Output of the fold, and what a checkpoint is (K1).
STATES = pa.schema(
    [
        *_VECTOR,
        ("exists", pa.bool_()),  # a `create` has had an effect; if not, the row is there for its counts
        ("is_dead", pa.bool_()),  # a tombstone: the last delta with an effect is a `delete`
        ("values", pa.list_(pa.float32())),  # null unless it lives
        # What float64(values) does not say, as float64, their bytes: null where that is nothing; a place and a number
        # for each that differs, while these are fewer than all numbers; else all of them. The length tells which.
        ("state", pa.binary()),
        ("metadata", METADATA),  # sorted by key; null where there is none
        ("clock", CLOCK),  # the maximum of all clocks that had an effect, sorted by key; null where there is none
        *_PLACE,
        # Of the delta folded that arrived last: from these three the vector's internal id is derived (V1).
        ("shard", pa.int32()),
        ("last_epoch", pa.int64()),  # the greatest epoch folded
        ("last_ordinal", pa.int32()),
        ("first_epoch", pa.int64()),  # the smallest epoch folded
        *_COUNTS,
    ]
)

# What a row of `vectors` says: a state, and what is known of the vector beside it.
CURRENT = pa.schema(
    [
        *STATES,
        ("parked", pa.int64()),  # deltas that wait for a parent that has not arrived
        ("cycles", pa.int64()),  # deltas that are on a cycle of parents, or below one
        ("has_parents", pa.bool_()),  # any delta of the vector names a parent
    ]
)

# One row for each delta as the log has it: it has no place yet.
ARRIVED = pa.schema(
    [*(field for field in DELTA_FIELDS if field[0] not in ("eff_us", "depth", "emit")), ("parent_id", pa.string())]
)
