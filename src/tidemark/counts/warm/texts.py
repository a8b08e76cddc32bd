"""Texts and their rows, looked up by the thousand: like a dictionary, but for a whole batch at once.

Belongs here: a hash table of texts in NumPy arrays, and the loops over it. A Python dictionary takes one object at a
time, and each time waits for memory that is in no cache. Here a batch is bytes; a loop hashes, looks up and compares,
and the processor asks for the memory of many texts at a time.

Hashes find, comparisons decide. A slot of the table is one number: some bits of the hash, and the place of the text's
record. A record is a word with the text's length and row, and the text itself in words of eight bytes, padded with
zeros. Records are written once and never change.

One thread adds, any number may look meanwhile, and none waits. A text that is being added has a mark in its slot, and
readers skip marked slots; the mark is removed when everything about the text is written. A table that grew is replaced
as a whole, and the old one gets nothing more.
"""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.arrays.compiled import compiled, inlined
from tidemark.arrays.hashing import word_at
from tidemark.counts.errors import FullError, NoTextError

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
Table = np.ndarray[tuple[int, int], np.dtype[np.uint64]]
# Names of entities, as Python's texts or as Arrow's.
Entities: TypeAlias = Sequence[str] | pa.Array

# The row of an unknown text. It is the last place of every array of rows, in which nothing is ever counted.
NOBODY = -1
# At most one slot in this many is used, so that most texts are found at the first try.
FILLED = 2
_SMALLEST = 64
_WORD = 8
# This many texts are looked up at a time: few enough that their hashes and slots stay in the nearest cache.
_BLOCK = 64
_PADDING = bytes(_WORD + 1)
# A slot: a mark while a text is being added, 31 bits of the hash, and 32 of the record's place. 0 is an empty slot, and
# no record is at 0. A record's first word: the length in bytes, and the row.
_ADDING = np.uint64(1 << 63)
_HASH = np.uint64((1 << 63) - (1 << 32))
_LOW = np.uint64((1 << 32) - 1)
_HALF = np.uint64(32)
_PLACES = 1 << 32
_FACTOR = np.uint64(0x9FB21C651E98DF25)
_ONE, _EIGHT, _EVERY_BIT = np.uint64(1), np.uint64(8), np.uint64(2**64 - 1)


class Cut(NamedTuple):
    """Texts as consecutive bytes, followed by at least eight more.

    With the start of each and of one more; and the number of bytes between one text and the next.
    """

    data: Bytes
    starts: Numbers
    gap: int

    @property
    def length(self) -> int:
        """How many texts these are."""
        return len(self.starts) - 1


class _Table(NamedTuple):
    slots: Words
    records: Words


def cut(texts: Entities) -> Cut:
    """Cut texts, given as Python's or as Arrow's."""
    if isinstance(texts, pa.Array):
        return _cut_array(texts)
    try:
        # With zeros in between: four times as fast as an Arrow array of them, and nothing else comes near it.
        data = np.frombuffer("\0".join(texts).encode() + _PADDING, np.uint8)
    except (TypeError, UnicodeEncodeError) as error:
        raise NoTextError(error) from error
    starts = np.empty(len(texts) + 1, np.int64)
    if not _split(data, len(data) - len(_PADDING), starts):  # there is no text, or one has a zero itself
        return _cut_array(pa.array(texts, pa.string()))
    return Cut(data, starts, gap=1)


def _cut_array(texts: pa.Array) -> Cut:
    if texts.null_count or not (pa.types.is_string(texts.type) or pa.types.is_large_string(texts.type)):
        raise NoTextError(f"an array of {texts.type} with {texts.null_count} nulls")
    _, raw_offsets, raw_data = texts.buffers()
    width = np.int32 if pa.types.is_string(texts.type) else np.int64
    raw = np.frombuffer(raw_offsets or bytes(_WORD), width)[texts.offset : texts.offset + len(texts) + 1]
    offsets = raw.astype(np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    data = np.frombuffer(bytes(memoryview(raw_data or b"")[first:last]) + _PADDING, np.uint8)
    offsets -= first
    return Cut(data, offsets, gap=0)


class TextTable:
    """Texts, each with its row. `hash_bits` says how many bits of a hash are used: tests use few."""

    def __init__(self, hash_bits: int = 64) -> None:
        self._kept = _EVERY_BIT >> np.uint64(64 - hash_bits)
        self._size = 0
        self._end = 1  # of the records
        self._table = _Table(np.zeros(_SMALLEST, np.uint64), np.zeros(_SMALLEST, np.uint64))

    def __len__(self) -> int:
        return self._size

    def find(self, given: Cut) -> tuple[Numbers, int]:
        """The rows of texts, `NOBODY` for unknown ones, and how many are unknown."""
        rows, block = np.empty(given.length, np.int64), np.empty((3, _BLOCK), np.uint64)
        data, starts, gap = given
        return rows, _find(*self._table, self._kept, data, starts, gap, block, rows)

    def take(self, given: Cut, first: int, limit: int) -> tuple[Numbers, int]:
        """The rows of texts, and how many were new: these get `first` and the next ones, in order, each text once.

        If more than `limit` are new, none is added, and the rows mean nothing.
        """
        rows, places = np.empty(given.length, np.int64), np.empty(given.length + 1, np.int64)
        block = np.empty((3, _BLOCK), np.uint64)
        data, starts, gap = given

        def take() -> int:
            size, end = self._size, self._end
            return _take(*self._table, self._kept, data, starts, gap, block, size, end, first, rows, places)

        added = take()
        if added < 0:
            self._make_room(int(np.count_nonzero(rows == NOBODY)), _words_of(starts, gap, rows))
            added = take()
        if added > limit:
            self._table.slots[places[:added]] = 0
        elif added:
            # Not in the loop that wrote the records: so they are written, whatever a compiler or a processor reorders.
            self._table.slots[places[:added]] ^= _ADDING
            self._size += added
            self._end = int(places[added])
        return rows, added

    def renumber(self, rows: Numbers) -> None:
        """Give all texts other rows, in the order in which they came. No thread may look meanwhile."""
        places, records = self.places(), self._table.records
        records[places] = records[places] & ~_LOW | rows.astype(np.uint64)

    def places(self) -> Numbers:
        """The places of the records, in the order in which the texts came."""
        places = np.empty(self._size, np.int64)
        _walk(self._table.records, places)
        return places

    def rows_at(self, places: Numbers) -> Numbers:
        """The rows of the texts with these records."""
        return (self._table.records[places] & _LOW).astype(np.int64)

    def text_at(self, place: int) -> str:
        """The text of a record."""
        records = self._table.records
        length = int(records[place] >> _HALF)
        return records[place + 1 : place + 1 + -(-length // _WORD)].tobytes()[:length].decode()

    def packed(self, places: Numbers) -> tuple[Numbers, npt.NDArray[np.uint8]]:
        """The bytes of these texts without gaps, and where each begins, and the last one ends."""
        records = self._table.records
        offsets = np.zeros(len(places) + 1, np.int64)
        np.cumsum((records[places] >> _HALF).astype(np.int64), out=offsets[1:])
        data = np.empty(int(offsets[-1]), np.uint8)
        _unpack(records.view(np.uint8), places, offsets, data)
        return offsets, data

    def _make_room(self, texts: int, words: int) -> None:
        """Make room for more texts; readers go on with the old table meanwhile."""
        slots, records = self._table
        size, end = self._size + texts, self._end + words
        if FILLED * size <= len(slots) and end <= len(records):
            return
        if end >= _PLACES:
            raise FullError(f"Names of entities take {end * _WORD:,} bytes, and there is room for 32 GB.")
        larger = np.zeros(max(end, min(2 * len(records), _PLACES)), np.uint64)
        larger[: self._end] = records[: self._end]
        grown = np.zeros(max(1 << (FILLED * size - 1).bit_length(), len(slots)), np.uint64)
        _place_all(grown, larger, self._kept, self.places())
        self._table = _Table(grown, larger)


@inlined
def _word(data: Bytes, start: int, end: int) -> np.uint64:
    """Eight bytes of a text; zeros behind its end."""
    word, left = word_at(data, start), end - start
    if left < _WORD:
        word &= (_ONE << (_EIGHT * np.uint64(left))) - _ONE
    return np.uint64(word)


@inlined
def _mixed(state: np.uint64, word: np.uint64) -> np.uint64:
    """For finding only, and for this process only: stored data has hashes of its own."""
    found = (state ^ word) * _FACTOR
    return found ^ (found >> _HALF)


@inlined
def _hash(data: Bytes, start: int, end: int) -> np.uint64:
    found = np.uint64(end - start)
    for at in range(start, end, _WORD):
        found = _mixed(found, _word(data, at, end))
    return found


@inlined
def _is_it(records: Words, record: np.uint64, head: np.uint64, data: Bytes, start: int, end: int) -> bool:
    """Whether a record, which begins with that word, has the text."""
    if head >> _HALF != np.uint64(end - start):
        return False
    for at in range(start, end, _WORD):
        record += _ONE
        if records[record] != _word(data, at, end):
            return False
    return True


@inlined
def _slot_of(
    slots: Words, records: Words, hashed: np.uint64, data: Bytes, start: int, end: int, passed: np.uint64
) -> tuple[np.uint64, np.uint64]:
    """The place of the text's slot and its content; or the empty slot where it would be, and 0.

    Slots with a bit of `passed` are skipped. A slot is read once: another thread may write there meanwhile.
    """
    mask = np.uint64(len(slots) - 1)
    place = hashed & mask
    while True:
        slot = slots[place]
        if slot == 0:
            return place, slot
        if slot & passed == 0 and (slot ^ hashed) & _HASH == 0:
            record = slot & _LOW
            if _is_it(records, record, records[record], data, start, end):
                return place, slot
        place = (place + _ONE) & mask


@compiled
def _split(data: Bytes, end: int, starts: Numbers) -> bool:
    """Where texts with a zero between them begin; false if there are not as many as there are places."""
    last = len(starts) - 1
    text = starts[0] = 0
    for at in range(end):
        if text >= last:
            return False
        starts[text + 1] = at + 1  # written over until there is a zero: nothing to be guessed, nothing to wait for
        text += data[at] == 0
    starts[last] = end + 1
    return text == last - 1


@compiled
def _find(
    slots: Words, records: Words, kept: np.uint64, data: Bytes, starts: Numbers, gap: int, block: Table, rows: Numbers
) -> int:
    """Block by block, four short loops before the one that compares: no text waits for the memory of another.

    `block` has the data of one block: hashes, slots, and first words of records.
    """
    mask = np.uint64(len(slots) - 1)
    missing = 0
    for begin in range(0, len(rows), _BLOCK):
        size = min(_BLOCK, len(rows) - begin)
        for at in range(size):
            block[0, at] = _hash(data, starts[begin + at], starts[begin + at + 1] - gap) & kept
        for at in range(size):
            block[1, at] = slots[block[0, at] & mask]
        for at in range(size):  # slots that are not its own are near the first one: they are at hand by now
            slot, place = block[1, at], block[0, at]
            while slot != 0 and slot & ~_LOW != block[0, at] & _HASH:
                place += _ONE
                slot = slots[place & mask]
            block[1, at] = slot & _LOW
        for at in range(size):
            block[2, at] = records[block[1, at]]
        for at in range(size):
            start, end = starts[begin + at], starts[begin + at + 1] - gap
            record, head = block[1, at], block[2, at]
            if record != 0 and not _is_it(records, record, head, data, start, end):
                _, slot = _slot_of(slots, records, block[0, at], data, start, end, _ADDING)
                record = slot & _LOW
                head = records[record]
            missing += record == 0
            rows[begin + at] = NOBODY if record == 0 else np.int64(head & _LOW)
    return missing


@compiled
def _take(
    slots: Words,
    records: Words,
    kept: np.uint64,
    data: Bytes,
    starts: Numbers,
    gap: int,
    block: Table,
    size: int,
    free: int,
    first: int,
    rows: Numbers,
    places: Numbers,
) -> int:
    """Find texts, and add those that are new; gives how many, or -1 if there may be too little room for them.

    `size` texts are there, and their records end at `free`. `places` are the slots of the new ones, all marked, and
    behind them where the records end now.
    """
    missing = _find(slots, records, kept, data, starts, gap, block, rows)
    if missing == 0:
        return 0
    if FILLED * (size + missing) > len(slots) or free + _words_of(starts, gap, rows) > len(records):
        return -1
    added = 0
    for text in range(len(rows)):
        if rows[text] != NOBODY:
            continue
        start, end = starts[text], starts[text + 1] - gap
        hashed = _hash(data, start, end) & kept
        place, slot = _slot_of(slots, records, hashed, data, start, end, np.uint64(0))
        if slot != 0:
            rows[text] = np.int64(records[slot & _LOW] & _LOW)
            continue
        rows[text] = first + added
        slots[place] = _ADDING | (hashed & _HASH) | np.uint64(free)
        records[free] = np.uint64(end - start) << _HALF | np.uint64(first + added)
        free += 1
        for at in range(start, end, _WORD):
            records[free] = _word(data, at, end)
            free += 1
        places[added] = place
        added += 1
    places[added] = free
    return added


@compiled
def _words_of(starts: Numbers, gap: int, rows: Numbers) -> int:
    """How many words the records of texts without a row take, at most: some may be the same."""
    words = 0
    for text in range(len(rows)):
        if rows[text] == NOBODY:
            words += 1 + (starts[text + 1] - gap - starts[text] + _WORD - 1) // _WORD
    return words


@compiled
def _walk(records: Words, places: Numbers) -> None:
    at = 1
    for text in range(len(places)):
        places[text] = at
        at += 1 + (int(records[at] >> _HALF) + _WORD - 1) // _WORD


@compiled
def _place_all(slots: Words, records: Words, kept: np.uint64, places: Numbers) -> None:
    """All texts of a table, each once, in empty slots."""
    mask = np.uint64(len(slots) - 1)
    for record in places:
        length = np.int64(records[record] >> _HALF)
        hashed = np.uint64(length)
        for word in range(record + 1, record + 1 + (length + _WORD - 1) // _WORD):
            hashed = _mixed(hashed, records[word])
        hashed &= kept
        place = hashed & mask
        while slots[place] != 0:
            place = (place + _ONE) & mask
        slots[place] = (hashed & _HASH) | np.uint64(record)


@compiled
def _unpack(data: npt.NDArray[np.uint8], places: Numbers, offsets: Numbers, into: npt.NDArray[np.uint8]) -> None:
    for text in range(len(places)):
        begin = (places[text] + 1) * _WORD - offsets[text]
        for at in range(offsets[text], offsets[text + 1]):
            into[at] = data[begin + at]
