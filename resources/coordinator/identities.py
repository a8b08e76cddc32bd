"""The memory of recent identities: tells a delta that was seen before from one that is surely new (Q3).

Belongs here: an exact answer within the last `capacity` deltas that passed the checks, whatever was restarted in
between: the memory is a function of the log. Hashes only find candidates; whole identities are compared, so a hash
collision can never refuse anything.

A delta has a place: the number of those that were added before it. What is known of it stands in a ring, its texts in
a second ring of bytes, both written over when the place is too far back. A table of slots finds places by hash: a delta
stands in the slot of its hash or behind it, without a gap between. One that was a copy, or that reused an identity,
takes a place like any other, but no slot: it is nobody's first.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from resources.compiled import compiled, inlined
from resources.coordinator.columns import Bytes, Mask, Numbers, bytes_of, numbers_of
from resources.coordinator.memory import zeros

IDENTITY_COLUMNS = ("namespace", "key", "event_ts", "delta_id")
# What `add` needs of a delta.
REMEMBERED_COLUMNS = ["identity_hash", *IDENTITY_COLUMNS, "content_hash", "epoch", "ordinal"]

Offsets = npt.NDArray[np.int32]

# What stands in the ring of a delta, a number each. `_TEXT` is where its texts begin; `_SIZES` their lengths, or 0
# if it is nobody's first (or nothing stands there yet): an identity without a text passes no check.
_HASH, _CONTENT, _EPOCH, _ORDINAL, _EVENT, _TEXT, _SIZES = range(7)
_FIELDS = 7
# Bits of the length of a text; three of them are one number.
_SIZE_BITS = 21
# A slot holds the lower half of a hash, and where in the ring, counted from 1 because 0 means that it is free.
_HALF = 32
_LOWER = 2**_HALF - 1
MOST = 2**29
_LEAST_TEXT_BYTES = 4_096
# Deltas that are added at once, at most: what their texts take has to be free before.
_ROWS_AT_ONCE = 65_536
# Rows whose slots are fetched from memory together.
_AHEAD = 32


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
    """Identities of the last `capacity` deltas, in the order of the log.

    A remembered delta takes 56 bytes and its texts, and 16 to 32 for its slot.
    """

    def __init__(self, capacity: int) -> None:
        if capacity >= MOST:
            raise ValueError(f"recent_identities is {capacity:,}; fewer than {MOST:,} can be remembered.")
        self.capacity = capacity
        self._total = 0  # deltas ever added
        # The system hands memory out when it is first touched, so that a quiet shard has little of it.
        self._ring = zeros(_FIELDS * (capacity + 1))
        self._slots = zeros(1 << (2 * capacity).bit_length())
        self._texts: Bytes = np.zeros(_LEAST_TEXT_BYTES, dtype=np.uint8)
        self._texts_end = 0  # bytes ever written; a byte lies at its number modulo the length of the ring

    def __len__(self) -> int:
        return min(self._total, self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes that the memory takes when it is full."""
        return self._ring.nbytes + self._slots.nbytes + self._texts.nbytes

    def add(self, columns: Mapping[str, pa.Array], firsts: Mask | None = None) -> dict[int, Sighting]:
        """Remember deltas (all of which passed the checks) and tell, by row, which were seen before.

        Where it is known from the log which rows are the first of their identity, `firsts` says so.
        """
        if not self.capacity:
            return {}
        rows = len(columns["identity_hash"])
        is_first = np.ones(rows, dtype=np.bool_) if firsts is None else firsts
        sightings: dict[int, Sighting] = {}
        at_once = min(_ROWS_AT_ONCE, self.capacity)
        for start in range(0, rows, at_once):
            part = {name: columns[name].slice(start, at_once) for name in REMEMBERED_COLUMNS} if start else columns
            size = min(at_once, rows - start)
            for row, sighting in self._add(part, is_first[start : start + size], size):
                sightings[start + row] = sighting
        return sightings

    def _add(self, columns: Mapping[str, pa.Array], firsts: Mask, rows: int) -> list[tuple[int, Sighting]]:
        spaces, keys, ids = (bytes_of(columns[name]) for name in ("namespace", "key", "delta_id"))
        self._make_room(sum(int(offsets[rows] - offsets[0]) for offsets, _ in (spaces, keys, ids)))
        seen, where = np.empty(rows, dtype=np.uint8), np.empty(2 * rows, dtype=np.int64)
        ordinals = columns["ordinal"]
        self._texts_end = _remember(
            self._slots,
            self._ring,
            self._texts,
            self._texts_end,
            self._total,
            firsts,
            numbers_of(columns["identity_hash"]),
            numbers_of(columns["content_hash"]),
            numbers_of(columns["epoch"]),
            np.frombuffer(ordinals.buffers()[1], dtype=np.int32, offset=4 * ordinals.offset),
            numbers_of(columns["event_ts"]),
            *spaces,
            *keys,
            *ids,
            seen,
            where,
        )
        self._total += rows
        return [
            (row, Sighting(Seen(int(seen[row])), int(where[2 * row]), int(where[2 * row + 1])))
            for row in seen.nonzero()[0].tolist()
        ]

    def _make_room(self, needed: int) -> None:
        """Let the ring of bytes be so long that nothing that is remembered is written over."""
        size, end = len(self._texts), self._texts_end
        oldest = max(0, self._total - self.capacity) % (self.capacity + 1)
        begin = int(self._ring[oldest * _FIELDS + _TEXT]) if self._total else end
        # Texts are not cut at the end of the ring: there may be as much unused as one delta's take.
        wanted = end - begin + 2 * needed
        if wanted <= size:
            return
        longer = zeros((1 << wanted.bit_length()) // 8).view(np.uint8)
        while begin < end:
            piece = min(end, (begin // size + 1) * size) - begin
            to, at = begin % len(longer), begin % size
            longer[to : to + piece] = self._texts[at : at + piece]
            begin += piece
        self._texts = longer


@compiled
def _remember(
    slots: Numbers,
    ring: Numbers,
    texts: Bytes,
    texts_end: int,
    total: int,
    firsts: Mask,
    hashes: Numbers,
    contents: Numbers,
    epochs: Numbers,
    ordinals: Offsets,
    events: Numbers,
    spaces: Offsets,
    space_data: Bytes,
    keys: Offsets,
    key_data: Bytes,
    ids: Offsets,
    id_data: Bytes,
    seen: Bytes,
    where: Numbers,
) -> int:
    """Add rows one by one; gives the end of the texts. `where` has the epoch and ordinal of the first of a row."""
    last_byte = len(texts) - 1
    own = (total % (len(ring) // _FIELDS)) * _FIELDS - _FIELDS
    for row in range(len(seen)):
        own = own + _FIELDS if own + _FIELDS < len(ring) else 0
        if row % _AHEAD == 0:
            where[2 * row] = _look_ahead(slots, ring, hashes, row, own)
        if ring[own + _SIZES] > 0:
            _forget(slots, own, ring[own + _HASH])
        space, key, name = spaces[row] - spaces[0], keys[row] - keys[0], ids[row] - ids[0]
        space_end, key_end, name_end = spaces[row + 1] - spaces[0], keys[row + 1] - keys[0], ids[row + 1] - ids[0]
        size = (space_end - space) + (key_end - key) + (name_end - name)
        # The next free bytes in which they lie together; what is left at the end of the ring stays unused.
        at = texts_end & last_byte
        if at + size > len(texts):
            texts_end += len(texts) - at
            at = 0
        # They are put there before it is known whether they stay: then there is one comparison, of all at once.
        _copy(texts, at, space_data, space, space_end)
        _copy(texts, at + (space_end - space), key_data, key, key_end)
        _copy(texts, at + (space_end - space) + (key_end - key), id_data, name, name_end)
        ring[own + _HASH], ring[own + _CONTENT], ring[own + _EVENT] = hashes[row], contents[row], events[row]
        ring[own + _EPOCH], ring[own + _ORDINAL], ring[own + _TEXT] = epochs[row], ordinals[row], texts_end
        ring[own + _SIZES] = _sizes(space_end - space, key_end - key, name_end - name)
        seen[row] = 0
        if firsts[row]:
            slot = _find(slots, ring, texts, own, size)
            if slots[slot]:
                other = (slots[slot] & _LOWER) - 1
                seen[row] = 1 if ring[other + _CONTENT] == contents[row] else 2
                where[2 * row], where[2 * row + 1] = ring[other + _EPOCH], ring[other + _ORDINAL]
            else:
                slots[slot] = ((hashes[row] & _LOWER) << _HALF) | (own + 1)
                texts_end += size
                continue
        ring[own + _SIZES] = 0
    return texts_end


@inlined
def _look_ahead(slots: Numbers, ring: Numbers, hashes: Numbers, row: int, own: int) -> int:
    """Touch the slots of the next rows: memory is waited for once, and not row by row. The sum means nothing."""
    last_slot = len(slots) - 1
    touched = 0
    for ahead in range(row, min(row + _AHEAD, len(hashes))):
        touched += slots[hashes[ahead] & last_slot]
        touched += slots[ring[own + _HASH] & last_slot]
        own = own + _FIELDS if own + _FIELDS < len(ring) else 0
    return touched


@inlined
def _find(slots: Numbers, ring: Numbers, texts: Bytes, own: int, size: int) -> int:
    """The slot of the first with the identity that stands at `own` in the ring, or the free one that it could take."""
    last_slot, last_byte = len(slots) - 1, len(texts) - 1
    hashed = ring[own + _HASH]
    slot = int(hashed & last_slot)
    while slots[slot]:
        other = (slots[slot] & _LOWER) - 1
        if (
            (slots[slot] >> _HALF) & _LOWER == hashed & _LOWER
            and ring[other + _HASH] == hashed
            and ring[other + _EVENT] == ring[own + _EVENT]
            and ring[other + _SIZES] == ring[own + _SIZES]
            and _are_equal(texts, ring[other + _TEXT] & last_byte, ring[own + _TEXT] & last_byte, size)
        ):
            break
        slot = (slot + 1) & last_slot
    return slot


@inlined
def _sizes(first: int, second: int, third: int) -> int:
    """Three lengths as one number."""
    return int((((np.int64(first) << _SIZE_BITS) | np.int64(second)) << _SIZE_BITS) | np.int64(third))


@inlined
def _forget(slots: Numbers, own: int, hashed: int) -> None:
    """Free the slot of a place, and move up what stood behind it only because it was taken."""
    last_slot = len(slots) - 1
    free = hashed & last_slot
    while (slots[free] & _LOWER) != own + 1:
        free = (free + 1) & last_slot
    behind = (free + 1) & last_slot
    while slots[behind]:
        wanted = (slots[behind] >> _HALF) & last_slot
        if ((behind - wanted) & last_slot) >= ((behind - free) & last_slot):
            slots[free] = slots[behind]
            free = behind
        behind = (behind + 1) & last_slot
    slots[free] = 0


@inlined
def _are_equal(texts: Bytes, left: int, right: int, size: int) -> bool:
    place = 0
    while place < size and texts[left + place] == texts[right + place]:
        place += 1
    return place == size


@inlined
def _copy(texts: Bytes, to: int, data: Bytes, begin: int, end: int) -> None:
    for place in range(end - begin):
        texts[to + place] = data[begin + place]
