"""Lineage: in which version each partition of a table last changed, and from which version of its input it was made.

Belongs here: facts about partitions stored outside of a table, so that a reader can tell in milliseconds, without a
JVM and without the orchestrator, whether a bucket still is the sum of the finer ones. The table's own log is the
truth: everything after the stored version is read from it, and what it no longer has is unknown. Does not belong here:
what follows from it (`tidemark/counts`), what runs because of it (`assets/stale.py`).
"""

from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from tidemark.model.errors import DamageError
from tidemark.storage.json_files import read_json, write_json
from tidemark.tables import lake_files

# Not known to be made from any version of the input.
UNKNOWN = -1
# Changed by another program.
FOREIGN = -2
# An unknown change counts as later than anything that was made.
NOBODY_KNOWS = 2**63 - 1


class Input(NamedTuple):
    """A table as it was read: its version, and the generation of that version."""

    version: int
    generation: int


class Made(Struct, frozen=True, array_like=True):
    """A partition: the version in which its rows last changed, and the input version that it was made from."""

    changed: int = -1  # none of its rows ever changed: it has always been empty
    source: int = UNKNOWN
    generation: int = 0


class Lineage(Struct, frozen=True):
    """All partitions of a table up to a version."""

    table_id: str = ""
    version: int = -1
    partitions: dict[int, Made] = {}  # by start in microseconds, or by the number of a bucket
    is_whole: bool = True  # whether a partition that is not listed surely never changed

    def changed(self, start_us: int) -> int:
        """The version in which a partition last changed; -1 if never, and a very large one if that is unknown."""
        made = self.partitions.get(start_us)
        if made is None:
            return -1 if self.is_whole else NOBODY_KNOWS
        return made.changed


class LineageFile:
    """The lineage of one table, on the disk: `provenance.json`, by its old name."""

    def __init__(self, directory: Path, table: str) -> None:
        self._table = table
        self.path = directory / table / "provenance.json"

    def read(self) -> Lineage:
        """The stored lineage; empty if there is none."""
        way_out = (
            "Delete it: it is rebuilt from the table's log, and counts are taken from deltas until the rollups are "
            "computed again."
        )
        return read_json(self.path, Lineage, way_out=way_out) or Lineage()

    def record(
        self, path: Path, *, made_from: Input | None = None, made: Iterable[int] = (), settled_at: int | None = None
    ) -> None:
        """Store the lineage of the table as it is now; the partitions in `made` were just computed from `made_from`.

        The commit `settled_at` has dropped partitions on purpose, or written them again without data that others
        are made of: it does not count as a change of them, and partitions made from them stay up to date. Call with
        the table's lock held.
        """
        state = lake_files.table_state(path)
        if state is None:
            raise DamageError(f"The table at {path} vanished while it was being written. Run the same command again.")
        now = self.read()
        if settled_at is not None:
            now = follow(now, path, self._table, lake_files.TableState(state.table_id, settled_at - 1))
            now = msgspec.structs.replace(now, version=settled_at)
        now = follow(now, path, self._table, state)
        if made_from is not None:
            partitions = dict(now.partitions)
            for start in made:
                known = partitions.get(start, Made())
                if known.source != FOREIGN:
                    partitions[start] = Made(known.changed, made_from.version, made_from.generation)
            now = msgspec.structs.replace(now, partitions=partitions)
        write_json(self.path, now)


def follow(known: Lineage, path: Path, table: str, state: lake_files.TableState) -> Lineage:
    """The stored lineage, brought up to a version of the table by its log."""
    if known.table_id != state.table_id or known.version > state.version:
        # Another table, or an older copy of it: only its own log counts.

        known = Lineage(state.table_id, lake_files.first_version(path) - 1)
    partitions, is_whole = dict(known.partitions), known.is_whole
    for version in range(known.version + 1, state.version + 1):
        if not lake_files.commit_file(path, version).exists():
            partitions, is_whole = {}, False
            continue
        actions = list(lake_files.actions_of(path, version))
        is_ours = any(str(action.get("txn", {}).get("appId", "")).startswith(f"{table}/") for action in actions)
        for start in lake_files.changed_partitions(actions):
            partitions[start] = Made(version, UNKNOWN if is_ours else FOREIGN)
    return Lineage(state.table_id, state.version, partitions, is_whole)
