"""The assets of the rollups: `minute_counts`, `hourly_counts`, `daily_counts` and `weekly_counts`.

Belongs here: read, transform, replace, record. Any ranges of partitions are one Spark job (O2), a pure function of one
version of the input (decision 0052, pure functions).
"""

import time
from collections.abc import Callable

import dagster as dg
from pyspark.sql import DataFrame

from assets.ingest.schema import DELTAS
from assets.inputs import input_of
from assets.metadata import KINDS, OWNERS, table_metadata
from assets.partitions import HOURLY, PARTITIONS, SAME_TIME, partitions_in, starts_in
from assets.requested import report, requested_ranges
from assets.rollups.records import rollup_records
from assets.rollups.schema import DAILY_COUNTS, HOURLY_COUNTS, MINUTE_COUNTS, WEEKLY_COUNTS
from assets.rollups.transform import count_days, count_hours, count_minutes, count_weeks
from assets.tables import GRAPH
from assets.trust import refuse_edited, refuse_wrong
from assets.watermarks import input_watermarks, record_watermarks
from resources.lake import Lake, LakeError, TableSpec
from resources.platform import TidemarkResource
from tidemark.counts.retention import settled_before
from tidemark.counts.windows import shown
from tidemark.model.ranges import Range, any_of
from tidemark.model.timegrid import DAY, WEEK
from tidemark.storage.failpoints import failpoint
from tidemark.storage.home import Home

GROUP = "rollups"


@dg.asset(
    deps=[dg.AssetDep(DELTAS.name, partition_mapping=SAME_TIME)],
    partitions_def=HOURLY,
    backfill_policy=dg.BackfillPolicy.single_run(),
    group_name=GROUP,
    kinds=KINDS,
    owners=OWNERS,
    description=MINUTE_COUNTS.description,
    metadata=table_metadata(MINUTE_COUNTS),
)
def minute_counts(context: dg.AssetExecutionContext, tidemark: TidemarkResource) -> dg.MaterializeResult[None]:
    """Signals per entity and minute, from the deltas of the same hours."""
    return _roll_up(context, tidemark, DELTAS, MINUTE_COUNTS, count_minutes)


@dg.asset(
    deps=[dg.AssetDep(MINUTE_COUNTS.name, partition_mapping=SAME_TIME)],
    partitions_def=HOURLY,
    backfill_policy=dg.BackfillPolicy.single_run(),
    group_name=GROUP,
    kinds=KINDS,
    owners=OWNERS,
    description=HOURLY_COUNTS.description,
    metadata=table_metadata(HOURLY_COUNTS),
)
def hourly_counts(context: dg.AssetExecutionContext, tidemark: TidemarkResource) -> dg.MaterializeResult[None]:
    """Sums of minutes, for the same hours."""
    return _roll_up(context, tidemark, MINUTE_COUNTS, HOURLY_COUNTS, count_hours)


@dg.asset(
    deps=[dg.AssetDep(HOURLY_COUNTS.name, partition_mapping=SAME_TIME)],
    partitions_def=PARTITIONS[DAY],
    backfill_policy=dg.BackfillPolicy.single_run(),
    group_name=GROUP,
    kinds=KINDS,
    owners=OWNERS,
    description=DAILY_COUNTS.description,
    metadata=table_metadata(DAILY_COUNTS),
)
def daily_counts(context: dg.AssetExecutionContext, tidemark: TidemarkResource) -> dg.MaterializeResult[None]:
    """Sums of hours, for the days that hold them."""
    return _roll_up(context, tidemark, HOURLY_COUNTS, DAILY_COUNTS, count_days)


@dg.asset(
    deps=[dg.AssetDep(DAILY_COUNTS.name, partition_mapping=SAME_TIME)],
    partitions_def=PARTITIONS[WEEK],
    backfill_policy=dg.BackfillPolicy.single_run(),
    group_name=GROUP,
    kinds=KINDS,
    owners=OWNERS,
    description=WEEKLY_COUNTS.description,
    metadata=table_metadata(WEEKLY_COUNTS),
)
def weekly_counts(context: dg.AssetExecutionContext, tidemark: TidemarkResource) -> dg.MaterializeResult[None]:
    """Sums of days, for the weeks that hold them."""
    return _roll_up(context, tidemark, DAILY_COUNTS, WEEKLY_COUNTS, count_weeks)


def replace_sums(
    lake: Lake, source: TableSpec, target: TableSpec, transform: Callable[[DataFrame], DataFrame], *windows: Range
) -> int:
    """Sum up ranges of partitions, the earliest first, and replace them in one commit; gives the input's version."""
    refuse_settled(lake.home, target, windows[0])
    with lake.lock(target.name):
        made_from = input_of(lake, source.name)
        refuse_edited(lake, GRAPH[target.name], windows)
        lake.settle(target)
        rows = (
            lake.read(source.name, made_from.version).where(any_of(source.partition_by, windows)).transform(transform)
        )
        # The sums are small: one file per partition, in the order in which they are looked up.
        filed = rows.repartition(target.partition_by).sortWithinPartitions(target.partition_by, *target.order_by)
        lake.replace(target, filed, hours=partitions_in(windows, target.grain), made_from=made_from)
    return made_from.version


def refuse_settled(home: Home, target: TableSpec, window: Range) -> None:
    """Raise for partitions whose input was dropped: computed again, they would lose what they hold (R5)."""
    settled_us = settled_before(home, target.name)
    if settled_us is not None and window.start_us < settled_us:
        raise LakeError(
            f"{target.name} before {shown(settled_us)} is settled: what it is made of was dropped. Nothing was "
            f"changed; begin with {target.grain.key(settled_us)}."
        )


def _roll_up(
    context: dg.AssetExecutionContext,
    tidemark: TidemarkResource,
    source: TableSpec,
    target: TableSpec,
    transform: Callable[[DataFrame], DataFrame],
) -> dg.MaterializeResult[None]:
    """Read the ranges at one version of the input, sum them up, replace them, one record per partition."""
    started, lake = time.monotonic(), tidemark.lake
    windows, marks = requested_ranges(context, target.grain), input_watermarks(lake.home.plans, [source.name])
    refuse_wrong(context.instance, lake.home, GRAPH[target.name], windows)
    version = replace_sums(lake, source, target, transform, *windows)
    failpoint("rollup.committed")
    duration_ms = round((time.monotonic() - started) * 1000)
    starts = [start for each in windows for start in starts_in(each, target.grain)]
    records = rollup_records(
        context.instance, lake, source, version, target, starts, duration_ms=duration_ms, now_us=tidemark.now_us()
    )
    report(context, records)
    record_watermarks(lake.home.plans, records, marks)
    failpoint("record.logged")
    return dg.MaterializeResult()
