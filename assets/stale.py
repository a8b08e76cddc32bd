"""Which partitions of the derived tables are behind their inputs, and why.

Belongs here: comparing records with records, with the tables and with the log, along the graph; what to do about it is
the caller's. No Spark.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assets.graph import By, Derived, Need
from assets.ingest.log import Log
from assets.ingest.schema import DELTAS
from assets.tables import GRAPH
from resources import lake_files
from resources.coordinator.manifest import Entry
from resources.home import Home
from resources.lake import TableSpec
from resources.lineage import Lineage, LineageFile, find_break
from resources.plans import durable_epochs
from resources.record import Record
from resources.timegrid import HOUR_US, hour_start

if TYPE_CHECKING:
    from dagster import DagsterInstance


@dataclass
class _Found:
    """What is known so far, for each table: its records, the partitions that it has or should have, what is stale."""

    instance: "DagsterInstance"
    home: Home
    seen: dict[int, Record | None] | None
    records: dict[str, dict[str, Record]] = field(default_factory=dict)
    present: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    stale: dict[str, dict[str, str]] = field(default_factory=dict)
    lineages: dict[str, int] = field(default_factory=dict)
    _committed: list[Entry] | None = None

    def read(self, spec: TableSpec) -> dict[str, Record]:
        """The records of a table, read once."""
        if spec.name not in self.records:
            self.records[spec.name] = Record.latest_by_partition(self.instance, spec.name, seen=self.seen)
            self.lineages[spec.name] = _present(self.home, spec)
        return self.records[spec.name]

    @property
    def committed(self) -> list[Entry]:
        """The segments whose deltas are in the lake."""
        if self._committed is None:
            upto = {shard: epoch + 1 for shard, epoch in durable_epochs(self.home).items()}
            self._committed = Log(self.home).below(upto)
        return self._committed


def stale_partitions(
    instance: "DagsterInstance",
    home: Home,
    *,
    seen: dict[int, Record | None] | None = None,
    graph: Mapping[str, Derived] = GRAPH,
) -> dict[str, dict[str, str]]:
    """Asset → partition → why it is stale; assets in the order in which they are to be refreshed.

    A partition is fresh when its record was made under the table's present lineage, from inputs of their present
    lineage, each at a version that is not older than the last change of what it is made of there.
    """
    found = _Found(instance, home, seen)
    hours = {DELTAS.grain.start(key) for key in found.read(DELTAS)}
    found.present[DELTAS.name] = hours | set(lake_files.partitions(home.lake / DELTAS.name))
    for derived in graph.values():
        target, stale = derived.spec, dict[str, str]()
        found.read(target)
        for need in derived.needs:
            for start, why in _behind(need, target, found):
                found.present[target.name].add(start)
                if why:
                    stale.setdefault(target.grain.key(start), why)
        found.stale[target.name] = stale
    return found.stale


def _behind(need: Need, target: TableSpec, found: _Found) -> Iterator[tuple[int, str | None]]:
    """Every partition that an input calls for, and why it is behind it, if it is."""
    if need.by in (By.RECEIPT, By.STAMP):
        yield from _behind_the_log(need, target, found)
        return
    if need.by is By.CARRY:
        return
    source = need.table
    given = found.read(source)
    for start in sorted(found.present[source.name]):
        key = source.grain.key(start)
        is_stale = key in found.stale.get(source.name, {})
        for own in need.partitions_of(target, start, source.partition_us):
            made = found.records[target.name].get(target.grain.key(own))
            yield (
                own,
                f"{source.name} {key} is stale"
                if is_stale
                else _why(source, given.get(key), target, made, found.lineages),
            )


def _behind_the_log(need: Need, target: TableSpec, found: _Found) -> Iterator[tuple[int, str | None]]:
    """By receipt and by stamp: a partition is behind when a segment has something for it that it does not cover."""
    found.read(need.table)
    for entry in found.committed:
        for hour in hours_of(entry, need.by):
            for own in need.partitions_of(target, hour, HOUR_US):
                made = found.records[target.name].get(target.grain.key(own))
                why = _why(need.table, None, target, made, found.lineages)
                if why is None and made and entry.to_epoch - 1 > made.durable.get(entry.shard, 0):
                    why = (
                        f"{need.table.name} has deltas for it up to epoch {entry.to_epoch - 1} of shard {entry.shard}, "
                        f"it was made from those up to {made.durable.get(entry.shard, 0)}"
                    )
                yield own, why


def hours_of(entry: Entry, by: By) -> list[int]:
    """Hours, in microseconds, that a segment has accepted deltas for."""
    if by is By.RECEIPT:
        return [hour_start(key) for key, counts in entry.receipt_hours.items() if key and counts.accepted]
    if by is By.STAMP:
        return [hour_start(key) for key, rows in entry.stamp_hours.items() if key and rows]
    return [hour_start(key) for key, counts in entry.event_hours.items() if key and counts.accepted]


def _present(home: Home, spec: TableSpec) -> int:
    """The lineage that the table's next commit will have: a table that was tampered with is as good as gone."""
    known: Lineage = LineageFile(home.plans, spec.name).read()
    return known.lineage + (1 if find_break(home.lake / spec.name, known) else 0)


def _why(
    source: TableSpec, given: Record | None, target: TableSpec, made: Record | None, lineages: Mapping[str, int]
) -> str | None:
    if made is None:
        return "it has never been materialized"
    if made.lineage != lineages[target.name]:
        return f"{target.name} was deleted, restored or replaced since"
    if made.input_lineages.get(source.name) != lineages[source.name]:
        return f"{source.name} was deleted, restored or replaced since"
    version = made.input_versions.get(source.name, -1)
    if given and given.table_version > version:
        return f"{source.name} {given.partition} changed in version {given.table_version}, it was made from {version}"
    return None
