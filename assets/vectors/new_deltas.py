"""What is new for a table that is folded from vector deltas, and how far its rows reach.

Belongs here: whether the last record still says what lies in the table, and whether `deltas` has more than that. No
Spark and no Dagster run: the daemon asks every few seconds. Does not belong here: what is computed then.
"""

from pathlib import Path
from urllib.parse import unquote

from assets.ingest.schema import DELTAS
from resources.record import Record
from tidemark.model.deltas import Kind
from tidemark.observe.sealed_log import Log
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import KnownTableFile, edits_of, find_break
from tidemark.tables.table_spec import TableSpec
from tidemark.vectors.reading.snapshot import is_rewriting

# Files that were looked at in vain, for as long as this process lives.
_without_vectors: set[str] = set()


def vector_sources(home: Home) -> list[str]:
    """The namespaces that have ever sent vectors, as the log names them: `shop/vector`."""
    log = Log(home)
    return [name for name in log.sources(log.sealed) if name.endswith(f"/{Kind.VECTOR}")]


def covered_epochs(home: Home, spec: TableSpec, record: Record | None, version: int) -> dict[int, int] | None:
    """Shard → last epoch whose deltas are in the table, as far as `deltas` at `version` goes on from there.

    None when that cannot be relied on, so that everything has to be folded: there is no record, the table or `deltas`
    is another than the recorded one, or rows that were folded have been written anew since.
    """
    known, source = KnownTableFile(home.plans, spec.name).read(), KnownTableFile(home.plans, DELTAS.name).read()
    path = home.lake / spec.name
    if (
        record is None
        or record.generation != known.generation
        or record.input_generations.get(DELTAS.name) != source.generation
    ):
        return None
    if find_break(path, known) or edits_of(path, spec.name, known):
        return None
    if is_rewritten(home.lake / DELTAS.name, record.input_versions.get(DELTAS.name, -1), version):
        return None
    return record.durable


def has_new_deltas(home: Home, spec: TableSpec, record: Record | None) -> bool:
    """Whether folding again would change the table. Of a home that has never seen a vector, no file is opened."""
    state = lake_files.readable_state(home.lake / DELTAS.name)
    if state is None or not vector_sources(home):
        return False
    covered = covered_epochs(home, spec, record, state.version)
    if covered is None or record is None:
        return _has_vectors(_all_files(home, state.version))
    return _has_vectors(added_files(home.lake / DELTAS.name, record.input_versions[DELTAS.name], state.version))


def is_rewritten(path: Path, after: int, upto: int) -> bool:
    """Whether rows that were there have been changed since a version, or somebody else has added some."""
    for version in range(after + 1, upto + 1):
        if not lake_files.commit_file(path, version).exists():
            return True
        if is_rewriting(list(lake_files.actions_of(path, version))):
            return True
    return False


def added_files(path: Path, after: int, upto: int) -> list[str]:
    """Files that commits after a version have added and that are there still."""
    present = {file for part in lake_files.partitions(path, upto).values() for file in part.files}
    added = (
        str(path / unquote(action["add"]["path"]))
        for version in range(after + 1, upto + 1)
        for action in lake_files.actions_of(path, version)
        if "add" in action and action["add"].get("dataChange", True)
    )
    return [file for file in added if file in present]


def names_parents(home: Home, version: int) -> bool:
    """Whether any delta of `deltas` at a version names a parent: if none does, nobody needs to look for families."""
    return _has_any(_all_files(home, version), "vector.parent_id IS NOT NULL")


def _has_vectors(chosen: list[str]) -> bool:
    """Whether any of these files of `deltas` holds a vector delta; they never change, so each is looked at once."""
    files = sorted(set(chosen) - _without_vectors)
    is_found = _has_any(files)
    if not is_found:
        _without_vectors.update(files)
    return is_found


def _all_files(home: Home, version: int) -> list[str]:
    return [file for part in lake_files.partitions(home.lake / DELTAS.name, version).values() for file in part.files]


def _has_any(files: list[str], condition: str = "true") -> bool:
    """Whether files of `deltas` hold a vector delta of which the condition is true."""
    if not files:
        return False
    with lake_files.quiet_database() as database:
        query = f"SELECT 1 FROM read_parquet($1) WHERE kind = $2 AND {condition} LIMIT 1"
        return bool(database.execute(query, [files, str(Kind.VECTOR)]).fetchall())
