"""Which partitions of the derived tables are behind their inputs, and why.

Belongs here: comparing records with records, with the tables and with the log, along the graph; the caller decides what
to do about it. `tidemark/tables/behind.py` decides how one version of an input compares with another; exact counts use
it as well. No Spark.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from assets.graph import By, Derived, Need
from assets.ingest.schema import DELTAS
from assets.tables import GRAPH
from resources.lake import TableSpec
from resources.record import Record, forget_reused
from resources.seen_records import SeenRecords
from tidemark.counts.retention import settled_before
from tidemark.model.timegrid import HOUR_US
from tidemark.observe.log_index import ANY_SOURCE, LogIndex, index_of
from tidemark.observe.sealed_log import Log
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.behind import Behind, find_behind
from tidemark.tables.known_table import KnownTable, KnownTableFile, find_break, is_as_recorded
from tidemark.tables.lineage import UNKNOWN, Made
from tidemark.tables.plans import durable_epochs

if TYPE_CHECKING:
    from dagster import DagsterInstance


# For an input that a record does not name; generations begin at 1.
NO_GENERATION = 0
# As a version: the first one is 0.
NEVER_CHANGED = -1


@dataclass
class _Found:
    """What was found so far for each table: its records, the partitions that it has or should have, the stale ones."""

    instance: "DagsterInstance"
    home: Home
    seen: dict[int, Record]
    records: dict[str, dict[str, Record]] = field(default_factory=dict)
    present: dict[str, set[int]] = field(default_factory=lambda: defaultdict(set))
    stale: dict[str, dict[str, str]] = field(default_factory=dict)
    generations: dict[str, int] = field(default_factory=dict)
    _index: LogIndex | None = None
    _reach: dict[str, dict[int, int]] = field(default_factory=dict)

    def read_all(self, specs: Iterable[TableSpec]) -> None:
        """Read the records of all tables at once: what nothing has touched costs no question of its own."""
        self.records = Record.latest_by_table(self.instance, {spec.name for spec in specs}, seen=self.seen)

    def read(self, spec: TableSpec) -> dict[str, Record]:
        """The records of a table."""
        if spec.name not in self.generations:
            self.generations[spec.name] = _present(self.home, spec)
        return self.records[spec.name]

    def committed(self, need: Need) -> dict[tuple[int, int], int]:
        """For each hour and shard, the last epoch of the segments in the lake that have deltas for the hour."""
        if self._index is None:
            upto = {shard: epoch + 1 for shard, epoch in durable_epochs(self.home).items()}
            self._index = index_of(self.home, Log(self.home), upto)
        last: dict[tuple[int, int], int] = {}
        for (hour, shard, source), epoch in self._index.last[need.by].items():
            if source == ANY_SOURCE or need.takes(source):
                last[hour, shard] = max(epoch, last.get((hour, shard), epoch))
        return last

    def reach(self, spec: TableSpec) -> dict[int, int]:
        """For each partition of sessions, the hour in which the first of them begins."""
        if spec.name not in self._reach:
            self._reach[spec.name] = look_back(self.home.lake / spec.name, spec)
        return self._reach[spec.name]


def stale_partitions(
    instance: "DagsterInstance",
    home: Home,
    *,
    seen: dict[int, Record] | None = None,
    graph: Mapping[str, Derived] = GRAPH,
) -> dict[str, dict[str, str]]:
    """Asset → partition → why it is stale; assets in the order in which they are refreshed.

    A partition is fresh when its record was made under the table's current generation and definition, from inputs of
    their current generation, each at a version that is not older than the last change of the rows that it is made from.

    Without `seen`, records that any process has read before are not read again.
    """
    seen = SeenRecords(home, instance) if seen is None else seen
    forget_reused(instance, seen)
    found = _Found(instance, home, seen)
    found.read_all([DELTAS, *chain.from_iterable(map(_tables_of, graph.values()))])
    hours = {DELTAS.grain.start(key) for key in found.read(DELTAS)}
    path = home.lake / DELTAS.name
    found.present[DELTAS.name] = hours | set(lake_files.partitions(path) if lake_files.readable_state(path) else ())
    for derived in graph.values():
        target, stale = derived.spec, dict[str, str]()
        found.read(target)
        settled_us = settled_before(home, target.name)
        for start, why in chain(_redefined(derived, found), *(_behind(need, target, found) for need in derived.needs)):
            if settled_us is not None and start < settled_us:
                continue  # its input was dropped, and no event is taken that could change it (R5)
            found.present[target.name].add(start)
            if why:
                stale.setdefault(target.grain.key(start), why)
        found.stale[target.name] = stale
    if isinstance(seen, SeenRecords):
        seen.save()
    return found.stale


def _tables_of(derived: Derived) -> Iterator[TableSpec]:
    """The table, and all that its rows may be made from."""
    yield derived.spec
    for need in derived.needs:
        yield need.table
        if need.partner:
            yield need.partner


def _redefined(derived: Derived, found: _Found) -> Iterator[tuple[int, str]]:
    """Every partition that was made under another definition, even if the current one does not need it any more.

    Partitions from before definitions were recorded are left alone: their definition is not known.
    """
    for key, made in found.records[derived.spec.name].items():
        if made.definition is not None and made.definition != derived.definition:
            yield derived.spec.grain.start(key), "its definition has changed since"


def _behind(need: Need, target: TableSpec, found: _Found) -> Iterator[tuple[int, str | None]]:
    """Every partition that an input calls for, and why it is behind that input, if it is."""
    ways = {By.CARRY: _behind_the_carry, By.MEETING: _behind_a_meeting}
    if need.by is not By.EVENT:
        yield from ways.get(need.by, _behind_the_log)(need, target, found)
        return
    source = need.table
    given = found.read(source)
    for start in sorted(found.present[source.name]):
        key = source.grain.key(start)
        is_stale, record = key in found.stale.get(source.name, {}), given.get(key)
        changed = record.changed_by(need.takes) if record else NEVER_CHANGED
        for own in need.partitions_of(target, start, source.grain.width_us(start)):
            made = found.records[target.name].get(target.grain.key(own))
            if record and changed == NEVER_CHANGED and made is None:
                continue  # what is there is of other namespaces and kinds
            why = f"{source.name} {key} is stale" if is_stale else None
            yield own, why or _why(source, record, target, made, found.generations, changed)


def _behind_the_log(need: Need, target: TableSpec, found: _Found) -> Iterator[tuple[int, str | None]]:
    """By receipt, stamp or batch: a partition is behind when a segment has deltas for it that it does not cover."""
    found.read(need.table)
    for (hour, shard), epoch in found.committed(need).items():
        for own in need.partitions_of(target, hour, HOUR_US):
            made = found.records[target.name].get(target.grain.key(own))
            why = _why(need.table, None, target, made, found.generations)
            if why is None and made and epoch > made.durable.get(shard, 0):
                why = (
                    f"{need.table.name} has deltas for it up to epoch {epoch} of shard {shard}, "
                    f"it was made from those up to {made.durable.get(shard, 0)}"
                )
            yield own, why


def _behind_the_carry(need: Need, target: TableSpec, found: _Found) -> Iterator[tuple[int, str | None]]:
    """A partition is behind when its carry-over is no longer the one that it was made from (N2).

    If the partition before it is stale, that alone means nothing: it may pass on the same carry-over again.
    """
    source, given = need.table, found.read(need.table)
    before = {source.grain.start(key) for key in given}
    after = {start - HOUR_US for key in found.records[target.name] for start in (target.grain.start(key),)}
    for start in sorted(before | after):
        handed = given.get(source.grain.key(start))
        if handed and handed.generation != found.generations[source.name]:
            handed = None
        made = found.records[target.name].get(target.grain.key(start + HOUR_US))
        carried = handed.carried_out if handed else None
        if made is None and carried is None:
            continue  # no partition there, and no carry-over to it
        why = None
        if made is None or made.generation != found.generations[target.name]:
            why = _why(source, None, target, made, {**found.generations, source.name: 0}) or "it has never been made"
        elif made.carried_in != carried:
            why = f"what {source.name} {source.grain.key(start)} carries to it is not what it was made from"
        yield start + HOUR_US, why


def _behind_a_meeting(need: Need, target: TableSpec, found: _Found) -> Iterator[tuple[int, str | None]]:
    """An hour of pairs is behind when sessions changed that may meet those of the other side that close in it."""
    source, given = need.table, found.read(need.table)
    partner = need.partner or need.table
    found.read(partner)
    back = found.reach(partner)
    for start in sorted(found.present[source.name] | found.present[partner.name]):
        made = found.records[target.name].get(target.grain.key(start))
        why = _why(source, None, target, made, found.generations)
        for hour in range(min(back.get(start, start), start), start + 1, HOUR_US):
            key = source.grain.key(hour)
            if key in found.stale.get(source.name, {}):
                why = why or f"{source.name} {key} is stale"
            why = why or _why(source, given.get(key), target, made, found.generations)
        yield start, why


def look_back(path: Path, spec: TableSpec) -> dict[int, int]:
    """For each partition of a table of sessions, the hour in which the first of its sessions begins."""
    earliest = lake_files.lowest_times(path, "window_start") if lake_files.readable_state(path) else {}
    return {start: spec.grain.floor(time_us) for start, time_us in earliest.items()}


def _present(home: Home, spec: TableSpec) -> int:
    """The generation of the table's next commit: a table that was tampered with counts as gone."""
    known: KnownTable = KnownTableFile(home.plans, spec.name).read()
    path = home.lake / spec.name
    return known.generation + (1 if not is_as_recorded(path, known) and find_break(path, known) else 0)


def _why(
    source: TableSpec,
    given: Record | None,
    target: TableSpec,
    made: Record | None,
    generations: Mapping[str, int],
    changed: int | None = None,
) -> str | None:
    """Why a partition is behind one of its input, which last `changed` for it in a version; by default, its own."""
    if made is None:
        return "it has never been materialized"
    if made.generation != generations[target.name]:
        return f"{target.name} was deleted, restored or replaced since"
    if changed is None:
        changed = given.table_version if given else NEVER_CHANGED
    behind = find_behind(_as_made(made, source), changed=changed, generation=generations[source.name])
    if behind is Behind.REPLACED:
        return f"{source.name} was deleted, restored or replaced since"
    if behind and given:
        version = made.input_versions.get(source.name, UNKNOWN)
        return f"{source.name} {given.partition} changed in version {changed}, it was made from {version}"
    return None


def _as_made(record: Record, source: TableSpec) -> Made:
    """What a record says about one input, in the form of a lineage file."""
    version, generation = record.input_versions.get(source.name, UNKNOWN), record.input_generations.get(source.name)
    return Made(source=version, generation=NO_GENERATION if generation is None else generation)
