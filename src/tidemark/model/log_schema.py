"""How a delta lies in the log and in a segment: one Arrow schema, the same columns in the same order.

Belongs here: columns and their meaning; the payloads' columns follow from the kinds (`deltas.py`). The schema is a
format: a change to it needs a new `SCHEMA_VERSION` (there), which stands in the header of every log file.
"""

import pyarrow as pa

from tidemark.model.deltas import KINDS, Kind

TIMESTAMP = pa.timestamp("us", tz="UTC")

# What the types of fields are called where kinds are declared (`deltas.py`).
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
# For what is about one kind alone.
VECTOR, SAMPLE, SIGNAL = (PAYLOAD_TYPES[kind] for kind in (Kind.VECTOR, Kind.SAMPLE, Kind.SIGNAL))

# What a producer sends (envelope and payload), in the order of the log. Malformed deltas have gaps: all nullable.
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

# Beside these, a write in columns brings along what its door has refused, as the log names it.
REFUSED_FIELDS: list[tuple[str, pa.DataType]] = [
    ("reason", pa.string()),
    ("detail", pa.string()),
    ("raw", pa.binary()),
    ("raw_bytes", pa.int64()),
]

# Worked out from what was sent, on whatever thread has the time.
HASHES = ("identity_hash", "content_hash")

# What the coordinator adds.
ARRIVAL_FIELDS: list[tuple[str, pa.DataType]] = [
    ("shard", pa.int32()),
    ("epoch", pa.int64()),  # starts at 1, because 0 means "nothing yet"
    ("ordinal", pa.int32()),  # place in the write, from 0
    ("producer", pa.string()),
    ("sequence", pa.int64()),  # the producer's number of the write, from 1
    ("received_ts", TIMESTAMP),
    ("watermark_ts", TIMESTAMP),  # in force before the write (T4); null while there is none
    ("key", pa.string()),  # vector id, series fingerprint or entity id
    ("identity_hash", pa.int64()),  # of (namespace, key, event_ts, delta_id); null where one of them is
    ("content_hash", pa.int64()),  # of the payload: tells a copy from a reused id
    ("verdict", pa.string()),
    ("reason", pa.string()),  # null unless refused
    ("detail", pa.string()),  # the reason in words
    ("raw", pa.binary()),  # what was sent, up to RAW_LIMIT bytes; only for refused deltas
    ("raw_bytes", pa.int64()),  # how long it was; an object or a row beyond `RAW_BUDGET`, at least so long
]

# A dead letter shows what was sent; one that is larger is cut here, so that a hostile producer cannot fill the lake.
RAW_LIMIT = 16 * 1024
# The first refused deltas of a write say what went wrong. From the one that is beyond this budget on, a short beginning
# is kept of each, and no more of it is rendered.
RAW_BUDGET = 1024 * 1024
RAW_SHORT = 256
# A sentence may quote what was sent, such as the name of a field.
DETAIL_LIMIT = 300

LOG_SCHEMA = pa.schema([pa.field(name, kind) for name, kind in ARRIVAL_FIELDS + SENT_FIELDS])
