"""The identities behind the memory of recent deltas, in Arrow columns, found by place.

Belongs here: keeping them in few large batches (many small ones are put together), comparing pairs of them, and
letting go of what is too far back. Which pairs are worth comparing is decided in `identities.py`.
"""

from bisect import bisect_right
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

IDENTITY_COLUMNS = ("namespace", "key", "event_ts", "delta_id")
KEPT_COLUMNS = (*IDENTITY_COLUMNS, "content_hash", "epoch", "ordinal")

# Small batches are put together when they are this many, or come to an eighth of what is remembered or to this many
# rows: a place is found quickly, and what was forgotten is given back in pieces.
BATCHES_TOGETHER = 256
ROWS_TOGETHER = 16_384

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
_Columns = tuple[pa.Array, ...]


class Compared(NamedTuple):
    """Pair by pair: is it the same identity, is it the same delta, and where the earlier one of the pair stands."""

    is_same: Mask
    is_copy: Mask
    epochs: Numbers
    ordinals: Numbers


class Kept:
    """Identities by place; places start at 0 and have no gaps."""

    def __init__(self, capacity: int) -> None:
        self._rows_together = min(ROWS_TOGETHER, max(1, capacity // 8))
        self._starts: list[int] = []  # place of the first row of each batch
        self._batches: list[_Columns] = []
        self._end = 0
        self._fresh = 0  # batches at the end that are still as they came
        self._fresh_rows = 0

    @property
    def nbytes(self) -> int:
        """Bytes of all columns."""
        return sum(int(column.nbytes) for batch in self._batches for column in batch)

    def append(self, columns: Mapping[str, pa.Array], *, is_own: bool) -> None:
        """Keep the next rows; if they are not our own, they may be slices of something large and are copied soon."""
        batch = tuple(columns[name] for name in KEPT_COLUMNS)
        self._starts.append(self._end)
        self._batches.append(batch)
        self._end += len(batch[0])
        if is_own and not self._fresh and len(batch[0]) >= self._rows_together:
            return
        self._fresh += 1
        self._fresh_rows += len(batch[0])

    def forget(self, before: int) -> None:
        """Let go of batches that lie wholly before a place, and put small ones together."""
        if self._fresh_rows >= self._rows_together or self._fresh >= BATCHES_TOGETHER:
            self.put_together()
        gone = bisect_right(self._starts, before) - 1
        # Fresh ones are fewer than an eighth of what is remembered, so that they are never among those that go.
        if gone > 0:
            del self._starts[:gone], self._batches[:gone]

    def put_together(self) -> None:
        """Copy the batches that are still as they came into one."""
        if not self._fresh:
            return
        first = len(self._batches) - self._fresh
        # With an empty one behind it even a single batch is copied.
        batch = tuple(
            pa.concat_arrays([*columns, columns[0].slice(0, 0)]) for columns in zip(*self._batches[first:], strict=True)
        )
        del self._starts[first + 1 :]
        self._batches[first:] = [batch]
        self._fresh = self._fresh_rows = 0

    def compare_one(self, place: int, earlier: int) -> tuple[bool, bool, int, int]:
        """The same as `compare` for one pair."""
        mine, row = self._at(place)
        other, row_there = self._at(earlier)
        width = len(IDENTITY_COLUMNS)
        is_same = all(mine[at][row] == other[at][row_there] for at in range(width))
        content, epoch, ordinal = (other[width + at][row_there] for at in range(3))
        return is_same, content == mine[width][row], epoch.as_py(), ordinal.as_py()

    def _at(self, place: int) -> tuple[_Columns, int]:
        number = bisect_right(self._starts, place) - 1
        return self._batches[number], place - self._starts[number]

    def compare(self, places: Numbers, earlier: Numbers) -> Compared:
        """Compare the deltas at `places` with those at the `earlier` places, pair by pair."""
        here, there = self._take(places), self._take(earlier)
        width = len(IDENTITY_COLUMNS)
        is_same = np.ones(len(places), dtype=np.bool_)
        for mine, other in zip(here[:width], there[:width], strict=True):
            is_same &= pc.equal(mine, other).to_numpy(zero_copy_only=False)
        is_copy = np.asarray(here[width]) == np.asarray(there[width])
        return Compared(is_same, is_copy, np.asarray(there[width + 1]), np.asarray(there[width + 2]))

    def _take(self, places: Numbers) -> _Columns:
        """The rows at these places, in this order."""
        starts = np.array(self._starts)
        batch_of = np.searchsorted(starts, places, side="right") - 1
        used = np.unique(batch_of)
        if len(used) == 1:
            rows = pa.array(places - starts[used[0]])
            return tuple(column.take(rows) for column in self._batches[used[0]])
        order = np.argsort(batch_of, kind="stable")
        edges = np.searchsorted(batch_of[order], used)
        parts = [
            (self._batches[number], pa.array(places[mine] - starts[number]))
            for number, mine in zip(used.tolist(), np.split(order, edges[1:]), strict=True)
        ]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        backwards = pa.array(back)
        return tuple(
            pa.concat_arrays([batch[at].take(rows) for batch, rows in parts]).take(backwards)
            for at in range(len(KEPT_COLUMNS))
        )
