"""The assets of the joins.

Belongs here: what is read for a range of hours: rows of `deltas` for pairs of deltas; for pairs of sessions the hours
that they may reach back to. Does not belong here: which two are a pair (`transform.py`).
"""

import time
from collections.abc import Mapping

import dagster as dg
from pyspark.sql import DataFrame

from assets.graph import Derived
from assets.ingest.schema import DELTAS
from assets.joins.rows import delta_pairs, session_pairs
from assets.partitions import starts_in
from assets.stale import reach_back
from assets.tables import GRAPH
from assets.windows.catalog import STREAMS
from assets.windows.factory import declared, hourly_asset, one_by_one
from assets.windows.records import Carried, window_records
from assets.windows.schema import WINDOW_HOUR, window_table
from assets.windows.session_assets import version_of, write
from resources.lake import Lake, Range, partition_predicate
from resources.record import Record
from resources.streams import Join, JoinForm, Stream, Streams
from resources.tidemark import TidemarkResource
from resources.timegrid import HOUR_US


def join_assets() -> list[dg.AssetsDefinition]:
    """The assets of all joins that are defined."""
    return [join_asset(join) for join in STREAMS.joins.values()]


def join_asset(join: Join, streams: Streams = STREAMS, graph: Mapping[str, Derived] = GRAPH) -> dg.AssetsDefinition:
    """The asset of a join."""
    left, right = streams.streams[join.left], streams.streams[join.right]
    derived, sources = graph[join.name], [left.source, right.source]
    if join.form is JoinForm.SESSIONS:
        return _session_join(join, left, right, derived)
    return hourly_asset(derived, lambda deltas, hours: delta_pairs(deltas, join, left, right, hours), sources=sources)


def _session_join(join: Join, left: Stream, right: Stream, derived: Derived) -> dg.AssetsDefinition:
    def materialize(context: dg.AssetExecutionContext, tidemark: TidemarkResource, hours: Range) -> list[Record]:
        started, lake = time.monotonic(), tidemark.lake
        version = version_of(lake, DELTAS.name)
        versions = {stream.name: version_of(lake, stream.name) for stream in (left, right)}
        lefts = meeting(lake, left, right, versions, hours)
        rights = meeting(lake, right, left, versions, hours)
        write(lake, derived, session_pairs(lefts, rights, join, left, right, hours), hours, version)
        return window_records(
            context.instance,
            lake,
            derived.spec,
            version,
            starts_in(hours, HOUR_US),
            sources=[left.source, right.source],
            duration_ms=round((time.monotonic() - started) * 1000),
            now_us=tidemark.now_us(),
            carried=Carried(versions=versions),
        )

    return declared(derived, one_by_one(materialize))


def meeting(lake: Lake, stream: Stream, partner: Stream, versions: dict[str, int], hours: Range) -> DataFrame:
    """The sessions of a stream that may meet one of its partner's that closes in these hours, or that close in them.

    Two that meet: the one that closes first does so after the other one has begun. So what closed before the first of
    the partner's sessions began cannot meet any.
    """
    back = reach_back(lake.path(partner.name), window_table(partner))
    first_us = min([hours.start_us, *(back.get(start, start) for start in starts_in(hours, HOUR_US))])
    rows = lake.read(stream.name, versions[stream.name])
    return rows.where(partition_predicate(WINDOW_HOUR, Range(first_us, hours.end_us)))
