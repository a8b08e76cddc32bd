"""The queue in front of a full buffer: which write is next when there is more than can be taken (Q1).

Belongs here: the choice between producers. A priority is a head start that wears off by waiting: a write may go before
another that came earlier by less than the difference of their head starts, and never before one that came earlier by
more. So nothing starves, and no code has to walk the queue to age it. Writes of one producer never change places: only
its first one competes with others.
"""

import heapq
from collections import deque
from typing import Generic, NamedTuple, TypeVar

from tidemark.model.deltas import Priority
from tidemark.model.timegrid import SECOND_US

# A second for each step: a low write waits at most three seconds longer than a critical one that came with it.
HEAD_START_US = {
    Priority.CRITICAL: 3 * SECOND_US,
    Priority.HIGH: 2 * SECOND_US,
    Priority.NORMAL: SECOND_US,
    Priority.LOW: 0,
}

Item = TypeVar("Item")


class _Waiting(NamedTuple, Generic[Item]):
    rank_us: int  # arrival less the head start
    number: int  # of all that were ever queued: decides between equals
    item: Item


class FairQueue(Generic[Item]):
    """Items of several producers, waiting."""

    def __init__(self) -> None:
        self._first: list[tuple[int, int, str]] = []  # a heap: the first item of every producer that has any
        self._by_producer: dict[str, deque[_Waiting[Item]]] = {}
        self._numbers = 0
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def push(self, producer: str, priority: Priority, now_us: int, item: Item) -> None:
        """Add an item at the end of its producer's row."""
        row = self._by_producer.setdefault(producer, deque())
        waiting = _Waiting(now_us - HEAD_START_US[priority], self._numbers, item)
        row.append(waiting)
        if len(row) == 1:
            heapq.heappush(self._first, (waiting.rank_us, waiting.number, producer))
        self._numbers += 1
        self._length += 1

    def first(self) -> Item:
        """The item that is taken next."""
        return self._by_producer[self._first[0][2]][0].item

    def last_of(self, producer: str) -> Item | None:
        """The last item of a producer; None if it has none here."""
        row = self._by_producer.get(producer)
        return row[-1].item if row else None

    def pop(self) -> Item:
        """Remove and return the first item."""
        _, _, producer = heapq.heappop(self._first)
        row = self._by_producer[producer]
        chosen = row.popleft()
        if row:
            heapq.heappush(self._first, (row[0].rank_us, row[0].number, producer))
        else:
            del self._by_producer[producer]
        self._length -= 1
        return chosen.item

    def clear(self) -> list[Item]:
        """Remove and return all items, in the order in which they would have been taken."""
        return [self.pop() for _ in range(len(self))]
