"""The tables of vectors, when deltas have arrived that they do not hold.

Belongs here: whether they are due, what keeps them from being computed, and the run. Does not belong here: what they
compute (`assets/vectors`), how often somebody looks (`sensors.py`).
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from assets.ingest.schema import DELTAS
from assets.trust import against, found_wrong, unfinished
from assets.vectors.index_schema import VECTOR_INDEX
from assets.vectors.new_deltas import has_new_deltas
from assets.vectors.schema import VECTOR_CONFLICTS, VECTORS
from orchestration.instance import open_instance
from orchestration.runs import Progress, RunResults, run
from resources.record import Record, RecordError
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import KnownTableFile

if TYPE_CHECKING:
    from dagster import DagsterInstance

# In the order in which they are shown; neither is made from the other. The index is made from the first.
FOLDED = (VECTORS, VECTOR_CONFLICTS)
ALL_TABLES = (VECTORS.name, VECTOR_CONFLICTS.name, VECTOR_INDEX.name)


def due_tables(instance: "DagsterInstance", home: Home) -> list[str]:
    """The tables that do not hold every vector delta of `deltas`; no JVM."""
    due = [
        spec.name
        for spec in FOLDED
        if has_new_deltas(home, spec, _last(instance, spec.name)) or unfinished(home, instance, spec.name)
    ]
    return [*due, *_index_due(instance, home, due)]


def _index_due(instance: "DagsterInstance", home: Home, due: Sequence[str]) -> list[str]:
    """The index, if `vectors` is about to change or has changed since, and may be built upon (O4)."""
    if VECTORS.name in due:
        return [VECTOR_INDEX.name]
    state = lake_files.readable_state(home.lake / VECTORS.name)
    record = _last(instance, VECTOR_INDEX.name)
    is_behind = state is not None and (record is None or record.input_versions.get(VECTORS.name) != state.version)
    is_due = is_behind or unfinished(home, instance, VECTOR_INDEX.name)
    return [VECTOR_INDEX.name] if is_due and not found_wrong(home, instance, VECTORS.name) else []


def as_seen(home: Home, tables: Iterable[str]) -> str:
    """Tables as they were looked at: which generation of each, at which version, as a run is tagged with it.

    A run that finds nothing to do about this is not asked for again, and one that is due again is: whatever makes it
    so, a commit, an edit by hand or a deletion, is seen here.
    """
    states = (
        (name, KnownTableFile(home.plans, name).read(), lake_files.readable_state(home.lake / name)) for name in tables
    )
    return " ".join(f"{name}:{known.generation}/{state.version if state else '-'}" for name, known, state in states)


def wrong_hours(instance: "DagsterInstance", home: Home) -> dict[str, tuple[str, ...]]:
    """Hours of `deltas` that must not be built upon (O4): a vector may have deltas in any of them."""
    return against(home, instance, DELTAS.name)


def materialize_vectors(home: Home, *, progress: Progress | None = None) -> RunResults:
    """Fold what is new, in one run of the tables that are behind; none if nothing is new."""
    with open_instance(home) as instance:
        due = due_tables(instance, home)
        if not due:
            return RunResults()
        if wrong_hours(instance, home):
            return RunResults(held_back=dict.fromkeys(due, ("as a whole",)))
        return RunResults((run(home, instance, due, (), progress),))


def _last(instance: "DagsterInstance", table: str) -> Record | None:
    try:
        return Record.latest(instance, table)
    except RecordError:
        return None
