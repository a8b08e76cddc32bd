"""The hashes of a group's rows over several columns, with as few steps as they can be had.

Belongs here: putting columns of one form together, so that they are hashed in one go, and hashing a column that is
asked for twice once. What the hash of a value is, is said in `hashing.py` and nowhere else; a test holds both together.
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from resources.coordinator.columns import Bytes, bytes_of, numbers_of
from resources.coordinator.hashing import Hashes, combine, hash_array, hash_bytes, mix_in_place

# A column, or the text that stands on every row of it.
Column: TypeAlias = pa.Array | str

# So many rows at a time stay in the cache of a core.
_ROWS_AT_ONCE = 8_192
_REMEMBERED_TEXTS = 1_024
# From so many rows on it is worth a call for each column of texts: they are mostly of one length, which is quicker.
_MANY_ROWS = 512

_NOTHING = hash_array(pa.nulls(1, pa.string()))

_Later = Callable[[], Hashes]


def hash_rows(*lists: Sequence[Column], rows: int) -> list[Hashes]:
    """For each list of columns, one hash of every row: their values' hashes combined in order."""
    results = [np.empty(rows, dtype=np.uint64) for _ in lists]
    for start in range(0, rows, _ROWS_AT_ONCE):
        size = min(_ROWS_AT_ONCE, rows - start)
        plan = _Plan()
        parts = [[plan.of(_slice(column, start, size)) for column in columns] for columns in lists]
        plan.run()
        for result, columns in zip(results, parts, strict=True):
            result[start : start + size] = _combine([later() for later in columns])
    return results


def _slice(column: Column, start: int, size: int) -> Column:
    return column if len(column) == size or isinstance(column, str) else column.slice(start, size)


@lru_cache(_REMEMBERED_TEXTS)
def _hash_of(text: str) -> Hashes:
    return hash_array(pa.array([text], pa.string()))


def _combine(parts: list[Hashes]) -> Hashes:
    """What `combine` gives; for parts at the beginning that stand for all rows it was worked out before."""
    leading = next((place for place, part in enumerate(parts) if len(part) > 1), len(parts))
    if not leading:
        return combine(*parts)
    return combine(*parts[leading:], start=_combined(tuple(int(part[0]) for part in parts[:leading])))


@lru_cache(_REMEMBERED_TEXTS)
def _combined(hashes: tuple[int, ...]) -> Hashes:
    return combine(*(np.array([hashed], dtype=np.uint64) for hashed in hashes))


class _Plan:
    """Columns without gaps that wait to be hashed together: texts behind one another, numbers below one another."""

    def __init__(self) -> None:
        self._texts: list[pa.Array] = []
        self._numbers: list[pa.Array] = []
        self._known: dict[tuple[int, ...], _Later] = {}
        self._text_hashes: list[Hashes]
        self._number_hashes: Hashes

    def of(self, column: Column) -> _Later:
        """How to have the hashes of a column after `run`: one for every row, or one for all."""
        if isinstance(column, str):
            found = _hash_of(column)
            return lambda: found
        if column.null_count == len(column):
            return lambda: _NOTHING
        if not column.null_count:
            kind = column.type
            if pa.types.is_struct(kind):
                children = [self.of(child) for child in column.flatten()]
                return lambda: _combine([later() for later in children])
            if pa.types.is_string(kind):
                return self._once(column, self._add_text)
            if pa.types.is_int64(kind) or pa.types.is_timestamp(kind):
                return self._once(column, self._add_number)
        hashes = hash_array(column)
        return lambda: hashes

    def _once(self, column: pa.Array, add: Callable[[pa.Array], _Later]) -> _Later:
        where = (column.offset, *(buffer.address if buffer else 0 for buffer in column.buffers()))
        if where not in self._known:
            self._known[where] = add(column)
        return self._known[where]

    def _add_text(self, column: pa.Array) -> _Later:
        self._texts.append(column)
        number = len(self._texts) - 1
        return lambda: self._text_hashes[number]

    def _add_number(self, column: pa.Array) -> _Later:
        self._numbers.append(column)
        number = len(self._numbers) - 1
        return lambda: self._number_hashes[number]

    def run(self) -> None:
        """Hash what waits."""
        if self._numbers:
            words = np.array([numbers_of(column) for column in self._numbers])
            self._number_hashes = mix_in_place(words.view(np.uint64))
        if self._texts and len(self._texts[0]) >= _MANY_ROWS:
            self._text_hashes = [hash_bytes(*_from_zero(column)) for column in self._texts]
        elif self._texts:
            found = [bytes_of(column) for column in self._texts]
            base = np.cumsum([0, *(len(data) for _, data in found)])
            offsets = [
                places[:-1] + (start - int(places[0])) for (places, _), start in zip(found, base.tolist(), strict=False)
            ]
            hashes = hash_bytes(np.concatenate([data for _, data in found]), np.concatenate([*offsets, base[-1:]]))
            self._text_hashes = list(hashes.reshape(len(found), -1))


def _from_zero(column: pa.Array) -> tuple[Bytes, npt.NDArray[np.int32]]:
    """The bytes of a text column, and its offsets in them."""
    offsets, data = bytes_of(column)
    return data, offsets - offsets[0] if offsets[0] else offsets
