"""Maintenance of a table's files with Spark: small files become large ones, and unused files go.

Belongs here: the statements, and how their outcome is known after an error. Spark puts no marker of ours on them, so
the table itself decides: by its columns, or by an OPTIMIZE in its log. Does not belong here: who may write and when,
and what is recorded about it (`lake.py`).
"""

from pathlib import Path
from typing import TYPE_CHECKING

from resources.write_errors import WriteFailedError, said, write_errors
from tidemark.model.ranges import sql_timestamp
from tidemark.tables import lake_files
from tidemark.tables.table_spec import TableSpec

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def add_columns(spark: "SparkSession", path: Path, spec: TableSpec) -> None:
    """Add missing columns to a table, null in its rows."""
    try:
        spark.sql(f"ALTER TABLE delta.`{path}` ADD COLUMNS ({', '.join(_missing(path, spec))})").collect()
    except write_errors() as error:
        if _missing(path, spec):
            raise WriteFailedError(
                f"Adding columns to the table {spec.name} failed, and nothing of it was committed: {said(error)}"
            ) from error


def compact_files(spark: "SparkSession", path: Path, spec: TableSpec, closed_before_us: int) -> None:
    """Merge the small files of each closed partition. No row changes."""
    before = lake_files.highest_version(path)
    closed_before = sql_timestamp(spec.grain.floor(closed_before_us))
    try:
        spark.sql(f"OPTIMIZE delta.`{path}` WHERE {spec.partition_by} < {closed_before}").collect()
    except write_errors() as error:
        later = range(before + 1, lake_files.highest_version(path) + 1)
        if not any((lake_files.operation_of(path, version) or [""])[0] == "OPTIMIZE" for version in later):
            raise WriteFailedError(
                f"Compacting the files of the table {spec.name} failed, and nothing of it was committed: {said(error)}"
            ) from error


def delete_old_files(spark: "SparkSession", path: Path, spec: TableSpec, retention_hours: int) -> None:
    """Delete files that no version within the retention needs. No row changes."""
    try:
        spark.sql(f"VACUUM delta.`{path}` RETAIN {retention_hours} HOURS").collect()
    except write_errors() as error:
        # How far it got is unknown, and need not be known: the next one deletes the rest.
        raise WriteFailedError(
            f"Deleting old files of the table {spec.name} failed. Its rows are as they were, and the remaining files "
            f"go with the next maintenance: {said(error)}"
        ) from error


def _missing(path: Path, spec: TableSpec) -> list[str]:
    there = set(lake_files.columns(path))
    return [f"`{column.name}` {column.sql}" for column in spec.columns if column.name not in there]
