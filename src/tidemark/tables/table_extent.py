"""The extent of a table, and whether it is still current: from its log, without a JVM and without opening it twice.

Belongs here: adding up a table, and telling whether its log has changed since. `known_table.py` stores it.
"""

import hashlib
import json
import os
from pathlib import Path

from msgspec import Struct

from tidemark.tables import lake_files


class TableExtent(Struct, frozen=True):
    """The extent of a table at its latest version, valid as long as its log is the same (`log_state`)."""

    log: str
    table_id: str
    version: int
    number: int  # of the last commit under our name; 0 if there is none
    rows: int
    bytes: int
    files: int


def read_extent(path: Path, app_id: str) -> TableExtent | None:
    """The extent of a table, according to its log; None if there is no table."""
    log = log_state(path)
    table = lake_files.open_table(path)
    if table is None:
        return None
    actions = table.get_add_actions(flatten=True)
    rows, size = (sum(filter(None, actions.column(name).to_pylist())) for name in ("num_records", "size_bytes"))
    number = table.transaction_version(app_id)
    return TableExtent(log, str(table.metadata().id), table.version(), int(number or 0), rows, size, actions.num_rows)


def log_state(path: Path) -> str:
    """Checksum over a table's log as a reader finds it: equal means unchanged.

    Over all names, and over sizes and times of the files that are read: the last checkpoint and everything after it.
    """
    log = path / "_delta_log"
    try:
        names = sorted(name for name in os.listdir(log) if not name.endswith(".crc"))
        begin = _checkpoint_version(log)
        stats = [(log / name).stat() for name in names if not name[:20].isdigit() or int(name[:20]) >= begin]
    except FileNotFoundError:
        return ""
    text = "\n".join([*names, *(f"{stat.st_size} {stat.st_mtime_ns}" for stat in stats)])
    return hashlib.sha256(text.encode()).hexdigest()


def _checkpoint_version(log: Path) -> int:
    """Where a reader of a log begins; 0 if it begins with the first commit."""
    try:
        return int(json.loads((log / "_last_checkpoint").read_bytes())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0
