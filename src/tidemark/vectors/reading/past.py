"""States that are folded from a vector's deltas: past ones, and those that `vectors` does not have up to date (K6).

Belongs here: which files are read for it, from which state the fold goes on, and the answer. `history.py` decides which
states can be relied on.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from tidemark.model.timegrid import HOUR_US, floor_to
from tidemark.vectors.chain import chain, state_of
from tidemark.vectors.errors import UnreadableVectorError
from tidemark.vectors.reading.answers import Key, ReadFrom, Source, Vector, vector_of
from tidemark.vectors.reading.history import (
    Deltas,
    Start,
    covered_by,
    newest_usable,
    placed,
    refuse_before_horizon,
    starts_of,
)
from tidemark.vectors.reading.new_deltas import NewDeltas
from tidemark.vectors.reading.scan import ENVELOPES, Scan, split
from tidemark.vectors.reading.snapshot import FileOf, Snapshot
from tidemark.vectors.tables import bucket_of


class Requested(NamedTuple):
    """The requested time and epoch; both None means now."""

    as_of_us: int | None = None
    epoch: int | None = None

    def limit(self, deltas: pa.Table) -> pa.Table:
        """The deltas that can matter: one that happened later takes effect later, and so do its descendants."""
        if self.as_of_us is not None:
            deltas = deltas.filter(pc.less_equal(deltas["event_us"], self.as_of_us))
        if self.epoch is not None:
            deltas = deltas.filter(pc.less_equal(deltas["epoch"], self.epoch))
        return deltas

    def may_matter(self, file: FileOf) -> bool:
        """Whether a file of `deltas` can contain some of those."""
        return self.as_of_us is None or file.partition <= self.as_of_us


NOW = Requested()


class _Known(NamedTuple):
    """The facts in the tables about a vector, besides its deltas."""

    starts: list[Start]
    base: Start | None
    has_no_parents: bool  # of the deltas folded into `vectors`


class _History(NamedTuple):
    """The deltas of a vector that were read, and the state from which they go on."""

    deltas: pa.Table
    places: Deltas
    start: Start | None
    files: int


class Past:
    """Folds the deltas of vectors, from the newest valid state."""

    def __init__(self, scan: Scan, new_deltas: NewDeltas) -> None:
        self._scan, self._new_deltas = scan, new_deltas

    def chain(self, snapshot: Snapshot, key: Key) -> pa.Table | None:
        """All deltas of a vector with their effects; None if there are none."""
        known = self._known(snapshot, [key], NOW)[key]
        base = [known.base] if known.base else []
        history = self._whole_histories(snapshot, {key: known._replace(starts=base)}, NOW).get(key)
        return chain(history.deltas, history.start.state if history.start else None) if history else None

    def read(self, snapshot: Snapshot, keys: Sequence[Key], requested: Requested) -> dict[Key, Vector]:
        """Their states; vectors without any delta are left out."""
        if not keys:
            return {}
        known = self._known(snapshot, keys, requested)
        histories = self._short_histories(snapshot, known, requested)
        histories |= self._whole_histories(
            snapshot, {key: known[key] for key in keys if key not in histories}, requested
        )
        return {key: self._answer(snapshot, key, history, requested) for key, history in histories.items()}

    def _answer(self, snapshot: Snapshot, key: Key, history: _History, requested: Requested) -> Vector:
        start, state = history.start, history.start.state if history.start else None
        found = state_of(history.deltas, state, requested.as_of_us, requested.epoch)
        folded = found["deltas"][0].as_py() - (start.deltas if start else 0) if found.num_rows else 0
        read_from = read_from_of(start, folded, history.files)
        return vector_of(key, found, history.places.parked, history.places.cycles, read_from, snapshot.versions)

    def _known(self, snapshot: Snapshot, keys: Sequence[Key], requested: Requested) -> dict[Key, _Known]:
        checkpoints = split(self._scan.checkpoints(of_buckets(snapshot.checkpoints.files, keys), keys))
        reached = [key for key in keys if snapshot.reach(bucket_of(*key)) is not None]
        rows = split(self._scan.current(of_buckets(snapshot.vectors.files, reached), reached))
        found = {}
        for key in keys:
            starts, base, has_no_parents = list[Start](), None, False
            if key in checkpoints:
                base = refuse_before_horizon(checkpoints[key], requested.as_of_us, requested.epoch)
                starts = starts_of(checkpoints[key], Source.CHECKPOINT)
                starts = [start for start in starts if base is None or start.place >= base.place]
            if key in rows:
                has_no_parents = not rows[key]["has_parents"][0].as_py() and not rows[key]["parked"][0].as_py()
                (row,) = starts_of(rows[key], Source.VECTORS) or (None,)
                starts += [row] if row else []
            starts = [start for start in starts if start.is_within(*requested)]
            found[key] = _Known(starts, base, has_no_parents)
        return found

    def _short_histories(
        self, snapshot: Snapshot, known: dict[Key, _Known], requested: Requested
    ) -> dict[Key, _History]:
        """Histories from the newest state on, of vectors without parents: older hours have nothing that matters."""
        newest = {
            key: max(each.starts, key=lambda start: start.place)
            for key, each in known.items()
            if each.has_no_parents and each.starts
        }
        files = {key: self._files_after(snapshot, key, start, requested) for key, start in newest.items()}
        paths = sorted({path for each in files.values() for path in each})
        rows = split(self._scan.deltas(paths, list(newest), has_payload=True))
        histories = {}
        for key, start in newest.items():
            deltas = requested.limit(rows.get(key, ENVELOPES.empty_table()))
            if deltas["parent_id"].null_count < deltas.num_rows:
                continue
            places = placed(deltas)
            if newest_usable(places, [start], is_whole=False):
                histories[key] = _History(deltas, places, start, len(files[key]))
        return histories

    def _files_after(self, snapshot: Snapshot, key: Key, start: Start, requested: Requested) -> list[str]:
        """Files that may have deltas of a vector without parents that are not in a state."""
        version = snapshot.reach(bucket_of(*key))
        new_files = snapshot.new_files(version) if version is not None else None
        if version is None or new_files is None:
            return paths_of(snapshot.deltas.files)
        with_new = set(self._new_deltas.files_of(version, new_files, [key]).get(key, ()))
        hour = floor_to(start.place.eff_us, HOUR_US)
        return [
            file.path
            for file in snapshot.deltas.files
            if requested.may_matter(file)
            and (
                file.path in with_new
                or (
                    start.source is not Source.VECTORS and (file.partition >= hour or file.may_exceed(start.last_epoch))
                )
            )
        ]

    def _whole_histories(
        self, snapshot: Snapshot, known: dict[Key, _Known], requested: Requested
    ) -> dict[Key, _History]:
        """Histories from envelopes of all hours; payloads are read only from files with a delta to fold."""
        paths = [file.path for file in snapshot.deltas.files if requested.may_matter(file)]
        whole = split(self._scan.deltas(paths, list(known), has_payload=False))
        starts, places, wanted = dict[Key, Start | None](), dict[Key, Deltas](), dict[Key, set[str]]()
        # A vector without deltas by then is not unknown, if it has later ones.
        later = [key for key in known if key not in whole]
        if requested != NOW and later:
            everything = split(self._scan.deltas(paths_of(snapshot.deltas.files), later, has_payload=False))
            whole |= {key: each.slice(0, 0) for key, each in everything.items()}
        for key, envelopes in whole.items():
            whole[key] = requested.limit(envelopes)
            places[key] = placed(whole[key])
            starts[key] = newest_usable(places[key], known[key].starts, is_whole=True)
            if starts[key] is None and known[key].base is not None:
                raise UnreadableVectorError(key[1])
            after = places[key].ordered.slice(covered_by(places[key], starts[key]))
            wanted[key] = set(after["file"].to_pylist())
        files = sorted({path for each in wanted.values() for path in each})
        payloads = split(self._scan.deltas(files, [key for key in wanted if wanted[key]], has_payload=True))
        histories = {}
        for key, envelopes in whole.items():
            deltas = envelopes
            if key in payloads:
                rest = envelopes.filter(pc.invert(pc.is_in(envelopes["file"], pa.array(files))))
                deltas = pa.concat_tables([rest, requested.limit(payloads[key])], promote_options="default")
            histories[key] = _History(deltas, places[key], starts[key], len(paths))
        return histories


def by_bucket(keys: Iterable[Key]) -> dict[int, list[Key]]:
    """The vectors of each bucket."""
    found: dict[int, list[Key]] = {}
    for key in keys:
        found.setdefault(bucket_of(*key), []).append(key)
    return found


def of_buckets(files: Iterable[FileOf], keys: Iterable[Key]) -> list[str]:
    """The files of the buckets of these vectors."""
    buckets = set(by_bucket(keys))
    return [file.path for file in files if file.partition in buckets]


def paths_of(files: Iterable[FileOf]) -> list[str]:
    """Their paths."""
    return [file.path for file in files]


def read_from_of(start: Start | None, folded: int, files: int) -> ReadFrom:
    """What a state was read from, when deltas were folded onto a start."""
    if start is None:
        return ReadFrom(Source.NOTHING, folded=folded, files=files)
    return ReadFrom(start.source, start.deltas, folded, files, start.place, start.strategy, start.is_base)
