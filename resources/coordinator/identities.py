"""The memory of recent identities: tells a delta that was seen before from one that is surely new (Q3).

Belongs here: an exact answer within the last `capacity` deltas that passed the checks, whatever was restarted in
between: the memory is a function of the log. Hashes only find candidates; whole identities are compared, so a hash
collision can never refuse anything. How identities are kept for that comparison is in `kept.py`.

A table consists of buckets with eight entries each; a batch looks at all its buckets at once, and the few rows that
found theirs full go on to the next. There are two tables: one that is filled, and the one before it. When everything
in the older one is further back than `capacity`, it is dropped whole, so that nothing is deleted row by row.
"""

from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from resources.coordinator.columns import numbers_of
from resources.coordinator.kept import IDENTITY_COLUMNS, KEPT_COLUMNS, Kept

__all__ = ["IDENTITY_COLUMNS", "REMEMBERED_COLUMNS", "Identities", "Seen", "Sighting"]

# What `add` needs of a delta.
REMEMBERED_COLUMNS = ["identity_hash", *KEPT_COLUMNS]

Numbers = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint64]
Halves = npt.NDArray[np.uint32]
Mask = npt.NDArray[np.bool_]

# Rows that are looked up at once: their temporaries stay in the cache of a core.
ROWS_AT_ONCE = 8_192
# Below so many rows a loop in Python costs less than the calls into NumPy.
FEW_ROWS = 16
# Eight tags of four bytes are half a line of the cache, and eight comparisons are one word of eight booleans.
BUCKET = 8


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


class _Generation:
    """One table, with the place of the first delta that may be in it.

    An entry is a tag, the upper half of the hash, and a place in the generation, counted from 1 because 0 means that
    there is none: never taken, or taken back.
    """

    def __init__(self, first_place: int, buckets: int) -> None:
        self.first_place = first_place
        self.last_bucket = buckets - 1  # and the bits of a hash that choose one
        self.tags: Halves = np.zeros((buckets, BUCKET), dtype=np.uint32)
        self.places: Halves = np.zeros((buckets, BUCKET), dtype=np.uint32)
        self.fill: npt.NDArray[np.uint8] = np.zeros(buckets, dtype=np.uint8)  # entries of each bucket

    @property
    def nbytes(self) -> int:
        return int(self.tags.nbytes + self.places.nbytes + self.fill.nbytes)

    def bucket_of(self, hashes: Words) -> Numbers:
        return (hashes & np.uint64(self.last_bucket)).view(np.int64)

    def after(self, buckets: Numbers) -> Numbers:
        return (buckets + 1) & self.last_bucket


class _Batch(NamedTuple):
    """The rows that are being added."""

    hashes: Words
    tags: Halves
    places: Numbers

    def of(self, rows: Numbers) -> "_Batch":
        """Some of them."""
        return _Batch(self.hashes[rows], self.tags[rows], self.places[rows])


class _Found(NamedTuple):
    """Rows for which a remembered delta may be the same, and the place of that one."""

    rows: Numbers
    places: Numbers


class Identities:
    """Identities of the last `capacity` deltas, in the order of the log.

    A remembered delta takes about 100 bytes in arrays (`nbytes`, at a capacity of 1,000,000 with a key of 13 and an id
    of 8 bytes): 34 in the two tables and 65 for its identity, which grow with its texts. Measured from outside, the
    process grew by 135 bytes a delta and by 150 at its peak, in batches of 100,000.
    """

    def __init__(self, capacity: int) -> None:
        if capacity >= 2**31:
            raise ValueError(f"recent_identities is {capacity}; fewer than 2^31 can be remembered.")
        self.capacity = capacity
        self._total = 0  # deltas ever added; the place of a delta is its number here
        self._rows_at_once = max(1, min(ROWS_AT_ONCE, capacity))
        # At most 8 of 15 entries are ever taken: a generation ends with the first batch that fills it.
        self._buckets = 1 << ((capacity + self._rows_at_once) * 15 // 8 // BUCKET).bit_length()
        self._older = self._newer = _Generation(0, self._buckets)
        self._kept = Kept(capacity)

    def __len__(self) -> int:
        return min(self._total, self.capacity)

    @property
    def nbytes(self) -> int:
        """Bytes that the memory takes."""
        tables = {id(generation): generation.nbytes for generation in (self._older, self._newer)}
        return sum(tables.values()) + self._kept.nbytes

    def add(self, columns: Mapping[str, pa.Array], *, is_own: bool = False) -> dict[int, Sighting]:
        """Remember deltas (all of which passed the checks) and tell, by row, which were seen before.

        `is_own` says that the columns share their memory with nobody, so that they need not be copied to be kept.
        """
        if not self.capacity:
            return {}
        hashes = numbers_of(columns["identity_hash"]).view(np.uint64)
        sightings: dict[int, Sighting] = {}
        self._kept.append(columns, is_own=is_own)
        for start in range(0, len(hashes), self._rows_at_once):
            found = self._add(hashes[start : start + self._rows_at_once])
            sightings |= {start + row: sighting for row, sighting in found.items()} if start else found
        self._kept.forget(self._total - self.capacity)
        return sightings

    def keep_nothing_else(self) -> None:
        """Copy what may still be a slice of something large, such as a log file, so that the rest of it can go."""
        self._kept.put_together()

    def _add(self, hashes: Words) -> dict[int, Sighting]:
        if self._total - self._newer.first_place >= self.capacity:
            self._older, self._newer = self._newer, _Generation(self._total, self._buckets)
        batch = _Batch(
            hashes, (hashes >> np.uint64(32)).astype(np.uint32), np.arange(self._total, self._total + len(hashes))
        )
        self._total += len(hashes)
        if len(hashes) <= FEW_ROWS:
            return self._one_by_one(batch, range(len(hashes)))
        sightings: dict[int, Sighting] = {}
        strangers = []
        rows = np.arange(len(hashes))
        if self._older is not self._newer:
            found = self._look_up(batch)
            if len(found.rows):
                strangers = self._compare(batch, found, sightings)
                rows = np.delete(rows, found.rows)
        found = self._insert(batch, rows)
        if len(found.rows):
            strangers += self._compare(batch, found, sightings)
        return self._once_more(batch, strangers, sightings) if strangers else sightings

    def _look_up(self, batch: _Batch) -> _Found:
        """Rows for which the older generation has a candidate."""
        older = self._older
        rows = np.arange(len(batch.hashes))
        buckets = older.bucket_of(batch.hashes)
        part, hits = batch, []
        while len(rows):
            found = self._candidates(older, part, buckets)
            goes_on = older.fill.take(buckets) == BUCKET
            if len(found.rows):
                hits.append(_Found(rows[found.rows], found.places))
                goes_on[found.rows] = False
            left = goes_on.nonzero()[0]
            rows, part, buckets = rows[left], part.of(left), older.after(buckets[left])
        return _joined(hits)

    def _insert(self, batch: _Batch, rows: Numbers) -> _Found:
        """Put rows into the newer generation; gives those that found a candidate there instead of a free entry.

        Rows with one hash go the same way in step, and where several want an entry the first of them has it: so the
        earliest of equal rows is the one that stays, as if they had come one by one.
        """
        newer = self._newer
        tags, places = newer.tags.reshape(-1), newer.places.reshape(-1)
        part = batch if len(rows) == len(batch.hashes) else batch.of(rows)
        buckets = newer.bucket_of(part.hashes)
        hits = []
        while len(rows):
            found = self._candidates(newer, part, buckets)
            if len(found.rows):
                hits.append(_Found(rows[found.rows], found.places))
                left = np.delete(np.arange(len(rows)), found.rows)
                rows, part, buckets = rows[left], part.of(left), buckets[left]
            fill = newer.fill.take(buckets)
            is_full = fill == BUCKET
            own = (part.places - (newer.first_place - 1)).astype(np.uint32)
            entries = buckets * BUCKET + fill
            if is_full.any():
                room = (~is_full).nonzero()[0]
                has_entry = np.zeros(len(rows), dtype=np.bool_)
                has_entry[room] = _claim(places, entries[room], own[room])
            else:
                has_entry = _claim(places, entries, own)
            tags[entries[has_entry]] = part.tags[has_entry]
            newer.fill[buckets[has_entry]] = fill[has_entry] + np.uint8(1)
            left = (~has_entry).nonzero()[0]
            rows, part = rows[left], part.of(left)
            buckets = np.where(is_full[left], newer.after(buckets[left]), buckets[left])
        return _joined(hits)

    def _candidates(self, generation: _Generation, batch: _Batch, buckets: Numbers) -> _Found:
        """Rows whose bucket has an entry with their tag that is still remembered."""
        same = generation.tags.take(buckets, axis=0) == batch.tags[:, None]
        rows = same.view(np.uint64)[:, 0].nonzero()[0]
        if not len(rows):
            return _Found(rows, rows)
        places = generation.places.take(buckets[rows], axis=0).astype(np.int64)
        oldest = batch.places[rows] - (self.capacity + generation.first_place - 1)
        is_candidate = same[rows] & (places >= np.maximum(oldest, 1)[:, None])
        chosen = is_candidate.argmax(axis=1)
        has_any = is_candidate.any(axis=1)
        return _Found(rows[has_any], places[np.arange(len(rows)), chosen][has_any] + (generation.first_place - 1))

    def _compare(self, batch: _Batch, found: _Found, sightings: dict[int, Sighting]) -> list[Words]:
        """Note the rows that are what their candidate is; gives the hashes of those that are not."""
        is_same, is_copy, epochs, ordinals = self._kept.compare(batch.places[found.rows], found.places)
        for row, copy, epoch, ordinal in zip(
            found.rows[is_same].tolist(),
            is_copy[is_same].tolist(),
            epochs[is_same].tolist(),
            ordinals[is_same].tolist(),
            strict=True,
        ):
            sightings[row] = Sighting(Seen.COPY if copy else Seen.REUSED, epoch, ordinal)
        return [] if is_same.all() else [batch.hashes[found.rows[~is_same]]]

    def _once_more(self, batch: _Batch, strangers: list[Words], sightings: dict[int, Sighting]) -> dict[int, Sighting]:
        """Two identities look alike, which is rare: rows with their hashes are decided again, one by one."""
        rows = np.isin(batch.hashes, np.concatenate(strangers)).nonzero()[0]
        newer = self._newer
        for row in rows.tolist():
            sightings.pop(row, None)
            # Taken back, if it is there: an entry without a place is never found, and may be written over.
            own = batch.places[row] - newer.first_place + 1
            bucket = int(batch.hashes[row]) & newer.last_bucket
            while not (newer.places[bucket] == own).any() and newer.fill[bucket] == BUCKET:
                bucket = (bucket + 1) & newer.last_bucket
            newer.places[bucket][newer.places[bucket] == own] = 0
        return sightings | self._one_by_one(batch, rows.tolist())

    def _one_by_one(self, batch: _Batch, rows: Iterable[int]) -> dict[int, Sighting]:
        """The same for a few rows: every candidate is compared, and a row that is new takes the first free entry."""
        sightings: dict[int, Sighting] = {}
        newer = self._newer
        for row in rows:
            place, hashed = int(batch.places[row]), int(batch.hashes[row])
            sighting = None if self._older is newer else self._walk(self._older, hashed, place)[0]
            if sighting is None:
                sighting, (bucket, at) = self._walk(newer, hashed, place)
                if sighting is None:
                    newer.tags[bucket, at] = hashed >> 32
                    newer.places[bucket, at] = place - newer.first_place + 1
                    newer.fill[bucket] = max(int(newer.fill[bucket]), at + 1)
                    continue
            sightings[row] = sighting
        return sightings

    def _walk(self, generation: _Generation, hashed: int, place: int) -> tuple[Sighting | None, tuple[int, int]]:
        """What a generation says of one delta, and the first entry that it could take."""
        bucket, tag = hashed & generation.last_bucket, hashed >> 32
        free: tuple[int, int] | None = None
        while True:
            fill = int(generation.fill[bucket])
            tags, places = generation.tags[bucket].tolist(), generation.places[bucket].tolist()
            for at in range(fill):
                earlier = generation.first_place + places[at] - 1
                if not places[at]:
                    free = free or (bucket, at)
                elif tags[at] == tag and place - earlier <= self.capacity:
                    is_same, is_copy, epoch, ordinal = self._kept.compare_one(place, earlier)
                    if is_same:
                        return Sighting(Seen.COPY if is_copy else Seen.REUSED, epoch, ordinal), (bucket, at)
            if fill < BUCKET:
                return None, free or (bucket, fill)
            bucket = (bucket + 1) & generation.last_bucket


def _claim(places: Halves, entries: Numbers, own: Halves) -> Mask:
    """Write every row's place to the entry that it wants; true for those that have it: the first of each entry."""
    # Backwards: of several writes to one entry the last stays.
    places[entries[::-1]] = own[::-1]
    return np.asarray(places.take(entries) == own)


def _joined(hits: list[_Found]) -> _Found:
    if not hits:
        return _Found(np.empty(0, np.int64), np.empty(0, np.int64))
    return _Found(np.concatenate([found.rows for found in hits]), np.concatenate([found.places for found in hits]))
