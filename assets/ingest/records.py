"""Records (O1) of `deltas`, `dead_letters` and the drain itself, from the manifests and the tables' own logs.

Belongs here: where each number of a record comes from. No Spark: the contents of a partition are read from its files.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from assets.ingest.schema import DELTAS
from assets.records import Recorder, Writing, levels
from resources.lake import TableSpec
from resources.record import Record
from tidemark.log.manifest import Entry, HourCounts
from tidemark.model.timegrid import hour_key
from tidemark.observe.log_index import index_of
from tidemark.observe.sealed_log import Log
from tidemark.tables import lake_files
from tidemark.tables.known_table import KnownTable
from tidemark.tables.plans import Plan


def hour_records(
    run: Writing,
    spec: TableSpec,
    starts: Iterable[int],
    plan: Plan | None,
    previous: Mapping[str, Record],
    *,
    new: Mapping[str, "NewInHour"] | None = None,
) -> list[Record]:
    """One record for each hour of `deltas` or `dead_letters`, as of the table's latest version.

    `previous` are the records that these hours have: no watermark falls below the one recorded before (T3). `new` is
    what came into each hour of `deltas` since; without it, anything in an hour may have changed.

    Rows in are the deltas that the log has for the hour. Refused rows are, for an hour of `dead_letters`, the deltas
    that the log refused; for an hour of `deltas`, the ones that it accepted and the drain found to be duplicates.
    """
    lake, wanted, upto = run.lake, sorted(starts), plan.upto if plan else {}
    log, recorder = Log(lake.home), Recorder(run, spec.name)
    path, version = lake.path(spec.name), recorder.known.version
    index = index_of(lake.home, log, upto)
    counted = index.event if spec is DELTAS else index.receipt
    files = lake_files.partitions(path, version)
    held = lake_files.summarize(path, version, wanted, has_stamps=spec is DELTAS)
    watermark, reached = log.watermark(upto), levels(lake, plan)
    records = []
    for start in wanted:
        key, summary = hour_key(start), held.get(start, lake_files.PartitionSummary(0, {}, 0))
        counts = counted.get(key, HourCounts())
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
                changed=_changed((new or {}).get(key), previous.get(key), counts, lake.known(spec.name)),
            )
        )
    return records


@dataclass
class NewInHour:
    """What segments have brought into an hour."""

    accepted: int = 0
    sources: set[str] = field(default_factory=set)  # "namespace/kind"
    is_told: bool = True  # whether every segment says which these are


def new_in_hours(entries: Iterable[Entry]) -> dict[str, NewInHour]:
    """What segments have brought into each hour of the event; only what was accepted."""
    found: dict[str, NewInHour] = {}
    for entry in entries:
        for key, counts in entry.event_hours.items():
            if counts.accepted:
                hour = found.setdefault(key, NewInHour())
                hour.accepted += counts.accepted
                hour.is_told &= entry.sources is not None
        for source, hours in (entry.sources or {}).items():
            for key in hours.event:
                found.setdefault(key, NewInHour()).sources.add(source)
    return found


def _changed(new: NewInHour | None, previous: Record | None, counts: HourCounts, known: KnownTable) -> dict[str, int]:
    """The version in which each namespace and kind of an hour last changed; empty if that is not known.

    What was changed otherwise than by a drain (a rebuild, another generation) is not known by namespace and kind.
    """
    if new is None or not new.is_told:
        return {}
    now = dict.fromkeys(sorted(new.sources), known.version)
    if previous is None:
        # All that the log ever had for the hour is new, so nothing else can be in it.
        return now if new.accepted == counts.accepted else {}
    is_known = previous.changed and previous.generation == known.generation
    return {**previous.changed, **now} if is_known else {}


def drain_record(run: Writing, plan: Plan | None, previous: Record | None) -> Record:
    """The record of the drain: everything up to `epochs` has been reported to the orchestrator."""
    lake, log, upto = run.lake, Log(run.lake.home), plan.upto if plan else {}
    sealed = list(log.totals(upto))
    return Recorder(run, DELTAS.name, asset="drain").record(
        None,
        lake_files.partitions(lake.path(DELTAS.name)).values(),
        levels(lake, plan),
        log.watermark(upto),
        previous,
        epochs={shard: (1, end) for shard, end in upto.items()},
        rows_in=sum(totals.rows for totals in sealed),
        rows_refused=sum(totals.verdicts.refused for totals in sealed),
    )
