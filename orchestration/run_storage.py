"""The orchestrator's storage, opened so that looking cannot change it.

Belongs here: opening a home's storage by its database's own driver, and reading it without making, migrating or locking
anything. Does not belong here: which storage that is (`storage_settings.py`), what its tables mean (`run_records.py`),
and the instance that runs something (`instance.py`).

Neither Dagster nor SQLAlchemy is imported: either takes longer than everything else that `status` does.
"""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from orchestration.instance import EVENTS_FILE, RUNS_FILE
from orchestration.storage_settings import PostgresServer, SqliteFiles, StorageError, read_storage_settings
from tidemark.storage.home import Home

Answer = TypeVar("Answer")


class Database(NamedTuple):
    """A connection that only reads, and what its driver writes in the place of a value."""

    connection: Any  # as the DB-API has it, which has no type
    place: str

    def rows(self, question: str, *values: Any) -> list[tuple[Any, ...]]:
        """All rows of the answer; each `?` in the question is the place of a value."""
        cursor = self.connection.cursor()
        cursor.execute(question.replace("?", self.place), values)
        found: list[tuple[Any, ...]] = cursor.fetchall()
        return found


class Storage(NamedTuple):
    """Runs and backfills; events and verdicts. Each is seen as of one moment."""

    runs: Database
    events: Database


def ask(home: Home, question: Callable[[Storage], Answer]) -> Answer:
    """Ask the storage that the home's settings of the orchestrator name."""
    storage = read_storage_settings(home)
    return _ask_server(storage, question) if isinstance(storage, PostgresServer) else _ask_files(storage, question)


def _ask_files(files: SqliteFiles, question: Callable[[Storage], Answer]) -> Answer:
    """Ask SQLite's files, which are in WAL mode, in which a reader makes two files beside the database.

    So a file that nobody has open is first read as it lies, without SQLite's locks; if somebody came to write it
    meanwhile, the question is asked again under locks.
    """
    before = _states(files.base)
    try:
        with _sqlite(files.base, is_quiet=True) as storage:
            answer = question(storage)
    except sqlite3.DatabaseError:
        if _is_settled(before, _states(files.base)):
            raise
    else:
        if _is_settled(before, _states(files.base)):
            return answer
    with _sqlite(files.base, is_quiet=False) as storage:
        return question(storage)


def _ask_server(server: PostgresServer, question: Callable[[Storage], Answer]) -> Answer:
    """Ask PostgreSQL, in a transaction that may only read."""
    try:
        import psycopg2
    except ImportError as error:
        raise StorageError(
            "PostgreSQL is read with psycopg2, which comes with dagster_postgres and is not installed. Install "
            "dagster-postgres beside Tidemark, in the version that docs/guide/operating.md names."
        ) from error
    try:
        with closing(psycopg2.connect(**server.options)) as connection:
            connection.set_session(isolation_level="REPEATABLE READ", readonly=True)
            database = Database(connection, "%s")
            return question(Storage(database, database))
    except psycopg2.Error as error:
        raise StorageError(f"{type(error).__name__}: {error}") from error


class _FileState(NamedTuple):
    changed_ns: int
    size: int
    is_open: bool  # by some other process, or left behind by one that died


def _states(base: Path) -> list[_FileState]:
    found = []
    for name in (RUNS_FILE, EVENTS_FILE):
        stat = (base / name).stat()
        found.append(_FileState(stat.st_mtime_ns, stat.st_size, _is_open(base / name)))
    return found


def _is_settled(before: list[_FileState], after: list[_FileState]) -> bool:
    """Whether each file was open all the time, and so read under locks, or has not changed."""
    return all((was.is_open and now.is_open) or was == now for was, now in zip(before, after, strict=True))


def _is_open(file: Path) -> bool:
    return file.with_name(f"{file.name}-wal").exists()


@contextmanager
def _sqlite(base: Path, *, is_quiet: bool) -> Iterator[Storage]:
    with ExitStack() as opened:
        runs, events = (
            opened.enter_context(closing(_connect(base / name, is_quiet=is_quiet))) for name in (RUNS_FILE, EVENTS_FILE)
        )
        yield Storage(Database(runs, "?"), Database(events, "?"))


def _connect(file: Path, *, is_quiet: bool) -> sqlite3.Connection:
    """A connection that sees the file as of its first question; in WAL mode no writer waits for it."""
    options = "mode=ro" + ("&immutable=1" if is_quiet and not _is_open(file) else "")
    connection = sqlite3.connect(f"file:{quote(str(file))}?{options}", uri=True, isolation_level=None)
    connection.execute("BEGIN")
    return connection
