"""The assets of streams with sessions, and of those with adaptive windows.

Belongs here: reading what was carried, going forward as long as something else is carried than before (N2), the batches
of the manifest. Does not belong here: which deltas are a session (`sessions.py`) or a batch (`adaptive.py`).
"""

import time
from collections.abc import Mapping

import dagster as dg
from pyspark.sql import DataFrame

from assets.asked import report_now
from assets.graph import Derived, made_of
from assets.ingest.log import Log
from assets.ingest.schema import DELTAS
from assets.partitions import starts_in
from assets.tables import GRAPH
from assets.windows.adaptive import batch_rows, closed_batches, count_batches
from assets.windows.catalog import STREAMS, of_type
from assets.windows.factory import declared, one_by_one
from assets.windows.open_schema import open_name
from assets.windows.records import Carried, plan_at, window_records
from assets.windows.session_rows import closed_by_hour, open_rows, parts_of
from resources import lake_files
from resources.failpoints import reach
from resources.lake import Lake, LakeError, Range, partition_predicate
from resources.provenance import Input
from resources.record import Record
from resources.streams import Stream, WindowType
from resources.tidemark import TidemarkResource
from resources.timegrid import HOUR_US


def session_assets() -> list[dg.AssetsDefinition]:
    """Two assets for each stream with sessions: what is open, and what has closed."""
    streams = of_type(STREAMS, [WindowType.SESSION])
    return [asset for stream in streams for asset in (open_asset(stream), closed_asset(stream))]


def adaptive_assets() -> list[dg.AssetsDefinition]:
    """One for each stream with adaptive windows."""
    return [adaptive_asset(stream) for stream in of_type(STREAMS, [WindowType.ADAPTIVE])]


def open_asset(stream: Stream, graph: Mapping[str, Derived] = GRAPH) -> dg.AssetsDefinition:
    """The asset of what is open at each hour's end."""
    derived = graph[open_name(stream)]

    def materialize(context: dg.AssetExecutionContext, tidemark: TidemarkResource, hours: Range) -> list[Record]:
        records = _write_open(context, tidemark, stream, derived, hours)
        _go_forward(context, tidemark, stream, derived, records[-1])
        return records

    return declared(derived, one_by_one(materialize))


def closed_asset(stream: Stream, graph: Mapping[str, Derived] = GRAPH) -> dg.AssetsDefinition:
    """The asset of closed sessions."""
    derived, still_open = graph[stream.name], open_name(stream)

    def materialize(context: dg.AssetExecutionContext, tidemark: TidemarkResource, hours: Range) -> list[Record]:
        started, lake = time.monotonic(), tidemark.lake
        version, carried_version = version_of(lake, DELTAS.name), version_of(lake, still_open)
        before = Range(hours.start_us - HOUR_US, hours.end_us - HOUR_US)
        into = carried_to(lake, still_open, carried_version, hours)
        carried = lake.read(still_open, carried_version).where(
            partition_predicate(graph[still_open].spec.partition_by, before)
        )
        rows = closed_by_hour(_deltas(lake, derived, version, hours), carried, stream, hours)
        write(lake, derived, rows, hours, version)
        return window_records(
            context.instance,
            lake,
            derived.spec,
            version,
            starts_in(hours, HOUR_US),
            sources=[stream.source],
            duration_ms=round((time.monotonic() - started) * 1000),
            now_us=tidemark.now_us(),
            carried=Carried(into=into, versions={still_open: carried_version}),
        )

    return declared(derived, one_by_one(materialize))


def adaptive_asset(stream: Stream, graph: Mapping[str, Derived] = GRAPH) -> dg.AssetsDefinition:
    """The asset of a stream whose windows are the coordinator's batches."""
    derived = graph[stream.name]

    def materialize(context: dg.AssetExecutionContext, tidemark: TidemarkResource, hours: Range) -> list[Record]:
        started, lake = time.monotonic(), tidemark.lake
        version = version_of(lake, DELTAS.name)
        write(lake, derived, batches_of(lake, stream, version, hours), hours, version)
        return window_records(
            context.instance,
            lake,
            derived.spec,
            version,
            starts_in(hours, HOUR_US),
            sources=[stream.source],
            duration_ms=round((time.monotonic() - started) * 1000),
            now_us=tidemark.now_us(),
        )

    return declared(derived, one_by_one(materialize))


def batches_of(lake: Lake, stream: Stream, version: int, hours: Range) -> DataFrame:
    """The windows of the batches that were closed in some hours and whose deltas are in a version of `deltas`."""
    plan = plan_at(lake, version)
    found = closed_batches(Log(lake.home).below(plan.upto if plan else {}), hours)
    deltas = lake.read(DELTAS.name, version)
    # The manifest knows in which hours the deltas of a batch happened: no others are read.
    is_needed = [partition_predicate(DELTAS.partition_by, found.event_hours)] if found.event_hours else ["false"]
    is_needed += [f"({_epochs(found.epochs)})"] if found.epochs else []
    return count_batches(deltas.where(" AND ".join(is_needed)), batch_rows(lake.spark, found.batches), stream)


def version_of(lake: Lake, table: str) -> int:
    """The latest version of an input."""
    version = lake.version(table)
    if version is None:
        raise LakeError(f"There is no table {table} yet. Drain first: ./tidemark drain.")
    return version


def carried_to(lake: Lake, table: str, version: int, hours: Range) -> dict[int, str]:
    """What is carried to each hour of a range, by checksum; nothing to those that nothing is carried to."""
    starts = [start - HOUR_US for start in starts_in(hours, HOUR_US)]
    found = lake_files.partition_checksums(lake.path(table), version, starts)
    return {start + HOUR_US: checksum for start, checksum in found.items()}


def write(lake: Lake, derived: Derived, rows: DataFrame, hours: Range, version: int) -> None:
    """Replace the hours of a range, a file each, made from a version of `deltas`."""
    spec = derived.spec
    with lake.lock(spec.name):
        lake.settle(spec)
        filed = rows.repartition(spec.partition_by).sortWithinPartitions(spec.partition_by, *spec.order_by)
        lake.replace(spec, filed, hours=hours, made_from=Input(version, lake.lineage(DELTAS.name).lineage))
    reach("rollup.committed")


def _write_open(
    context: dg.AssetExecutionContext, tidemark: TidemarkResource, stream: Stream, derived: Derived, hours: Range
) -> list[Record]:
    """What is open at the end of each hour of a range, from what was open before it."""
    started, lake, spec = time.monotonic(), tidemark.lake, derived.spec
    version = version_of(lake, DELTAS.name)
    # Nobody else may change what is carried between its being read and what follows from it being written.
    with lake.lock(spec.name):
        lake.settle(spec)
        carried_version = version_of(lake, spec.name)
        before = Range(hours.start_us - HOUR_US, hours.start_us)
        carried = lake.read(spec.name, carried_version).where(partition_predicate(spec.partition_by, before))
        first = carried_to(lake, spec.name, carried_version, Range(hours.start_us, hours.start_us + HOUR_US))
        parts = parts_of(_deltas(lake, derived, version, hours), carried, stream, hours)
        write(lake, derived, open_rows(parts, stream, hours), hours, version)
        known = lake.lineage(spec.name).version
        out_of = lake_files.partition_checksums(lake.path(spec.name), known, starts_in(hours, HOUR_US))
    into = {**first, **{start + HOUR_US: checksum for start, checksum in out_of.items()}}
    return window_records(
        context.instance,
        lake,
        spec,
        version,
        starts_in(hours, HOUR_US),
        sources=[stream.source],
        duration_ms=round((time.monotonic() - started) * 1000),
        now_us=tidemark.now_us(),
        carried=Carried(into=into, out_of=out_of),
    )


def _go_forward(
    context: dg.AssetExecutionContext, tidemark: TidemarkResource, stream: Stream, derived: Derived, last: Record
) -> None:
    """Hour after hour, as long as the next one's record says that something else was carried to it (N2).

    These hours are reported one by one: the run was not asked for them.
    """
    grain, name = derived.spec.grain, derived.spec.name
    while last.partition is not None:
        start = grain.start(last.partition) + HOUR_US
        made = Record.latest_by_partition(context.instance, name, [grain.key(start)]).get(grain.key(start))
        if made is None or made.lineage != last.lineage or made.carried_in == last.carried_out:
            return
        (last,) = _write_open(context, tidemark, stream, derived, Range(start, start + HOUR_US))
        report_now(context, last)


def _deltas(lake: Lake, derived: Derived, version: int, hours: Range) -> DataFrame:
    return lake.read(DELTAS.name, version).where(made_of(derived.needs, DELTAS.name, [hours]))


def _epochs(ranges: dict[int, tuple[int, int]]) -> str:
    return " OR ".join(
        f"(shard = {shard} AND epoch >= {first} AND epoch < {end})" for shard, (first, end) in ranges.items()
    )
