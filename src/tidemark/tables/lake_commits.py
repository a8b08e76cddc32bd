"""Commits to a Delta table without a JVM: its first one, files that tasks have written, and dropped partitions.

Belongs here: one commit, with an app id and a number. Does not belong here: who may write and when,
and how a commit's outcome is known (`resources/lake.py`).
"""

import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from deltalake import CommitProperties, DeltaTable, Transaction
from deltalake.transaction import AddAction

from tidemark.model.timegrid import from_us
from tidemark.tables.lake_files import FIRST_VERSION
from tidemark.tables.table_spec import TableSpec, begin_log, create_table, put

# Bounds of texts up to this length are stored whole; a bound for longer ones would be a guess.
TOLD_LETTERS = 32


class NewFile(NamedTuple):
    """A file that was written for a bucket of a table and is not part of it yet."""

    path: str  # below the table
    bucket: int
    rows: int
    bytes: int
    written_ms: int
    bounds: dict[str, tuple[str, str]]  # column → the least and the greatest value, if they are known

    def action(self, partition_by: str) -> AddAction:
        """The action for the table's log."""
        stats = {
            "numRecords": self.rows,
            "minValues": {name: least for name, (least, _) in self.bounds.items()},
            "maxValues": {name: greatest for name, (_, greatest) in self.bounds.items()},
            "nullCount": dict.fromkeys(self.bounds, 0),
        }
        values = {partition_by: str(self.bucket)}
        return AddAction(self.path, self.bytes, values, self.written_ms, True, json.dumps(stats, ensure_ascii=False))


def commit_files(
    table: DeltaTable, partition_by: str, files: Sequence[NewFile], buckets: Sequence[int], app: str, number: int
) -> None:
    """Replace all files of some buckets with these."""
    table.create_write_transaction(
        [file.action(partition_by) for file in files],
        mode="overwrite",
        schema=table.schema(),
        partition_by=[partition_by],
        partition_filters=[(partition_by, "in", [str(bucket) for bucket in buckets])],
        commit_properties=CommitProperties(app_transactions=[Transaction(app, number)]),
    )


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
