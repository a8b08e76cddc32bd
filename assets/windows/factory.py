"""From a definition to an asset: every stream and every join of `streams/` becomes one through here.

Belongs here: what all of them share: dependencies that follow the graph, reading one version of each input, replacing
the partitions of some ranges in one job (O2), a record for each. Does not belong here: how rows are computed
(`transform.py` and its neighbours), the list of tables (`catalog.py`).
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

from pyspark.sql import DataFrame

from assets.graph import Derived, made_of
from assets.ingest.schema import DELTAS
from assets.inputs import Inputs, replace_partitions
from assets.records import Writing
from assets.table_asset import Materialize, TableAsset
from assets.tables import GRAPH
from assets.windows.catalog import PANES, STREAMS, by_event_time, of_type
from assets.windows.late import late_deltas
from assets.windows.records import Carried, window_records
from assets.windows.schema import LATE_DELTAS
from assets.windows.transform import count_windows
from resources.lake import Lake
from resources.record import Record
from tidemark.model.ranges import Range, any_of
from tidemark.streams import Stream

# The rows of a range of hours, from `deltas` at one version.
Compute: TypeAlias = Callable[[DataFrame, Range], DataFrame]


def stream_assets() -> list[TableAsset]:
    """The assets of all streams and joins that are defined."""
    late = by_event_time(STREAMS)
    panes = (
        hourly_asset(GRAPH[stream.name], pane_windows(stream), sources=[stream.source])
        for stream in of_type(STREAMS, PANES)
    )
    return [*panes, *([late_asset(late)] if late else [])]


def late_asset(streams: Sequence[Stream]) -> TableAsset:
    """The asset `late_deltas`, which holds the deltas that were late for any of the streams."""
    return hourly_asset(
        GRAPH[LATE_DELTAS.name],
        lambda deltas, hours: late_deltas(deltas, streams, hours),
        sources=[stream.source for stream in streams],
    )


def pane_windows(stream: Stream) -> Compute:
    """How the windows of a stream are computed."""
    return lambda deltas, hours: count_windows(deltas, stream, hours)


def hourly_asset(derived: Derived, compute: Compute, *, sources: Iterable[str]) -> TableAsset:
    """An asset with a partition an hour, made from `deltas`; `sources` are the streams whose watermarks it follows."""
    followed = tuple(dict.fromkeys(sources))

    def materialize(run: Writing, hours: Sequence[Range]) -> list[Record]:
        inputs = write_hours(run.lake, derived, compute, *hours)
        return window_records(run, derived, inputs, hours, sources=followed)

    # Only the rows that the asked hours are made from are read, however far these lie apart.
    return TableAsset(derived, materialize, takes_gaps=True)


def separate_asset(
    derived: Derived,
    rows: Callable[[Lake, Inputs, Range], DataFrame],
    *,
    sources: Iterable[str],
    carried: Callable[[Lake, Inputs, Range], Carried] | None = None,
) -> TableAsset:
    """An asset whose ranges of hours are made one by one; `carried` gives the carry-over that they are made from."""
    followed = tuple(sources)

    def materialize(run: Writing, hours: Range) -> list[Record]:
        inputs = replace_partitions(run.lake, derived, lambda inputs: rows(run.lake, inputs, hours), hours)
        into = carried(run.lake, inputs, hours) if carried else None
        return window_records(run, derived, inputs, [hours], sources=followed, carried=into)

    return TableAsset(derived, one_by_one(materialize))


def one_by_one(materialize: Callable[[Writing, Range], list[Record]]) -> Materialize:
    """Range after range: if rows are carried from hour to hour, or reach back, each range is made separately."""
    return lambda run, hours: [record for each in hours for record in materialize(run.anew(), each)]


def write_hours(lake: Lake, derived: Derived, compute: Compute, *hours: Range) -> Inputs:
    """Compute ranges of hours from `deltas` and replace them, in one commit; only the needed rows are read."""

    def rows(inputs: Inputs) -> DataFrame:
        return rows_of(needed_deltas(lake, derived, inputs, *hours), derived, compute, hours)

    return replace_partitions(lake, derived, rows, *hours)


def needed_deltas(lake: Lake, derived: Derived, inputs: Inputs, *hours: Range) -> DataFrame:
    """The deltas that ranges of hours are made from, by the graph."""
    is_needed = made_of(derived.needs, DELTAS.name, hours)
    return lake.read(DELTAS.name, inputs[DELTAS.name].version, within=is_needed)


def rows_of(deltas: DataFrame, derived: Derived, compute: Compute, hours: Sequence[Range]) -> DataFrame:
    """The rows of some ranges of hours, the earliest first, as one plan; `deltas` are those that they are made from.

    Several ranges are computed as one span of time around them all. Windows between the ranges are then incomplete,
    and are left out.
    """
    gaps_us = sum(after.start_us - before.end_us for before, after in pairwise(hours))
    whole = Range(hours[0].start_us, hours[-1].end_us, gaps_us)
    rows = compute(deltas, whole)
    return rows if len(hours) == 1 else rows.where(any_of(derived.spec.partition_by, hours))
