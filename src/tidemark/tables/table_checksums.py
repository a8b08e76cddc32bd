"""Checksums of tables and partitions: independent of their files, their encoding and the order of their rows.

Belongs here: the canonical form of a row, and sums over it. Needs neither Spark nor Dagster.
"""

import hashlib
import json
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalake import DeltaTable

from tidemark.model.errors import DamageError
from tidemark.tables.lake_files import open_table, partition_start, partitions, quiet_database, refuse_unreadable

if TYPE_CHECKING:
    import duckdb

# The names of types in a table's schema, and in the database.
SQL_TYPES = {
    "string": "VARCHAR",
    "binary": "BLOB",
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "date": "DATE",
    "timestamp": "TIMESTAMPTZ",
    "timestamp_ntz": "TIMESTAMP",
}
# Name of the column with the file of each row, which no table uses itself.
FILE = "tidemark_file"


@dataclass(frozen=True)
class Checksum:
    """The number of rows in a table, and a fingerprint that depends neither on their order nor on the files' layout."""

    rows: int
    sha256: str


def checksum(
    path: Path, version: int | None = None, *, database: "duckdb.DuckDBPyConnection | None" = None
) -> Checksum:
    """Rows and fingerprint of a table: the sum, modulo 2^256, of the SHA-256 of each row in a canonical form.

    A sum and not an exclusive or, so that two copies of a row do not cancel. The canonical form is JSON of all columns
    in the order of their names, so that neither Parquet's encoding nor the order of columns counts. For several tables
    pass the database, which takes longer to open than a small table takes to read.
    """
    table = open_table(path, version)
    if table is None:
        raise DamageError(f"There is no table at {path}. Drain the log, or rebuild it.")
    refuse_unreadable(table, path)
    kinds = {field["name"]: field["type"] for field in json.loads(table.schema().to_json())["fields"]}
    count, total = 0, 0
    if files := _files_with_values(table, path):
        with quiet_database() if database is None else nullcontext(database) as opened:
            count, total = _sum_of_rows(opened, kinds, files)
    summary = json.dumps({"columns": sorted(kinds), "rows": count, "sum": f"{total:064x}"})
    return Checksum(count, hashlib.sha256(summary.encode()).hexdigest())


def _files_with_values(table: DeltaTable, path: Path) -> dict[str, list[Any]]:
    """The table's files, and for each partition column the value in each file: the files themselves lack it."""
    actions = table.get_add_actions(flatten=True)
    files = [str(path.absolute() / unquote(file)) for file in actions.column("path").to_pylist()]
    values: dict[str, list[Any]] = {
        name: [
            partition_start(value) if isinstance(value, datetime) else value
            for value in actions.column(f"partition.{name}").to_pylist()
        ]
        for name in table.metadata().partition_columns
    }
    return {FILE: files, **values} if files else {}


def _sum_of_rows(
    database: "duckdb.DuckDBPyConnection", kinds: dict[str, Any], files: dict[str, list[Any]]
) -> tuple[int, int]:
    """How many rows the files have, and the sum of their digests."""
    # Times without a zone in a file are UTC, whatever the machine's zone.
    database.execute("SET TimeZone = 'UTC'")
    parts = ", ".join(f"unnest(${number}) AS {quoted(name)}" for number, name in enumerate(files, 1))
    # A column that was added later is missing in older files.
    columns = ", ".join(f"NULL AS {quoted(name)}" for name in (*kinds, FILE))
    read = f"read_parquet($1, union_by_name = true, hive_partitioning = false, filename = '{FILE}')"
    fields = ", ".join(
        f"{quoted(name)} := {_canonical(f'files.{quoted(name)}', kinds[name], is_number=True)}"
        if name in files
        else f"{quoted(name)} := {_canonical(f'read.{quoted(name)}', kinds[name])}"
        for name in sorted(kinds)
    )
    # Sixteen digits of the digest at a time fit a number of the database, and so does the sum of very many of them.
    limbs = ", ".join(f"sum(('0x' || digest[{16 * limb + 1}:{16 * limb + 16}])::UBIGINT::HUGEINT)" for limb in range(4))
    query = f"""
        WITH files AS (SELECT {parts}),
        read AS (SELECT {columns} WHERE false UNION ALL BY NAME SELECT * FROM {read}),
        digests AS (
            SELECT sha256(to_json(struct_pack({fields}))::VARCHAR) AS digest, files.{FILE} IS NULL AS is_lost
            FROM read LEFT JOIN files USING ({FILE})
        )
        SELECT count(*), count(*) FILTER (is_lost), {limbs} FROM digests
    """
    count, lost, *sums = database.execute(query, list(files.values())).fetchone() or (0, 0)
    if lost:
        raise DamageError(f"{lost} rows were read from files that the table's log does not name so.")
    return count, sum((part or 0) << (64 * (3 - limb)) for limb, part in enumerate(sums)) % (1 << 256)


def _canonical(column: str, kind: Any, *, is_number: bool = False) -> str:
    """The column in a form that JSON can carry exactly: times as integers (they may be already), bytes as digits."""
    if kind in ("timestamp", "timestamp_ntz"):
        return f"{column}::BIGINT" if is_number else f"epoch_us({column}::{_sql_type(kind)})"
    return f"hex({column}::BLOB)" if kind == "binary" else f"{column}::{_sql_type(kind)}"


def _sql_type(kind: Any) -> str:
    """A type of the table's schema, by its name in the database."""
    if isinstance(kind, str):
        return SQL_TYPES.get(kind, kind)  # a type that is not in the list is a decimal, which both write alike
    if kind["type"] == "array":
        return f"{_sql_type(kind['elementType'])}[]"
    if kind["type"] == "map":
        return f"MAP({_sql_type(kind['keyType'])}, {_sql_type(kind['valueType'])})"
    fields = ", ".join(f"{quoted(field['name'])} {_sql_type(field['type'])}" for field in kind["fields"])
    return f"STRUCT({fields})"


def quoted(name: str) -> str:
    """The name of a column, as SQL has it."""
    return '"' + name.replace('"', '""') + '"'


def partition_checksums(path: Path, version: int, starts: Iterable[int]) -> dict[int, str]:
    """The checksum of each partition with rows, as `checksum` computes it for a table."""
    table, wanted = open_table(path, version), set(starts)
    if table is None:
        return {}
    kinds = {field["name"]: field["type"] for field in json.loads(table.schema().to_json())["fields"]}
    by = table.metadata().partition_columns[0]
    found: dict[int, str] = {}
    with quiet_database() as database:
        for start, files in partitions(path, version).items():
            if start in wanted:
                names = [str(Path(file).absolute()) for file in files.files]
                count, total = _sum_of_rows(database, kinds, {FILE: names, by: [start] * len(names)})
                found[start] = f"{count}:{total:064x}"
    return found
