"""The memory of recent identities: tells a delta that was seen before from one that is surely new (Q3).

Belongs here: an exact answer within the last `capacity` deltas that passed the checks, whatever was restarted in
between: the memory is a function of the log. Hashes only find candidates; whole identities are compared, so a hash
collision can never refuse anything.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

IDENTITY_COLUMNS = ("namespace", "key", "event_ts", "delta_id")
_KEPT = (*IDENTITY_COLUMNS, "identity_hash", "content_hash", "epoch", "ordinal")


class Seen(IntEnum):
    """What the memory says of a delta."""

    NEW = 0
    COPY = 1  # the same delta again
    REUSED = 2  # another delta under the same identity


class Sighting(NamedTuple):
    """The answer for one delta, and where the first one stands."""

    seen: Seen
    epoch: int = 0
    ordinal: int = 0


class Identities:
    """Identities of the last `capacity` deltas, in the order of the log."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._total = 0  # deltas ever added; the place of a delta is its number here
        self._batches: deque[tuple[int, pa.RecordBatch]] = deque()  # (place of the first row, kept columns)
        self._first: dict[int, int] = {}  # identity hash → place
        self._others: dict[int, list[int]] = {}  # further places under the same hash: collisions, in practice none

    def __len__(self) -> int:
        return min(self._total, self.capacity)

    def add(self, columns: Mapping[str, pa.Array]) -> dict[int, Sighting]:
        """Remember deltas (all of which passed the checks) and tell, by row, which were seen before."""
        batch = pa.RecordBatch.from_arrays([columns[name] for name in _KEPT], names=list(_KEPT))
        hashes: list[int] = batch["identity_hash"].to_pylist()
        start = self._total
        self._batches.append((start, batch))
        self._total += len(hashes)
        sightings: dict[int, Sighting] = {}
        first = self._first
        for row, hashed in enumerate(hashes):
            place = first.setdefault(hashed, start + row)
            if place != start + row:
                sighting = self._compare(hashed, start + row)
                if sighting.seen is not Seen.NEW:
                    sightings[row] = sighting
        self._forget()
        return sightings

    def _compare(self, hashed: int, place: int) -> Sighting:
        """A row whose hash is known: look at every delta remembered under it."""
        oldest = max(0, place - self.capacity)
        for earlier in (self._first[hashed], *self._others.get(hashed, ())):
            if earlier < oldest:
                continue
            there, row_there = self._at(earlier)
            here, row_here = self._at(place)
            if all(there[name][row_there] == here[name][row_here] for name in IDENTITY_COLUMNS):
                is_copy = there["content_hash"][row_there] == here["content_hash"][row_here]
                return Sighting(
                    Seen.COPY if is_copy else Seen.REUSED,
                    there["epoch"][row_there].as_py(),
                    there["ordinal"][row_there].as_py(),
                )
        if self._first[hashed] < oldest:
            self._first[hashed] = place
        else:
            self._others.setdefault(hashed, []).append(place)
        return Sighting(Seen.NEW)

    def _at(self, place: int) -> tuple[pa.RecordBatch, int]:
        index = bisect_right(self._batches, place, key=lambda entry: entry[0]) - 1
        start, batch = self._batches[index]
        return batch, place - start

    def _forget(self) -> None:
        """Drop batches that lie wholly beyond the capacity."""
        while self._batches and self._batches[0][0] + len(self._batches[0][1]) <= self._total - self.capacity:
            start, batch = self._batches.popleft()
            end = start + len(batch)
            for hashed in batch["identity_hash"].to_pylist():
                if self._first.get(hashed, end) < end:
                    later = [place for place in self._others.pop(hashed, ()) if place >= end]
                    if later:
                        self._first[hashed] = later[0]
                        if later[1:]:
                            self._others[hashed] = later[1:]
                    else:
                        del self._first[hashed]


def remembered_rows(identity_hash: pa.Array) -> npt.NDArray[np.int64]:
    """Rows of a log batch that belong into the memory: those that passed the checks."""
    return np.flatnonzero(np.asarray(identity_hash.is_valid()))
