"""Input and output of the fold: columns and their meaning.

Belongs here: Arrow schemas. All times are microseconds since 1970, UTC. The log's columns are in
`tidemark/model/log_schema.py`.
"""

import pyarrow as pa

METADATA = pa.map_(pa.string(), pa.string())
CLOCK = pa.map_(pa.string(), pa.int64())

# The operation of a starting state. No delta has it: ingest refuses unknown operations (D4).
CHECKPOINT = "checkpoint"

# The name of a vector.
KEY = ("namespace", "vector_id")

_VECTOR: list[tuple[str, pa.DataType]] = [(name, pa.string()) for name in KEY]
# The canonical place (D3) of the row, and of the last row that was folded into a state.
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
    ("emit", pa.bool_()),  # whether the state after this row is returned
]

# Further columns of a starting state: it is a row of STATES under the names of a delta (`starting_states` in fold.py).
START_FIELDS: list[tuple[str, pa.DataType]] = [
    ("exists", pa.bool_()),
    ("is_dead", pa.bool_()),
    ("state", pa.binary()),
    ("first_epoch", pa.int64()),
    *_COUNTS,
]

# Input of the fold. The columns of starting states may be left out if there are none; otherwise they are null in the
# rows of deltas, and a starting state has null in the columns of deltas that it does not use.
FOLD_INPUT = pa.schema(DELTA_FIELDS + START_FIELDS)

# Output of the fold, and the form of a checkpoint (K1).
STATES = pa.schema(
    [
        *_VECTOR,
        ("exists", pa.bool_()),  # a `create` has had an effect; if not, the row exists for its counts
        ("is_dead", pa.bool_()),  # a tombstone: the last delta with an effect is a `delete`
        ("values", pa.list_(pa.float32())),  # null unless it lives
        # The bytes of float64 numbers where float64(values) is not exact: null if it always is; a place and a number
        # for each that differs, while these are fewer than all numbers; otherwise all numbers. The length tells which.
        ("state", pa.binary()),
        ("metadata", METADATA),  # sorted by key; null where there is none
        ("clock", CLOCK),  # the maximum of all clocks that had an effect, sorted by key; null where there is none
        *_PLACE,
        # Of the folded delta that arrived last: the vector's internal id is derived from these three (V1).
        ("shard", pa.int32()),
        ("last_epoch", pa.int64()),  # the greatest epoch folded
        ("last_ordinal", pa.int32()),
        ("first_epoch", pa.int64()),  # the smallest epoch folded
        *_COUNTS,
    ]
)

# A row of `vectors`: a state, and further facts about the vector.
CURRENT = pa.schema(
    [
        *STATES,
        ("parked", pa.int64()),  # deltas whose parent has not arrived
        ("cycles", pa.int64()),  # deltas that are on a cycle of parents, or below one
        ("has_parents", pa.bool_()),  # any delta of the vector names a parent
    ]
)

# One row for each delta as the log has it, without a place yet.
ARRIVED = pa.schema(
    [*(field for field in DELTA_FIELDS if field[0] not in ("eff_us", "depth", "emit")), ("parent_id", pa.string())]
)
