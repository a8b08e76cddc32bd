"""Counts the statements that a process gives to SQLite, which is where Dagster keeps its storage.

Python imports this by itself in every process that has this folder on its path: `bench freshness` puts it there for the
turn in which it counts. Belongs here: nothing that costs a process anything before it opens a database. Each statement
is the time of it, eight bytes at the end of a file of the process, because a run's process may end without notice.
"""

import os
import sqlite3
import sqlite3.dbapi2
import struct
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

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = original(*arguments, **options)
        connection.set_trace_callback(note)
        return connection

    original = sqlite3.dbapi2.connect
    sqlite3.connect = sqlite3.dbapi2.connect = connect  # type: ignore[assignment]


if wanted := os.environ.get(FOLDER_VARIABLE):
    count_into(wanted)
