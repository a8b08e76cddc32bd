"""Records (O1) of the rollups: carried on from the inputs' records, with the table's own numbers.

Belongs here: how epochs and watermarks propagate along the asset graph (T3). No Spark.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from assets.rollups.schema import MINUTE_COUNTS, TRAILING_COUNTS, WINDOWED_COUNTS
from resources.lake import Lake, TableSpec
from resources.record import Record, RecordError, believed, not_below
from tidemark.counts.tables import Tables
from tidemark.counts.windows import Span
from tidemark.shard_state.clock_reset import ceiling_us
from tidemark.tables import lake_files
from tidemark.tables.tiers import Tier

if TYPE_CHECKING:
    from dagster import DagsterInstance


def partition_key(spec: TableSpec, start_us: int) -> str:
    """Key of the table's partition that holds a time."""
    return spec.grain.key(start_us)


def rollup_records(
    instance: "DagsterInstance",
    lake: Lake,
    source: TableSpec,
    source_version: int,
    target: TableSpec,
    starts: Sequence[int],
    *,
    duration_ms: int,
    now_us: int,
) -> list[Record]:
    """One record for each partition of `target`, computed from `source` at one version."""
    known, path = lake.known(target.name), lake.path(target.name)
    held = lake_files.partitions(path, known.version)
    inputs = {start: source.grain.starts(start, target.grain.next(start)) for start in starts}
    keys = [partition_key(source, start) for each in inputs.values() for start in each]
    before = Record.latest_by_partition(instance, source.name, keys)
    own = Record.latest_by_partition(instance, target.name, [partition_key(target, start) for start in starts])
    source_rows = {
        start: files.rows for start, files in lake_files.partitions(lake.path(source.name), source_version).items()
    }
    records, ceiling = [], ceiling_us(lake.home, now_us)
    for start in starts:
        key = partition_key(target, start)
        found = [record for each in inputs[start] if (record := before.get(partition_key(source, each)))]
        watermark, held_by = _watermark(found, own.get(key), ceiling)
        records.append(
            Record(
                asset=target.name,
                partition=key,
                generation=known.generation,
                table_version=known.version,
                table_id=known.table_id,
                input_versions={source.name: source_version},
                input_generations={source.name: lake.known(source.name).generation},
                epochs=_epochs(found),
                applied=_lowest(record.applied for record in found),
                flushed=_lowest(record.flushed for record in found),
                durable=_lowest(record.durable for record in found),
                watermark_us=watermark,
                held_by=held_by,
                rows_in=sum(source_rows.get(each, 0) for each in inputs[start]),
                rows_out=held[start].rows if start in held else 0,
                rows_late=sum(record.rows_late for record in found),
                bytes=held[start].bytes if start in held else 0,
                duration_ms=duration_ms,
                recorded_us=now_us,
            )
        )
    return records


def input_watermark(inputs: Iterable[Mapping[str, Record]], ceiling: int | None) -> int | None:
    """How far all tables have come: the furthest partition of each table, and the least of these (T3)."""
    found = [[each for record in records.values() if (each := believed(record, ceiling))] for records in inputs]
    return min(max(each) for each in found) if found and all(found) else None


def windowed_record(
    instance: "DagsterInstance",
    lake: Lake,
    inputs: Mapping[str, Mapping[str, Record]],
    tables: Tables,
    spans: Mapping[Tier, Sequence[Span]],
    *,
    as_of_us: int,
    duration_ms: int,
    now_us: int,
) -> Record:
    """The record of `windowed_counts`, which is as of one time and has no partitions for the orchestrator."""
    name = WINDOWED_COUNTS.name
    known, minutes = lake.known(name), inputs[MINUTE_COUNTS.name]
    held = lake_files.partitions(lake.path(name), known.version).values()
    previous = _last(instance, name, known.generation)
    ceiling = ceiling_us(lake.home, now_us)
    reached_us, holder = input_watermark(inputs.values(), ceiling), _holder(minutes.values())
    watermark_us, held_by = not_below(reached_us, holder, previous, ceiling)
    return Record(
        asset=name,
        partition=None,
        generation=known.generation,
        table_version=known.version,
        table_id=known.table_id,
        input_versions={spec.name: tables.versions[spec.name] for spec in TRAILING_COUNTS.values()},
        input_generations={spec.name: lake.known(spec.name).generation for spec in TRAILING_COUNTS.values()},
        epochs=_epochs(minutes.values()),
        applied=_highest(record.applied for record in minutes.values()),
        flushed=_highest(record.flushed for record in minutes.values()),
        durable=_covered(minutes, tables.behind[Tier.MINUTE], previous),
        watermark_us=watermark_us,
        held_by=held_by,
        rows_in=sum(_rows_read(lake, spec, tables, spans[tier]) for tier, spec in TRAILING_COUNTS.items()),
        rows_out=sum(files.rows for files in held),
        bytes=sum(files.bytes for files in held),
        duration_ms=duration_ms,
        as_of_us=as_of_us,
        recorded_us=now_us,
    )


def _last(instance: "DagsterInstance", asset: str, generation: int) -> Record | None:
    try:
        found = Record.latest(instance, asset)
    except RecordError:
        return None
    return found if found.generation == generation else None


def _holder(records: Iterable[Record]) -> str | None:
    """What holds back the watermark of the record that has come furthest."""
    found = [record for record in records if record.watermark_us]
    return max(found, key=lambda record: record.watermark_us or 0).held_by if found else None


def _rows_read(lake: Lake, spec: TableSpec, tables: Tables, spans: Sequence[Span]) -> int:
    """Number of rows in the partitions that hold any of the buckets."""
    return sum(
        files.rows
        for start, files in lake_files.partitions(lake.path(spec.name), tables.versions[spec.name]).items()
        if any(
            span.end_us > start and (span.start_us is None or span.start_us < spec.grain.next(start)) for span in spans
        )
    )


def _covered(minutes: Mapping[str, Record], behind: Iterable[int], previous: Record | None) -> dict[int, int]:
    """Shard → the epoch up to which every delta is counted; hours that are behind hold it back to where they are.

    It never falls below the previous record: rows that were counted once stay counted.
    """
    waiting = [minutes.get(partition_key(MINUTE_COUNTS, hour)) for hour in behind]
    found = _highest(record.durable for record in minutes.values())
    for shard in found:
        held = [record.durable.get(shard, 0) if record else 0 for record in waiting]
        found[shard] = max(min([found[shard], *held]), previous.durable.get(shard, 0) if previous else 0)
    return found


def _highest(epochs: Iterable[dict[int, int]]) -> dict[int, int]:
    """Per shard, the highest epoch that any input has reached."""
    found: dict[int, int] = {}
    for each in epochs:
        for shard, epoch in each.items():
            found[shard] = max(found.get(shard, epoch), epoch)
    return found


def _epochs(records: Iterable[Record]) -> dict[int, tuple[int, int]]:
    """Per shard, the smallest range that contains the inputs' ranges."""
    found: dict[int, tuple[int, int]] = {}
    for record in records:
        for shard, (first, end) in record.epochs.items():
            low, high = found.get(shard, (first, end))
            found[shard] = (min(low, first), max(high, end))
    return found


def _lowest(epochs: Iterable[dict[int, int]]) -> dict[int, int]:
    """Per shard, the epoch that all inputs have reached."""
    found: dict[int, int] = {}
    for each in epochs:
        for shard, epoch in each.items():
            found[shard] = min(found.get(shard, epoch), epoch)
    return found


def _watermark(inputs: Sequence[Record], previous: Record | None, ceiling: int | None) -> tuple[int | None, str | None]:
    """The minimum over the inputs, but never below the previous record (T3)."""
    held = [(each, record.held_by) for record in inputs if (each := believed(record, ceiling)) is not None]
    watermark_us, held_by = min(held, key=lambda pair: pair[0]) if held else (None, None)
    return not_below(watermark_us, held_by, previous, ceiling)
