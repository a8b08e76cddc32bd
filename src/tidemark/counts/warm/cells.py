"""All numbers of a row side by side: its hot minutes, its sums and its first minute; and the loops that count in them.

Belongs here: where each number of a row is, and what one signal changes. When minutes expire is in `state.py`, and
which minutes are hot in `recent_minutes.py`.

A signal changes three numbers of a row, and nearly all its time is waiting for memory. So a row is three lines of a
processor's cache, in one page: two for the minutes that are *hot*, each with its place by its last bits, and one for
all the rest.
"""

import numpy as np

from tidemark.arrays.compiled import compiled, inlined
from tidemark.counts.warm.buckets import Numbers, Rows, plain
from tidemark.counts.windows import Window

Table = np.ndarray[tuple[int, int], np.dtype[np.int64]]

WINDOWS = tuple(Window)
PLACES = {window: place for place, window in enumerate(WINDOWS)}
ALL = PLACES[Window.ALL]
# At most this many minutes are hot; their places come first.
HOT = 16
# For `all` its sum, for every other window the difference to that.
_SUMS = HOT
_FIRST = _SUMS + len(WINDOWS)
_LINE = 8
_WIDTH = -(-(_FIRST + 1) // _LINE) * _LINE
# A first minute is stored as its distance from here, so that 0 means that there was none.
_NEVER = 1 << 40
# No sum can leave 64 bits while the sum of all absolute counts is below this.
HEAVIEST = 1 << 62
_HALF, _LOW = 32, (1 << 32) - 1


class Cells:
    """Numbers of so many rows, and of one more at the end, for unknown names: there all numbers stay 0."""

    def __init__(self, capacity: int) -> None:
        # The system provides zeros page by page, when they are touched: the capacity costs nothing.
        self._cells = np.zeros((capacity + 1, _WIDTH), np.int64)
        flat = self._cells.reshape(-1)
        self._sums = [flat[_SUMS + place :] for place in range(len(WINDOWS))]
        self.ring = self._cells[:, :HOT].T
        self.sums = self._cells[:, _SUMS:_FIRST].T
        self.firsts = self._cells[:, _FIRST]

    def count(
        self, rows: Rows, minutes: Numbers, counts: Numbers, starts: Numbers, hot: range
    ) -> tuple[list[int], Numbers]:
        """Count; return the hot minutes with counts, and the places of the counts in other minutes.

        `starts` is where each window begins, and in the place of `all`, where all of them end.
        """
        rest = np.empty(len(rows) + 1, np.int64)
        touched = _count(self._cells, rows, minutes, counts, starts, hot.start, hot.stop, rest)
        return [minute for minute in hot if touched >> (minute - hot.start) & 1], rest[: int(rest[-1])]

    def add_up(self, rows: Rows, minutes: Numbers, counts: Numbers, starts: Numbers) -> None:
        """Count in the sums alone."""
        _add_up(self._cells, rows, minutes, counts, starts)

    def look(self, window: int, places: Numbers) -> Numbers:
        """Sums of a window (by its place in the list of them), for rows whose places came from `places_of`."""
        found: Numbers = self._sums[ALL].take(places)
        if window != ALL:
            found += self._sums[window].take(places)
        return found

    def note_firsts(self, rows: Rows, minutes: Numbers) -> None:
        """Note that rows had events in these minutes."""
        np.maximum.at(self.firsts, rows, _NEVER - minutes)

    def first(self, row: int) -> int | None:
        """The minute of a row's first event."""
        found = int(self.firsts[row])
        return _NEVER - found if found else None


def places_of(rows: Rows) -> Numbers:
    """Where the numbers of rows are. Row -1 has its place before the end, where all numbers are 0."""
    return rows * _WIDTH


def weight_of(counts: Numbers) -> int:
    """The sum of all absolute counts."""
    halves = np.zeros(2, np.int64)
    _weigh(plain(counts), halves)
    high, low = halves.tolist()
    return int((high << _HALF) + low)


@inlined
def _add_one(cells: Table, row: int, minute: int, count: int, starts: Numbers) -> None:
    """What happened before the end is counted in `all`; and is lacking in windows that begin after it."""
    if minute < starts[ALL]:
        cells[row, _SUMS + ALL] += count
        window = 0
        while window < ALL and minute < starts[window]:
            cells[row, _SUMS + window] -= count
            window += 1


@compiled
def _count(
    cells: Table, rows: Rows, minutes: Numbers, counts: Numbers, starts: Numbers, hot: int, cold: int, rest: Numbers
) -> int:
    """Everything that most counts change, in one loop: so memory is waited for once.

    Minutes from `hot` to `cold` are counted in the ring. Gives which of them there were, as bits, the first one lowest.
    The places of others are in `rest`, and at its end how many these are.
    """
    left = touched = 0
    for place in range(len(rows)):
        minute, row, count = minutes[place], rows[place], counts[place]
        cells[row, _FIRST] = max(cells[row, _FIRST], _NEVER - minute)
        _add_one(cells, row, minute, count, starts)
        if hot <= minute < cold:
            cells[row, minute & (HOT - 1)] += count
            touched |= 1 << (minute - hot)
        else:
            rest[left] = place
            left += 1
    rest[-1] = left
    return touched


@compiled
def _add_up(cells: Table, rows: Rows, minutes: Numbers, counts: Numbers, starts: Numbers) -> None:
    for place in range(len(rows)):
        _add_one(cells, rows[place], minutes[place], counts[place], starts)


@compiled
def _weigh(counts: Numbers, halves: Numbers) -> None:
    """The sums of the upper and of the lower halves of all counts without their signs: neither can leave 64 bits."""
    high = low = np.int64(0)
    for count in counts:
        size = np.uint64(abs(count))  # the least of all numbers has no other sign, but the right bits
        high += np.int64(size >> np.uint64(_HALF))
        low += np.int64(size & np.uint64(_LOW))
    halves[0], halves[1] = high, low
