"""The last check of each table, for people who look at a home without its orchestrator.

Belongs here: a small file for each table. Nothing depends on it: whether something may be built on a partition is asked
of the orchestrator, which has every result. A note that cannot be read or written is none.
"""

from collections.abc import Mapping
from pathlib import Path

import msgspec
from filelock import FileLock
from msgspec import Struct
from msgspec.structs import replace

from tidemark.storage.home import Home
from tidemark.storage.privacy import file_mode, make_directory, make_private

# A table in which more partitions have failed needs no longer list.
MOST_NAMED = 100
# The name of a table without partitions.
WHOLE = ""


class CheckNote(Struct, frozen=True):
    """What the checks of a table have found."""

    checked_us: int = 0
    failed: dict[str, str] = {}  # partition → what its last check found wrong


def note_checks(home: Home, table: str, results: Mapping[str, str | None], now_us: int) -> None:
    """Note the results of a check: partition → what is wrong with it; None if nothing is."""
    path = _path(home, table)
    try:
        make_directory(path.parent)
        with FileLock(path.with_suffix(".lock"), mode=file_mode()):
            before = read_note(home, table) or CheckNote()
            failed = {name: why for name, why in before.failed.items() if name not in results}
            failed |= {name: why for name, why in results.items() if why is not None}
            first = dict(sorted(failed.items())[:MOST_NAMED])
            temporary = path.with_suffix(".new")
            with open(temporary, "wb", opener=make_private) as file:
                file.write(msgspec.json.encode(replace(before, checked_us=now_us, failed=first)))
            temporary.replace(path)
    except OSError:
        return  # a full disk is told of elsewhere; what people look at must not stop a run


def read_note(home: Home, table: str) -> CheckNote | None:
    """What is noted of a table."""
    try:
        return msgspec.json.decode(_path(home, table).read_bytes(), type=CheckNote)
    except (OSError, msgspec.MsgspecError):
        return None


def _path(home: Home, table: str) -> Path:
    return home.reports / "checks" / f"{table}.json"
