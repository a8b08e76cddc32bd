"""The requested partitions of a run, and reporting each of them to the orchestrator.

Belongs here: the ranges of a run. The orchestrator knows one range per run; a run that fills several ranges names the
partitions of the others in a tag, so that all of them are one Spark job and one commit (O2). The partitions that such a
run makes outside the orchestrator's own range are reported one by one. Does not belong here: which partitions exist
(`partitions.py`), which are stale (`stale.py`), the names of the tags (`names.py`).
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
    """The time that the requested partitions cover: as few ranges as possible, the earliest first."""
    window = context.partition_time_window
    own = grain.starts(to_us(window.start), to_us(window.end))
    return contiguous([*own, *(grain.start(key) for key in more_partitions(context.run.tags))], grain)


def requested_buckets(context: dg.AssetExecutionContext) -> list[int]:
    """The requested buckets of the run, in order."""
    return sorted(map(BUCKET.start, {*context.partition_keys, *more_partitions(context.run.tags)}))


def report(
    context: dg.AssetExecutionContext, records: Iterable[Record], more: Mapping[str, Mapping[str, Any]] | None = None
) -> None:
    """Report the record of each partition that the run has made, with `more` metadata by key.

    Partitions of the orchestrator's own range are reported with the asset's result. The others are reported now,
    because the orchestrator would not report them itself.
    """
    own = set(context.partition_keys)
    for record in records:
        beside = (more or {}).get(record.partition or "", {})
        if record.partition in own:
            context.add_asset_metadata({**beside, **record.to_metadata()}, partition_key=record.partition)
        else:
            report_now(context, record, beside)


def report_now(context: dg.AssetExecutionContext, record: Record, more: Mapping[str, Any] | None = None) -> None:
    """Report a partition outside the run's own range to the orchestrator."""
    metadata = {**(more or {}), **record.to_metadata()}
    context.log_event(
        dg.AssetMaterialization(
            record.asset, partition=record.partition, metadata=metadata, tags=data_version_tags(record)
        )
    )
