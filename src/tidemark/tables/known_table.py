"""What is known of a table outside of it, and whether it is still the one that we have been writing (C7).

Belongs here: the small file beside the plans (`lineage.json`, by its old name), and how a restore, a deletion or a
roll-back is noticed. The generation is part of a table's transaction ids, because a restored table keeps the markers of
commits whose rows it has lost. Does not belong here: how a table is filled again; that differs from table to table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
from msgspec import Struct

from tidemark.model.errors import DamageError
from tidemark.storage.home import Home
from tidemark.storage.json_files import read_json, write_json
from tidemark.tables import lake_files
from tidemark.tables.table_extent import TableExtent, log_state, read_extent

# Operations that undo whole commits of ours without our markers showing it; a change of some rows is an edit.
FOREIGN_OPERATIONS = ("RESTORE", "CREATE OR REPLACE TABLE", "REPLACE TABLE", "CLONE")


class Opening(Struct, frozen=True):
    """The replacing commit that a new generation still needs; it is repeated until it is there."""

    number: int  # plan number that it carries; everything up to it is in the table afterwards
    hours: list[int] | None = None  # the partitions to rebuild, in microseconds; None means the whole table


class Edit(Struct, frozen=True):
    """Another program has changed rows of a partition; its check fails until the partition is written again."""

    partition_us: int  # its start, or the number of a bucket
    version: int
    operation: str

    @property
    def said(self) -> str:
        """What has happened, for people."""
        return f"somebody else has changed rows ({self.operation or 'a commit'} in version {self.version})"


class KnownTable(Struct, frozen=True, rename={"generation": "lineage"}):
    """The facts about a table that are stored outside of it."""

    generation: int = 1  # stored under its old name, so that older homes open
    table_id: str = ""
    version: int = -1  # last version known to be ours; -1 while there is none
    commit: str = ""  # checksum of that version's commit, to notice a fork of the table
    number: int = 0  # last plan known to be committed
    opening: Opening | None = None
    edits: tuple[Edit, ...] = ()
    # The next generation begins at this version: late commits of an earlier generation have lower ones.
    floor: int = 0
    tried: int = -1  # the version on which a write was last tried, if that is beyond `version`
    # As of `version`. It saves opening the table, which takes longer with every partition (decision 0038).
    extent: TableExtent | None = None


# More than the commits that other programs can make between our last look at a table and the end of its generation.
VERSIONS_BETWEEN_GENERATIONS = 1000


def next_floor(known: KnownTable, seen: int) -> int:
    """Where the next generation of a table begins, if `seen` is the highest version in its folder."""
    return max(known.version, known.tried, known.floor, seen) + VERSIONS_BETWEEN_GENERATIONS


@dataclass(frozen=True)
class Break:
    """Why a table is not the one that we have been writing, and what is left of it."""

    why: str
    left_version: int | None  # the version whose rows are there now; None if that cannot be known


def app_id(table: str, generation: int) -> str:
    """The name under which the table stores the number of the last committed plan."""
    return f"{table}/{generation}"


class KnownTableFile:
    """The file with the facts about one table."""

    def __init__(self, directory: Path, table: str) -> None:
        self.table = table
        self.path = directory / table / "lineage.json"

    def read(self) -> KnownTable:
        """The stored facts; defaults if there is no file yet."""
        return read_json(self.path, KnownTable, way_out="Restore it from a backup.") or KnownTable()

    def extent(self, table: Path) -> TableExtent | None:
        """The extent of the table; the table is opened only if its log has changed since it was stored."""
        known = self.read()
        if is_as_recorded(table, known):
            return known.extent
        return read_extent(table, app_id(self.table, known.generation))

    def write(self, known: KnownTable) -> KnownTable:
        """Store the facts, durably."""
        write_json(self.path, known)
        return known

    def record_edits(self, table: Path) -> KnownTable:
        """Record what other programs have changed since our last commit, before a commit of ours hides it."""
        known = self.read()
        found = edits_of(table, self.table, known)
        return known if found == known.edits else self.write(msgspec.structs.replace(known, edits=found))

    def record_try(self, table: Path, version: int) -> None:
        """Record edits, and the version that a write begins on if that is beyond the last one known to be ours."""
        known = self.record_edits(table)
        if version > max(known.version, known.tried):
            self.write(msgspec.structs.replace(known, tried=version))

    def record_commit(
        self, table: Path, *, number: int | None = None, rewritten: Callable[[int], bool] | None = None
    ) -> KnownTable:
        """Record the table's latest version as ours; partitions that were `rewritten` are no longer edited."""
        known = self.read()
        state = read_extent(table, app_id(self.table, known.generation))
        if state is None:
            raise DamageError(f"The table at {table} vanished while it was being written. Run the same command again.")
        return self.write(
            msgspec.structs.replace(
                known,
                table_id=state.table_id,
                version=state.version,
                commit=lake_files.commit_sha256(table, state.version) or "",
                number=known.number if number is None else number,
                edits=tuple(edit for edit in known.edits if not (rewritten and rewritten(edit.partition_us))),
                extent=state,
            )
        )


def current_edits(home: Home, table: str) -> dict[int, Edit]:
    """Partitions, by start, in which somebody else has changed rows; none of a table that will be filled again."""
    known, path = KnownTableFile(home.plans, table).read(), home.lake / table
    if is_as_recorded(path, known):
        edits = known.edits  # nothing was committed since our last commit, so the table need not be opened
    else:
        edits = () if find_break(path, known) else edits_of(path, table, known)
    return {edit.partition_us: edit for edit in edits}


def is_as_recorded(table: Path, known: KnownTable) -> bool:
    """Whether a table's log has not changed since our last commit: there is nothing to be found by opening it."""
    return known.extent is not None and known.extent.log == log_state(table)


def seen_state(table: Path, known: KnownTable) -> lake_files.TableState | None:
    """Identity and latest version of a table that can be read; it is opened only if its log has changed."""
    if known.extent is not None and is_as_recorded(table, known):
        return lake_files.TableState(known.extent.table_id, known.extent.version)
    return lake_files.readable_state(table)


def edits_of(table: Path, name: str, known: KnownTable) -> tuple[Edit, ...]:
    """Partitions that another program has changed and that were not written again since; the last edit each."""
    if known.version < 0:
        return known.edits
    found = {edit.partition_us: edit for edit in known.edits}
    for commit in lake_files.foreign_commits(table, known.version, f"{name}/"):
        found |= {start: Edit(start, commit.version, commit.operation) for start in commit.partitions}
    return tuple(found[start] for start in sorted(found))


def find_break(table: Path, known: KnownTable) -> Break | None:
    """Compare a table with its stored facts; None means that it is ours, and nothing was undone."""
    try:
        return _find_break(table, known)
    except lake_files.UnreadableTableError as error:
        return Break(f"its log cannot be read ({error.why})", None)


def _find_break(table: Path, known: KnownTable) -> Break | None:
    state = lake_files.table_state(table)
    if known.version < 0:
        return None
    if state is None:
        return Break("it was deleted", None)
    if state.table_id != known.table_id:
        return Break("another table was put in its place", None)
    if state.version < known.version:
        return Break(
            f"it is at version {state.version}, but version {known.version} was written: an older copy was put back",
            state.version,
        )
    if known.commit and (lake_files.commit_sha256(table, known.version) or known.commit) != known.commit:
        return Break(f"its version {known.version} is another commit than the one that was written", None)
    return _foreign_commit(table, known, state.version)


def _foreign_commit(table: Path, known: KnownTable, latest: int) -> Break | None:
    for version in range(known.version + 1, latest + 1):
        found = lake_files.operation_of(table, version)
        if found is None:
            return Break(f"the log of its version {version} is gone", None)
        operation, parameters = found
        if _is_of_another_generation(table, version, known):
            return Break(f"a run of an earlier generation has committed to it (version {version})", None)
        if operation in FOREIGN_OPERATIONS:
            restored = str(parameters.get("version")) if operation == "RESTORE" else ""
            left_version = int(restored) if restored.isdigit() else None
            return Break(f"{operation} was run on it (version {version})", left_version)
    return None


def _is_of_another_generation(table: Path, version: int, known: KnownTable) -> bool:
    """Whether a commit has a marker of this table with another generation: a killed run's JVM may commit late."""
    apps = [str(action["txn"].get("appId", "")) for action in lake_files.actions_of(table, version) if "txn" in action]
    generations = [app.split("/")[1] for app in apps if app.startswith(f"{table.name}/")]
    return any(each != str(known.generation) for each in generations)
