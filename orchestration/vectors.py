"""The tables of vectors, when deltas have arrived that they do not hold.

Belongs here: whether they are due, what keeps them from being computed, and the run. Does not belong here: what they
compute (`assets/vectors`), how often somebody looks (`sensors.py`).
"""

from typing import TYPE_CHECKING

from assets.ingest.schema import DELTAS
from assets.vectors.news import has_news
from assets.vectors.schema import VECTOR_CONFLICTS, VECTORS
from orchestration.instance import open_instance
from orchestration.materialize import found_wrong
from orchestration.runs import Outcome, Progress, run
from resources.home import Home
from resources.record import Record, RecordError

if TYPE_CHECKING:
    from dagster import DagsterInstance

# In the order in which they are shown; neither is made from the other.
FOLDED = (VECTORS, VECTOR_CONFLICTS)


def due_tables(instance: "DagsterInstance", home: Home) -> list[str]:
    """The tables that do not hold every vector delta of `deltas`; no JVM."""
    return [spec.name for spec in FOLDED if has_news(home, spec, _last(instance, spec.name))]


def wrong_hours(instance: "DagsterInstance", home: Home) -> tuple[str, ...]:
    """Hours of `deltas` that must not be built upon (O4): a vector may have deltas in any of them."""
    return tuple(sorted(found_wrong(home, instance, DELTAS.name)))


def materialize_vectors(home: Home, *, progress: Progress | None = None) -> Outcome:
    """Fold what is new, in one run of the tables that are behind; none if nothing is new."""
    with open_instance(home) as instance:
        due = due_tables(instance, home)
        if not due:
            return Outcome()
        if wrong_hours(instance, home):
            return Outcome(held_back=dict.fromkeys(due, ("as a whole",)))
        return Outcome((run(home, instance, due, (), progress),))


def _last(instance: "DagsterInstance", table: str) -> Record | None:
    try:
        return Record.latest(instance, table)
    except RecordError:
        return None
