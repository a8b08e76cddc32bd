"""The orchestrator's storage, opened so that looking cannot change it.

Belongs here: finding a home's storage and reading it without making, migrating or locking anything. Does not belong
here: what is asked of it (`run_status.py`), and the instance that runs something (`instance.py`).

Importing this imports Dagster, which takes most of a second: whoever may do without asks `has_storage` first.
"""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar
from urllib.parse import quote

import dagster._check as check
from dagster._core.instance.ref import InstanceRef
from dagster._core.storage.event_log.base import EventLogStorage
from dagster._core.storage.event_log.sqlite.sqlite_event_log import SqliteEventLogStorage
from dagster._core.storage.runs.base import RunStorage
from dagster._core.storage.runs.sqlite.sqlite_run_storage import SqliteRunStorage
from sqlalchemy.engine import URL, Engine
from sqlalchemy.exc import DatabaseError

from orchestration.instance import EVENTS_FILE, RUNS_FILE
from resources.home import Home

SQLITE_STORAGE = "DagsterSqliteStorage"

Answer = TypeVar("Answer")


class Storage(NamedTuple):
    """Runs and backfills; events and verdicts."""

    runs: RunStorage
    events: EventLogStorage


class ReadOnlyEvents(SqliteEventLogStorage):
    """The events in SQLite files, none of which is made or migrated by looking."""

    def __init__(self, base_dir: str, *, is_quiet: bool) -> None:
        self._is_quiet = is_quiet
        super().__init__(base_dir)

    def conn_string_for_shard(self, shard_name: str) -> str:
        return _address(Path(self.path_for_shard(shard_name)), is_quiet=self._is_quiet)

    def _initdb(self, engine: Engine, for_index_shard: bool = False) -> None:
        """Nothing: whoever writes the files makes and migrates them."""


def ask(home: Home, question: Callable[[Storage], Answer]) -> Answer:
    """Ask the storage that the home's settings of the orchestrator name.

    SQLite's files are in WAL mode, in which a reader makes two files beside the database. So a file that nobody has
    open is first read as it lies, without SQLite's locks; if somebody came to write it meanwhile, the question is
    asked again under locks.
    """
    settings = InstanceRef.from_dir(str(home.dagster))
    data = settings.storage_data
    if data is None or data.class_name != SQLITE_STORAGE:
        return _ask_server(settings, question)
    base = Path(data.config_dict["base_dir"])
    before = _states(base)
    try:
        answer = question(_sqlite(base, is_quiet=True))
    except DatabaseError:
        if _is_settled(before, _states(base)):
            raise
    else:
        if _is_settled(before, _states(base)):
            return answer
    return question(_sqlite(base, is_quiet=False))


def _ask_server(settings: InstanceRef, question: Callable[[Storage], Answer]) -> Answer:
    """Ask another kind of storage; there the rights of its user decide what looking may change."""
    storage = check.not_none(settings.storage)
    try:
        return question(Storage(storage.run_storage, storage.event_log_storage))
    finally:
        storage.run_storage.dispose()
        storage.event_log_storage.dispose()


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


def _sqlite(base: Path, *, is_quiet: bool) -> Storage:
    events = base / EVENTS_FILE
    return Storage(
        SqliteRunStorage(_address(base / RUNS_FILE, is_quiet=is_quiet)),
        ReadOnlyEvents(str(events.parent), is_quiet=is_quiet),
    )


def _address(file: Path, *, is_quiet: bool) -> str:
    """A SQLite file as SQLAlchemy opens it for reading: a URI within an address, each with its own escapes."""
    options = {"mode": "ro", "uri": "true", **({"immutable": "1"} if is_quiet and not _is_open(file) else {})}
    return URL.create("sqlite", database=f"file:{quote(str(file))}", query=options).render_as_string()
