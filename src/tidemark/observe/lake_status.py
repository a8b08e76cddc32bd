"""The tables on the disk: names, versions, rows and bytes, read without a JVM.

Belongs here: the figures that `status` and the demo show of the lake. How tables are written is in `resources/lake.py`.
"""

from msgspec import Struct

from tidemark.model.errors import DamageError
from tidemark.storage.home import Home
from tidemark.tables.known_table import KnownTableFile


class TableStatus(Struct, frozen=True):
    """One table at its current version."""

    version: int
    rows: int
    bytes: int
    files: int
    error: str | None = None  # why the table cannot be read, if it cannot


def table_names(home: Home) -> list[str]:
    """Tables that exist in this home, by name."""
    return sorted(path.parent.name for path in home.lake.glob("*/_delta_log"))


def read_tables(home: Home) -> dict[str, TableStatus]:
    """Every table of the home."""
    return {name: _read_table(home, name) for name in table_names(home)}


def _read_table(home: Home, name: str) -> TableStatus:
    try:
        found = KnownTableFile(home.plans, name).extent(home.lake / name)
    except DamageError as error:
        return TableStatus(version=0, rows=0, bytes=0, files=0, error=str(error))
    if found is None:
        return TableStatus(version=0, rows=0, bytes=0, files=0)
    return TableStatus(version=found.version, rows=found.rows, bytes=found.bytes, files=found.files)
