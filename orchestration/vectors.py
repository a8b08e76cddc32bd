"""The tables of vectors, when new deltas have arrived.

Belongs here: whether they are due, whether they are blocked, and the run. Does not belong here: what they compute
(`assets/vectors`), how often the sensor looks (`sensors.py`).
"""

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from assets.ingest.schema import DELTAS
from assets.tables import TABLES
from assets.trust import against, found_wrong, unfinished
from assets.vectors.index_schema import VECTOR_INDEX
from assets.vectors.new_deltas import due_buckets
from assets.vectors.schema import VECTOR_CONFLICTS, VECTORS
from orchestration.instance import open_instance
from orchestration.runs import Progress, RunResults, run
from orchestration.seen import seen_records
from resources.record import Record, forget_reused
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.table_spec import TableSpec

if TYPE_CHECKING:
    from dagster import DagsterInstance

# In the order in which they are shown; neither is made from the other. The index is made from the first.
FOLDED = (VECTORS, VECTOR_CONFLICTS)
ALL_TABLES = (VECTORS.name, VECTOR_CONFLICTS.name, VECTOR_INDEX.name)


class Due(NamedTuple):
    """A run that is due: of which tables, and of which buckets of those that are divided."""

    tables: tuple[str, ...] = ()
    buckets: tuple[str, ...] = ()


def due_work(instance: "DagsterInstance", home: Home) -> Due:
    """The tables that miss vector deltas of `deltas`, and the buckets in which they miss some; no JVM.

    Both tables get the same deltas, so a run covers the same buckets of both, if both are due.
    """
    due = {spec.name: keys for spec in FOLDED if (keys := _due_buckets(instance, home, spec))}
    return Due((*due, *_index_due(instance, home, due)), tuple(sorted(set().union(*due.values()))))


def _due_buckets(instance: "DagsterInstance", home: Home, spec: TableSpec) -> set[str]:
    """Buckets with new deltas, and those that did not pass a check since: these are folded anew until they do."""
    with seen_records(instance) as seen:
        forget_reused(instance, seen)
        records = Record.latest_by_partition(instance, spec.name, seen=seen)
    behind = {spec.grain.key(bucket) for bucket in due_buckets(home, spec, records)}
    return behind | unfinished(home, instance, [spec.name])[spec.name]


def _index_due(instance: "DagsterInstance", home: Home, due: Collection[str]) -> list[str]:
    """The index, if `vectors` is about to change or has changed since, and may be built upon (O4)."""
    if VECTORS.name in due:
        return [VECTOR_INDEX.name]
    state = lake_files.readable_state(home.lake / VECTORS.name)
    record = Record.found(instance, VECTOR_INDEX.name)
    is_behind = state is not None and (record is None or record.input_versions.get(VECTORS.name) != state.version)
    is_due = is_behind or unfinished(home, instance, [VECTOR_INDEX.name])[VECTOR_INDEX.name]
    return [VECTOR_INDEX.name] if is_due and not found_wrong(home, instance, VECTORS.name) else []


def wrong_hours(instance: "DagsterInstance", home: Home) -> dict[str, tuple[str, ...]]:
    """Hours of `deltas` that must not be built upon (O4): a vector may have deltas in any of them."""
    return against(home, instance, DELTAS.name)


def materialize_vectors(home: Home, *, progress: Progress | None = None) -> RunResults:
    """Fold new deltas, in one run of the tables and buckets that are behind; without new deltas there is no run."""
    with open_instance(home) as instance:
        due = due_work(instance, home)
        if not due.tables:
            return RunResults()
        if wrong_hours(instance, home):
            return RunResults(held_back={table: _held_back(table, due) for table in due.tables})
        return RunResults((run(home, instance, due.tables, due.buckets, progress),))


def _held_back(table: str, due: Due) -> tuple[str, ...]:
    return ("as a whole",) if TABLES[table].is_whole else due.buckets
