"""The memory of recent identities: distinguishes a delta that was seen before from one that is surely new (Q3).

Belongs here: an exact answer within the last `capacity` deltas that passed the checks, also across restarts: the memory
is a function of the log. Hashes only find candidates; whole identities are compared, so a hash collision can never
refuse anything.

A delta's place is the number of deltas that were added before it. Its data is stored in rings, one for its numbers and
one for each of its texts, and is overwritten when the place is too far back. Slots find places by hash: a delta is in
the slot of its hash or after it, without a gap between. Nothing is ever removed from a table of slots. There are two:
the newer one is filled, and when it is full, the older one is dropped whole. A slot that points too far back is
ignored. A duplicate, or a delta that reused an identity, takes a place like any other, but no slot: it is not the first
of its identity.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tidemark.arrays.columns import Bytes, Mask, Numbers, bytes_of, numbers_of
from tidemark.arrays.compiled import compiled, inlined
from tidemark.arrays.memory import zeros

IDENTITY_COLUMNS = ("namespace", "key", "event_ts", "delta_id")
# What `add` needs of a delta.
REMEMBERED_COLUMNS = ["identity_hash", *IDENTITY_COLUMNS, "content_hash", "epoch", "ordinal"]
TEXT_COLUMNS = ("namespace", "key", "delta_id")

Offsets = npt.NDArray[np.int32]

# The fields in the ring of numbers. `_ORDINAL` is below zero for a delta that is not the first of its identity; the
# last three say where its texts begin, each of which ends where the next delta's begins.
_HASH, _CONTENT, _EVENT, _EPOCH, _ORDINAL, _SPACE, _KEY, _ID = range(8)
_FIELDS = 8
_NOT_FIRST = -1
# A slot holds the upper half of a hash, and where in the ring, counted from 1 because 0 means that it is free.
_HALF = 32
_LOWER = 2**_HALF - 1
MOST = 2**29
_LEAST_TEXT_BYTES = 1_024
# Deltas that are added at once, at most: the rings have room for so many more than are remembered.
_ROWS_AT_ONCE = 16_384
# Rows whose slots are fetched from memory together.
_AHEAD = 32


class Seen(IntEnum):
    """The memory's answer about a delta."""

    NEW = 0
    COPY = 1  # the same delta again
    REUSED = 2  # another delta under the same identity


class Sighting(NamedTuple):
    """The answer for one delta, and the place of the first one."""

    seen: Seen
    epoch: int = 0
    ordinal: int = 0


class Identities:
    """Identities of the last `capacity` deltas, in the order of the log.

    A remembered delta takes 64 bytes and its texts, and 32 to 64 for its slots.
    """

    def __init__(self, capacity: int) -> None:
        if capacity >= MOST:
            raise ValueError(f"recent_identities is {capacity:,}; fewer than {MOST:,} can be remembered.")
        self.capacity = capacity
        self._total = 0  # deltas ever added
        self._in_newer = 0  # of those, how many since the newer table of slots was begun
        # The last of the places beyond those remembered says where the texts of the delta before it end.
        self._places = capacity + min(_ROWS_AT_ONCE, capacity) + 1
        # The system allocates memory when it is first touched, so a quiet shard uses little of it.
        self._ring = zeros(_FIELDS * self._places)
        self._newer, self._older = (zeros(1 << (2 * capacity).bit_length()) for _ in range(2))
        # The place of a byte is its number, counted from the first that was ever written, modulo the length of its
        # ring.
        self._texts: list[Bytes] = [np.zeros(_LEAST_TEXT_BYTES, dtype=np.uint8) for _ in TEXT_COLUMNS]

    def __len__(self) -> int:
        return min(self._total, self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes that the memory takes when it is full."""
        numbers = self._ring.nbytes + self._newer.nbytes + self._older.nbytes
        return numbers + sum(texts.nbytes for texts in self._texts)

    def add(self, columns: Mapping[str, pa.Array], firsts: Mask | None = None) -> dict[int, Sighting]:
        """Remember deltas (all of which passed the checks) and return, by row, which were seen before.

        If the log says which rows are the first of their identity, `firsts` has this.
        """
        if not self.capacity:
            return {}
        rows = len(columns["identity_hash"])
        is_first = np.ones(rows, dtype=np.bool_) if firsts is None else firsts
        sightings: dict[int, Sighting] = {}
        start = 0
        while start < rows:
            if self._in_newer == self.capacity:
                self._newer, self._older = self._older, self._newer
                self._newer[:] = 0
                self._in_newer = 0
            size = min(rows - start, _ROWS_AT_ONCE, self.capacity - self._in_newer)
            part = columns
            if size < rows:
                part = {name: columns[name].slice(start, size) for name in REMEMBERED_COLUMNS}
            for row, sighting in self._add(part, is_first[start : start + size], size):
                sightings[start + row] = sighting
            start += size
        return sightings

    def _add(self, columns: Mapping[str, pa.Array], firsts: Mask, rows: int) -> list[tuple[int, Sighting]]:
        spaces, keys, ids = texts = [bytes_of(columns[name]) for name in TEXT_COLUMNS]
        for field, (_, data) in enumerate(texts):
            self._make_room(field, len(data))
        space_ring, key_ring, id_ring = self._texts
        seen, where = np.empty(rows, dtype=np.uint8), np.empty(2 * rows, dtype=np.int64)
        ordinals = columns["ordinal"]
        _remember(
            self._newer,
            self._older,
            self._ring,
            space_ring,
            key_ring,
            id_ring,
            self.capacity,
            self._total % self._places,
            firsts,
            numbers_of(columns["identity_hash"]),
            numbers_of(columns["content_hash"]),
            numbers_of(columns["event_ts"]),
            numbers_of(columns["epoch"]),
            np.frombuffer(ordinals.buffers()[1], dtype=np.int32, count=rows, offset=4 * ordinals.offset),
            *spaces,
            *keys,
            *ids,
            seen,
            where,
        )
        self._total += rows
        self._in_newer += rows
        return [
            (row, Sighting(Seen(int(seen[row])), int(where[2 * row]), int(where[2 * row + 1])))
            for row in seen.nonzero()[0].tolist()
        ]

    def _make_room(self, field: int, needed: int) -> None:
        """Make a ring of texts long enough that no remembered text is overwritten."""
        texts = self._texts[field]
        begins = self._ring[(_SPACE + field) * self._places : (_SPACE + field + 1) * self._places]
        begin, end = (int(begins[place % self._places]) for place in (max(0, self._total - self.capacity), self._total))
        if (wanted := end - begin + needed) <= len(texts):
            return
        longer = zeros((1 << wanted.bit_length()) // 8).view(np.uint8)
        while begin < end:
            at, to = begin % len(texts), begin % len(longer)
            piece = min(end - begin, len(texts) - at)
            longer[to : to + piece] = texts[at : at + piece]
            begin += piece
        self._texts[field] = longer


@compiled
def _remember(
    newer: Numbers,
    older: Numbers,
    ring: Numbers,
    space_ring: Bytes,
    key_ring: Bytes,
    id_ring: Bytes,
    capacity: int,
    first_place: int,
    firsts: Mask,
    hashes: Numbers,
    contents: Numbers,
    events: Numbers,
    epochs: Numbers,
    ordinals: Offsets,
    spaces: Offsets,
    space_data: Bytes,
    keys: Offsets,
    key_data: Bytes,
    ids: Offsets,
    id_data: Bytes,
    seen: Bytes,
    where: Numbers,
) -> None:
    """Add rows; `seen` says what was known of each, and `where` has the epoch and ordinal of its first."""
    places = len(ring) // _FIELDS
    place = first_place
    for row in range(len(seen)):
        ring[_HASH * places + place], ring[_CONTENT * places + place] = hashes[row], contents[row]
        ring[_EVENT * places + place] = events[row]
        ring[_EPOCH * places + place], ring[_ORDINAL * places + place] = epochs[row], ordinals[row]
        place = place + 1 if place + 1 < places else 0
    _append(ring, _SPACE * places, first_place, space_ring, spaces, space_data)
    _append(ring, _KEY * places, first_place, key_ring, keys, key_data)
    _append(ring, _ID * places, first_place, id_ring, ids, id_data)

    last_slot = len(newer) - 1
    place = first_place
    for row in range(len(seen)):
        if row % _AHEAD == 0:
            where[2 * row] = _look_ahead(newer, older, hashes, row)
        seen[row] = 0
        is_first = firsts[row]
        if is_first:
            free = int(hashes[row] & last_slot)
            known = -1
            while newer[free] and known < 0:
                known = _known(newer[free], ring, space_ring, key_ring, id_ring, capacity, place)
                free = (free + 1) & last_slot
            slot = int(hashes[row] & last_slot)
            while known < 0 and older[slot]:
                known = _known(older[slot], ring, space_ring, key_ring, id_ring, capacity, place)
                slot = (slot + 1) & last_slot
            if known < 0:
                newer[free] = ((hashes[row] >> _HALF) << _HALF) | (place + 1)
            else:
                is_first = False
                seen[row] = 1 if ring[_CONTENT * places + known] == contents[row] else 2
                where[2 * row], where[2 * row + 1] = ring[_EPOCH * places + known], ring[_ORDINAL * places + known]
        if not is_first:
            ring[_ORDINAL * places + place] = _NOT_FIRST
        place = place + 1 if place + 1 < places else 0


@inlined
def _append(ring: Numbers, begins: int, place: int, texts: Bytes, offsets: Offsets, data: Bytes) -> None:
    """Put the texts of a column behind those that are there, and note where each begins, and where the last ends."""
    places, last_byte = len(ring) // _FIELDS, len(texts) - 1
    end = ring[begins + place]
    for row in range(len(offsets)):
        ring[begins + place] = end + (offsets[row] - offsets[0])
        place = place + 1 if place + 1 < places else 0
    at = end & last_byte
    until_edge = min(len(data), len(texts) - at)
    for byte in range(until_edge):
        texts[at + byte] = data[byte]
    for byte in range(until_edge, len(data)):
        texts[byte - until_edge] = data[byte]


@inlined
def _look_ahead(newer: Numbers, older: Numbers, hashes: Numbers, row: int) -> int:
    """Touch the slots of the next rows: memory is waited for once, and not row by row. The sum means nothing."""
    last_slot = len(newer) - 1
    touched = 0
    for ahead in range(row, min(row + _AHEAD, len(hashes))):
        touched += newer[hashes[ahead] & last_slot]
        touched += older[hashes[ahead] & last_slot]
    return touched


@inlined
def _known(
    slot: int, ring: Numbers, space_ring: Bytes, key_ring: Bytes, id_ring: Bytes, capacity: int, own: int
) -> int:
    """The place that a slot points at, if the first with the identity that stands at `own` is there; else -1."""
    places = len(ring) // _FIELDS
    if (slot >> _HALF) != (ring[_HASH * places + own] >> _HALF):
        return -1
    other = (slot & _LOWER) - 1
    # How far back it is. What is further back than that may have been written over: this stands for another then,
    # which is within reach, and is compared as such.
    back = own - other if own >= other else own - other + places
    if back == 0 or back > capacity or ring[_ORDINAL * places + other] < 0:
        return -1
    is_same = (
        ring[_HASH * places + other] == ring[_HASH * places + own]
        and ring[_EVENT * places + other] == ring[_EVENT * places + own]
        and _is_same_text(ring, _KEY * places, key_ring, other, own)
        and _is_same_text(ring, _ID * places, id_ring, other, own)
        and _is_same_text(ring, _SPACE * places, space_ring, other, own)
    )
    return other if is_same else -1


@inlined
def _is_same_text(ring: Numbers, begins: int, texts: Bytes, left: int, right: int) -> bool:
    places, last_byte = len(ring) // _FIELDS, len(texts) - 1
    begin, other = ring[begins + left], ring[begins + right]
    size = ring[begins + (left + 1 if left + 1 < places else 0)] - begin
    if size != ring[begins + (right + 1 if right + 1 < places else 0)] - other:
        return False
    same = 0
    while same < size and texts[(begin + same) & last_byte] == texts[(other + same) & last_byte]:
        same += 1
    return bool(same == size)
