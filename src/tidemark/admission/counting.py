"""Counting what is turned away, until the log has it (A3).

Belongs here: the counts that grow, with their bounds. As values they are `model/turned_away.py`.
"""

from collections import deque
from collections.abc import Iterable

from tidemark.admission.arriving import Turned
from tidemark.model.turned_away import MOST_ID_CHARACTERS, MOST_IDS, OTHERS, Tally, bounded

# Of one reason between two notes: names that nobody has verified must not fill the memory.
MOST_COUNTED = 10_000


class Counting:
    """What was turned away since the last note."""

    def __init__(self) -> None:
        self._counts: dict[Turned, dict[str, int]] = {}
        self._ids: dict[Turned, deque[str]] = {}

    def add(self, reason: Turned, producer: str, deltas: int, ids: Iterable[str] = ()) -> None:
        """Count the deltas of one write; of their ids only the last few are kept."""
        if not deltas:
            return
        producers = self._counts.setdefault(reason, {})
        name = producer if producer in producers or len(producers) < MOST_COUNTED else OTHERS
        producers[name] = producers.get(name, 0) + deltas
        self._ids.setdefault(reason, deque(maxlen=MOST_IDS)).extend(each[:MOST_ID_CHARACTERS] for each in ids)

    def take(self, most_producers: int) -> Tally:
        """Everything counted so far; it begins anew."""
        tally = Tally(
            {reason.value: bounded(producers, most_producers) for reason, producers in self._counts.items()},
            {reason.value: list(ids) for reason, ids in self._ids.items() if ids},
        )
        self.__init__()  # type: ignore[misc]
        return tally
