"""Delta tables as files: everything that can be read of a table without a JVM.

Belongs here: functions of a table's path (version, identity, markers, partitions, history) and the fsync of a commit.
Does not belong here: writing (`resources/lake.py`, `lake_commits.py`), checksums of rows (`table_checksums.py`), the
declaration of a table (`TableSpec`). Importing this needs neither Spark nor Dagster, so the command line can answer in
about a second.
"""

import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError

from tidemark.model.errors import DamageError
from tidemark.model.timegrid import HOUR_US, from_us, to_us

if TYPE_CHECKING:
    import duckdb

LEFTOVER_AGE_S = 86_400.0


# The key in a table's properties for the first version of its generation; without it, that is 0.
FIRST_VERSION = "tidemark.firstVersion"


class UnreadableTableError(DamageError):
    """The log of a table cannot be read: a gap in its versions, a torn or foreign file, no metadata."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(
            f"The log of the table at {path} cannot be read: {why}. Run './tidemark drain': it moves the folder into "
            "the home's quarantine and builds the table again."
        )
        self.why = why


@dataclass(frozen=True)
class TableState:
    """Which table is at a path, and how far it has come."""

    table_id: str
    version: int


@dataclass(frozen=True)
class PartitionFiles:
    """The files of one partition, according to the table's log."""

    files: tuple[str, ...]
    rows: int
    bytes: int


def open_table(path: Path, version: int | None = None) -> DeltaTable | None:
    """The table at `path`, or None; an error if there is a log that cannot be read."""
    if not (path / "_delta_log").is_dir():
        return None
    try:
        return DeltaTable(path, version=version)
    except TableNotFoundError:
        return None
    except DeltaError as error:
        why = " ".join(str(error).split("\n", 1)[0].removeprefix("Kernel error: ").split())[:200]
        if version is not None and open_table(path) is not None:
            raise DamageError(f"Version {version} of the table at {path} cannot be read: {why}.") from error
        if "nsupported" in why:
            raise DamageError(
                f"The table at {path} needs a feature of Delta that Tidemark does not use ({why}). Drop that feature "
                "with the tool that added it, or restore the table."
            ) from error
        _refuse_sick_disk(path)
        raise UnreadableTableError(path, why) from error


def _refuse_sick_disk(path: Path) -> None:
    """A file that the system cannot read is no damage to the table: nothing is moved to quarantine because of it."""
    for file in sorted((path / "_delta_log").iterdir()):
        try:
            if file.is_file():
                file.read_bytes()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise DamageError(f"{file} cannot be read: {error.strerror}. Check the disk and permissions.") from error


def readable_state(path: Path) -> "TableState | None":
    """As `table_state`, and None for a table that cannot be read: for code that only decides what is due."""
    try:
        return table_state(path)
    except UnreadableTableError:
        return None


def highest_version(path: Path) -> int:
    """The highest version of any commit in a table's log, readable or not; -1 if there is none."""
    names = (file.name.split(".")[0] for file in (path / "_delta_log").glob("*.json"))
    return max((int(name) for name in names if name.isdigit()), default=-1)


def first_version(path: Path) -> int:
    """The version in which the current generation of a table began; earlier commits belong to earlier ones."""
    table = open_table(path)
    return int(table.metadata().configuration.get(FIRST_VERSION, 0)) if table else 0


def refuse_unreadable(table: DeltaTable, path: Path) -> None:
    """Refuse a table whose files alone are not its rows: one with deletion vectors, or with mapped column names."""
    features = set(table.protocol().reader_features or ()) - {"timestampNtz"}
    if features or table.metadata().configuration.get("delta.columnMapping.mode", "none") != "none":
        needed = ", ".join(sorted(features)) or "columnMapping"
        raise DamageError(
            f"The table at {path} was given a feature of Delta that Tidemark does not use ({needed}), so that its "
            "files are not its rows. Drop that feature with the tool that added it, or restore the table."
        )


def table_state(path: Path) -> TableState | None:
    """Identity and latest version, or None if there is no table."""
    table = open_table(path)
    return TableState(str(table.metadata().id), table.version()) if table else None


def columns(path: Path) -> list[str]:
    """The names of a table's columns; empty if there is no table."""
    table = open_table(path)
    return [field.name for field in table.schema().fields] if table else []


def marker(path: Path, app_id: str, version: int | None = None) -> int | None:
    """Number of the last commit with `app_id` to the table, as of `version`."""
    table = open_table(path, version)
    if table is None:
        return None
    number = table.transaction_version(app_id)
    return None if number is None else int(number)


def partitions(path: Path, version: int | None = None) -> dict[int, PartitionFiles]:
    """Files, rows and bytes of every partition that has any, by its start in microseconds, or its bucket's number."""
    table = open_table(path, version)
    if table is None:
        return {}
    found: dict[int, list[tuple[str, int, int]]] = {}
    actions = table.get_add_actions(flatten=True)
    column = next((name for name in actions.schema.names if name.startswith("partition.")), None)
    if column is None:
        return {}  # a table without files has no column for its partitions
    columns = (actions.column(name).to_pylist() for name in ("path", "num_records", "size_bytes", column))
    for file, rows, size, start in zip(*columns, strict=True):
        found.setdefault(partition_start(start), []).append((unquote(file), rows, size))
    return {
        start: PartitionFiles(
            files=tuple(str(path / file) for file, _, _ in files),
            rows=sum(rows for _, rows, _ in files),
            bytes=sum(size for _, _, size in files),
        )
        for start, files in sorted(found.items())
    }


def files(path: Path, version: int | None = None) -> list[str]:
    """All files of a table, partition by partition."""
    return [file for part in partitions(path, version).values() for file in part.files]


def lowest_times(path: Path, column: str) -> dict[int, int]:
    """The lowest value of a time in every partition with rows, in microseconds, according to the table's log."""
    table = open_table(path)
    if table is None:
        return {}
    actions = table.get_add_actions(flatten=True)
    by = next(name for name in actions.schema.names if name.startswith("partition."))
    found: dict[int, int] = {}
    columns = (actions.column(name).to_pylist() for name in (by, f"min.{column}") if name in actions.schema.names)
    for start, lowest in zip(*columns, strict=True):
        place, time_us = partition_start(start), partition_start(lowest)
        found[place] = min(found.get(place, time_us), time_us)
    return found


def partition_start(value: datetime | str | int) -> int:
    """Start of a partition in microseconds, from its value in the table's log; a bucket's number stays as it is."""
    if isinstance(value, int) or (isinstance(value, str) and value.isdigit()):
        return int(value)
    time = value if isinstance(value, datetime) else datetime.fromisoformat(value)
    return to_us(time.replace(tzinfo=time.tzinfo or from_us(0).tzinfo))


def commit_file(path: Path, version: int) -> Path:
    """The file that makes `version` exist."""
    return path / "_delta_log" / f"{version:020d}.json"


def file_mark(path: Path) -> tuple[int, int, int] | None:
    """Changes whenever the file does; None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def commit_sha256(path: Path, version: int) -> str | None:
    """Checksum of a commit, or None if the log no longer has it: two histories that fork differ in it."""
    file = commit_file(path, version)
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else None


def actions_of(path: Path, version: int) -> Iterator[dict[str, Any]]:
    """The actions of one commit."""
    try:
        with commit_file(path, version).open() as lines:
            for line in lines:
                yield json.loads(line)
    except ValueError as error:
        raise UnreadableTableError(path, f"the commit of version {version} is not JSON") from error


def operation_of(path: Path, version: int) -> tuple[str, dict[str, str]] | None:
    """The operation of a commit and its parameters, or None if the log no longer has it."""
    if not commit_file(path, version).exists():
        return None
    info = _commit_info(path, version)
    return str(info.get("operation", "")), dict(info.get("operationParameters") or {})


def version_of(path: Path, after_version: int, app: str, number: int) -> int | None:
    """The version after the given one that an app committed under a number, or None if there is none."""
    state = table_state(path)
    for version in range(after_version + 1, (state.version if state else -1) + 1):
        transactions = [action["txn"] for action in actions_of(path, version) if "txn" in action]
        if any(each.get("appId") == app and each.get("version") == number for each in transactions):
            return version
    return None


@dataclass(frozen=True)
class ForeignCommit:
    """A commit that changed rows and was not ours."""

    version: int
    operation: str
    partitions: tuple[int, ...]  # starts, in microseconds


def foreign_commits(path: Path, after_version: int, our_apps: str) -> list[ForeignCommit]:
    """Commits after a version that changed rows without a marker of ours (an app id that begins with `our_apps`)."""
    state = table_state(path)
    found: list[ForeignCommit] = []
    for version in range(after_version + 1, (state.version if state else -1) + 1):
        if not commit_file(path, version).exists():
            continue
        actions = list(actions_of(path, version))
        if any(str(action.get("txn", {}).get("appId", "")).startswith(our_apps) for action in actions):
            continue
        starts = changed_partitions(actions)
        if starts:
            operation = operation_of(path, version)
            found.append(ForeignCommit(version, operation[0] if operation else "", tuple(sorted(starts))))
    return found


def changed_partitions(actions: Iterable[dict[str, Any]]) -> set[int]:
    """Starts of the partitions in which a commit changed rows; one that only rewrites files changes none."""
    changes = [change for action in actions for name in ("add", "remove") if (change := action.get(name))]
    values = [change.get("partitionValues") or {} for change in changes if change.get("dataChange", True)]
    return {partition_start(value) for each in values for value in each.values() if value}


def commit_time_us(path: Path, version: int) -> int | None:
    """When a version was committed, or None if the log no longer has it."""
    info = _commit_info(path, version) if commit_file(path, version).exists() else {}
    return int(info["timestamp"]) * 1_000 if info else None


def _commit_info(path: Path, version: int) -> dict[str, Any]:
    """What a commit says of itself; nothing if it does not."""
    return next((action["commitInfo"] for action in actions_of(path, version) if "commitInfo" in action), {})


def sync_commits(path: Path, after_version: int) -> None:
    """Sync all commits after a version, data first: Delta on a local disk does not."""
    state = table_state(path)
    if state is None:
        raise DamageError(f"The table at {path} vanished while it was being written. Run the same command again.")
    directories = {path, path / "_delta_log"}
    for version in range(max(after_version + 1, first_version(path)), state.version + 1):
        for action in actions_of(path, version):
            if "add" in action:
                file = path / unquote(action["add"]["path"])
                _sync(file)
                directories.add(file.parent)
        _sync(commit_file(path, version))
    for directory in sorted(directories):
        _sync(directory)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def quiet_database() -> "duckdb.DuckDBPyConnection":
    """DuckDB in memory, without its progress bar on standard output, where only answers belong."""
    import duckdb

    database = duckdb.connect()
    database.execute("SET enable_progress_bar = false")
    return database


@dataclass(frozen=True)
class PartitionSummary:
    """The content of one partition of a table of deltas, in numbers."""

    rows: int
    epochs: dict[int, tuple[int, int]]  # shard → first epoch and the one after the last
    late: int


def summarize(path: Path, version: int, starts: Iterable[int], *, has_stamps: bool) -> dict[int, PartitionSummary]:
    """Rows, epochs per shard and late rows of the given hours, read from the table as of `version`.

    Rows are late for the hour if the watermark in force had already passed its end (T4).
    """
    wanted = set(starts)
    found: dict[int, PartitionSummary] = {}
    stamps = f"epoch_us(watermark_ts) >= $start + {HOUR_US}" if has_stamps else "false"
    query = (
        f"SELECT shard, min(epoch), max(epoch) + 1, count(*), count(*) FILTER ({stamps}) "
        "FROM read_parquet($files) GROUP BY shard ORDER BY shard"
    )
    with quiet_database() as database:
        for start, files in partitions(path, version).items():
            if start not in wanted:
                continue
            values: dict[str, Any] = {"files": list(files.files)} | ({"start": start} if has_stamps else {})
            rows = database.execute(query, values).fetchall()
            found[start] = PartitionSummary(
                rows=sum(row[3] for row in rows),
                epochs={row[0]: (row[1], row[2]) for row in rows},
                late=sum(row[4] for row in rows),
            )
    return found


def remove_leftovers(path: Path, *, now_s: float) -> None:
    """Remove temporary files that killed commits left in a table's log. Call with the table's lock held.

    Spark, delta-rs and `create_table` all end theirs with `.tmp`, and no commit reads another's. A server may still be
    finishing a killed run's request: only files older than a day are surely unused.
    """
    for file in (path / "_delta_log").glob("*.tmp*"):
        if file.name.endswith((".tmp", ".tmp.crc")) and file.stat().st_mtime < now_s - LEFTOVER_AGE_S:
            file.unlink(missing_ok=True)
