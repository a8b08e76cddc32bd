"""The counting tables at one moment: which partitions there are, and which of them may be relied on (R1).

Belongs here: opening the tables in the right order, and telling a sum that still is the sum of what lies below it from
one that is behind. Does not belong here: which buckets a question needs (`windows.py`), and their rows (`lake.py`).

Tables are opened from the coarsest to the finest, `deltas` last. What changes in between makes a coarser bucket look
older than what lies below it, never younger, so an answer is of one moment: that of `deltas`.
"""

from collections.abc import Iterable
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote

from deltalake import DeltaTable

from resources import lake_files
from resources.counters.windows import Tier
from resources.home import Home
from resources.lineage import LineageFile
from resources.provenance import Made, Provenance, ProvenanceFile, follow
from resources.timegrid import HOUR_US

DELTAS = "deltas"
TABLES = {
    Tier.WEEK: "weekly_counts",
    Tier.DAY: "daily_counts",
    Tier.HOUR: "hourly_counts",
    Tier.MINUTE: "minute_counts",
}
# A partition of each table; minutes are rows of the partition of their hour.
PARTITION = {Tier.WEEK: Tier.WEEK, Tier.DAY: Tier.DAY, Tier.HOUR: Tier.HOUR, Tier.MINUTE: Tier.HOUR}
FINER = {Tier.WEEK: Tier.DAY, Tier.DAY: Tier.HOUR, Tier.HOUR: Tier.MINUTE}


class Bounds(NamedTuple):
    """What the table's log says of a column's values in a file; none where it says nothing."""

    least: str | None
    greatest: str | None

    def may_hold(self, value: str) -> bool:
        """Whether the value can be in the file. A bound that was shortened is still one."""
        return (self.least is None or self.least <= value) and (self.greatest is None or value <= self.greatest)


class FileOf(NamedTuple):
    """A file of a partition."""

    path: str
    namespaces: Bounds
    entities: Bounds


class TableMoment:
    """One table at one version."""

    def __init__(self, home: Home, name: str) -> None:
        self.name, self._path = name, home.lake / name
        # The memory first: it is written after the commit that it tells of, so it is never ahead of the table.
        remembered = ProvenanceFile(home.plans, name).read()
        self.lineage = LineageFile(home.plans, name).read().lineage
        self.opened: DeltaTable | None = lake_files.open_table(self._path)
        self.version = self.opened.version() if self.opened else None
        self.provenance = (
            follow(
                remembered, self._path, name, lake_files.TableState(str(self.opened.metadata().id), self.version or 0)
            )
            if self.opened
            else Provenance()
        )

    @cached_property
    def files(self) -> dict[int, list[FileOf]]:
        """The files of each partition, by its start."""
        found: dict[int, list[FileOf]] = {}
        if self.opened is None:
            return found
        actions = self.opened.get_add_actions(flatten=True)
        names = actions.schema.names
        partition = next(name for name in names if name.startswith("partition."))

        def column(name: str) -> list[Any]:
            return list(actions.column(name).to_pylist()) if name in names else [None] * actions.num_rows

        bounds = [
            [Bounds(*pair) for pair in zip(column(f"min.{name}"), column(f"max.{name}"), strict=True)]
            for name in ("namespace", "entity_id")
        ]
        for file, start, *of in zip(column("path"), column(partition), *bounds, strict=True):
            path = str(self._path.absolute() / unquote(file))
            found.setdefault(lake_files.partition_start(start), []).append(FileOf(path, *of))
        return found

    def made(self, start_us: int) -> Made | None:
        """What is known of how a partition was made."""
        return self.provenance.partitions.get(start_us)


class Tables:
    """All tables that counts are answered from, at one moment."""

    def __init__(self, home: Home, gone_before: dict[Tier, int] | None = None) -> None:
        self.tiers = {tier: TableMoment(home, TABLES[tier]) for tier in (Tier.WEEK, Tier.DAY, Tier.HOUR, Tier.MINUTE)}
        self.deltas = TableMoment(home, DELTAS)
        self._gone_before = gone_before or {}

    @property
    def versions(self) -> dict[str, int]:
        """Table → version, of those that exist."""
        moments = (*self.tiers.values(), self.deltas)
        return {moment.name: moment.version for moment in moments if moment.version is not None}

    def is_gone(self, tier: Tier, start_us: int) -> bool:
        """Whether a bucket of that tier was dropped on purpose (R5)."""
        cut_us = self._gone_before.get(tier)
        return cut_us is not None and start_us < cut_us

    @cached_property
    def behind(self) -> dict[Tier, frozenset[int]]:
        """Partitions of each tier that are not, or not known to be, the sum of the deltas that are there now."""
        minutes, deltas = self.tiers[Tier.MINUTE], self.deltas
        hours = {*deltas.provenance.partitions, *minutes.provenance.partitions, *deltas.files}
        found = {
            Tier.MINUTE: frozenset(
                hour
                for hour in hours
                if not self.is_gone(Tier.MINUTE, hour) and not _is_made_from(minutes, hour, deltas, [hour])
            )
        }
        for tier in (Tier.HOUR, Tier.DAY, Tier.WEEK):
            found[tier] = self._behind(tier, found[FINER[tier]], hours)
        return found

    def _behind(self, tier: Tier, finer_behind: frozenset[int], hours: Iterable[int]) -> frozenset[int]:
        own, finer = self.tiers[tier], self.tiers[FINER[tier]]
        inputs: dict[int, set[int]] = {}
        for start in {*finer.provenance.partitions, *finer_behind}:
            inputs.setdefault(tier.floor(start), set()).add(start)
        known = {*inputs, *own.provenance.partitions, *own.files, *map(tier.floor, hours)}
        return frozenset(
            start
            for start in known
            if not self.is_gone(tier, start) and self._is_behind(tier, start, own, finer, finer_behind, inputs)
        )

    def _is_behind(
        self,
        tier: Tier,
        start: int,
        own: TableMoment,
        finer: TableMoment,
        finer_behind: frozenset[int],
        inputs: dict[int, set[int]],
    ) -> bool:
        below = inputs.get(start, set())
        if self.is_gone(FINER[tier], start):
            # Settled before what lay below it was dropped, and no event is taken that could change it. Only one that
            # was never made, or that somebody has changed, is not to be relied on.
            made = own.made(start)
            return made.source < 0 if made else self._has_deltas(tier, start)
        return not finer_behind.isdisjoint(below) or not _is_made_from(own, start, finer, below)

    def _has_deltas(self, tier: Tier, start: int) -> bool:
        return any(hour in self.deltas.files for hour in range(start, start + tier.width_us, HOUR_US))


def _is_made_from(own: TableMoment, start: int, finer: TableMoment, below: Iterable[int]) -> bool:
    """Whether a partition was made from what lies below it now."""
    changed = max((finer.provenance.changed(each) for each in below), default=-1)
    made = own.made(start)
    if made is None:
        return changed < 0  # nothing was ever there to be summed up
    if made.source < 0:
        return changed < 0 and made.changed < 0
    return made.lineage == finer.lineage and made.source >= changed
