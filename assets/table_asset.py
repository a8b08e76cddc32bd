"""From the declaration of a table to its asset, and the frame that all derived tables with partitions of time share.

Belongs here: what every asset says of its table; dependencies and partitions as the orchestrator knows them, the
refusal to build on a partition that failed its check, a record for each partition, and watermarks. Does not belong
here: how rows are computed and written (each stage), the list of tables (`tables.py`).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias

import dagster as dg

from assets.graph import By, Derived
from assets.metadata import KINDS, OWNERS, table_metadata
from assets.partitions import BUCKETED, PARTITIONS
from assets.records import Writing
from assets.requested import report, requested_ranges
from assets.trust import refuse_wrong
from assets.watermarks import input_watermarks, record_watermarks
from resources.platform import TidemarkResource
from resources.record import Record
from tidemark.model.ranges import Range
from tidemark.storage.failpoints import failpoint
from tidemark.tables.table_spec import TableSpec

# Writes ranges of partitions, the earliest first, and returns the records of all that it has made.
Materialize: TypeAlias = Callable[[Writing, Sequence[Range]], list[Record]]


@dataclass(frozen=True)
class TableAsset:
    """A table with partitions of time that are made from others or from the log: how, and the asset that it is.

    Its watermark is the least of the watermarks in the records, or, with `is_held_by_tables`, of its inputs as tables.
    With `takes_gaps` it costs nothing to make partitions together that lie far apart. `deps` are shown, too.
    """

    derived: Derived
    materialize: Materialize
    is_held_by_tables: bool = False
    takes_gaps: bool = False
    deps: tuple[dg.AssetDep, ...] = ()
    more: str = ""  # of its description

    def write(
        self,
        context: dg.AssetExecutionContext,
        tidemark: TidemarkResource,
        windows: Sequence[Range],
        report: Callable[[list[Record]], None],
    ) -> list[Record]:
        """Make ranges of partitions, the earliest first, and report them, unless they must not be built."""
        plans = tidemark.home.plans
        marks = input_watermarks(plans, self.derived.inputs) if self.is_held_by_tables else None
        refuse_wrong(context.instance, tidemark.home, self.derived, windows)
        records = self.materialize(Writing(context, tidemark.lake, tidemark.now_us), windows)
        report(records)
        record_watermarks(plans, records, marks)
        failpoint("record.logged")
        return records

    @cached_property
    def definition(self) -> dg.AssetsDefinition:
        """The asset, which makes the partitions that its run asks for."""
        spec, derived = self.derived.spec, self.derived
        inputs = (dg.AssetDep(table, partition_mapping=mapping_of(derived, table)) for table in derived.inputs)

        @asset_of(spec, group=derived.group, deps=(*self.deps, *inputs), more=self.more)
        def table(context: dg.AssetExecutionContext, tidemark: TidemarkResource) -> dg.MaterializeResult[None]:
            self.write(context, tidemark, requested_ranges(context, spec.grain), partial(report, context))
            return dg.MaterializeResult()

        return table


def asset_of(
    spec: TableSpec, *, group: str, deps: Iterable[dg.AssetDep] = (), more: str = ""
) -> Callable[[Callable[..., Any]], dg.AssetsDefinition]:
    """The asset that a table is: its name, columns and partitions follow from it; a backfill is one run (O2)."""
    partitions: dg.PartitionsDefinition | None = None
    if not spec.is_whole:
        partitions = BUCKETED if spec.buckets else PARTITIONS[spec.grain]
    return dg.asset(
        name=spec.name,
        deps=list(deps),
        partitions_def=partitions,
        backfill_policy=dg.BackfillPolicy.single_run() if partitions else None,
        group_name=group,
        kinds=KINDS,
        owners=OWNERS,
        description=f"{spec.description} {more}".rstrip(),
        metadata=table_metadata(spec),
    )


def mapping_of(derived: Derived, table: str) -> dg.PartitionMapping:
    """The graph's need for an input, as a partition mapping of the orchestrator.

    A delta that arrived in an hour, or under a watermark of that hour, may have happened at any time before. The
    current day or month has hours that do not exist yet; they are allowed, or its update would fail and be lost.
    """
    needs = [need for need in derived.needs if need.table.name == table]
    if any(need.by in (By.RECEIPT, By.STAMP, By.BATCH) for need in needs):
        return dg.AllPartitionMapping()
    if any(need.by is By.MEETING for need in needs):
        # Only the tables know how far sessions reach back; the orchestrator shows a day.
        return dg.TimeWindowPartitionMapping(start_offset=-24, allow_nonexistent_upstream_partitions=True)
    return dg.TimeWindowPartitionMapping(
        start_offset=-max(need.table.grain.reach(need.before_us) for need in needs),
        end_offset=max(need.table.grain.reach(need.after_us) for need in needs),
        allow_nonexistent_upstream_partitions=True,
    )
