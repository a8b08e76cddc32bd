"""The assets of streams with sessions, and of those with adaptive windows.

Belongs here: reading the carry-over, going forward as long as the carry-over changes (N2), the batches of the manifest.
Does not belong here: which deltas are a session (`sessions.py`) or a batch (`adaptive.py`).
"""

from collections.abc import Mapping
from itertools import takewhile

from pyspark.sql import DataFrame

from assets.graph import Derived
from assets.ingest.schema import DELTAS
from assets.inputs import Inputs, input_of, replace_partitions
from assets.partitions import existing, starts_in
from assets.records import Writing
from assets.requested import report_now
from assets.table_asset import TableAsset
from assets.tables import GRAPH
from assets.windows.adaptive import batch_rows, closed_batches, count_batches
from assets.windows.catalog import STREAMS, of_type
from assets.windows.factory import needed_deltas, one_by_one, separate_asset
from assets.windows.open_schema import open_name
from assets.windows.records import Carried, window_records
from assets.windows.session_rows import closed_by_hour, open_rows, parts_of
from resources.lake import Lake, TableSpec
from resources.record import Record
from tidemark.model.ranges import Range, contiguous, within
from tidemark.model.timegrid import HOUR, HOUR_US
from tidemark.observe.sealed_log import Log
from tidemark.streams import Stream, WindowType
from tidemark.tables import lake_files, table_checksums
from tidemark.tables.plans import plan_at


def session_assets() -> list[TableAsset]:
    """Two assets for each stream with sessions: the open ones, and the closed ones."""
    streams = of_type(STREAMS, [WindowType.SESSION])
    return [asset for stream in streams for asset in (open_asset(stream), closed_asset(stream))]


def adaptive_assets() -> list[TableAsset]:
    """One for each stream with adaptive windows."""
    return [adaptive_asset(stream) for stream in of_type(STREAMS, [WindowType.ADAPTIVE])]


def open_asset(stream: Stream, graph: Mapping[str, Derived] = GRAPH) -> TableAsset:
    """The asset of the sessions that are open at each hour's end."""
    derived = graph[open_name(stream)]

    def materialize(run: Writing, hours: Range) -> list[Record]:
        records = _write_open(run, stream, derived, hours)
        _go_forward(run, stream, derived, hours, records[-1])
        return records

    return TableAsset(derived, one_by_one(materialize))


def closed_asset(stream: Stream, graph: Mapping[str, Derived] = GRAPH) -> TableAsset:
    """The asset of closed sessions."""
    derived, still_open = graph[stream.name], open_name(stream)

    def rows(lake: Lake, inputs: Inputs, hours: Range) -> DataFrame:
        before = Range(hours.start_us - HOUR_US, hours.end_us - HOUR_US)
        is_before = within(graph[still_open].spec.partition_by, [before])
        passed_on = lake.read(still_open, inputs[still_open].version, within=is_before)
        return closed_by_hour(needed_deltas(lake, derived, inputs, hours), passed_on, stream, hours)

    def carried(lake: Lake, inputs: Inputs, hours: Range) -> Carried:
        return Carried(into=carried_to(lake, still_open, inputs[still_open].version, hours))

    return separate_asset(derived, rows, sources=[stream.source], carried=carried)


def adaptive_asset(stream: Stream, graph: Mapping[str, Derived] = GRAPH) -> TableAsset:
    """The asset of a stream whose windows are the coordinator's batches."""
    derived = graph[stream.name]

    def rows(lake: Lake, inputs: Inputs, hours: Range) -> DataFrame:
        return batches_of(lake, stream, inputs[DELTAS.name].version, hours)

    return separate_asset(derived, rows, sources=[stream.source])


def batches_of(lake: Lake, stream: Stream, version: int, hours: Range) -> DataFrame:
    """The windows of the batches that were closed in some hours and whose deltas are in a version of `deltas`."""
    plan = plan_at(lake.home, version)
    found = closed_batches(Log(lake.home), plan.upto if plan else {}, hours)
    # The manifest knows in which hours the deltas of a batch happened, so no other hours are read.
    deltas = lake.read(
        DELTAS.name, version, within=within(DELTAS.partition_by, contiguous(found.event_hours, DELTAS.grain))
    )
    needed = deltas.where(_epochs(found.epochs)) if found.epochs else deltas
    return count_batches(needed, batch_rows(lake.spark, found.batches), stream)


def carried_to(lake: Lake, table: str, version: int, hours: Range) -> dict[int, str]:
    """The carry-over to each hour of a range, by checksum; hours without a carry-over are left out."""
    starts = [start - HOUR_US for start in starts_in(hours, HOUR)]
    found = table_checksums.partition_checksums(lake.path(table), version, starts)
    return {start + HOUR_US: checksum for start, checksum in found.items()}


def _write_open(run: Writing, stream: Stream, derived: Derived, hours: Range) -> list[Record]:
    """Write the sessions open at the end of each hour of a range, from those open before it."""
    lake, spec = run.lake, derived.spec
    # No other process may change the carry-over after it is read and before the new rows are written.
    with lake.lock(spec.name):
        lake.settle(spec)
        own = input_of(lake, spec.name).version
        is_before = within(spec.partition_by, [Range(hours.start_us - HOUR_US, hours.start_us)])
        first = carried_to(lake, spec.name, own, Range(hours.start_us, hours.start_us + HOUR_US))

        def rows(inputs: Inputs) -> DataFrame:
            carried = lake.read(spec.name, own, within=is_before)
            parts = parts_of(needed_deltas(lake, derived, inputs, hours), carried, stream, hours)
            return open_rows(parts, stream, hours)

        inputs = replace_partitions(lake, derived, rows, hours)
        known = lake.known(spec.name).version
        out_of = table_checksums.partition_checksums(lake.path(spec.name), known, starts_in(hours, HOUR))
    into = {**first, **{start + HOUR_US: checksum for start, checksum in out_of.items()}}
    carried, sources = Carried(into=into, out_of=out_of), [stream.source]
    return window_records(run, derived, inputs, [hours], sources=sources, carried=carried)


def _go_forward(run: Writing, stream: Stream, derived: Derived, hours: Range, last: Record) -> None:
    """Go on from some hours as long as the carry-over to the next ones is not the one that they were made from (N2).

    These hours are reported one by one, because they are not among the run's requested partitions.
    """
    while following := _hours_after(run, stream, derived, hours, last):
        records = _write_open(run.anew(), stream, derived, following)
        for record in records:
            report_now(run.context, record)
        hours, last = following, records[-1]


def _hours_after(run: Writing, stream: Stream, derived: Derived, hours: Range, last: Record) -> Range | None:
    """The hours to make next because of the last hour's carry-over, if there are any.

    The carry-over of an hour that was made before is known only when it is made again, so such an hour is taken alone.
    Through hours that were never made, every session is carried unchanged until it closes, so they are taken together.
    """
    spec, start = derived.spec, hours.end_us
    key = spec.grain.key(start)
    made = Record.latest_by_partition(run.instance, spec.name, [key]).get(key)
    if made is None:
        return hours_to_cross(run, stream, spec, start) if last.carried_out else None
    has_changed = made.generation == last.generation and made.carried_in != last.carried_out
    return Range(start, start + HOUR_US) if has_changed else None


def hours_to_cross(run: Writing, stream: Stream, spec: TableSpec, start_us: int) -> Range | None:
    """The hours from one that was never made to the one in which the last carried session closes, if they exist yet.

    They include no hour that was made, and none with deltas of its own: such an hour is stale by itself, and perhaps
    blocked (O4).
    """
    lake = run.lake
    closes_us = last_event_us(lake, spec, start_us - HOUR_US) + stream.window.gap_us
    keys = [spec.grain.key(start) for start in range(start_us, closes_us + 1, HOUR_US)]
    others = {
        *Record.latest_by_partition(run.instance, spec.name, keys),
        *map(spec.grain.key, lake_files.partitions(lake.path(DELTAS.name))),
    }
    there = existing(lake.home.settings, spec.grain, keys, run.clock())
    crossed = list(takewhile(lambda key: key not in others, there))
    return Range(start_us, start_us + len(crossed) * HOUR_US) if crossed else None


def last_event_us(lake: Lake, spec: TableSpec, start_us: int) -> int:
    """The last event of the sessions open at the end of an hour; the hour's start if none is open."""
    held = lake_files.partitions(lake.path(spec.name)).get(start_us)
    with lake_files.quiet_database() as database:
        query = "SELECT epoch_us(max(last_event_ts)) FROM read_parquet($1)"
        found = database.execute(query, [list(held.files)]).fetchone() if held else None
    return int(found[0]) if found else start_us


def _epochs(ranges: dict[int, tuple[int, int]]) -> str:
    return " OR ".join(
        f"(shard = {shard} AND epoch >= {first} AND epoch < {end})" for shard, (first, end) in ranges.items()
    )
