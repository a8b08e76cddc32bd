"""What a suite checks: a table's rows at the recorded version, and the other views that its queries may name.

Belongs here: from the records of some partitions to the DataFrames behind `{batch}`, `records` and `shards`, for the
tables of the log also `arrivals`, `segments` and `lost`, for the index `problems`, and the tables that the suite reads.
Small ones are made on the driver, so that Spark can evaluate them while it plans. Does not belong here: evaluating the
suite (`runner.py`).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from assets.graph import made_of
from assets.ingest.schema import DEAD_LETTERS, DELTAS
from assets.records import of_generation
from assets.tables import EVERY_TABLE, GRAPH
from assets.vectors.index_schema import VECTOR_INDEX
from assets.vectors.schema import VECTOR_CHECKPOINTS, VECTORS
from expectations.refold import refold, sampled
from expectations.runner import View
from expectations.suite import Extent, Suite
from resources.lake import Lake
from resources.record import Record, believed
from tidemark.log.manifest import HourCounts
from tidemark.model.buckets import BUCKET as BUCKET_GRAIN
from tidemark.model.deltas import Kind
from tidemark.model.ranges import Range, Within, bucket_predicate, contiguous, within
from tidemark.model.timegrid import DAY_US, GRAINS, HOUR_US, WEEK_US, hour_key
from tidemark.observe.log_index import index_of
from tidemark.observe.sealed_log import Log
from tidemark.shard_state.clock_reset import read_resets
from tidemark.tables import lake_files
from tidemark.tables.known_table import Edit
from tidemark.tables.plans import durable_epochs
from tidemark.vectors.index.errors import IndexDamageError
from tidemark.vectors.index.invariants import problems
from tidemark.vectors.reading.stored_index import pointers, read_index
from tidemark.vectors.tables import BUCKET, bucket_sql

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TIMESTAMP = pa.timestamp("us", tz="UTC")

# Stands for the start of a partition if a table is checked as a whole: no bucket has this number.
WHOLE_START = -1

# Start of a partition, and shard → rows, and the highest epoch.
Contents = Mapping[tuple[int, int | None], tuple[int, int | None]]


@dataclass(frozen=True)
class Recorded:
    """A partition, with the records of its last materialization and of the one before."""

    partition: str
    record: Record
    previous: Record | None = None
    edit: Edit | None = None

    @property
    def moment(self) -> tuple[Any, ...]:
        """The versions that the record names; partitions with the same versions are checked together."""
        return (self.edit is not None, self.record.table_version, *sorted(self.record.input_versions.items()))


@dataclass(frozen=True)
class Evidence:
    """The rows to check, and the views that the queries may name."""

    batch: "DataFrame"
    views: dict[str, View]


def gather(lake: Lake, suite: Suite, recorded: Sequence[Recorded]) -> Evidence:
    """The evidence for partitions whose records name the same versions."""
    record = recorded[0].record
    starts, ranges = _time_of(suite, recorded)
    version = _version(lake, suite.table, recorded[0])
    rows = lake.read(suite.table, version, within=_within(suite.partition, ranges))
    batch = rows.where(bucket_predicate(BUCKET, starts)) if suite.is_by_bucket else rows
    found = _contents(lake, suite, version, starts)
    views: dict[str, View] = {
        "records": _records(suite, recorded, starts, found, has_resets=bool(read_resets(lake.home))),
        "shards": _shards(suite, recorded, starts, found),
        "edits": _edits(suite, recorded, starts),
    }
    if suite.table in (DELTAS.name, DEAD_LETTERS.name):
        log = Log(lake.home)
        views |= {"arrivals": _arrivals(lake, suite, recorded, starts, log), **_segments(lake, log)}
    if suite.table == VECTOR_INDEX.name:
        views["problems"] = _problems(lake, recorded[0])
    if suite.table == VECTORS.name:
        chosen = sampled(batch, record.table_version)
        views["refolded"] = refold(lake, chosen, _kept(lake, DELTAS.name, record.input_versions.get(DELTAS.name)))
        views["dimensions"] = _dimensions(lake)
    for table, extent in suite.reads.items():
        if extent is Extent.INPUT:
            needed: list[Within] | None = made_of(GRAPH[suite.table].needs, table, ranges)
        else:
            needed = _within(EVERY_TABLE[table].partition_by, _extended(ranges, extent))
        rows = lake.read(table, _kept(lake, table, record.input_versions.get(table)), within=needed)
        views[table] = rows = _of_buckets(rows, starts) if extent is Extent.SAME_BUCKETS else rows
        if suite.table == VECTOR_CHECKPOINTS.name and table == DELTAS.name:
            from assets.vectors.refolded import refolded_checkpoints

            views["refolded"] = refolded_checkpoints(rows.drop(BUCKET), batch)
    return Evidence(batch, views)


def _time_of(suite: Suite, recorded: Sequence[Recorded]) -> tuple[list[int], list[Range]]:
    """Starts of the partitions, and the time that they cover; a whole table and buckets cover none."""
    if suite.is_whole:
        return [WHOLE_START] * len(recorded), []
    if suite.is_by_bucket:
        return [BUCKET_GRAIN.start(each.partition) for each in recorded], []
    grain = GRAINS[suite.grain]
    starts = [grain.start(each.partition) for each in recorded]
    return starts, contiguous(starts, grain)


def _extended(ranges: Sequence[Range], extent: Extent) -> list[Range]:
    """The time ranges for which another table is read."""
    if extent is Extent.EVERYTHING:
        return []
    # The partition that holds the start of the range begins before it, by less than a week.
    back_us = {Extent.THIRTY_DAYS: 30 * DAY_US + WEEK_US, Extent.HOUR_BEFORE: HOUR_US}.get(extent, 0)
    return [Range(each.start_us - back_us, each.end_us) for each in ranges]


def _version(lake: Lake, table: str, recorded: Recorded) -> int | None:
    """The version to check: the recorded one, or the latest one if another process has changed rows since."""
    return None if recorded.edit else _kept(lake, table, recorded.record.table_version)


def _kept(lake: Lake, table: str, version: int | None) -> int | None:
    """The version, if its files surely still exist; None means the latest, which has the same rows.

    A run that changed a partition since would have recorded it again; maintenance changes files but no rows.
    """
    return version if version is not None and lake.is_retained(table, version) else None


def _within(column: str, ranges: Sequence[Range]) -> list[Within] | None:
    """The rows of some partitions; all rows if no range is given."""
    return within(column, ranges) if ranges else None


def _of_buckets(deltas: "DataFrame", buckets: Sequence[int]) -> "DataFrame":
    """The deltas of vectors in some buckets, with the bucket of each."""
    from pyspark.sql import functions as F

    vectors = deltas.where(F.col("kind") == Kind.VECTOR.value).withColumn(BUCKET, F.expr(bucket_sql("key")))
    return vectors.where(bucket_predicate(BUCKET, buckets))


def _contents(lake: Lake, suite: Suite, version: int | None, starts: Sequence[int]) -> Contents:
    """What the files of the checked partitions hold: tables of sums have no shard.

    Read from the files themselves, and not from the table's log, which says what a writer believed.
    """
    held = lake_files.partitions(lake.path(suite.table), version)
    if suite.is_whole:
        files = {WHOLE_START: [file for partition in held.values() for file in partition.files]}
    else:
        files = {start: list(held[start].files) for start in starts if start in held}
    if "epoch" not in EVERY_TABLE[suite.table].names:
        return {
            (start, None): (sum(pq.read_metadata(file).num_rows for file in each), None)
            for start, each in files.items()
        }
    query = "SELECT shard, count(*), max(epoch) FROM read_parquet($1) GROUP BY shard"
    with lake_files.quiet_database() as database:
        return {
            (start, shard): (rows, highest)
            for start, each in files.items()
            if each
            for shard, rows, highest in database.execute(query, [each]).fetchall()
        }


def _records(
    suite: Suite,
    recorded: Sequence[Recorded],
    starts: Sequence[int],
    found: Contents,
    *,
    has_resets: bool,
) -> pa.Table:
    previous = [_comparable(each) for each in recorded]
    # Only a reset of the log's clock takes back a promise about the future (C15).
    ceilings = [each.record.recorded_us if has_resets else None for each in recorded]
    promised = [believed(each, ceiling) for each, ceiling in zip(previous, ceilings, strict=True)]
    rows_found = [sum(rows for (start, _), (rows, _) in found.items() if start == each) for each in starts]
    return pa.table(
        {
            suite.partition: pa.array(starts, _partition_type(suite)),
            "rows_out": _integers(each.record.rows_out for each in recorded),
            "rows_found": _integers(rows_found),
            "watermark_us": _integers(each.record.watermark_us for each in recorded),
            "previous_watermark_us": _integers(promised),
        }
    )


def _shards(
    suite: Suite,
    recorded: Sequence[Recorded],
    starts: Sequence[int],
    found: Contents,
) -> pa.Table:
    rows: list[tuple[int | None, ...]] = []
    for each, start in zip(recorded, starts, strict=True):
        record, previous = each.record, _comparable(each)
        shards = record.durable.keys() | {shard for at, shard in found if at == start and shard is not None}
        for shard in sorted(shards):
            levels = (record.applied.get(shard, 0), record.flushed.get(shard, 0), record.durable.get(shard, 0))
            before = previous.durable.get(shard) if previous else None
            rows.append((start, shard, *levels, before, found.get((start, shard), (0, None))[1]))
    names = ("applied_epoch", "flushed_epoch", "durable_epoch", "previous_durable_epoch", "highest_epoch")
    columns: list[list[int | None]] = [[row[place] for row in rows] for place in range(2 + len(names))]
    return pa.table(
        {
            suite.partition: pa.array(columns[0], _partition_type(suite)),
            "shard": pa.array(columns[1], pa.int32()),
            **{name: _integers(column) for name, column in zip(names, columns[2:], strict=True)},
        }
    )


def _partition_type(suite: Suite) -> pa.DataType:
    return pa.int64() if suite.is_whole or suite.is_by_bucket else TIMESTAMP


def _edits(suite: Suite, recorded: Sequence[Recorded], starts: Sequence[int]) -> pa.Table:
    found = [(start, each.edit) for each, start in zip(recorded, starts, strict=True) if each.edit]
    return pa.table(
        {
            suite.partition: pa.array([start for start, _ in found], _partition_type(suite)),
            "version": _integers(edit.version for _, edit in found),
            "operation": pa.array([edit.operation for _, edit in found], pa.string()),
        }
    )


def _arrivals(lake: Lake, suite: Suite, recorded: Sequence[Recorded], starts: Sequence[int], log: Log) -> pa.Table:
    """The manifest's counts for each hour, as far as the partition's own record says that they are durable."""
    counts: list[HourCounts] = []
    for each, start in zip(recorded, starts, strict=True):
        index = index_of(lake.home, log, {shard: epoch + 1 for shard, epoch in each.record.durable.items()})
        hours = index.event if suite.table == DELTAS.name else index.receipt
        counts.append(hours.get(hour_key(start), HourCounts()))
    return pa.table(
        {
            suite.partition: pa.array(starts, _partition_type(suite)),
            "accepted": _integers(count.accepted for count in counts),
            "duplicate": _integers(count.duplicate for count in counts),
            "refused": _integers(count.refused for count in counts),
        }
    )


def _problems(lake: Lake, recorded: Recorded) -> pa.Table:
    """The problems of each index that the pointer names: most of them cannot be found with SQL."""
    found: list[tuple[str, str]] = []
    for namespace, pointer in pointers(lake.home, _version(lake, VECTOR_INDEX.name, recorded)).items():
        try:
            found += [(namespace, problem) for problem in problems(read_index(lake.home, pointer))]
        except IndexDamageError as error:
            found.append((namespace, str(error)))
    return pa.table(
        {
            "bucket": _integers(WHOLE_START for _ in found),
            "namespace": pa.array([namespace for namespace, _ in found], pa.string()),
            "problem": pa.array([problem for _, problem in found], pa.string()),
        }
    )


def _segments(lake: Lake, log: Log) -> dict[str, pa.Table]:
    """Every segment that was sealed, and the epochs that were lost in a crash.

    Those that are known to follow one another are one row together: there may be a year of them. What was turned away
    is counted by each line, and by the totals up to and including it.
    """
    upto = {shard: epoch + 1 for shard, epoch in durable_epochs(lake.home).items()}
    index = index_of(lake.home, log, upto)
    is_whole = not any(covered.holes for covered in index.shards.values())
    lost = list(index.lost) if is_whole else []
    totals = dict(zip(log.sealed, log.totals(index.upto), strict=True)) if is_whole else {}
    rows: list[tuple[int | None, ...]] = [
        (
            *(shard, covered.number, 1, covered.to_epoch, covered.rows, *_verdicts(covered.verdicts)),
            *(covered.turned_away, totals[shard].turned_away.deltas),
        )
        for shard, covered in index.shards.items()
        if is_whole and covered.number
    ]
    for entry in log.beyond(index.upto if is_whole else {}):
        lost += [(entry.shard, start, end) for start, end in entry.lost]
        place = (entry.shard, entry.number, entry.from_epoch, entry.to_epoch)
        in_all = entry.totals.turned_away.deltas if entry.totals else None  # lines of older homes have no totals
        rows.append((*place, entry.rows, *_verdicts(entry.verdicts), entry.turned_away.deltas, in_all))
    counts = ("rows", "accepted", "duplicate", "refused", "turned_away", "turned_away_in_all")
    names = ("number", "from_epoch", "to_epoch", *counts)
    return {
        "segments": _by_shard(names, rows),
        "lost": _by_shard(("from_epoch", "to_epoch"), lost),
    }


def _verdicts(counts: HourCounts) -> tuple[int, int, int]:
    return counts.accepted, counts.duplicate, counts.refused


def _by_shard(names: Sequence[str], rows: Sequence[tuple[int | None, ...]]) -> pa.Table:
    columns = [[row[place] for row in rows] for place in range(1 + len(names))]
    numbers = {name: _integers(column) for name, column in zip(names, columns[1:], strict=True)}
    return pa.table({"shard": pa.array(columns[0], pa.int32()), **numbers})


def _dimensions(lake: Lake) -> pa.Table:
    """The declared length of vectors, by namespace."""
    declared = {name: each.dimension for name, each in lake.home.settings.namespaces.items() if each.dimension}
    return pa.table(
        {"namespace": pa.array(list(declared), pa.string()), "dimension": pa.array(list(declared.values()), pa.int32())}
    )


def _comparable(recorded: Recorded) -> Record | None:
    """The previous record, if it is of the same generation: epochs and watermarks only rise within one (C2)."""
    return of_generation(recorded.previous, recorded.record.generation)


def _integers(values: Iterable[int | None]) -> pa.Array:
    return pa.array(list(values), pa.int64())
