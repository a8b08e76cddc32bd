"""Texts and their numbers, found by the thousand: what a dictionary does, for a whole batch at once.

Belongs here: a table of texts in NumPy arrays. A dictionary takes a text at a time, and each time waits for memory that
is in no cache: several hundred nanoseconds among some hundred thousand texts. Here a batch is hashed, looked for and
compared column by column, so that the memory is asked for many at a time, and a text takes a third of the room.

Hashes find, comparisons decide: of two texts for one place the second is kept in a dictionary. One thread adds, any
number may look meanwhile: what is found is written before the place that leads to it, and tables that grew are put in
place whole.
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
# One place in so many is taken at most: then nearly every text has a place of its own.
FILLED = 4
_SMALLEST = 64
_PADDING = np.zeros(_WORD, dtype=np.uint8)
_FACTORS = tuple(
    np.uint64(number | 1) for number in (0x9FB21C651E98DF25, *(0x9E3779B97F4A7C15 >> n for n in (0, 3, 7)))
)
_SHIFT = np.uint64(32)
_KEEP = np.array([0, *(2 ** (8 * size) - 1 for size in range(1, 9))], dtype=np.uint64)


class Cut(NamedTuple):
    """Texts with what they are found and compared by."""

    texts: Sequence[str] | pa.Array
    hashes: Words  # never 0, which stands for an empty place
    lengths: Numbers  # in bytes
    words: tuple[Words, ...]  # of the first bytes, filled up with zeros
    has_long: bool = False  # whether a text is longer than that

    def take(self, places: Numbers) -> "Cut":
        """Some of them."""
        words = tuple(word[places] for word in self.words)
        return Cut(self.texts_at(places), self.hashes[places], self.lengths[places], words, self.has_long)

    def texts_at(self, places: Numbers) -> list[str]:
        """Some of the texts themselves."""
        if isinstance(self.texts, pa.Array):
            chosen: list[str] = self.texts.take(pa.array(places)).to_pylist()
            return chosen
        return [self.texts[place] for place in places.tolist()]

    def distinct(self) -> tuple[Numbers, Numbers]:
        """Where each text stands first, in order, and for every text which of those it is."""
        _, firsts, which = np.unique(self.hashes, return_index=True, return_inverse=True)
        is_same = self.lengths == self.lengths[firsts[which]]
        for word in self.words:
            is_same &= word == word[firsts[which]]
        if self.has_long or not is_same.all():  # only the texts themselves can tell
            seen: dict[str, int] = {}
            which = np.array(
                [seen.setdefault(text, len(seen)) for text in self.texts_at(np.arange(len(which)))], np.int64
            )
            _, firsts = np.unique(which, return_index=True)
            return firsts, which
        order = np.argsort(firsts)
        ranks = np.empty_like(order)
        ranks[order] = np.arange(len(order))
        return firsts[order], ranks[which]


class _Table(NamedTuple):
    """Each text by the last bits of its hash; those whose place was taken are `others`, by themselves."""

    mask: int
    hashes: Words
    numbers: npt.NDArray[np.int32]
    others: dict[str, int]


class _Columns(NamedTuple):
    """What is known of each text, by its number."""

    hashes: Words
    lengths: npt.NDArray[np.int32]
    words: tuple[Words, ...]


def cut(texts: Sequence[str] | pa.Array) -> Cut:
    """Texts, given as Python's or as Arrow's."""
    if not len(texts):
        return Cut(texts, np.empty(0, np.uint64), np.empty(0, np.int64), ())
    data, starts, lengths = _bytes_of_array(texts) if isinstance(texts, pa.Array) else _bytes_of_list(texts)
    views = np.ndarray((len(data) - _WORD + 1,), np.dtype("<u8"), data, strides=(1,))
    words, shortest, longest = [], int(lengths.min()), int(lengths.max())
    for at in range(0, min(longest, WORDS * _WORD), _WORD):
        word = views[starts + at] if at <= shortest else views[np.minimum(starts + at, len(views) - 1)]
        if shortest == longest:
            words.append(word & _KEEP[min(longest - at, _WORD)])
        else:
            words.append(word if at + _WORD <= shortest else word & _KEEP[np.clip(lengths - at, 0, _WORD)])
    has_long = longest > WORDS * _WORD
    hashes = _hashes_of_long(texts) if has_long else _hashes(lengths, words)
    hashes[hashes == 0] = 1
    return Cut(texts, hashes, lengths, tuple(words), has_long)


def _bytes_of_array(texts: pa.Array) -> tuple[npt.NDArray[np.uint8], Numbers, Numbers]:
    """The bytes, with some to spare at the end, and where each text begins and how long it is."""
    _, raw_offsets, raw_data = texts.buffers()
    offsets = np.frombuffer(raw_offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    data = np.frombuffer(raw_data or b"", np.uint8)[offsets[0] : offsets[-1]]
    return np.concatenate((data, _PADDING)), offsets[:-1] - offsets[0], np.diff(offsets)


def _bytes_of_list(texts: Sequence[str]) -> tuple[npt.NDArray[np.uint8], Numbers, Numbers]:
    """The same; put together with zeros in between, which is four times as fast as making an array of them."""
    data = np.frombuffer("\0".join(texts).encode() + bytes(1 + _WORD), np.uint8)
    ends = np.flatnonzero(data[:-_WORD] == 0)
    if len(ends) != len(texts):  # a text has one itself
        return _bytes_of_array(pa.array(texts, pa.string()))
    starts = np.empty_like(ends)
    starts[0] = 0
    starts[1:] = ends[:-1] + 1
    return data, starts, ends - starts


def _hashes(lengths: Numbers, words: Sequence[Words]) -> Words:
    """For finding only, and for this process only: what is stored has hashes of its own (`hashing.py`).

    A word of zeros adds nothing: the hash of a text must not depend on how long its neighbours are.
    """
    found = lengths.astype(np.uint64)
    for word, factor in zip(words, _FACTORS, strict=False):
        part = word * factor
        part ^= part >> _SHIFT
        found += part
    found *= _FACTORS[0]
    found ^= found >> _SHIFT
    return found


def _hashes_of_long(texts: Sequence[str] | pa.Array) -> Words:
    """Of all bytes: long texts are often alike at their beginning."""
    array = texts if isinstance(texts, pa.Array) else pa.array(texts, pa.string())
    _, offsets, data = array.buffers()
    chosen = np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1]
    hashes = hash_bytes(np.frombuffer(data or b"", np.uint8), chosen)
    lengths = np.diff(chosen)
    short = np.flatnonzero(lengths <= WORDS * _WORD)
    if len(short):  # these have the hash that they would have alone
        hashes[short] = cut(array.take(pa.array(short))).hashes
    return hashes


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
        arrays: tuple[npt.NDArray[Any], ...] = (
            self._table.hashes,
            self._table.numbers,
            columns.hashes,
            columns.lengths,
            *columns.words,
        )
        return sum(array.nbytes for array in arrays) + sum(len(text) for text in self._long.values())

    def find(self, given: Cut) -> Numbers:
        """The numbers of texts, and `NOBODY` for those that have none."""
        table = self._table
        places = (given.hashes & np.uint64(table.mask)).astype(np.int64)
        seen = table.hashes[places]
        found = table.numbers[places].astype(np.int64)
        is_found = (seen == given.hashes) & self._are_same(found, given)
        if not is_found.all():
            found[~is_found] = NOBODY
            elsewhere = np.flatnonzero((seen != 0) & ~is_found)  # another text is where it would be
            if len(elsewhere):
                get = table.others.get
                found[elsewhere] = [get(text, NOBODY) for text in given.texts_at(elsewhere)]
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
            self._long[int(numbers[place])] = given.texts_at(np.array([place]))[0]
        self._size += fresh
        if FILLED * self._size > len(self._table.hashes):
            table = _empty_table(FILLED * self._size + 1)
            self._put(table, columns.hashes[: self._size], np.arange(self._size, dtype=np.int64))
            self._table = table
        else:
            self._put(self._table, given.hashes, numbers)
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

    def _are_same(self, numbers: Numbers, given: Cut) -> npt.NDArray[np.bool_]:
        """Whether the texts of these numbers are those that are given, one by one."""
        columns = self._columns
        is_same = columns.lengths[numbers] == given.lengths
        for mine, word in zip(columns.words, given.words, strict=False):
            is_same &= mine[numbers] == word
        if given.has_long:
            doubtful = np.flatnonzero(is_same & (given.lengths > WORDS * _WORD))
            for place, text in zip(doubtful.tolist(), given.texts_at(doubtful), strict=True):
                is_same[place] = self._long.get(int(numbers[place])) == text
        return np.asarray(is_same)

    def _put(self, table: _Table, hashes: Words, numbers: Numbers) -> None:
        """Put texts where they will be looked for; those whose place is taken go to the others."""
        places = (hashes & np.uint64(table.mask)).astype(np.int64)
        free = np.flatnonzero(table.hashes[places] == 0)
        _, firsts = np.unique(places[free], return_index=True)
        placed = free[firsts]
        is_left = np.ones(len(hashes), np.bool_)
        is_left[placed] = False
        # First the others: whoever looks for one of them meanwhile must not find its place taken and it nowhere.
        table.others.update({self.text(number): number for number in numbers[is_left].tolist()})
        table.numbers[places[placed]] = numbers[placed]
        table.hashes[places[placed]] = hashes[placed]

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
    return _Table(size - 1, np.zeros(size, np.uint64), np.zeros(size, np.int32), {})
