"""The answers of a reader of vectors: a state, and what it was read from.

Belongs here: the values of an answer, and how they are made from the fold's states. How these are found is in
`reader.py`.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from tidemark.vectors.places import PLACE_COLUMNS

Singles = npt.NDArray[np.float32]
# Namespace and id of a vector.
Key = tuple[str, str]


class Status(StrEnum):
    """Whether a vector is live."""

    LIVE = "live"
    DELETED = "deleted"
    NO_BASE = "no base"  # it was never created


class Source(StrEnum):
    """The state that a fold started from."""

    VECTORS = "vectors"
    CHECKPOINT = "checkpoint"
    NOTHING = "nothing"


class Place(NamedTuple):
    """A canonical place (D3)."""

    eff_us: int
    depth: int
    event_us: int
    origin: str
    delta_id: str


class ReadFrom(Struct, frozen=True):
    """What a state was read from: a stored state, and the deltas folded onto it."""

    source: Source
    covered: int = 0  # deltas that the stored state had already
    folded: int = 0  # deltas that were folded onto it
    files: int = 0  # of `deltas`, that were read
    place: Place | None = None  # of the stored state
    strategy: str | None = None  # of a checkpoint
    is_base: bool = False


class Arrival(NamedTuple):
    """Where the folded deltas are in the log; None if there are none."""

    shard: int | None = None
    first_epoch: int | None = None  # the smallest and the greatest epoch folded
    last_epoch: int | None = None
    last_ordinal: int | None = None  # of the folded delta that arrived last


NOWHERE = Arrival()


class Counts(NamedTuple):
    """How many of a vector's deltas had which effect."""

    deltas: int = 0  # folded, with or without effect
    no_base: int = 0
    no_effect: int = 0
    parked: int = 0  # not folded: they wait for a parent
    cycles: int = 0  # not folded: parents in a circle


class Vector(Struct, frozen=True):
    """A vector at some time; `values` is read-only."""

    namespace: str
    vector_id: str
    exists: bool  # whether a create has had an effect
    is_dead: bool
    values: Singles | None  # None unless it is live
    metadata: dict[str, str]
    clock: dict[str, int]
    place: Place | None  # of the last folded delta; None if there is none
    arrival: Arrival
    counts: Counts
    read_from: ReadFrom
    versions: dict[str, int]  # table → version

    @property
    def status(self) -> Status:
        """Whether it is live, was deleted, or was never created."""
        return Status.DELETED if self.is_dead else Status.LIVE if self.exists else Status.NO_BASE

    @property
    def deltas(self) -> int:
        """How many deltas were folded."""
        return self.counts.deltas


def vector_of(
    key: Key, state: pa.Table, parked: int, cycles: int, read_from: ReadFrom, versions: Mapping[str, int]
) -> Vector:
    """A vector from its state (one row of `STATES`, or none if no delta has had an effect yet)."""
    if not state.num_rows:
        counts = Counts(parked=parked, cycles=cycles)
        return Vector(*key, False, False, None, {}, {}, None, NOWHERE, counts, read_from, dict(versions))
    row: dict[str, Any] = state.drop_columns(["values", "state"]).to_pylist()[0]
    return Vector(
        *key,
        row["exists"],
        row["is_dead"],
        _first_values(state["values"]),
        dict(row["metadata"] or ()),
        dict(row["clock"] or ()),
        Place(*(row[name] for name in PLACE_COLUMNS)),
        Arrival(*(row[name] for name in Arrival._fields)),
        Counts(row["deltas"], row["no_base"], row["no_effect"], parked, cycles),
        read_from,
        dict(versions),
    )


def _first_values(lists: pa.ChunkedArray) -> Singles | None:
    """The numbers of the first row, read-only."""
    found = lists[0].values
    if found is None:
        return None
    values = np.array(found, np.float32)
    values.flags.writeable = False
    return values
