"""The state from which a fold may go on: a checkpoint that a read can rely on, and the deltas to fold onto it (K4, K6).

Belongs here: decisions about one vector from its deltas and checkpoints, in memory. Reading these is in `scan.py`, how
the fold goes on in `vectors/chain.py`.
"""

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.timegrid import from_us
from tidemark.vectors.errors import BeforeHorizonError
from tidemark.vectors.places import PLACE_COLUMNS, Standing, with_places
from tidemark.vectors.reading.answers import Place, Source
from tidemark.vectors.schema import STATES


class Start(NamedTuple):
    """A state from which a fold may go on: one row of `STATES`."""

    state: pa.Table
    source: Source
    place: Place
    last_epoch: int
    deltas: int
    strategy: str | None = None
    is_base: bool = False

    def is_within(self, as_of_us: int | None, epoch: int | None) -> bool:
        """Whether nothing in it takes effect later, or arrived later, than requested."""
        return (as_of_us is None or self.place.eff_us <= as_of_us) and (epoch is None or self.last_epoch <= epoch)


class Deltas(NamedTuple):
    """A vector's deltas, with places."""

    ordered: pa.Table  # those that have a place, in order
    parked: int
    cycles: int


def starts_of(rows: pa.Table, source: Source) -> list[Start]:
    """Rows of `vectors` or `vector_checkpoints` as states to go on from; rows that only have counts are left out."""
    states = rows.select(STATES.names).cast(STATES)
    facts = rows.drop_columns(["values", "state", "metadata", "clock"]).to_pylist()
    return [
        Start(
            states.slice(row, 1),
            source,
            Place(*(each[name] for name in PLACE_COLUMNS)),
            each["last_epoch"],
            each["deltas"],
            each.get("strategy"),
            bool(each.get("is_base")),
        )
        for row, each in enumerate(facts)
        if each["deltas"]
    ]


def refuse_before_horizon(checkpoints: pa.Table, as_of_us: int | None, epoch: int | None) -> Start | None:
    """The base, before which nothing can be read, if there is one; raises if the request is before it (K6).

    A time is refused before the cut that the base was made with. An epoch is refused before the last one in the base;
    all deltas that arrived by then and are not in the base have kept their payloads.
    """
    bases = checkpoints.filter(pc.fill_null(checkpoints["is_base"], False)).sort_by([("cut_us", "descending")])
    if not bases.num_rows:
        return None
    (base,) = starts_of(bases.slice(0, 1), Source.CHECKPOINT)
    cut_us = bases["cut_us"][0].as_py()
    if as_of_us is not None and as_of_us < cut_us:
        raise BeforeHorizonError(f"{from_us(as_of_us):%Y-%m-%dT%H:%M:%S.%fZ}", cut_us, base.last_epoch)
    if epoch is not None and epoch < base.last_epoch:
        raise BeforeHorizonError(f"Epoch {epoch}", cut_us, base.last_epoch)
    return base


def placed(deltas: pa.Table) -> Deltas:
    """All these deltas, with their places."""
    found = with_places(deltas)
    ordered = found.filter(pc.equal(found["standing"], Standing.PLACED))
    ordered = ordered.sort_by([(name, "ascending") for name in PLACE_COLUMNS])
    counts = [pc.sum(pc.equal(found["standing"], each)).as_py() or 0 for each in (Standing.PARKED, Standing.CYCLE)]
    return Deltas(ordered, *counts)


def covered_by(deltas: Deltas, start: Start | None) -> int:
    """How many of the deltas are at or below the place of a state."""
    ordered = deltas.ordered
    if start is None:
        return 0
    return bisect_right(range(ordered.num_rows), start.place, key=lambda row: _place(ordered, row))


def newest_usable(deltas: Deltas, starts: Sequence[Start], *, is_whole: bool) -> Start | None:
    """The latest state that has exactly the deltas at or below its place (K4); None if there is none.

    A delta that arrived after its last one and sorts below it is not in it. If all of the vector's deltas are given,
    they are counted too: a delta whose parent turned out to be another one may have left its place.
    """
    for start in sorted(starts, key=lambda start: start.place, reverse=True):
        covered = deltas.ordered.slice(0, covered_by(deltas, start))
        is_stale = pc.any(pc.greater(covered["epoch"], start.last_epoch)).as_py()
        if not is_stale and (not is_whole or covered.num_rows == start.deltas):
            return start
    return None


def _place(table: pa.Table, row: int) -> Place:
    return Place(*(table[name][row].as_py() for name in PLACE_COLUMNS))
