"""Records (O1) of the rollups: what the inputs' records say, carried on, and the table's own numbers.

Belongs here: how epochs and watermarks propagate along the asset graph (T3). No Spark.
"""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from resources import lake_files
from resources.lake import Lake, TableSpec
from resources.record import Record, not_below

if TYPE_CHECKING:
    from dagster import DagsterInstance


def partition_key(spec: TableSpec, start_us: int) -> str:
    """Key of the table's partition that holds a moment."""
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
    known, path = lake.lineage(target.name), lake.path(target.name)
    held = lake_files.partitions(path, known.version)
    inputs = {start: range(start, start + target.partition_us, source.partition_us) for start in starts}
    keys = [partition_key(source, start) for each in inputs.values() for start in each]
    before = Record.latest_by_partition(instance, source.name, keys)
    own = Record.latest_by_partition(instance, target.name, [partition_key(target, start) for start in starts])
    source_rows = {
        start: files.rows for start, files in lake_files.partitions(lake.path(source.name), source_version).items()
    }
    records = []
    for start in starts:
        key = partition_key(target, start)
        found = [record for each in inputs[start] if (record := before.get(partition_key(source, each)))]
        watermark, held_by = _watermark(found, own.get(key))
        records.append(
            Record(
                asset=target.name,
                partition=key,
                lineage=known.lineage,
                table_version=known.version,
                table_id=known.table_id,
                input_versions={source.name: source_version},
                input_lineages={source.name: lake.lineage(source.name).lineage},
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


def _epochs(records: Iterable[Record]) -> dict[int, tuple[int, int]]:
    """Per shard, the smallest range that holds the inputs' ranges."""
    found: dict[int, tuple[int, int]] = {}
    for record in records:
        for shard, (first, end) in record.epochs.items():
            low, high = found.get(shard, (first, end))
            found[shard] = (min(low, first), max(high, end))
    return found


def _lowest(epochs: Iterable[dict[int, int]]) -> dict[int, int]:
    """Per shard, what all inputs have reached."""
    found: dict[int, int] = {}
    for each in epochs:
        for shard, epoch in each.items():
            found[shard] = min(found.get(shard, epoch), epoch)
    return found


def _watermark(inputs: Sequence[Record], previous: Record | None) -> tuple[int | None, str | None]:
    """The minimum over the inputs, but never below what was said before (T3)."""
    held = [(record.watermark_us, record.held_by) for record in inputs if record.watermark_us is not None]
    watermark_us, held_by = min(held, key=lambda pair: pair[0]) if held else (None, None)
    return not_below(watermark_us, held_by, previous)
