"""Which row stands for which (namespace, entity, signal).

Belongs here: finding rows by text, giving out new ones, and the bound on them. Rows are given out once and never
change, so whoever has resolved a name need not do it again. One thread gives out rows; any may look.
"""

from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from resources.counters.buckets import Rows
from resources.counters.errors import FullError
from resources.counters.texts import NOBODY, Cut, TextTable, cut

__all__ = ["NOBODY", "Entities", "Group", "Names"]

# Names of entities, as Python's texts or as Arrow's.
Entities: TypeAlias = Sequence[str] | pa.Array


class Group:
    """The entities of one namespace that have one signal. An unknown one's row is `NOBODY`.

    That is the last place of every array of rows, in which nothing is ever counted.
    """

    def __init__(self, namespace: str, signal: str) -> None:
        self.namespace, self.signal = namespace, signal
        self.texts = TextTable()
        # By the number of the text; the last one is for texts that have none.
        self._rows = np.full(1, NOBODY, np.int64)

    def find(self, entities: Entities) -> Rows:
        """The rows of entities, and `NOBODY` for those that have none."""
        return self.find_cut(cut(entities))

    def find_cut(self, given: Cut) -> Rows:
        """The same for texts that are cut already."""
        # The numbers first: whoever adds meanwhile has put the rows in place before.
        numbers = self.texts.find(given)
        return self._rows.take(numbers)

    def all_rows(self) -> Rows:
        """The rows of all entities, by the numbers of their texts."""
        return self._rows[: len(self.texts)].copy()

    def add(self, given: Cut, rows: Rows) -> None:
        """Entities that are new here, each once, with their rows."""
        known = len(self.texts)
        if known + len(rows) >= len(self._rows):
            larger = np.full(2 * (known + len(rows)) + 1, NOBODY, np.int64)
            larger[:known] = self._rows[:known]
            self._rows = larger
        self._rows[known : known + len(rows)] = rows
        self.texts.add(given)


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

    def take(self, group: Group, entities: Entities) -> Rows:
        """The rows of entities; those that have none get one. All or nothing: beyond the capacity none is given out."""
        given = cut(entities)
        rows = group.find_cut(given)
        if len(rows) and rows.min() == NOBODY:
            missing = np.flatnonzero(rows == NOBODY)
            fresh = given.take(missing)
            firsts, which = fresh.distinct()
            rows[missing] = self._give_out(group, fresh.take(firsts))[which]
        return rows

    def _give_out(self, group: Group, fresh: Cut) -> Rows:
        count = len(fresh.hashes)
        if self.rows + count > self.capacity:
            raise FullError(
                f"There are {self.rows:,} pairs of entity and signal, {count:,} more came, and there is room for "
                f"{self.capacity:,}. Open the counters with a larger `capacity`."
            )
        rows = np.arange(self.rows, self.rows + count, dtype=np.int64)
        group.add(fresh, rows)
        self.rows += count
        return rows
