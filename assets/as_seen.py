"""Tables as they were seen at a look, by generation and version: whether anything has changed since, without a JVM.

Belongs here: saying it, and the tag in which a refresh says what it has left. Does not belong here: what follows from a
change (`orchestration/refreshes.py`, and the sensors).
"""

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from assets.ingest.schema import DEAD_LETTERS, DELTAS
from assets.tables import GRAPH
from assets.trust import states_of
from tidemark.storage.home import Home
from tidemark.tables.known_table import KnownTableFile, seen_state

if TYPE_CHECKING:
    from dagster import DagsterInstance

# What a refresh makes, or makes again until it passes its check.
REFRESHED = (DELTAS.name, DEAD_LETTERS.name, *GRAPH)
# Of a run of `refresh`: the tables that it was requested for, and at its end those that it found nothing to do for.
STATE_TAG = "tidemark/refreshed"


def as_seen(home: Home, tables: Iterable[str]) -> str:
    """The state of the tables at a look, for a run's tag: the generation and version of each.

    If a run finds nothing to do in this state, it is not requested again; if it is due again, it is requested. A
    commit, an edit by hand or a deletion is seen here.
    """
    found = []
    for name in tables:
        known = KnownTableFile(home.plans, name).read()
        state = seen_state(home.lake / name, known)
        found.append(f"{name}:{known.generation}/{state.version if state else '-'}")
    return " ".join(found)


def state_of(home: Home, instance: "DagsterInstance") -> str:
    """The tables that a refresh reads and makes, at their versions of now, and what of `deltas` may not be built upon.

    A drain checks what it has committed a moment later: a refresh in between finds nothing that it may make.
    """
    states = states_of(instance, DELTAS.name).items()
    closed = sorted((key, state.name) for key, state in states if state.is_open or state.has_failed)
    return hashlib.sha256(f"{as_seen(home, REFRESHED)} {closed}".encode()).hexdigest()[:32]
