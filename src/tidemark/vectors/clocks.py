"""Vector clocks: they record, they do not order (D8).

Belongs here: which deltas of a vector have clocks that disagree with the canonical order.
`maps.py` merges clocks along the fold.
"""

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

import numpy as np

# Entries without a number are 0, as missing ones are: a producer that sends columns may leave one out.
Clock = Mapping[str, int | None]

# How many earlier deltas with clocks each one is compared with. Replicas that are out of touch for longer are found by
# their first thousand edits; and a vector with a million deltas takes a million short steps, where all pairs would be
# 10^12.
LOOK_BACK = 1_000


class ConflictKind(StrEnum):
    """Why two deltas are recorded together."""

    CONCURRENT = "concurrent"  # neither knows of the other
    INVERTED = "inverted"  # the delta that sorts earlier already knew the one that sorts later


class Conflict(NamedTuple):
    """Two deltas, by their places in the chain."""

    earlier: int
    later: int
    kind: ConflictKind


def conflicts(clocks: Sequence[Clock | None], look_back: int = LOOK_BACK) -> Iterator[Conflict]:
    """Pairs of deltas that are concurrent or inverted, by the later and then the earlier one.

    `clocks` are those of one vector's deltas in canonical order. A delta without a clock (none, or an empty one) is not
    compared. Each is compared with the `look_back` last ones before it.
    """
    names = {name: column for column, name in enumerate(sorted({name for clock in clocks for name in clock or ()}))}
    # The last ones, each in the row of its number modulo the size: a full table is overwritten from its beginning.
    table = np.zeros((look_back, len(names)), np.int64)
    places = np.zeros(look_back, np.int64)
    seen = 0
    for later, clock in enumerate(clocks):
        if not clock:
            continue
        own = np.zeros(len(names), np.int64)
        own[[names[name] for name in clock]] = [count or 0 for count in clock.values()]
        before = table[: min(seen, look_back)]
        is_behind, is_ahead = (np.logical_or.reduce(less, axis=1) for less in (own < before, own > before))
        found = np.flatnonzero(is_behind)
        for earlier, row in sorted(zip(places[found].tolist(), found.tolist(), strict=True)):
            yield Conflict(earlier, later, ConflictKind.CONCURRENT if is_ahead[row] else ConflictKind.INVERTED)
        table[seen % look_back], places[seen % look_back] = own, later
        seen += 1
