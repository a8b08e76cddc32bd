"""The counting tables at one time: which partitions there are, and which of them are up to date (R1).

Belongs here: opening the tables in the right order, and telling whether a bucket still is the sum of the finer table or
is behind. Does not belong here: which buckets a question needs (`windows.py`), and their rows (`lake.py`).

Tables are opened from the coarsest to the finest, `deltas` last. A change in between makes a coarser bucket look older
than the finer ones, never younger, so an answer is as of one version: that of `deltas`.
"""

from bisect import bisect_left
from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow as pa

from tidemark.counts.retention import settled
from tidemark.counts.windows import Span
from tidemark.model.timegrid import HOUR, Grain
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.behind import find_behind
from tidemark.tables.lineage import NOBODY_KNOWS, Made
from tidemark.tables.table_snapshot import TableSnapshot
from tidemark.tables.tiers import DELTAS, TRAILING, Tier


class Bounds(NamedTuple):
    """The bounds of a column's values in a file, from the table's log; None where it has none."""

    least: str | None
    greatest: str | None

    def may_hold(self, value: str) -> bool:
        """Whether the value can be in the file. A shortened bound is still a bound."""
        return (self.least is None or self.least <= value) and (self.greatest is None or value <= self.greatest)


class FileOf(NamedTuple):
    """A file of a partition."""

    path: str
    namespaces: Bounds
    entities: Bounds


class _Files(Mapping[int, list[FileOf]]):
    """The files of a table by partition. Names are built on demand: there are many files, and few are needed."""

    def __init__(self, path: Path, actions: pa.Table) -> None:
        self._path, self._actions = path.absolute(), actions
        self._places: dict[int, list[int]] = {}
        column = next(name for name in actions.schema.names if name.startswith("partition."))
        for place, start in enumerate(_starts(actions.column(column))):
            self._places.setdefault(start, []).append(place)

    def __iter__(self) -> Iterator[int]:
        return iter(sorted(self._places))

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, start_us: int) -> list[FileOf]:
        return [self._file(place) for place in self._places[start_us]]

    def _file(self, place: int) -> FileOf:
        path = str(self._path / unquote(str(self._value("path", place))))
        return FileOf(path, *(self._bounds(name, place) for name in ("namespace", "entity_id")))

    def _bounds(self, name: str, place: int) -> Bounds:
        return Bounds(self._value(f"min.{name}", place), self._value(f"max.{name}", place))

    def _value(self, name: str, place: int) -> Any:
        return self._actions.column(name)[place].as_py() if name in self._actions.schema.names else None


class CountTable(TableSnapshot):
    """One of the tables for counts."""

    @cached_property
    def files(self) -> Mapping[int, list[FileOf]]:
        """The files of each partition, by its start, in order."""
        return _Files(self.path, pa.table(self.opened.get_add_actions(flatten=True))) if self.opened else {}

    @cached_property
    def starts(self) -> list[int]:
        """Partitions that have files, in order."""
        return list(self.files)

    def starts_in(self, span: Span, grain: Grain) -> list[int]:
        """Those of them that overlap a span."""
        first = 0 if span.start_us is None else bisect_left(self.starts, grain.floor(span.start_us))
        return self.starts[first : bisect_left(self.starts, span.end_us)]

    @property
    def known(self) -> set[int]:
        """Partitions that were ever changed or made; if that is not known of all, those with files too."""
        return {*self.lineage.partitions, *(() if self.lineage.is_whole else self.starts)}

    def made(self, start_us: int) -> Made | None:
        """How a partition was made, if that is known."""
        return self.lineage.partitions.get(start_us)


class Tables:
    """All tables that counts are answered from, at one moment; more tiers if they are asked for."""

    def __init__(
        self,
        home: Home,
        gone_before: dict[Tier, int] | None = None,
        *,
        dropped_before: dict[Tier, int] | None = None,
        tiers: Collection[Tier] = TRAILING,
    ) -> None:
        self.tiers = {tier: CountTable(home, tier.table) for tier in reversed(Tier) if tier in tiers}
        self.deltas = CountTable(home, DELTAS)
        self._gone_before, self._dropped_before = gone_before or {}, dropped_before or {}

    @property
    def versions(self) -> dict[str, int]:
        """Table → version, of those that exist."""
        tables = (*self.tiers.values(), self.deltas)
        return {table.name: table.version for table in tables if table.version is not None}

    def is_gone(self, tier: Tier, start_us: int) -> bool:
        """Whether a bucket of that tier was dropped on purpose (R5)."""
        cut_us = self._gone_before.get(tier)
        return cut_us is not None and start_us < cut_us

    def up_to_date(self, tier: Tier, span: Span) -> Iterator[tuple[Tier | None, Span]]:
        """The buckets of a span, and where some are behind, the finer ones to read in their place; None is `deltas`."""
        yield tier, span
        finer = tier.made_from
        for start in sorted(self.behind[tier]):
            end = tier.partition_grain.next(start)
            if (span.start_us is not None and end <= span.start_us) or start >= span.end_us:
                continue
            part = Span(start if span.start_us is None else max(start, span.start_us), min(end, span.end_us))
            if finer is None or self.is_gone(finer, start):
                yield None, part
            else:
                yield from self.up_to_date(finer, part)

    @cached_property
    def behind(self) -> dict[Tier, frozenset[int]]:
        """Partitions of each tier that are not, or not known to be, the sum of the deltas that are there now."""
        hours, found = self.deltas.known | self.tiers[Tier.MINUTE].known, dict[Tier, frozenset[int]]()
        for tier in (each for each in Tier if each in self.tiers):
            finer = tier.made_from
            below, behind = (self.deltas, frozenset[int]()) if finer is None else (self.tiers[finer], found[finer])
            found[tier] = self._behind(tier, self.tiers[tier], below, behind, hours)
        return found

    def _behind(
        self, tier: Tier, own: CountTable, below: CountTable, below_behind: frozenset[int], hours: set[int]
    ) -> frozenset[int]:
        """Partitions of a table that are not, or not known to be, the sum of what lies in the table below it."""
        # For hours over hours every partition is its own.
        floor = (lambda start: start) if tier.partition_grain is HOUR else tier.partition_grain.floor
        changed: dict[int, int] = {}
        for start, made in below.lineage.partitions.items():
            key = floor(start)
            changed[key] = max(made.changed, changed.get(key, -1))
        if not below.lineage.is_whole:
            changed |= {floor(start): NOBODY_KNOWS for start in below.starts if start not in below.lineage.partitions}
        touched = {floor(start) for start in below_behind}
        settled_us = settled(tier, self._gone_before, self._dropped_before) if tier.made_from else None
        known = own.known.union(changed, touched, map(floor, hours))
        return frozenset(
            start
            for start in known
            if not self.is_gone(tier, start)
            and (
                self._is_unreliable(tier, start, own)
                if settled_us is not None and start < settled_us
                else start in touched
                or find_behind(own.made(start), changed=changed.get(start, -1), generation=below.generation)
            )
        )

    def _is_unreliable(self, tier: Tier, start: int, own: CountTable) -> bool:
        """Whether a bucket above dropped ones was never made, or was changed by another program.

        Otherwise it was final before the finer buckets were dropped, and no event is accepted that could change it.
        """
        made = own.made(start)
        whole = Span(start, tier.partition_grain.next(start))
        return made.source < 0 if made else bool(self.deltas.starts_in(whole, HOUR))


def _starts(column: pa.ChunkedArray) -> list[int]:
    """Starts of partitions in microseconds, from their values in the table's log."""
    if pa.types.is_timestamp(column.type):
        starts: list[int] = column.cast(pa.timestamp("us", column.type.tz)).cast(pa.int64()).to_pylist()
        return starts
    return [lake_files.partition_start(value) for value in column.to_pylist()]
