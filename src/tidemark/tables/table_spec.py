"""The declaration of a table: columns and their meaning, partitions, constraints, properties; and how it is created.

Belongs here: the declaration, and the first commit of a table's log, which is made from it. That commit is written
as a file, by the Delta protocol: it needs no JVM, and a table gets exactly the features listed here.
Does not belong here: rows.
"""

import json
import os
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemark.model.buckets import BUCKET
from tidemark.model.timegrid import Grain

TIMESTAMP = pa.timestamp("us", tz="UTC")
# Of every table.
PROPERTIES = {"delta.enableDeletionVectors": "false", "delta.checkpointPolicy": "classic"}
# Statistics cost a third of a write when they are kept for every column: only those by which readers prune are named.
STATISTICS = "delta.dataSkippingStatsColumns"

# Each type in Spark's SQL, and in a Delta table's schema.
_SIMPLE_TYPES: dict[pa.DataType, tuple[str, str]] = {
    pa.string(): ("string", "string"),
    pa.bool_(): ("boolean", "boolean"),
    pa.binary(): ("binary", "binary"),
    pa.int32(): ("int", "integer"),
    pa.int64(): ("bigint", "long"),
    pa.float32(): ("float", "float"),
    pa.float64(): ("double", "double"),
    TIMESTAMP: ("timestamp", "timestamp"),
}


@dataclass(frozen=True)
class Column:
    """One column, and its meaning."""

    name: str
    type: pa.DataType
    comment: str
    is_required: bool = False
    generated_as: str | None = None

    @property
    def sql(self) -> str:
        """The type in Spark's SQL."""
        return sql_type(self.type)


@dataclass(frozen=True)
class TableSpec:
    """Everything that is declared about a table, in one place."""

    name: str
    description: str
    columns: tuple[Column, ...]
    partition_by: str
    # What a partition is: an hour, a day, a month; none, of a table that is divided into buckets.
    divided_by: Grain | None = None
    constraints: dict[str, str] = field(default_factory=dict)
    properties: dict[str, str] = field(default_factory=dict)
    order_by: tuple[str, ...] = ()
    # Whether a run replaces the whole table: then it has one partition at a time, and the orchestrator none.
    is_replaced_whole: bool = False
    # Into how many buckets by hash its rows are divided: then a partition is a number and no time.
    buckets: int = 0
    # Whether the orchestrator knows each bucket as a partition, and not the table as a whole.
    has_bucket_partitions: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the orchestrator knows the table as a whole, and not partition by partition."""
        return self.is_replaced_whole or (self.buckets > 0 and not self.has_bucket_partitions)

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [column.name for column in self.columns]

    @property
    def grain(self) -> Grain:
        """What a partition is: an hour, a month, a bucket."""
        found = BUCKET if self.buckets else self.divided_by
        if found is None:
            raise TypeError(f"{self.name} says neither by what time it is divided nor into how many buckets")
        return found


def sql_type(kind: pa.DataType) -> str:
    """An Arrow type in Spark's SQL, so that nested columns are declared once, in the log's schema."""
    if kind in _SIMPLE_TYPES:
        return _SIMPLE_TYPES[kind][0]
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{member.name}: {sql_type(member.type)}' for member in kind)}>"
    if pa.types.is_map(kind):
        return f"map<{sql_type(kind.key_type)}, {sql_type(kind.item_type)}>"
    if pa.types.is_list(kind):
        return f"array<{sql_type(kind.value_type)}>"
    raise TypeError(f"no Spark type for {kind}")


def delta_type(kind: pa.DataType) -> str | dict[str, Any]:
    """An Arrow type in the schema of a Delta table."""
    if kind in _SIMPLE_TYPES:
        return _SIMPLE_TYPES[kind][1]
    if pa.types.is_struct(kind):
        members = [
            {"name": member.name, "type": delta_type(member.type), "nullable": True, "metadata": {}} for member in kind
        ]
        return {"type": "struct", "fields": members}
    if pa.types.is_map(kind):
        keys, values = delta_type(kind.key_type), delta_type(kind.item_type)
        return {"type": "map", "keyType": keys, "valueType": values, "valueContainsNull": True}
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": delta_type(kind.value_type), "containsNull": True}
    raise TypeError(f"no Delta type for {kind}")


def create_table(path: Path, spec: TableSpec) -> None:
    """Begin the table's log; an error if there is one already. The caller syncs the directories."""
    begin_log(path / "_delta_log", spec)


def begin_log(log: Path, spec: TableSpec, **properties: str) -> None:
    """Write version 0, with additional properties if some are given."""
    log.mkdir(parents=True, exist_ok=True)
    now_ms = time.time_ns() // 1_000_000
    metadata, protocol = _metadata(spec, now_ms), _protocol(spec)
    metadata["configuration"].update(properties)
    info = {
        "timestamp": now_ms,
        "operation": "CREATE TABLE",
        "operationParameters": {"partitionBy": json.dumps([spec.partition_by]), "description": spec.description},
        "isBlindAppend": True,
        "engineInfo": "Tidemark",
    }
    actions = [{"commitInfo": info}, {"metaData": metadata}, {"protocol": protocol}]
    # A summary of version 0: it saves Spark three jobs.
    summary = {
        "tableSizeBytes": 0,
        "numFiles": 0,
        "numMetadata": 1,
        "numProtocol": 1,
        "setTransactions": [],
        "domainMetadata": [],
        "metadata": metadata,
        "protocol": protocol,
        "allFiles": [],
    }
    put(log / f"{0:020d}.json", "".join(json.dumps(action) + "\n" for action in actions).encode())
    put(log / f"{0:020d}.crc", (json.dumps(summary) + "\n").encode())


def put(path: Path, content: bytes) -> None:
    """Write a file that must not exist, whole and under its name at once: a table that can be seen can be read."""
    temporary = path.with_name(f".{uuid.uuid4()}.tmp")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.link(temporary, path)
    temporary.unlink()


def _metadata(spec: TableSpec, now_ms: int) -> dict[str, Any]:
    fields = [_field(column) for column in spec.columns]
    constraints = {f"delta.constraints.{name}": check for name, check in spec.constraints.items()}
    return {
        "id": str(uuid.uuid4()),
        "description": spec.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [spec.partition_by],
        "configuration": {**spec.properties, **constraints},
        "createdTime": now_ms,
    }


def _protocol(spec: TableSpec) -> dict[str, Any]:
    """The oldest protocol that covers what the table needs: a feature that is not listed cannot stop a reader."""
    if any(column.generated_as for column in spec.columns):
        features = ["appendOnly", "invariants", "checkConstraints", "generatedColumns"]
        return {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    if spec.properties.get("delta.enableChangeDataFeed") == "true":
        return {"minReaderVersion": 1, "minWriterVersion": 4}
    return {"minReaderVersion": 1, "minWriterVersion": 3}


def _field(column: Column) -> dict[str, Any]:
    notes = {"comment": column.comment}
    if column.generated_as:
        notes["delta.generationExpression"] = column.generated_as
    return {
        "name": column.name,
        "type": delta_type(column.type),
        "nullable": not column.is_required,
        "metadata": notes,
    }
