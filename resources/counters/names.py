"""Which row stands for which (namespace, entity, signal).

Belongs here: finding rows by text, giving out new ones, and the bound on them. Rows are given out once and never
change, so whoever has resolved a name need not do it again. One thread gives out rows; any may look.
"""

from array import array
from collections.abc import Collection, Iterator, Sequence

import numpy as np

from resources.counters.buckets import Rows
from resources.counters.errors import FullError

# An unknown name's row: the last place of every array of rows, in which nothing is ever counted.
NOBODY = -1


class _Rows(dict[str, int]):
    """Entity → row. Looking up many at once is most of the work of counting, so it is one call for each."""

    def __missing__(self, entity: str) -> int:
        return NOBODY


class Group:
    """The entities of one namespace that have one signal. A dictionary each, so that one lookup finds a row."""

    __slots__ = ("by_entity", "entities", "namespace", "rows", "signal")

    def __init__(self, namespace: str, signal: str) -> None:
        self.namespace, self.signal = namespace, signal
        self.by_entity = _Rows()
        self.entities: list[str] = []  # in the order in which they came
        self.rows = array("q")  # the row of each of them

    def find(self, entities: Collection[str]) -> Rows:
        """The rows of entities, and `NOBODY` for those that have none."""
        return np.fromiter(map(self.by_entity.__getitem__, entities), np.int64, len(entities))

    def all_rows(self) -> Rows:
        """The rows of all entities, in order; a copy, because a view would stop the array from growing."""
        return np.array(self.rows, dtype=np.int64)


class Names:
    """All rows, at most `capacity`."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.rows = 0
        self._groups: dict[tuple[str, str], Group] = {}

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def group(self, namespace: str, signal: str) -> Group | None:
        """The entities of a namespace that have a signal, if any has."""
        return self._groups.get((namespace, signal))

    def open(self, namespace: str, signal: str) -> Group:
        """The same, made if it is not there."""
        found = self._groups.get((namespace, signal))
        if found is None:
            found = self._groups[namespace, signal] = Group(namespace, signal)
        return found

    def take(self, group: Group, entities: Sequence[str]) -> Rows:
        """The rows of entities; those that have none get one. All or nothing: beyond the capacity none is given out."""
        rows = group.find(entities)
        if len(rows) and rows.min() == NOBODY:
            missing = np.flatnonzero(rows == NOBODY)
            fresh = [entities[place] for place in missing.tolist()]
            self._add(group, list(dict.fromkeys(fresh)))
            rows[missing] = group.find(fresh)
        return rows

    def put(self, group: Group, entities: list[str], rows: Rows) -> None:
        """Entities with the rows that they had when they were written down."""
        group.entities += entities
        group.rows.extend(rows.tolist())
        group.by_entity.update(zip(entities, group.rows[-len(entities) :] if entities else (), strict=True))

    def _add(self, group: Group, fresh: list[str]) -> None:
        if self.rows + len(fresh) > self.capacity:
            raise FullError(
                f"There are {self.rows:,} pairs of entity and signal, {len(fresh):,} more came, and there is room for "
                f"{self.capacity:,}. Open the counters with a larger `capacity`."
            )
        rows = range(self.rows, self.rows + len(fresh))
        # A reader may look while this runs: a name is found only when its row is there.
        group.entities += fresh
        group.rows.extend(rows)
        self.rows += len(fresh)
        group.by_entity.update(zip(fresh, rows, strict=True))
