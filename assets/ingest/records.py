"""Records (O1) of `deltas`, `dead_letters` and the drain itself, from the manifests and the tables' own logs.

Belongs here: where each number of a record comes from. No Spark: the contents of a partition are read from its files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assets.ingest.schema import DELTAS
from resources.lake import Lake, TableSpec
from resources.record import Record, not_below
from tidemark.log.manifest import Entry, HourCounts
from tidemark.model.timegrid import hour_key
from tidemark.observe.sealed_log import Log
from tidemark.observe.status import read_status
from tidemark.shard_state.clock_reset import ceiling_us
from tidemark.tables import lake_files
from tidemark.tables.plans import Plan


@dataclass(frozen=True)
class Levels:
    """How far each shard is, at each level (C2): shard → epoch."""

    applied: dict[int, int]
    flushed: dict[int, int]
    durable: dict[int, int]


def levels(lake: Lake, plan: Plan | None) -> Levels:
    """Applied and flushed from the log, durable from the committed plan; no level is ever ahead of the one below it."""
    durable = plan.durable if plan else {}
    status = {shard.shard: shard for shard in read_status(lake.home)}
    return Levels(
        applied={shard: max(found.applied_epoch, durable.get(shard, 0)) for shard, found in status.items()},
        flushed={shard: max(found.flushed_epoch, durable.get(shard, 0)) for shard, found in status.items()},
        durable={shard: durable.get(shard, 0) for shard in status},
    )


def hour_records(
    lake: Lake,
    spec: TableSpec,
    starts: Iterable[int],
    plan: Plan | None,
    previous: Mapping[str, Record],
    *,
    duration_ms: int,
    now_us: int,
) -> list[Record]:
    """One record for each hour of `deltas` or `dead_letters`, as of the table's latest version.

    `previous` are the records that these hours have: no watermark falls below the one recorded before (T3).

    Rows in are the deltas that the log has for the hour. Refused rows are, for an hour of `dead_letters`, the deltas
    that the log refused; for an hour of `deltas`, the ones that it accepted and the drain found to be duplicates.
    """
    log, known, wanted = Log(lake.home), lake.known(spec.name), sorted(starts)
    counted = count_hours(log.below(plan.upto if plan else {}), map(hour_key, wanted), is_event=spec is DELTAS)
    path = lake.path(spec.name)
    files = lake_files.partitions(path, known.version)
    held = lake_files.summarize(path, known.version, wanted, has_stamps=spec is DELTAS)
    watermark, reached = log.watermark(plan.upto if plan else {}), levels(lake, plan)
    records = []
    ceiling = ceiling_us(lake.home, now_us)
    for start in wanted:
        counts = counted[hour_key(start)]
        summary = held.get(start, lake_files.PartitionSummary(0, {}, 0))
        watermark_us, held_by = not_below(watermark.time_us, watermark.held_by, previous.get(hour_key(start)), ceiling)
        records.append(
            Record(
                asset=spec.name,
                partition=hour_key(start),
                generation=known.generation,
                table_version=known.version,
                table_id=known.table_id,
                epochs=summary.epochs,
                applied=reached.applied,
                flushed=reached.flushed,
                durable=reached.durable,
                watermark_us=watermark_us,
                held_by=held_by,
                rows_in=counts.accepted + counts.duplicate + counts.refused,
                rows_out=summary.rows,
                rows_late=summary.late,
                rows_refused=counts.accepted - summary.rows if spec is DELTAS else counts.refused,
                bytes=files[start].bytes if start in files else 0,
                duration_ms=duration_ms,
                recorded_us=now_us,
            )
        )
    return records


def drain_record(lake: Lake, plan: Plan | None, previous: Record | None, *, duration_ms: int, now_us: int) -> Record:
    """The record of the drain: everything up to `epochs` has been reported to the orchestrator."""
    log, known = Log(lake.home), lake.known(DELTAS.name)
    upto = plan.upto if plan else {}
    sealed, watermark, reached = list(log.totals(upto)), log.watermark(upto), levels(lake, plan)
    files = lake_files.partitions(lake.path(DELTAS.name)).values()
    watermark_us, held_by = not_below(watermark.time_us, watermark.held_by, previous, ceiling_us(lake.home, now_us))
    return Record(
        asset="drain",
        partition=None,
        generation=known.generation,
        table_version=known.version,
        table_id=known.table_id,
        epochs={shard: (1, end) for shard, end in upto.items()},
        applied=reached.applied,
        flushed=reached.flushed,
        durable=reached.durable,
        watermark_us=watermark_us,
        held_by=held_by,
        rows_in=sum(totals.rows for totals in sealed),
        rows_out=sum(partition.rows for partition in files),
        rows_refused=sum(totals.verdicts.refused for totals in sealed),
        bytes=sum(partition.bytes for partition in files),
        duration_ms=duration_ms,
        recorded_us=now_us,
    )


def count_hours(entries: Iterable[Entry], keys: Iterable[str], *, is_event: bool) -> dict[str, HourCounts]:
    """The log's counts for each of these hours, of event or of receipt, added up in one pass."""
    found = dict.fromkeys(keys, HourCounts())
    for entry in entries:
        hours = entry.event_hours if is_event else entry.receipt_hours
        for key in hours.keys() & found.keys():
            found[key] = found[key].plus(hours[key])
    return found
