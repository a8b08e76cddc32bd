"""Commits to a Delta table without a JVM: its first one, files that tasks have written, and dropped partitions.

Belongs here: one commit, with an app id and a number. Does not belong here: who may write and when,
and how a commit's outcome is known (`resources/lake.py`).
"""

import json
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from tidemark.model.timegrid import from_us
from tidemark.tables.lake_files import FIRST_VERSION
from tidemark.tables.new_files import NewFile, partition_value
from tidemark.tables.table_spec import TableSpec, begin_log, create_table, put


def commit_files(
    table: DeltaTable,
    spec: TableSpec,
    files: Sequence[NewFile],
    app: str,
    number: int,
    *,
    replaced: Collection[int] | None = (),
) -> None:
    """Add files to a table, and take away all files of the partitions that they replace; None stands for all."""
    is_bucket = spec.buckets > 0
    filters: list[tuple[str, str, list[str]]] | None = None
    if replaced:
        values = [partition_value(partition, is_bucket=is_bucket) for partition in sorted(replaced)]
        filters = [(spec.partition_by, "in", values)]
    table.create_write_transaction(
        [_action(file, spec) for file in files],
        mode="append" if replaced is not None and not replaced else "overwrite",
        schema=table.schema(),
        partition_by=[spec.partition_by],
        partition_filters=filters,
        commit_properties=CommitProperties(app_transactions=[Transaction(app, number)]),
    )


def _action(file: NewFile, spec: TableSpec) -> AddAction:
    values = {spec.partition_by: partition_value(file.partition, is_bucket=spec.buckets > 0)}
    return AddAction(file.path, file.bytes, values, file.written_ms, True, file.statistics)


def delete_partitions(table: DeltaTable, column: str, before_us: int, app: str, number: int) -> None:
    """Remove the partitions that start before a time from a table."""
    ours = CommitProperties(app_transactions=[Transaction(app, number)])
    table.delete(f"{column} < '{from_us(before_us):%Y-%m-%d %H:%M:%S}'", commit_properties=ours)


def begin_generation(path: Path, spec: TableSpec, first_version: int) -> None:
    """Make a table that begins at a version beyond those of its earlier generations; the first one begins at 0.

    Its log begins with a checkpoint, like one whose beginning was cleaned up: readers ignore everything below it, so a
    late commit of an earlier generation disturbs no reader.
    """
    if first_version == 0:
        create_table(path, spec)
        return
    log = path / "_delta_log"
    log.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "_delta_log"
        begin_log(made, spec, **{FIRST_VERSION: str(first_version)})
        DeltaTable(folder).create_checkpoint()
        for kind in ("checkpoint.parquet", "json", "crc"):
            put(log / f"{first_version:020d}.{kind}", (made / f"{0:020d}.{kind}").read_bytes())
    put(log / "_last_checkpoint", json.dumps({"version": first_version, "size": 2}).encode())
