"""Which partitions a run was asked for, and telling the orchestrator of each.

Belongs here: the ranges of a run. The orchestrator knows one range a run; a run that is to fill several of them names
the partitions of the others in a tag, so that they are one Spark job and one commit as well (O2). What such a run has
made beside the orchestrator's own range is reported partition by partition. Does not belong here: which partitions
there are (`partitions.py`), which are wanted (`stale.py`), how the tags are named (`names.py`).
"""

from collections.abc import Iterable, Mapping
from typing import Any

import dagster as dg

from assets.metadata import data_version_tags
from assets.names import more_partitions
from resources.record import Record
from tidemark.model.buckets import BUCKET
from tidemark.model.ranges import Range, contiguous
from tidemark.model.timegrid import Grain, to_us


def requested_ranges(context: dg.AssetExecutionContext, grain: Grain) -> list[Range]:
    """The time that the run's partitions cover: as few ranges as possible, the earliest first."""
    window = context.partition_time_window
    own = grain.starts(to_us(window.start), to_us(window.end))
    return contiguous([*own, *(grain.start(key) for key in more_partitions(context.run.tags))], grain)


def requested_buckets(context: dg.AssetExecutionContext) -> list[int]:
    """The buckets that the run was asked for, in order."""
    return sorted(map(BUCKET.start, {*context.partition_keys, *more_partitions(context.run.tags)}))


def report(
    context: dg.AssetExecutionContext, records: Iterable[Record], more: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Tell the orchestrator what was recorded of each partition that the run has made; `more` by key beside it.

    Those of its own range are told with the asset's result, the others now: it would not tell of them itself.
    """
    own = set(context.partition_keys)
    for record in records:
        beside = (more or {}).get(record.partition or "", {})
        if record.partition in own:
            context.add_asset_metadata({**record.to_metadata(), **beside}, partition_key=record.partition)
        else:
            report_now(context, record, beside)


def report_now(context: dg.AssetExecutionContext, record: Record, more: Mapping[str, Any] | None = None) -> None:
    """Tell the orchestrator of a partition that is not in the run's own range."""
    metadata = {**record.to_metadata(), **(more or {})}
    context.log_event(
        dg.AssetMaterialization(
            record.asset, partition=record.partition, metadata=metadata, tags=data_version_tags(record)
        )
    )
