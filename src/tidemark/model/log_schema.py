"""The form of a delta in the log and in a segment: one Arrow schema, the same columns in the same order.

Belongs here: columns and their meaning; the payloads' columns follow from the kinds (`deltas.py`). The schema is a
format: a change to it needs a new `SCHEMA_VERSION` (there), which stands in the header of every log file.
"""

import pyarrow as pa

from tidemark.model.deltas import KINDS, Kind

TIMESTAMP = pa.timestamp("us", tz="UTC")

# The names of field types in the declarations of kinds (`deltas.py`).
TYPES = {
    "string": pa.string(),
    "double": pa.float64(),
    "int64": pa.int64(),
    "list<float>": pa.list_(pa.float32()),
    "list<int32>": pa.list_(pa.int32()),
    "map<string, string>": pa.map_(pa.string(), pa.string()),
    "map<string, int64>": pa.map_(pa.string(), pa.int64()),
}
PAYLOAD_TYPES = {
    kind: pa.struct([(name, TYPES[field.type]) for name, field in rule.fields.items()]) for kind, rule in KINDS.items()
}
# For code about a single kind.
VECTOR, SAMPLE, SIGNAL = (PAYLOAD_TYPES[kind] for kind in (Kind.VECTOR, Kind.SAMPLE, Kind.SIGNAL))

# A producer's fields (envelope and payload), in the order of the log. Malformed deltas have gaps: all nullable.
SENT_FIELDS: list[tuple[str, pa.DataType]] = [
    ("namespace", pa.string()),
    ("kind", pa.string()),
    ("delta_id", pa.string()),
    ("event_ts", TIMESTAMP),
    ("priority", pa.string()),
    ("source", pa.string()),
    ("origin", pa.string()),
    *((kind.value, payload) for kind, payload in PAYLOAD_TYPES.items()),
]

SENT_SCHEMA = pa.schema(SENT_FIELDS)

# In addition, a write in columns has its door's refusals, under the log's names.
REFUSED_FIELDS: list[tuple[str, pa.DataType]] = [
    ("reason", pa.string()),
    ("detail", pa.string()),
    ("raw", pa.binary()),
    ("raw_bytes", pa.int64()),
]

# Computed from a producer's fields, on any thread that has time.
HASHES = ("identity_hash", "content_hash")

# Added by the coordinator.
ARRIVAL_FIELDS: list[tuple[str, pa.DataType]] = [
    ("shard", pa.int32()),
    ("epoch", pa.int64()),  # starts at 1, because 0 means "nothing yet"
    ("ordinal", pa.int32()),  # place in the write, from 0
    ("producer", pa.string()),
    ("sequence", pa.int64()),  # the producer's number of the write, from 1
    ("received_ts", TIMESTAMP),
    ("watermark_ts", TIMESTAMP),  # in force before the write (T4); null while there is none
    ("key", pa.string()),  # vector id, series fingerprint or entity id
    ("identity_hash", pa.int64()),  # of (namespace, key, event_ts, delta_id); null if one of them is null
    ("content_hash", pa.int64()),  # of the payload: tells a duplicate from a reused id
    ("verdict", pa.string()),
    ("reason", pa.string()),  # null unless refused
    ("detail", pa.string()),  # the reason in words
    ("raw", pa.binary()),  # the delta as sent, up to RAW_LIMIT bytes; only if refused
    ("raw_bytes", pa.int64()),  # how long it was; an object or a row beyond `RAW_BUDGET`, at least so long
]

# A dead letter shows the delta as sent; a larger one is cut here, so that a hostile producer cannot fill the lake.
RAW_LIMIT = 16 * 1024
# The first refused deltas of a write show what went wrong. Once this budget is exceeded, only a short beginning of each
# is rendered and kept.
RAW_BUDGET = 1024 * 1024
RAW_SHORT = 256
# A sentence may quote the delta, such as the name of a field.
DETAIL_LIMIT = 300

LOG_SCHEMA = pa.schema([pa.field(name, kind) for name, kind in ARRIVAL_FIELDS + SENT_FIELDS])
