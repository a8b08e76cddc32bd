"""Texts and their numbers, found by the thousand: what a dictionary does, for a whole batch at once.

Belongs here: a table of texts in NumPy arrays. A dictionary takes a text at a time, and each time waits for memory that
is in no cache: several hundred nanoseconds among some hundred thousand texts. Here a batch is hashed, looked for and
compared column by column, so that the memory is asked for many at a time, and a text takes a third of the room.

Hashes find, comparisons decide: two texts of one hash lie in two places. One thread adds, any number may look
meanwhile: what is found is written before the place that leads to it, and tables that grew are put in place whole.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from resources.coordinator.hashing import hash_bytes

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
NOBODY = -1
# Texts of up to so many words of eight bytes are compared in columns; longer ones are few, and compared one by one.
WORDS = 4
_WORD = 8
# One place in so many is taken at most: then nearly every text is found where its search begins.
FILLED = 4
_SMALLEST = 64
_PADDING = np.zeros(_WORD, dtype=np.uint8)
_KEEP = np.array([0, *(2 ** (8 * size) - 1 for size in range(1, 9))], dtype=np.uint64)


class Cut(NamedTuple):
    """Texts with what they are found and compared by."""

    texts: pa.Array
    hashes: Words  # never 0, which stands for an empty place
    lengths: Numbers
    words: tuple[Words, ...]  # of the first bytes, filled up with zeros
    has_long: bool = False  # whether a text is longer than that

    def take(self, places: Numbers) -> "Cut":
        """Some of them."""
        return Cut(
            self.texts.take(pa.array(places)),
            self.hashes[places],
            self.lengths[places],
            tuple(word[places] for word in self.words),
            self.has_long,
        )

    def distinct(self) -> tuple[Numbers, Numbers]:
        """Where each text stands first, in order, and for every text which of those it is."""
        _, firsts, which = np.unique(self.hashes, return_index=True, return_inverse=True)
        is_same = self.lengths == self.lengths[firsts[which]]
        for word in self.words:
            is_same &= word == word[firsts[which]]
        if self.has_long or not is_same.all():  # only the texts themselves can tell
            seen: dict[str, int] = {}
            which = np.array([seen.setdefault(text, len(seen)) for text in self.texts.to_pylist()], np.int64)
            _, firsts = np.unique(which, return_index=True)
            return firsts, which
        order = np.argsort(firsts)
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        return firsts[order], ranks[which]


class _Table(NamedTuple):
    """Where the search for a hash begins, and goes on from place to place until there is an empty one."""

    mask: int
    hashes: Words
    numbers: npt.NDArray[np.int32]


class _Columns(NamedTuple):
    """What is known of each text, by its number."""

    hashes: Words
    lengths: npt.NDArray[np.int32]
    words: tuple[Words, ...]


def cut(texts: Sequence[str] | pa.Array) -> Cut:
    """Texts, given as Python's or as Arrow's."""
    array = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    if not len(array):
        return Cut(array, np.empty(0, np.uint64), np.empty(0, np.int64), ())
    _, raw_offsets, raw_data = array.buffers()
    offsets = np.frombuffer(raw_offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    data = np.frombuffer(raw_data or b"", np.uint8)
    hashes = hash_bytes(data, offsets)
    hashes[hashes == 0] = 1
    lengths = np.diff(offsets).astype(np.int64)
    padded = np.concatenate((data[offsets[0] : offsets[-1]], _PADDING))
    views = np.ndarray((len(padded) - _WORD + 1,), np.dtype("<u8"), padded, strides=(1,))
    starts, last = offsets[:-1] - offsets[0], len(views) - 1
    words, shortest, longest = [], int(lengths.min()), int(lengths.max())
    for at in range(0, min(longest, WORDS * _WORD), _WORD):
        word = views[starts + at] if at < shortest else views[np.minimum(starts + at, last)]
        if shortest == longest:
            words.append(word & _KEEP[min(longest - at, _WORD)])
        else:
            words.append(word if at + _WORD <= shortest else word & _KEEP[np.clip(lengths - at, 0, _WORD)])
    return Cut(array, hashes, lengths, tuple(words), longest > WORDS * _WORD)


class TextTable:
    """Texts that are numbered 0, 1, 2, … in the order in which they came."""

    def __init__(self) -> None:
        self._size = 0
        self._table = _empty_table(FILLED * _SMALLEST)
        self._columns = _Columns(np.zeros(_SMALLEST, np.uint64), np.zeros(_SMALLEST, np.int32), ())
        self._long: dict[int, str] = {}  # texts that the columns do not hold whole

    def __len__(self) -> int:
        return self._size

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        columns = self._columns
        arrays: tuple[npt.NDArray[Any], ...] = (*self._table[1:], columns.hashes, columns.lengths, *columns.words)
        return sum(array.nbytes for array in arrays) + sum(len(text) for text in self._long.values())

    def find(self, given: Cut) -> Numbers:
        """The numbers of texts, and `NOBODY` for those that have none."""
        table = self._table
        places = (given.hashes & np.uint64(table.mask)).astype(np.int64)
        seen = table.hashes[places]
        found = table.numbers[places].astype(np.int64)
        is_found = (seen == given.hashes) & self._are_same(found, given, None)
        if is_found.all():
            return found
        found[~is_found] = NOBODY
        which = np.flatnonzero((seen != 0) & ~is_found)  # somebody else is there: the search goes on
        places = places[which]
        while len(which):
            places = (places + 1) & table.mask
            seen = table.hashes[places]
            is_here = seen == given.hashes[which]
            if is_here.any():
                here = np.flatnonzero(is_here)
                numbers = table.numbers[places[here]].astype(np.int64)
                is_here[here] = self._are_same(numbers, given, which[here])
                found[which[is_here]] = table.numbers[places[is_here]]
            rest = np.flatnonzero((seen != 0) & ~is_here)
            which, places = which[rest], places[rest]
        return found

    def add(self, given: Cut) -> Numbers:
        """Number texts that are not there, each once; gives their numbers."""
        fresh = len(given.hashes)
        numbers = np.arange(self._size, self._size + fresh, dtype=np.int64)
        self._make_room(self._size + fresh, len(given.words))
        columns = self._columns
        columns.hashes[numbers] = given.hashes
        columns.lengths[numbers] = given.lengths
        for mine, word in zip(columns.words, given.words, strict=False):
            mine[numbers] = word
        for place in np.flatnonzero(given.lengths > WORDS * _WORD).tolist():
            self._long[int(numbers[place])] = given.texts[place].as_py()
        self._size += fresh
        if FILLED * self._size > len(self._table.hashes):
            table = _empty_table(FILLED * self._size + 1)
            _put(table, columns.hashes[: self._size], np.arange(self._size, dtype=np.int64))
            self._table = table
        else:
            _put(self._table, given.hashes, numbers)
        return numbers

    def text(self, number: int) -> str:
        """The text of a number."""
        if (long := self._long.get(number)) is not None:
            return long
        columns = self._columns
        raw = b"".join(int(word[number]).to_bytes(_WORD, "little") for word in columns.words)
        return raw[: int(columns.lengths[number])].decode()

    def texts(self) -> list[str]:
        """All of them, in order."""
        return [self.text(number) for number in range(self._size)]

    def _are_same(self, numbers: Numbers, given: Cut, asked: Numbers | None) -> npt.NDArray[np.bool_]:
        """Whether the texts of these numbers are those that are asked for; none stands for all that are given."""
        columns = self._columns
        lengths = given.lengths if asked is None else given.lengths[asked]
        is_same = columns.lengths[numbers] == lengths
        for mine, word in zip(columns.words, given.words, strict=False):
            is_same &= mine[numbers] == (word if asked is None else word[asked])
        if given.has_long:
            for place in np.flatnonzero(is_same & (lengths > WORDS * _WORD)).tolist():
                text = given.texts[place if asked is None else int(asked[place])].as_py()
                is_same[place] = self._long.get(int(numbers[place])) == text
        return np.asarray(is_same)

    def _make_room(self, size: int, words: int) -> None:
        columns = self._columns
        room = len(columns.hashes)
        if size <= room and words <= len(columns.words):
            return
        larger = max(size + size // 2, room) if size > room else room
        have = [_longer(word, larger) for word in columns.words]
        have += [np.zeros(larger, np.uint64) for _ in range(words - len(have))]
        self._columns = _Columns(_longer(columns.hashes, larger), _longer(columns.lengths, larger), tuple(have))


def _longer(array: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    if len(array) == length:
        return array
    found = np.zeros(length, array.dtype)
    found[: len(array)] = array
    return found


def _empty_table(at_least: int) -> _Table:
    size = 1 << (at_least - 1).bit_length()
    return _Table(size - 1, np.zeros(size, np.uint64), np.zeros(size, np.int32))


def _put(table: _Table, hashes: Words, numbers: Numbers) -> None:
    """Put hashes into the first empty place after where their search begins."""
    places = (hashes & np.uint64(table.mask)).astype(np.int64)
    todo = np.arange(len(hashes))
    while len(todo):
        is_empty = table.hashes[places[todo]] == 0
        free = todo[is_empty]
        _, firsts = np.unique(places[free], return_index=True)
        placed = free[firsts]
        table.numbers[places[placed]] = numbers[placed]
        table.hashes[places[placed]] = hashes[placed]
        is_left = np.ones(len(hashes), np.bool_)
        is_left[placed] = False
        todo = todo[is_left[todo]]
        places[todo] = (places[todo] + 1) & table.mask
