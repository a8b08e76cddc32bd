"""Records (O1) of the rollups: carried on from the inputs' records, with the table's own numbers.

Belongs here: how epochs and watermarks propagate along the asset graph (T3). No Spark.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence

from assets.records import Levels, Recorder, Writing, of_generation, widest
from assets.rollups.schema import MINUTE_COUNTS, TRAILING_COUNTS, WINDOWED_COUNTS
from resources.lake import Lake, TableSpec
from resources.record import Record, believed
from tidemark.counts.tables import Tables
from tidemark.counts.windows import Span
from tidemark.observe.sealed_log import Watermark
from tidemark.tables import lake_files
from tidemark.tables.lineage import Input
from tidemark.tables.tiers import Tier


def rollup_records(
    run: Writing, source: TableSpec, source_version: int, target: TableSpec, starts: Sequence[int]
) -> list[Record]:
    """One record for each partition of `target`, computed from `source` at one version."""
    instance, lake = run.instance, run.lake
    read = Input(source_version, lake.known(source.name).generation)
    recorder = Recorder(run, target.name, {source.name: read})
    held = lake_files.partitions(lake.path(target.name), recorder.known.version)
    inputs = {start: source.grain.starts(start, target.grain.next(start)) for start in starts}
    keys = [source.grain.key(start) for each in inputs.values() for start in each]
    before = Record.latest_by_partition(instance, source.name, keys)
    own = Record.latest_by_partition(instance, target.name, [target.grain.key(start) for start in starts])
    source_rows = {
        start: files.rows for start, files in lake_files.partitions(lake.path(source.name), source_version).items()
    }
    records = []
    for start in starts:
        key = target.grain.key(start)
        found = [record for each in inputs[start] if (record := before.get(source.grain.key(each)))]
        records.append(
            recorder.record(
                key,
                [held[start]] if start in held else [],
                Levels(*(_per_shard(min, each) for each in _levels_of(found))),
                _least(found, recorder.ceiling_us),
                own.get(key),
                epochs=widest(found),
                rows_in=sum(source_rows.get(each, 0) for each in inputs[start]),
                rows_late=sum(record.rows_late for record in found),
            )
        )
    return records


def input_watermark(inputs: Iterable[Mapping[str, Record]], ceiling: int | None) -> int | None:
    """How far all tables have come: the furthest partition of each table, and the least of these (T3)."""
    found = [[each for record in records.values() if (each := believed(record, ceiling))] for records in inputs]
    return min(max(each) for each in found) if found and all(found) else None


def windowed_record(
    run: Writing,
    inputs: Mapping[str, Mapping[str, Record]],
    tables: Tables,
    spans: Mapping[Tier, Sequence[Span]],
    *,
    as_of_us: int,
) -> Record:
    """The record of `windowed_counts`, which is as of one time and has no partitions for the orchestrator."""
    lake, name, minutes = run.lake, WINDOWED_COUNTS.name, inputs[MINUTE_COUNTS.name]
    read = {
        spec.name: Input(tables.versions[spec.name], lake.known(spec.name).generation)
        for spec in TRAILING_COUNTS.values()
    }
    recorder = Recorder(run, name, read)
    previous = of_generation(Record.found(run.instance, name), recorder.known.generation)
    applied, flushed, _ = (_per_shard(max, each) for each in _levels_of(minutes.values()))
    return recorder.record(
        None,
        lake_files.partitions(lake.path(name), recorder.known.version).values(),
        Levels(applied, flushed, _covered(minutes, tables.behind[Tier.MINUTE], previous)),
        Watermark(input_watermark(inputs.values(), recorder.ceiling_us), _holder(minutes.values())),
        previous,
        epochs=widest(minutes.values()),
        rows_in=sum(_rows_read(lake, spec, tables, spans[tier]) for tier, spec in TRAILING_COUNTS.items()),
        as_of_us=as_of_us,
    )


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
    waiting = [minutes.get(MINUTE_COUNTS.grain.key(hour)) for hour in behind]
    found = _per_shard(max, (record.durable for record in minutes.values()))
    for shard in found:
        held = [record.durable.get(shard, 0) if record else 0 for record in waiting]
        found[shard] = max(min([found[shard], *held]), previous.durable.get(shard, 0) if previous else 0)
    return found


def _levels_of(records: Iterable[Record]) -> tuple[list[dict[int, int]], ...]:
    """What the records say of each level, in the order of the levels."""
    found = list(records)
    return [each.applied for each in found], [each.flushed for each in found], [each.durable for each in found]


def _per_shard(choose: Callable[[int, int], int], epochs: Iterable[Mapping[int, int]]) -> dict[int, int]:
    """Per shard, the lowest or the highest of the epochs that the inputs have reached."""
    found: dict[int, int] = {}
    for each in epochs:
        for shard, epoch in each.items():
            found[shard] = choose(found.get(shard, epoch), epoch)
    return found


def _least(inputs: Iterable[Record], ceiling: int | None) -> Watermark:
    """The minimum over the inputs, and what keeps it low (T3)."""
    held = [Watermark(each, record.held_by) for record in inputs if (each := believed(record, ceiling)) is not None]
    return min(held, key=lambda watermark: watermark.time_us or 0) if held else Watermark()
