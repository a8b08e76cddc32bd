"""A lake without a JVM: real Delta tables, written by delta-rs, whose sums are added up in plain Python.

For tests of those who read the tables: any partition of any tier can be computed when the test says so, and so can be
left behind, be changed by somebody else, or be dropped.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from shutil import rmtree
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, Transaction, write_deltalake

from assets.ingest.schema import DELTAS
from assets.rollups.schema import CHAIN, COUNTS
from tidemark.model.timegrid import HOUR_US, MINUTE_US, floor_to, from_us
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import KnownTable, KnownTableFile, app_id
from tidemark.tables.lineage import Input, LineageFile
from tidemark.tables.table_spec import TableSpec, create_table
from tidemark.tables.tiers import Tier

SPECS = COUNTS
SOURCES = dict(zip(Tier, (source for source, _ in CHAIN), strict=True))


def table_rows(spec: TableSpec, rows: Sequence[dict[str, Any]]) -> pa.Table:
    """Rows of a table; times are given in microseconds, and what is not given is null."""
    columns = {}
    for column in spec.columns:
        given = pa.int64() if pa.types.is_timestamp(column.type) else column.type
        columns[column.name] = pa.array([row.get(column.name) for row in rows], given).cast(column.type)
    return pa.table(columns)


@dataclass(frozen=True)
class Event:
    """A signal, as short as it can be."""

    at_us: int
    entity: str = "item-1"
    signal: str = "view"
    count: int = 1
    weight: int = 0
    namespace: str = "shop"


def signal_row(epoch: int, event: Event, **more: Any) -> dict[str, Any]:
    """A row of `deltas`; it arrived when it happened, unless something else is said."""
    payload = {"entity_id": event.entity, "signal": event.signal, "count": event.count}
    return {
        "shard": 0,
        "epoch": epoch,
        "ordinal": 0,
        "namespace": event.namespace,
        "kind": "signal",
        "key": event.entity,
        "delta_id": f"d{epoch}",
        "event_ts": event.at_us,
        "received_ts": event.at_us,
        "producer": "test",
        "sequence": epoch,
        "origin": "test",
        "source": "local",
        "priority": "normal",
        "identity_hash": 0,
        "content_hash": 0,
        "signal": {**payload, "weight_millionths": event.weight},
        "event_hour": floor_to(event.at_us, HOUR_US),
        **more,
    }


class SmallLake:
    """The tables of a home, made by hand; those that are there already are gone on with."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.events: list[Event] = []
        self._numbers = 0
        for spec in (DELTAS, *SPECS.values()):
            if lake_files.table_state(home.lake / spec.name):
                continue
            create_table(home.lake / spec.name, spec)
            KnownTableFile(home.plans, spec.name).record_commit(home.lake / spec.name)

    def send(self, events: Iterable[Event]) -> None:
        """Put deltas into `deltas`, as a drain does, in one commit."""
        sent = list(events)
        self.events += sent
        rows = [
            signal_row(self._numbers + 1, event, ordinal=place, delta_id=f"d{len(self.events)}-{place}")
            for place, event in enumerate(sent)
        ]
        self._write(DELTAS, rows, mode="append")
        LineageFile(self.home.plans, DELTAS.name).record(self.home.lake / DELTAS.name)

    def roll_up(self, tier: Tier, partitions: Iterable[int] | None = None, *, is_remembered: bool = True) -> None:
        """Compute partitions of a tier (default: all that its input has) from the input as it is now."""
        spec, source = SPECS[tier], SOURCES[tier]
        state = lake_files.table_state(self.home.lake / source.name)
        assert state is not None
        rows = self._sums(tier, source)
        starts = {spec.grain.floor(row["bucket_start"]) for row in rows} if partitions is None else set(partitions)
        made = [{**row, spec.partition_by: spec.grain.floor(row["bucket_start"])} for row in rows]
        self._replace(spec, starts, [row for row in made if row[spec.partition_by] in starts])
        if is_remembered:
            made_from = Input(state.version, KnownTableFile(self.home.plans, source.name).read().generation)
            path = self.home.lake / spec.name
            LineageFile(self.home.plans, spec.name).record(path, made_from=made_from, made=sorted(starts))

    def roll_up_everything(self) -> None:
        """Bring all tiers up to date."""
        for tier in Tier:
            self.roll_up(tier)

    def begin_again(self) -> None:
        """Put another table in the place of `deltas`, under a new generation, with the same deltas."""
        path, file = self.home.lake / DELTAS.name, KnownTableFile(self.home.plans, DELTAS.name)
        rmtree(path)
        create_table(path, DELTAS)
        file.write(KnownTable(generation=file.read().generation + 1))
        file.record_commit(path)
        events, self.events = self.events, []
        self.send(events)

    def tamper(self, tier: Tier, start_us: int) -> None:
        """Somebody deletes the rows of a partition."""
        table = lake_files.open_table(self.home.lake / SPECS[tier].name)
        assert table is not None
        table.delete(_predicate(SPECS[tier], start_us))

    def drop(self, tier: Tier, before_us: int) -> None:
        """Drop the partitions before a moment, as a retention does."""
        spec = SPECS[tier]
        path = self.home.lake / spec.name
        self._replace(spec, {start for start in lake_files.partitions(path) if start < before_us}, [])
        state = lake_files.table_state(path)
        LineageFile(self.home.plans, spec.name).record(path, settled_at=state.version if state else None)

    def _sums(self, tier: Tier, source: TableSpec) -> list[dict[str, Any]]:
        found: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
        for row in self._rows(source):
            if source is DELTAS:
                signal, at_us = row["signal"], floor_to(row["event_ts"], MINUTE_US)
                row = {  # noqa: PLW2901 - a delta as the sum of itself
                    "namespace": row["namespace"],
                    **{name: signal[name] for name in ("entity_id", "signal", "count")},
                    "weight_sum": signal["weight_millionths"],
                    "deltas": 1,
                    "bucket_start": at_us,
                }
            key = (row["namespace"], row["entity_id"], row["signal"], tier.floor(row["bucket_start"]))
            found[key].append(row)
        return [_sum(tier, key, rows) for key, rows in found.items()]

    def _rows(self, spec: TableSpec) -> list[dict[str, Any]]:
        table = lake_files.open_table(self.home.lake / spec.name)
        assert table is not None
        read = table.to_pyarrow_table()
        for number, column in enumerate(read.schema):
            if pa.types.is_timestamp(column.type):
                read = read.set_column(number, column.name, read.column(column.name).cast(pa.int64()))
        rows: list[dict[str, Any]] = read.to_pylist()
        return rows

    def _replace(self, spec: TableSpec, starts: set[int], rows: Sequence[dict[str, Any]]) -> None:
        if rows:
            self._write(spec, rows, mode="overwrite", predicate=_predicate(spec, *starts))
        elif starts:
            table = lake_files.open_table(self.home.lake / spec.name)
            assert table is not None
            table.delete(_predicate(spec, *starts), commit_properties=self._ours(spec))

    def _write(self, spec: TableSpec, rows: Sequence[dict[str, Any]], **options: Any) -> None:
        path = self.home.lake / spec.name
        write_deltalake(path, table_rows(spec, rows), commit_properties=self._ours(spec), **options)

    def _ours(self, spec: TableSpec) -> CommitProperties:
        self._numbers += 1
        app = app_id(spec.name, KnownTableFile(self.home.plans, spec.name).read().generation)
        return CommitProperties(app_transactions=[Transaction(f"{app}/replace", self._numbers)])


def _sum(tier: Tier, key: tuple[Any, ...], rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    summed = dict(zip(("namespace", "entity_id", "signal", "bucket_start"), key, strict=True))
    summed |= {name: sum(row[name] for row in rows) for name in ("count", "weight_sum", "deltas")}
    if tier is not Tier.MINUTE:
        summed["first_minute"] = min(row.get("first_minute", row["bucket_start"]) for row in rows)
        summed["lowest_minute"] = min(row.get("lowest_minute", row["count"]) for row in rows)
    return summed


def _predicate(spec: TableSpec, *starts: int) -> str:
    return " OR ".join(f"{spec.partition_by} = '{from_us(start):%Y-%m-%d %H:%M:%S}'" for start in sorted(starts))
