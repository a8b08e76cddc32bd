"""The tables of vectors at one time, without a JVM: their versions, their files, and how far `vectors` has come.

Belongs here: opening the tables together, noticing cheaply whether one has changed, and finding the deltas that are not
in the rows of `vectors` yet. Does not belong here: rows (`scan.py`, `row_cache.py`).

A payload is removed from `deltas` only after the checkpoint that covers it was committed (K5). So the three tables are
taken as of one time: if one of them has changed while another was opened, they are opened again.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import app_id
from tidemark.tables.plans import PlanStore, durable_in
from tidemark.tables.table_snapshot import TableSnapshot
from tidemark.vectors.tables import CHECKPOINTS, DELTAS, PAYLOADS_REMOVED, VECTORS

# A commit takes far longer than a look at three tables; a writer that interferes so often is none of ours.
_TRIES = 20


class FileOf(NamedTuple):
    """A file of a table: the start of its hour or its bucket, and its greatest epoch, if that is known."""

    path: str
    partition: int
    greatest_epoch: int | None
    bytes: int

    def may_exceed(self, epoch: int) -> bool:
        """Whether it can contain a row of a later epoch."""
        return self.greatest_epoch is None or self.greatest_epoch > epoch


class VectorTable(TableSnapshot):
    """One of the three tables, with its files."""

    def __init__(self, home: Home, name: str) -> None:
        super().__init__(home, name)
        self.files: tuple[FileOf, ...] = ()
        if self.opened is not None:
            self.files = _files(self.path, pa.table(self.opened.get_add_actions(flatten=True)))


class NewFiles(NamedTuple):
    """The new files of `deltas` since a version, and the epochs by shard up to which all rows are older."""

    files: tuple[FileOf, ...]
    covered: dict[int, int]


class Snapshot:
    """The three tables as they were at one time."""

    def __init__(self, home: Home, tables: Mapping[str, VectorTable]) -> None:
        self._home = home
        self.checkpoints, self.vectors, self.deltas = (tables[name] for name in (CHECKPOINTS, VECTORS, DELTAS))
        self._new_files: dict[int, NewFiles | None] = {}

    @classmethod
    def take(cls, home: Home, before: "Snapshot | None" = None) -> "Snapshot":
        """The tables as they are now; `before` itself if nothing has changed, else with its unchanged tables."""
        if before is not None and before.is_current():
            return before
        known = {table.name: table for table in before.tables} if before else {}
        for _ in range(_TRIES):
            for name in (CHECKPOINTS, VECTORS, DELTAS):
                if name not in known or not known[name].is_current():
                    known[name] = VectorTable(home, name)
            if all(table.is_current() for table in known.values()):
                break
        return cls(home, known)

    @property
    def tables(self) -> tuple[VectorTable, ...]:
        """All of them."""
        return self.checkpoints, self.vectors, self.deltas

    @property
    def versions(self) -> dict[str, int]:
        """Table → version, of those that exist."""
        return {table.name: table.version for table in self.tables if table.version is not None}

    @property
    def epochs(self) -> dict[int, int]:
        """Shard → last epoch that is in `deltas`."""
        return durable_in(self._home, self.deltas)

    def is_current(self) -> bool:
        """Whether nothing has changed since."""
        return all(table.is_current() for table in self.tables)

    def reach(self, bucket: int) -> int | None:
        """The version of `deltas` that a bucket of `vectors` was made from; None if the bucket cannot be relied on.

        That is so if another program changed the bucket, if `deltas` is of another generation, or if its rows were
        written again.
        """
        made = self.vectors.lineage.partitions.get(bucket)
        if made is None or made.source < 0 or made.generation != self.deltas.generation:
            return None
        return made.source if self.new_files(made.source) is not None else None

    def new_files(self, version: int) -> NewFiles | None:
        """The new files of `deltas` since a version; None if its older rows have changed, too."""
        if version not in self._new_files:
            self._new_files[version] = self._find_new_files(version)
        return self._new_files[version]

    def _find_new_files(self, after: int) -> NewFiles | None:
        deltas, added, number = self.deltas, set[str](), self.deltas.number
        app = app_id(DELTAS, deltas.generation)
        if deltas.version is None or after > deltas.version:
            return None
        for version in range(deltas.version, after, -1):
            if not lake_files.commit_file(deltas.path, version).exists():
                return None
            actions = list(lake_files.actions_of(deltas.path, version))
            markers = {
                str(action["txn"]["appId"]): int(action["txn"]["version"]) for action in actions if "txn" in action
            }
            if is_rewriting(actions):
                return None
            added |= {unquote(action["add"]["path"]) for action in actions if "add" in action}
            # The number of a commit is one more than the number before it.
            number = markers[app] - 1 if app in markers else number
        durable = PlanStore(self._home.plans / DELTAS, deltas.generation).durable(number)
        # A shard that had sent nothing is not named, and all of its deltas are new.
        covered = dict.fromkeys(range(self._home.settings.shards), 0) | durable
        names = {str(deltas.path.absolute() / name) for name in added}
        lowest = min(covered.values())
        return NewFiles(tuple(file for file in deltas.files if file.path in names and file.may_exceed(lowest)), covered)


def is_rewriting(actions: Sequence[dict[str, Any]]) -> bool:
    """Whether a commit to `deltas` changed rows other than by removing payloads, or came from another program."""
    apps = [str(action["txn"].get("appId", "")) for action in actions if "txn" in action]
    is_ours = any(app.startswith(f"{DELTAS}/") for app in apps)
    if is_ours and any(app.endswith(f"/{PAYLOADS_REMOVED}") for app in apps):
        return False
    is_removal = any(action["remove"].get("dataChange", True) for action in actions if "remove" in action)
    return is_removal or (not is_ours and bool(lake_files.changed_partitions(actions)))


def files_at(path: Path, version: int | None = None) -> tuple[FileOf, ...]:
    """The files of a table at a version, or as it is now; empty if there is no table."""
    opened = lake_files.open_table(path, version)
    if opened is None:
        return ()
    lake_files.refuse_unreadable(opened, path)
    return _files(path, pa.table(opened.get_add_actions(flatten=True)))


def _files(path: Path, actions: pa.Table) -> tuple[FileOf, ...]:
    by = next((name for name in actions.schema.names if name.startswith("partition.")), None)
    if by is None:
        return ()
    epochs = actions["max.epoch"].to_pylist() if "max.epoch" in actions.schema.names else [None] * actions.num_rows
    columns = (actions[name].to_pylist() for name in ("path", by, "size_bytes"))
    root = path.absolute()
    return tuple(
        FileOf(str(root / unquote(name)), lake_files.partition_start(part), epoch, size)
        for name, part, size, epoch in zip(*columns, epochs, strict=True)
    )
