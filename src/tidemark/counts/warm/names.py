"""The row of each (namespace, entity, signal).

Belongs here: finding rows by text, assigning new ones, and the bound on them. Rows are assigned once and never
change, so a caller need resolve a name only once. One thread assigns rows; any may look.
"""

from collections.abc import Iterator

from tidemark.counts.errors import FullError
from tidemark.counts.warm.buckets import Rows
from tidemark.counts.warm.texts import NOBODY, Entities, TextTable, cut

__all__ = ["NOBODY", "Entities", "Group", "Names"]


class Group:
    """The entities of one namespace that have one signal. An unknown one's row is `NOBODY`."""

    def __init__(self, namespace: str, signal: str) -> None:
        self.namespace, self.signal = namespace, signal
        self.texts = TextTable()

    def find(self, entities: Entities) -> Rows:
        """The rows of entities, and `NOBODY` for unknown ones."""
        return self.texts.find(cut(entities))[0]

    def put(self, entities: Entities, rows: Rows) -> None:
        """Add the first entities, each once, with rows assigned before. No thread may look yet."""
        self.texts.take(cut(entities), 0, limit=len(rows))
        self.texts.renumber(rows)


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
        """The same, created if missing."""
        found = self._groups.get((namespace, signal))
        if found is None:
            found = self._groups[namespace, signal] = Group(namespace, signal)
        return found

    def take(self, group: Group, entities: Entities) -> Rows:
        """The rows of entities; new ones get one. All or nothing: beyond the capacity none is assigned."""
        rows, added = group.texts.take(cut(entities), self.rows, limit=self.capacity - self.rows)
        if self.rows + added > self.capacity:
            raise FullError(
                f"There are {self.rows:,} pairs of entity and signal, {added:,} more came, and there is room for "
                f"{self.capacity:,}. Open the counters with a larger `capacity`."
            )
        self.rows += added
        return rows
