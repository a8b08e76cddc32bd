"""Records (O1) of `deltas`, `dead_letters` and the drain itself, from the manifests and the tables' own logs.

Belongs here: where each number of a record comes from. No Spark: the contents of a partition are read from its files.
"""

from collections.abc import Iterable, Mapping

from assets.ingest.schema import DELTAS
from assets.records import Recorder, levels
from resources.lake import Lake, TableSpec
from resources.record import Record
from tidemark.log.manifest import Entry, HourCounts
from tidemark.model.timegrid import hour_key
from tidemark.observe.sealed_log import Log
from tidemark.tables import lake_files
from tidemark.tables.plans import Plan


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
    log, wanted, upto = Log(lake.home), sorted(starts), plan.upto if plan else {}
    recorder = Recorder(lake, spec.name, duration_ms=duration_ms, now_us=now_us)
    path, version = lake.path(spec.name), recorder.known.version
    counted = count_hours(log.below(upto), map(hour_key, wanted), is_event=spec is DELTAS)
    files = lake_files.partitions(path, version)
    held = lake_files.summarize(path, version, wanted, has_stamps=spec is DELTAS)
    watermark, reached = log.watermark(upto), levels(lake, plan)
    records = []
    for start in wanted:
        key, summary = hour_key(start), held.get(start, lake_files.PartitionSummary(0, {}, 0))
        counts = counted[key]
        records.append(
            recorder.record(
                key,
                [files[start]] if start in files else [],
                reached,
                watermark,
                previous.get(key),
                epochs=summary.epochs,
                rows_in=counts.accepted + counts.duplicate + counts.refused,
                rows_out=summary.rows,
                rows_late=summary.late,
                rows_refused=counts.accepted - summary.rows if spec is DELTAS else counts.refused,
            )
        )
    return records


def drain_record(lake: Lake, plan: Plan | None, previous: Record | None, *, duration_ms: int, now_us: int) -> Record:
    """The record of the drain: everything up to `epochs` has been reported to the orchestrator."""
    log, upto = Log(lake.home), plan.upto if plan else {}
    sealed = list(log.totals(upto))
    return Recorder(lake, DELTAS.name, asset="drain", duration_ms=duration_ms, now_us=now_us).record(
        None,
        lake_files.partitions(lake.path(DELTAS.name)).values(),
        levels(lake, plan),
        log.watermark(upto),
        previous,
        epochs={shard: (1, end) for shard, end in upto.items()},
        rows_in=sum(totals.rows for totals in sealed),
        rows_refused=sum(totals.verdicts.refused for totals in sealed),
    )


def count_hours(entries: Iterable[Entry], keys: Iterable[str], *, is_event: bool) -> dict[str, HourCounts]:
    """The log's counts for each of these hours, of event or of receipt, added up in one pass."""
    found = dict.fromkeys(keys, HourCounts())
    for entry in entries:
        hours = entry.event_hours if is_event else entry.receipt_hours
        for key in hours.keys() & found.keys():
            found[key] = found[key].plus(hours[key])
    return found
