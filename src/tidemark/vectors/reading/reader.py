"""Vectors now and in the past, without a JVM: by id, as of a time, as of an epoch, and delta by delta (K6).

Belongs here: from a question to the rows that answer it. `snapshot.py` and `scan.py` find the rows, `history.py`
decides which can be relied on, and `row_cache.py` keeps rows in memory.

    with Vectors(Home.locate()) as vectors:
        vectors.vector("item-7", namespace="shop").values
        vectors.vector("item-7", namespace="shop", as_of=time)
        vectors.many(["item-7", "item-8"], namespace="shop")

An answer is always that of `deltas` at the version that it names, whether `vectors` and checkpoints are up to date or
not: deltas that are not in them yet are folded while reading. So a read is never behind the commits, only slower;
`read_from` says which state was stored and how much had to be folded.

The cost of a read:

- The current state, if `vectors` reaches that far: a look at three tables' logs, and memory. A file of `vectors` is
  decoded once for each version of its bucket.
- The current state of a vector with newer deltas: its row, and the files with these deltas. If they name parents or
  sort before deltas that were folded, all of its deltas, as below.
- A state of the past, or a vector that is not in `vectors`: its checkpoints, and its deltas. Without a parent anywhere,
  only hours since the newest checkpoint are opened, and files that came later than it. With parents, the key columns of
  every hour up to the requested time, and payloads only of the hours that are folded.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from typing import Any, Self

import pyarrow as pa

from tidemark.event_time.clock import system_clock
from tidemark.model.timegrid import to_us
from tidemark.storage.home import Home
from tidemark.vectors.errors import UnknownVectorError
from tidemark.vectors.fold import emit_last, fold_batches, starting_states
from tidemark.vectors.places import PLACE_COLUMNS
from tidemark.vectors.reading.answers import Key, Source, Vector, vector_of
from tidemark.vectors.reading.history import Start, placed, starts_of
from tidemark.vectors.reading.new_deltas import NewDeltas
from tidemark.vectors.reading.past import NOW, Past, Requested, by_bucket, of_buckets, paths_of, read_from_of
from tidemark.vectors.reading.reads import append_reads
from tidemark.vectors.reading.row_cache import DEFAULT_ROOM, RowCache
from tidemark.vectors.reading.scan import Scan, split
from tidemark.vectors.reading.snapshot import NewFiles, Snapshot
from tidemark.vectors.schema import FOLD_INPUT, STATES
from tidemark.vectors.tables import BUCKETS, bucket_of


class Vectors:
    """A handle on the vectors of one home. It caches what it has read; for one thread at a time.

    `room` bounds the bytes of the cache. Reads are counted for each vector and stored on `close`, so that compaction
    knows which vectors are read often (K2); not if `counts_reads` is false, and it is no error if storing fails.
    """

    def __init__(
        self,
        home: Home,
        *,
        room: int = DEFAULT_ROOM,
        counts_reads: bool = True,
        clock: Callable[[], int] = system_clock,
    ) -> None:
        self._home, self._clock = home, clock
        self._counts_reads, self._reads = counts_reads, Counter[Key]()
        self._cache, self._scan = RowCache(room), Scan()
        self._snapshot: Snapshot | None = None
        self._new_deltas = NewDeltas(self._scan)
        self._past = Past(self._scan, self._new_deltas)

    def vector(
        self, vector_id: str, *, namespace: str, as_of: datetime | int | None = None, epoch: int | None = None
    ) -> Vector:
        """One vector: now, as of a time (with what takes effect at it), as of an epoch of its shard, or both.

        A time is an aware datetime or microseconds since 1970. Unknown vectors and times before the horizon are errors;
        a vector of which nothing had happened yet has no values and no deltas.
        """
        as_of_us = to_us(as_of) if isinstance(as_of, datetime) else as_of
        key, requested = (namespace, vector_id), Requested(as_of_us, epoch)
        snapshot = self._look()
        found = self._current(snapshot, [key]) if requested == NOW else self._past.read(snapshot, [key], requested)
        if key not in found:
            raise self.unknown(namespace, vector_id)
        self._reads[key] += 1
        return found[key]

    def many(self, vector_ids: Iterable[str], *, namespace: str) -> dict[str, Vector]:
        """The current state of many vectors at once; unknown ones are left out."""
        keys = [(namespace, vector_id) for vector_id in dict.fromkeys(vector_ids)]
        found = self._current(self._look(), keys)
        self._reads.update(found.keys())
        return {key[1]: found[key] for key in keys if key in found}

    def chain(self, vector_id: str, *, namespace: str) -> pa.Table:
        """All deltas of a vector in canonical order with `eff_us`, `depth` and `effect`; last those without a place.

        Deltas in a base have the effect `covered`: their payloads may be gone.
        """
        snapshot = self._look()
        found = self._past.chain(snapshot, (namespace, vector_id))
        if found is None:
            raise self.unknown(namespace, vector_id)
        return found

    def namespaces_of(self, vector_id: str) -> list[str]:
        """The namespaces that have a vector of this name; looks into every file of `deltas`."""
        return self._scan.namespaces_of(paths_of(self._look().deltas.files), vector_id)

    def unfolded(self, namespace: str, snapshot: Snapshot, known: Iterable[str]) -> dict[str, Vector | None]:
        """The vectors that are not up to date in `vectors` at a snapshot: id → state, or None if it has no delta.

        Those are the vectors with newer deltas; and in buckets whose rows cannot be relied on, all that have deltas,
        and all of `known`, the ones that the caller knows: they may be gone.
        """
        reached = {bucket: snapshot.reach(bucket) for bucket in range(BUCKETS)}
        names = set[str]()
        if None in reached.values():
            names = {name for name in known if reached[bucket_of(namespace, name)] is None}
        for version in set(reached.values()):
            if new_files := NewFiles(snapshot.deltas.files, {}) if version is None else snapshot.new_files(version):
                new = (name for space, name in self._new_deltas.keys_of(version, new_files) if space == namespace)
                names.update(name for name in new if reached[bucket_of(namespace, name)] == version)
        found = self._current(snapshot, [(namespace, name) for name in sorted(names)])
        return {name: found.get((namespace, name)) for name in names}

    @property
    def snapshot(self) -> Snapshot:
        """The tables as they are now; the same object as long as nothing has changed."""
        return self._look()

    @property
    def epochs(self) -> dict[int, int]:
        """Shard → last epoch in the answers: the one in `deltas` now."""
        return self._look().epochs

    @property
    def held_bytes(self) -> int:
        """How much memory the cache takes."""
        return self._cache.bytes

    def close(self) -> None:
        """Store the counts of reads. The handle may be used again."""
        if self._counts_reads and self._reads:
            append_reads(self._home.root, self._reads, self._clock())
        self._reads = Counter()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _look(self) -> Snapshot:
        """The tables as they are now."""
        snapshot = Snapshot.take(self._home, self._snapshot)
        if snapshot is not self._snapshot:
            self._snapshot = snapshot
            self._cache.keep_only({file.path for file in snapshot.vectors.files})
        return snapshot

    def unknown(self, namespace: str | None, vector_id: str) -> UnknownVectorError:
        """The error for an unknown vector, with a suggestion."""
        files = paths_of(self._look().deltas.files)
        if others := self._scan.namespaces_of(files, vector_id):
            return UnknownVectorError(namespace, vector_id, f"There is one in {', '.join(others)}.")
        near = self._scan.nearest_name(files, vector_id)
        hint = f"Did you mean {near[1]!r} in {near[0]}?" if near else "Is the name right, and is it drained?"
        return UnknownVectorError(namespace, vector_id, hint)

    # Current states.

    def _current(self, snapshot: Snapshot, keys: Sequence[Key]) -> dict[Key, Vector]:
        found, by_version, left = dict[Key, Vector](), dict[int, list[Key]](), list[Key]()
        for bucket, wanted in by_bucket(keys).items():
            version = snapshot.reach(bucket)
            new_files = snapshot.new_files(version) if version is not None else None
            if version is None or new_files is None:
                left += wanted
                continue
            with_new = self._new_deltas.files_of(version, new_files, wanted)
            by_version.setdefault(version, []).extend(with_new)
            unchanged = [key for key in wanted if key not in with_new]
            for file in (file for file in snapshot.vectors.files if file.partition == bucket):
                found |= self._cache.get(file.path).find(unchanged, snapshot.versions)
            # A vector without a row may still have deltas that wait for a parent.
            left += [key for key in unchanged if key not in found]
        for version, wanted in by_version.items():
            if wanted and (new_files := snapshot.new_files(version)):
                found |= self._fold_on(
                    snapshot, wanted, new_files, self._new_deltas.files_of(version, new_files, wanted)
                )
                left += [key for key in wanted if key not in found]
        return found | self._past.read(snapshot, left, NOW)

    def _fold_on(
        self, snapshot: Snapshot, keys: Sequence[Key], new_files: NewFiles, files: dict[Key, list[str]]
    ) -> dict[Key, Vector]:
        """Vectors whose new deltas simply go on from their rows: none names a parent, and all sort after them."""
        rows = split(self._scan.current(of_buckets(snapshot.vectors.files, keys), keys))
        paths = sorted({path for each in files.values() for path in each})
        new = split(self._scan.deltas(paths, keys, has_payload=True, covered=new_files.covered))
        starts, added = dict[Key, Start](), list[pa.Table]()
        for key, row in rows.items():
            if row["has_parents"][0].as_py() or row["parked"][0].as_py() or key not in new:
                continue
            placed_alone = _placed_alone(new[key])
            (start,) = starts_of(row, Source.VECTORS) or (None,)
            if start and placed_alone is not None and _first_place(placed_alone) > start.place:
                starts[key] = start
                added.append(placed_alone)
        if not starts:
            return {}
        states = split(_folded([start.state for start in starts.values()], added))
        return {
            key: vector_of(
                key,
                states[key],
                0,
                0,
                read_from_of(start, states[key]["deltas"][0].as_py() - start.deltas, len(files[key])),
                snapshot.versions,
            )
            for key, start in starts.items()
        }


def _placed_alone(deltas: pa.Table) -> pa.Table | None:
    """Deltas with places, in order, if none of them names a parent."""
    if deltas["parent_id"].null_count < deltas.num_rows:
        return None
    return placed(deltas).ordered


def _first_place(ordered: pa.Table) -> tuple[Any, ...]:
    return tuple(ordered[name][0].as_py() for name in PLACE_COLUMNS)


def _folded(states: Sequence[pa.Table], deltas: Sequence[pa.Table]) -> pa.Table:
    """The states of many vectors after their deltas, in one fold."""
    starts = [starting_states(batch) for state in states for batch in state.to_batches()]
    rows = [pa.Table.from_batches(starts, FOLD_INPUT)]
    for table in deltas:
        there = table.schema.names
        columns = [
            table[field.name] if field.name in there else pa.nulls(len(table), field.type) for field in FOLD_INPUT
        ]
        rows.append(pa.Table.from_arrays(columns, schema=FOLD_INPUT))
    order = [(name, "ascending") for name in ("namespace", "vector_id", *PLACE_COLUMNS)]
    ordered = pa.concat_tables(rows).sort_by(order)
    return pa.Table.from_batches(fold_batches(emit_last(ordered.to_batches())), STATES)
