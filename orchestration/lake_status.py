"""The tables as they lie: names, versions, rows and bytes, read by delta-rs without a JVM.

Belongs here: what `status` and the demo show of the lake. How tables are written is in `resources/lake.py`.
"""

from msgspec import Struct

from resources.errors import DamageError
from resources.home import Home
from resources.lake_files import partitions, table_state


class TableStatus(Struct, frozen=True):
    """One table at its current version."""

    version: int
    rows: int
    bytes: int
    files: int
    error: str | None = None  # why nothing of it can be read, if nothing can


def table_names(home: Home) -> list[str]:
    """Tables that exist in this home, by name."""
    return sorted(path.parent.name for path in home.lake.glob("*/_delta_log"))


def read_tables(home: Home) -> dict[str, TableStatus]:
    """Every table of the home."""
    return {name: _read_table(home, name) for name in table_names(home)}


def _read_table(home: Home, name: str) -> TableStatus:
    try:
        state = table_state(home.lake / name)
    except DamageError as error:
        return TableStatus(version=0, rows=0, bytes=0, files=0, error=str(error))
    found = partitions(home.lake / name).values()
    return TableStatus(
        version=state.version if state else 0,
        rows=sum(partition.rows for partition in found),
        bytes=sum(partition.bytes for partition in found),
        files=sum(len(partition.files) for partition in found),
    )
