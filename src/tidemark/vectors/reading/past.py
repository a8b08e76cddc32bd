"""States that are folded from a vector's deltas: what was, and what is not in `vectors` as it has to be (K6).

Belongs here: which files are read for it, from which state the fold goes on, and the answer. What may be relied on is
decided in `history.py`.
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


class Asked(NamedTuple):
    """Up to where: both none means now."""

    as_of_us: int | None = None
    epoch: int | None = None

    def limit(self, deltas: pa.Table) -> pa.Table:
        """The deltas that can matter: what happened later takes effect later, and so does everything below it."""
        if self.as_of_us is not None:
            deltas = deltas.filter(pc.less_equal(deltas["event_us"], self.as_of_us))
        if self.epoch is not None:
            deltas = deltas.filter(pc.less_equal(deltas["epoch"], self.epoch))
        return deltas

    def may_matter(self, file: FileOf) -> bool:
        """Whether a file of `deltas` can hold some of those."""
        return self.as_of_us is None or file.partition <= self.as_of_us


NOW = Asked()


class _Known(NamedTuple):
    """What the tables have of a vector besides its deltas."""

    starts: list[Start]
    base: Start | None
    row: Start | None  # of `vectors`, if it may be relied on
    has_no_parents: bool  # of the deltas that `vectors` knows


class _Line(NamedTuple):
    """A vector's deltas, as far as they were read, and the state that they go on from."""

    deltas: pa.Table
    places: Deltas
    start: Start | None
    files: int


class Past:
    """Folds the deltas of vectors, from the newest state that holds."""

    def __init__(self, scan: Scan, fresh: NewDeltas) -> None:
        self._scan, self._fresh = scan, fresh

    def chain(self, moment: Snapshot, key: Key) -> pa.Table | None:
        """All deltas of a vector with what became of them; none if there are none."""
        known = self._known(moment, [key], NOW)[key]
        base = [known.base] if known.base else []
        line = self._whole_lines(moment, {key: known._replace(starts=base)}, NOW).get(key)
        return chain(line.deltas, line.start.state if line.start else None) if line else None

    def read(self, moment: Snapshot, keys: Sequence[Key], asked: Asked) -> dict[Key, Vector]:
        """Their states; those that no delta is known of are left out."""
        if not keys:
            return {}
        known = self._known(moment, keys, asked)
        lines = self._short_lines(moment, known, asked)
        lines |= self._whole_lines(moment, {key: known[key] for key in keys if key not in lines}, asked)
        return {key: self._answer(moment, key, line, asked) for key, line in lines.items()}

    def _answer(self, moment: Snapshot, key: Key, line: _Line, asked: Asked) -> Vector:
        start, state = line.start, line.start.state if line.start else None
        found = state_of(line.deltas, state, asked.as_of_us, asked.epoch)
        folded = found["deltas"][0].as_py() - (start.deltas if start else 0) if found.num_rows else 0
        read_from = read_from_of(start, folded, line.files)
        return vector_of(key, found, line.places.parked, line.places.cycles, read_from, moment.versions)

    def _known(self, moment: Snapshot, keys: Sequence[Key], asked: Asked) -> dict[Key, _Known]:
        checkpoints = split(self._scan.checkpoints(of_buckets(moment.checkpoints.files, keys), keys))
        reached = [key for key in keys if moment.reach(bucket_of(*key)) is not None]
        rows = split(self._scan.current(of_buckets(moment.vectors.files, reached), reached))
        found = {}
        for key in keys:
            starts, base, row, has_no_parents = list[Start](), None, None, False
            if key in checkpoints:
                base = refuse_before_horizon(checkpoints[key], asked.as_of_us, asked.epoch)
                starts = starts_of(checkpoints[key], Source.CHECKPOINT)
                starts = [start for start in starts if base is None or start.place >= base.place]
            if key in rows:
                has_no_parents = not rows[key]["has_parents"][0].as_py() and not rows[key]["parked"][0].as_py()
                (row,) = starts_of(rows[key], Source.VECTORS) or (None,)
                starts += [row] if row else []
            starts = [start for start in starts if start.is_within(*asked)]
            found[key] = _Known(starts, base, row, has_no_parents)
        return found

    def _short_lines(self, moment: Snapshot, known: dict[Key, _Known], asked: Asked) -> dict[Key, _Line]:
        """Lines from the newest state on, of vectors that have no parents: older hours hold nothing that matters."""
        newest = {
            key: max(each.starts, key=lambda start: start.place)
            for key, each in known.items()
            if each.has_no_parents and each.starts
        }
        files = {key: self._files_after(moment, key, start, asked) for key, start in newest.items()}
        paths = sorted({path for each in files.values() for path in each})
        rows = split(self._scan.deltas(paths, list(newest), has_payload=True))
        lines = {}
        for key, start in newest.items():
            deltas = asked.limit(rows.get(key, ENVELOPES.empty_table()))
            if deltas["parent_id"].null_count < deltas.num_rows:
                continue
            places = placed(deltas)
            if newest_usable(places, [start], is_whole=False):
                lines[key] = _Line(deltas, places, start, len(files[key]))
        return lines

    def _files_after(self, moment: Snapshot, key: Key, start: Start, asked: Asked) -> list[str]:
        """Files that may hold deltas of a vector without parents that a state does not."""
        version = moment.reach(bucket_of(*key))
        news = moment.news(version) if version is not None else None
        if version is None or news is None:
            return paths_of(moment.deltas.files)
        fresh = set(self._fresh.files_of(version, news, [key]).get(key, ()))
        hour = floor_to(start.place.eff_us, HOUR_US)
        return [
            file.path
            for file in moment.deltas.files
            if asked.may_matter(file)
            and (
                file.path in fresh
                or (
                    start.source is not Source.VECTORS and (file.partition >= hour or file.may_exceed(start.last_epoch))
                )
            )
        ]

    def _whole_lines(self, moment: Snapshot, known: dict[Key, _Known], asked: Asked) -> dict[Key, _Line]:
        """Lines from envelopes of all hours; payloads are read of those files alone in which one is folded."""
        paths = [file.path for file in moment.deltas.files if asked.may_matter(file)]
        whole = split(self._scan.deltas(paths, list(known), has_payload=False))
        starts, places, wanted = dict[Key, Start | None](), dict[Key, Deltas](), dict[Key, set[str]]()
        # One of which nothing had happened by then is not unknown, if something did later.
        later = [key for key in known if key not in whole]
        if asked != NOW and later:
            everything = split(self._scan.deltas(paths_of(moment.deltas.files), later, has_payload=False))
            whole |= {key: each.slice(0, 0) for key, each in everything.items()}
        for key, envelopes in whole.items():
            whole[key] = asked.limit(envelopes)
            places[key] = placed(whole[key])
            starts[key] = newest_usable(places[key], known[key].starts, is_whole=True)
            if starts[key] is None and known[key].base is not None:
                raise UnreadableVectorError(key[1])
            after = places[key].ordered.slice(covered_by(places[key], starts[key]))
            wanted[key] = set(after["file"].to_pylist())
        files = sorted({path for each in wanted.values() for path in each})
        payloads = split(self._scan.deltas(files, [key for key in wanted if wanted[key]], has_payload=True))
        lines = {}
        for key, envelopes in whole.items():
            deltas = envelopes
            if key in payloads:
                rest = envelopes.filter(pc.invert(pc.is_in(envelopes["file"], pa.array(files))))
                deltas = pa.concat_tables([rest, asked.limit(payloads[key])], promote_options="default")
            lines[key] = _Line(deltas, places[key], starts[key], len(paths))
        return lines


def by_bucket(keys: Iterable[Key]) -> dict[int, list[Key]]:
    """The vectors of each bucket."""
    found: dict[int, list[Key]] = {}
    for key in keys:
        found.setdefault(bucket_of(*key), []).append(key)
    return found


def of_buckets(files: Iterable[FileOf], keys: Iterable[Key]) -> list[str]:
    """The files of the buckets that hold these vectors."""
    buckets = set(by_bucket(keys))
    return [file.path for file in files if file.partition in buckets]


def paths_of(files: Iterable[FileOf]) -> list[str]:
    """Their paths."""
    return [file.path for file in files]


def read_from_of(start: Start | None, folded: int, files: int) -> ReadFrom:
    """What is said of a state that deltas were folded onto."""
    if start is None:
        return ReadFrom(Source.NOTHING, folded=folded, files=files)
    return ReadFrom(start.source, start.deltas, folded, files, start.place, start.strategy, start.is_base)
