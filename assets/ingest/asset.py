"""The assets of the ingest: `drain`, `deltas` and `dead_letters`.

Belongs here: what the orchestrator sees of the drain and the rebuild. `drain` brings in new segments and reports the
hours it touched; materializing an hour of `deltas` or `dead_letters` rebuilds it from the log.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import dagster as dg

from assets.graph import Derived
from assets.ingest.drain import drain_all
from assets.ingest.rebuild import committed_number, plan_store, rebuild
from assets.ingest.records import drain_record, hour_records, new_in_hours
from assets.ingest.schema import DEAD_LETTERS, DELTAS
from assets.metadata import KINDS, OWNERS
from assets.partitions import partitions_in, starts_of
from assets.records import Writing
from assets.requested import report_now
from assets.table_asset import Materialize, TableAsset
from assets.watermarks import record_watermarks
from resources.lake import Lake, TableSpec
from resources.platform import TidemarkResource
from resources.record import Record
from tidemark.log.manifest import Entry
from tidemark.model.ranges import Range
from tidemark.model.timegrid import hour_key
from tidemark.observe.log_index import index_of, save_index
from tidemark.observe.sealed_log import Log, TouchedHours, touched_hours
from tidemark.storage.failpoints import failpoint
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.first_hour import FirstHourFile
from tidemark.tables.plans import Plan

GROUP = "ingest"
# So that the graph shows where rows come from. Nothing follows it: the drain itself reports what it has filled.
DRAINED = (dg.AssetDep("drain"),)


# Called inside the drain's step with the partitions that it has reported, by table: only there can an unpartitioned
# run log the check results of the hours that it touched. An exception fails the run, but not the commit.
DrainCheck = Callable[[dg.AssetExecutionContext, Lake, Mapping[str, Sequence[str]]], None]


def drain_asset(check: DrainCheck) -> dg.AssetsDefinition:
    """`drain`; `check` checks the hours that it has touched."""

    @dg.asset(
        group_name=GROUP,
        kinds=KINDS,
        owners=OWNERS,
        description="New segments into `deltas` and `dead_letters`, in one commit each.",
    )
    def drain(context: dg.AssetExecutionContext, tidemark: TidemarkResource) -> dg.MaterializeResult[None]:
        """Commit the new segments, report exactly the touched hours, and then record how far has been reported."""
        return _drain(context, tidemark, check)

    return drain


def _drain(
    context: dg.AssetExecutionContext, tidemark: TidemarkResource, check: DrainCheck
) -> dg.MaterializeResult[None]:
    lake, run = tidemark.lake, Writing(context, tidemark.lake, tidemark.now_us)
    for result in drain_all(lake):
        context.log.info(
            "plan %d: %d accepted, %d refused, %d copies",
            result.number,
            result.accepted,
            result.refused,
            result.copies,
        )
        for table, why in result.noticed.items():
            context.log.warning("%s continues under a new generation: %s", table, why)
    plan = plan_store(lake).committed(committed_number(lake, DELTAS))
    touched = unreported_hours(context.instance, lake, plan)
    new = new_in_hours(_unreported(context.instance, lake, plan))
    note_first_hour(lake.home, plan, touched)
    reported: dict[str, list[str]] = {}
    for spec, starts in ((DELTAS, touched.event), (DEAD_LETTERS, touched.receipt)):
        previous = _recorded(context.instance, spec, starts)
        records = hour_records(run, spec, starts, plan, previous, new=new if spec is DELTAS else None)
        for record in records:
            report_now(context, record)
        reported[spec.name] = [record.partition for record in records if record.partition]
        record_watermarks(lake.home.plans, records)
    failpoint("record.logged")
    check(context, lake, reported)
    save_index(lake.home, index_of(lake.home, Log(lake.home), plan.upto if plan else {}))
    record = drain_record(run, plan, Record.found(context.instance, "drain"))
    return dg.MaterializeResult(
        metadata={"hours": len(touched.event), "plan": plan.number if plan else 0, **record.to_metadata()}
    )


def note_first_hour(home: Home, plan: Plan | None, touched: TouchedHours) -> None:
    """Keep where the data begin; of a home from before that was kept, by all that was ever drained."""
    file = FirstHourFile(home)
    if plan and file.read() is None:
        touched = touched_hours(Log(home).below(plan.upto))
    file.include([*touched.event, *touched.receipt, *touched.stamp])


def unreported_hours(instance: dg.DagsterInstance, lake: Lake, plan: Plan | None) -> TouchedHours:
    """Committed hours that were not yet reported to the orchestrator in their present form.

    The last drain's record shows some of them: after a crash between a commit and its report, the next drain reports
    those hours. The generation shows the others: hours of a table that was deleted or restored were rebuilt, and have
    to be reported again.
    """
    return touched_hours(_unreported(instance, lake, plan)) | TouchedHours(
        event=_of_another_generation(instance, lake, DELTAS),
        receipt=_of_another_generation(instance, lake, DEAD_LETTERS),
    )


def _unreported(instance: dg.DagsterInstance, lake: Lake, plan: Plan | None) -> Iterator[Entry]:
    """The committed segments that no drain has recorded, read one by one."""
    last = Record.found(instance, "drain")
    reported = {shard: end for shard, (_, end) in last.epochs.items()} if last else {}
    return Log(lake.home).below(plan.upto if plan else {}, after=reported)


def _recorded(instance: dg.DagsterInstance, spec: TableSpec, starts: Iterable[int]) -> dict[str, Record]:
    """The records of these hours so far."""
    keys = [hour_key(start) for start in starts]
    return Record.latest_by_partition(instance, spec.name, keys) if keys else {}


def _of_another_generation(instance: dg.DagsterInstance, lake: Lake, spec: TableSpec) -> frozenset[int]:
    known = lake.known(spec.name)
    if known.generation == 1:
        return frozenset()
    records = Record.latest_by_partition(instance, spec.name)
    starts = lake_files.partitions(lake.path(spec.name))
    return frozenset(
        start
        for start in starts
        if (found := records.get(hour_key(start))) is None or found.generation != known.generation
    )


def _rebuild_of(spec: TableSpec) -> Materialize:
    """How hours of a table are rebuilt from the segments of committed plans."""

    def rebuild_hours(run: Writing, windows: Sequence[Range]) -> list[Record]:
        plan = plan_store(run.lake).committed(rebuild(run.lake, spec, partitions_in(windows, spec.grain)))
        starts = starts_of(windows, spec.grain)
        return hour_records(run, spec, starts, plan, _recorded(run.instance, spec, starts))

    return rebuild_hours


def _table(spec: TableSpec, more: str) -> TableAsset:
    return TableAsset(Derived(spec, (), group=GROUP), _rebuild_of(spec), takes_gaps=True, deps=DRAINED, more=more)


# What the drain fills. Materializing an hour rebuilds it, and so does a command's refresh if it failed its check.
INGESTED = (
    _table(DELTAS, "Materializing an hour rebuilds it from the log."),
    _table(DEAD_LETTERS, "Partitioned by hour of receipt."),
)
deltas, dead_letters = (table.definition for table in INGESTED)
