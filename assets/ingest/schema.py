"""Columns of `deltas` and `dead_letters`, and their meaning.

Belongs here: the declarations of the two tables. Nested columns come from the log's schema, so that they are declared
once. The tables use only those Delta features that delta-rs, DuckDB and Polars can read.
"""

from collections.abc import Sequence

import pyarrow as pa

from tidemark.model.deltas import KINDS, PAYLOADS, listed
from tidemark.model.log_schema import LOG_SCHEMA
from tidemark.model.timegrid import HOUR
from tidemark.tables.table_spec import PROPERTIES, STATISTICS, TIMESTAMP, Column, TableSpec, sql_type

# Two deltas with the same four are the same delta (Q3).
IDENTITY = ("namespace", "key", "event_ts", "delta_id")
# The place of a delta in the log; no two deltas share one.
PLACE = ("shard", "epoch", "ordinal")
KEY_NAMES = listed([rule.key_name for rule in KINDS.values()])


def _log_column(name: str, comment: str, *, is_required: bool = False) -> Column:
    return Column(name, LOG_SCHEMA.field(name).type, comment, is_required)


DELTAS = TableSpec(
    name="deltas",
    description="Every accepted delta, once.",
    columns=(
        _log_column("shard", "The coordinator that numbered the write.", is_required=True),
        _log_column("epoch", "Number of the write within its shard, from 1.", is_required=True),
        _log_column("ordinal", "Place within the write, from 0.", is_required=True),
        _log_column("namespace", "The namespace that the delta belongs to.", is_required=True),
        _log_column("kind", f"{listed(PAYLOADS)}.", is_required=True),
        _log_column("key", f"What the delta is about: {KEY_NAMES}.", is_required=True),
        _log_column("delta_id", "The producer's name for the delta.", is_required=True),
        _log_column("event_ts", "When it happened, by the producer's word.", is_required=True),
        _log_column("received_ts", "When its write arrived.", is_required=True),
        _log_column("watermark_ts", "Watermark in force before the write; null while there was none."),
        _log_column("producer", "Who sent the write."),
        _log_column("sequence", "The producer's number of the write, from 1."),
        _log_column("origin", "The first producer, kept by replicas."),
        _log_column("source", "How it came here: local, replica, import or transform."),
        _log_column("priority", "How urgent its producer says it is."),
        _log_column("identity_hash", "64-bit hash of namespace, key, event_ts and delta_id.", is_required=True),
        _log_column("content_hash", "64-bit hash of the payload: tells a copy from a reused id."),
        *(_log_column(kind.value, f"Payload of {rule.about}.") for kind, rule in KINDS.items()),
        Column("removed_bytes", pa.int64(), "Of a vector delta whose payload compaction removed: what it weighed."),
        Column("event_hour", TIMESTAMP, "Hour of event_ts.", generated_as="date_trunc('HOUR', event_ts)"),
    ),
    partition_by="event_hour",
    divided_by=HOUR,
    constraints={"epochs_start_at_1": "epoch >= 1"},
    properties={**PROPERTIES, STATISTICS: "epoch,event_ts,received_ts,watermark_ts"},
)

DEAD_LETTERS = TableSpec(
    name="dead_letters",
    description="Every refused delta with its reason and what was sent, and the copies that only the drain could see.",
    columns=(
        _log_column("shard", "The coordinator that numbered the write.", is_required=True),
        _log_column("epoch", "Number of the write within its shard, from 1.", is_required=True),
        _log_column("ordinal", "Place within the write, from 0.", is_required=True),
        _log_column("namespace", "As sent; null where it was not readable, as all that follows."),
        _log_column("kind", f"{listed(PAYLOADS)}."),
        _log_column("key", "What the delta is about."),
        _log_column("delta_id", "The producer's name for the delta."),
        _log_column("event_ts", "When it happened, by the producer's word."),
        _log_column("received_ts", "When its write arrived.", is_required=True),
        _log_column("producer", "Who sent the write."),
        _log_column("sequence", "The producer's number of the write, from 1."),
        _log_column("origin", "The first producer, kept by replicas."),
        _log_column("source", "How it came here."),
        _log_column("priority", "How urgent its producer says it is."),
        _log_column(
            "verdict", "What the log said: refused; or accepted, when only the drain saw the copy.", is_required=True
        ),
        _log_column("reason", "Why it was refused or set aside.", is_required=True),
        _log_column("detail", "The reason in words."),
        _log_column("raw", "What was sent, cut at a limit; for a copy its payload as JSON."),
        _log_column("raw_bytes", "How long it really was."),
        Column("received_hour", TIMESTAMP, "Hour of received_ts.", generated_as="date_trunc('HOUR', received_ts)"),
    ),
    partition_by="received_hour",
    divided_by=HOUR,
    constraints={"epochs_start_at_1": "epoch >= 1"},
    properties={**PROPERTIES, STATISTICS: "epoch,received_ts,reason"},
)


def _log_ddl(names: Sequence[str]) -> str:
    return ", ".join(f"`{name}` {sql_type(LOG_SCHEMA.field(name).type)}" for name in names)


LOG_DDL = _log_ddl(LOG_SCHEMA.names)
# The columns that tell whether another row is a duplicate of this one.
KNOWN_DDL = _log_ddl([*IDENTITY, *PLACE, "identity_hash", "content_hash"])
