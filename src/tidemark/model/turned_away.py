"""Deltas that were turned away before they were numbered: how many, from whom, and why (A3).

Belongs here: the counts as a value that is bounded and can be added up, as a door hands it on, the log stores it and
the account reads it. What is turned away is decided in `admission/`.
"""

from collections.abc import Iterable, Mapping
from heapq import nlargest

from msgspec import Struct

# Names are the senders' own, so anybody could make up any number of them. Beyond so many the counts go on, without.
MOST_PRODUCERS = 100
# Stands for all whose names are not kept; no producer can be called this.
OTHERS = "*"
# Of each reason the latest: enough to find the producer's own trace of it.
MOST_IDS = 20
# An id that is longer could not have been accepted.
MOST_ID_CHARACTERS = 256
# One for every time that a process with a door was killed; beyond so many the oldest become one.
MOST_UNKNOWN = 50

Counts = dict[str, dict[str, int]]  # reason → producer → deltas
Interval = tuple[int, int]  # microseconds, half-open


class Tally(Struct, frozen=True, omit_defaults=True):
    """Deltas that were turned away, by reason and producer. Sums are exact, also where names are not kept."""

    counts: Counts = {}
    ids: dict[str, list[str]] = {}  # reason → the latest ids
    unknown: list[Interval] = []  # times in which deltas may have been turned away that nobody could count

    @property
    def deltas(self) -> int:
        """All of them."""
        return sum(sum(producers.values()) for producers in self.counts.values())

    @property
    def reasons(self) -> dict[str, int]:
        """Reason → deltas."""
        return {reason: sum(producers.values()) for reason, producers in self.counts.items()}

    def plus(self, other: "Tally", most_producers: int = MOST_PRODUCERS) -> "Tally":
        """Both together, this one being the older."""
        if not other:
            return self
        counts = {reason: dict(producers) for reason, producers in self.counts.items()}
        for reason, producers in other.counts.items():
            mine = counts.setdefault(reason, {})
            for producer, deltas in producers.items():
                mine[producer] = mine.get(producer, 0) + deltas
        ids = {reason: latest((*self.ids.get(reason, ()), *other.ids.get(reason, ()))) for reason in counts}
        return Tally(
            {reason: bounded(producers, most_producers) for reason, producers in counts.items()},
            {reason: found for reason, found in ids.items() if found},
            _joined([*self.unknown, *other.unknown]),
        )

    def __bool__(self) -> bool:
        return bool(self.counts or self.unknown)


def bounded(producers: Mapping[str, int], most: int) -> dict[str, int]:
    """The producers with the highest counts by name, and what all others have together."""
    named = {name: deltas for name, deltas in producers.items() if name != OTHERS}
    if len(named) <= most:
        return dict(producers)
    kept = dict(nlargest(most, named.items(), key=lambda item: (item[1], item[0])))
    return {**kept, OTHERS: sum(producers.values()) - sum(kept.values())}


def latest(ids: Iterable[str]) -> list[str]:
    """The last of these ids."""
    return list(ids)[-MOST_IDS:]


def _joined(unknown: list[Interval]) -> list[Interval]:
    """At most so many intervals: the oldest become one, which says more than is true and nothing less."""
    if len(unknown) <= MOST_UNKNOWN:
        return unknown
    old = unknown[: len(unknown) - MOST_UNKNOWN + 1]
    return [(min(start for start, _ in old), max(end for _, end in old)), *unknown[len(old) :]]
