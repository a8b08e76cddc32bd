"""Counts the statements that a process gives to SQLite, which is where Dagster keeps its storage.

Python imports this by itself in every process that has this folder on its path: `bench freshness` puts it there for the
turn in which it counts. Belongs here: nothing that costs a process anything before it opens a database. Each statement
is the time of it, eight bytes at the end of a file of the process, because a run's process may end without notice.
"""

import os
import sqlite3
import struct
import sys
import time
from pathlib import Path
from typing import Any

FOLDER_VARIABLE = "FRESHNESS_STATEMENTS"
# Not questions: what surrounds a transaction, and what a trigger does.
NOT_COUNTED = ("BEGIN", "COMMIT", "ROLLBACK", "PRAGMA", "--")


def count_into(folder: str) -> None:
    """Have every connection that is opened from now on say when it is used."""
    files: dict[int, int] = {}

    def note(statement: str) -> None:
        if statement.lstrip().startswith(NOT_COUNTED):
            return
        pid = os.getpid()
        if pid not in files:
            files[pid] = os.open(Path(folder) / str(pid), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(files[pid], struct.pack("d", time.time()))

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "sqlite3.connect/handle":
            connection: sqlite3.Connection = arguments[0]
            connection.set_trace_callback(note)

    sys.addaudithook(hear)


if wanted := os.environ.get(FOLDER_VARIABLE):
    count_into(wanted)
