"""The assets of the joins.

Belongs here: which rows are read for a range of hours: rows of `deltas` for pairs of deltas; for pairs of sessions the
hours that they may reach back to. Does not belong here: which two are a pair (`transform.py`).
"""

from collections.abc import Mapping

from pyspark.sql import DataFrame

from assets.graph import Derived
from assets.inputs import Inputs
from assets.joins.rows import delta_pairs, session_pairs
from assets.partitions import starts_in
from assets.stale import look_back
from assets.table_asset import TableAsset
from assets.tables import GRAPH
from assets.windows.catalog import STREAMS
from assets.windows.factory import hourly_asset, separate_asset
from assets.windows.schema import WINDOW_HOUR, window_table
from resources.lake import Lake
from tidemark.model.ranges import Range, within
from tidemark.model.timegrid import HOUR
from tidemark.streams import Join, JoinForm, Stream, Streams


def join_assets() -> list[TableAsset]:
    """The assets of all joins that are defined."""
    return [join_asset(join) for join in STREAMS.joins.values()]


def join_asset(join: Join, streams: Streams = STREAMS, graph: Mapping[str, Derived] = GRAPH) -> TableAsset:
    """The asset of a join."""
    left, right = streams.streams[join.left], streams.streams[join.right]
    derived, sources = graph[join.name], [left.source, right.source]
    if join.form is JoinForm.SESSIONS:
        return _session_join(join, left, right, derived)
    return hourly_asset(derived, lambda deltas, hours: delta_pairs(deltas, join, left, right, hours), sources=sources)


def _session_join(join: Join, left: Stream, right: Stream, derived: Derived) -> TableAsset:
    def rows(lake: Lake, inputs: Inputs, hours: Range) -> DataFrame:
        lefts, rights = meeting(lake, left, right, inputs, hours), meeting(lake, right, left, inputs, hours)
        return session_pairs(lefts, rights, join, left, right, hours)

    return separate_asset(derived, rows, sources=[left.source, right.source])


def meeting(lake: Lake, stream: Stream, partner: Stream, inputs: Inputs, hours: Range) -> DataFrame:
    """The sessions of a stream that close in these hours, or that may meet a partner's session which closes in them.

    When two sessions meet, the one that closes first does so after the other one has begun. So a session that closed
    before the first of the partner's sessions began cannot meet any of them.
    """
    back = look_back(lake.path(partner.name), window_table(partner))
    first_us = min([hours.start_us, *(back.get(start, start) for start in starts_in(hours, HOUR))])
    sessions = within(WINDOW_HOUR, [Range(first_us, hours.end_us)])
    return lake.read(stream.name, inputs[stream.name].version, within=sessions)
