"""Records (O1) of the tables that are folded from vector deltas.

Belongs here: where each number of a record comes from. No Spark: the contents of a table are read from its files.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from assets.ingest.schema import DELTAS
from assets.records import Levels, Ranges, Recorder, Writing, of_generation, reach_at, widest
from assets.vectors.index_schema import PARTS, VECTOR_INDEX
from assets.vectors.new_deltas import made_from_version, vector_sources
from assets.vectors.schema import VECTOR_CHECKPOINTS, VECTORS
from resources.lake import Lake, TableSpec
from resources.record import Record, believed
from tidemark.observe.sealed_log import Watermark
from tidemark.tables import lake_files
from tidemark.tables.lineage import Input
from tidemark.vectors.index.tables import versions_of
from tidemark.vectors.reading.stored_index import pointers

NO_FILES = lake_files.PartitionFiles(files=(), rows=0, bytes=0)
_REACH = "SELECT shard, min(first_epoch), max(last_epoch) + 1 FROM read_parquet($1) WHERE deltas > 0 GROUP BY shard"
# What the rows of a table are made from; a vector with several checkpoints counts by the last of them.
_DELTAS = {
    VECTORS.name: "SELECT coalesce(sum(deltas + parked + cycles), 0) FROM read_parquet($1)",
    VECTOR_CHECKPOINTS.name: "SELECT coalesce(sum(held), 0) FROM (SELECT max(deltas) AS held FROM read_parquet($1) "
    "GROUP BY namespace, vector_id)",
}


def bucket_records(
    run: Writing, spec: TableSpec, version: int, buckets: Sequence[int], previous: Mapping[str, Record]
) -> list[Record]:
    """One record for each of these buckets as it is now, made from `deltas` at one version.

    `durable` says how far it reaches: everything up to there is in it, and the next fold continues after that.
    """
    lake, source = run.lake, Input(version, run.lake.known(DELTAS.name).generation)
    recorder = Recorder(run, spec.name, {DELTAS.name: source})
    reached, watermark = reach_at(lake, version, vector_sources(lake.home))
    held = lake_files.partitions(lake.path(spec.name), recorder.known.version)
    records = []
    for bucket in buckets:
        part, key = held.get(bucket, NO_FILES), spec.grain.key(bucket)
        before = of_generation(previous.get(key), recorder.known.generation)
        epochs, rows_in = _contents(part.files, _DELTAS[spec.name]) if spec.name in _DELTAS else ({}, part.rows)
        records.append(recorder.record(key, [part], reached, watermark, before, epochs=epochs, rows_in=rows_in))
    return records


def record_of_all(lake: Lake, records: Iterable[Record]) -> Record | None:
    """The record of `vectors` as a whole: how far all of its buckets reach; None if that is not known.

    A run is about some buckets only. So this is the latest record among the runs that no bucket is behind.
    """
    reached = made_from_version(lake.home)
    of_all = [each for each in records if reached is not None and each.input_versions.get(DELTAS.name, -1) <= reached]
    if not of_all:
        return None
    last = max(of_all, key=lambda each: (each.input_versions.get(DELTAS.name, -1), each.recorded_us or 0))
    return msgspec.structs.replace(last, partition=None, epochs=widest(of_all))


def index_record(run: Writing, version: int, source: Record | None, previous: Record | None) -> Record:
    """The record of `vector_index`, made from `vectors` at one version, which reaches at least as far as `source` says.

    It names its input and also the versions of its parts, which are what a check reads.
    """
    lake, spec, read = run.lake, VECTOR_INDEX, Input(version, run.lake.known(VECTORS.name).generation)
    recorder = Recorder(run, spec.name, {VECTORS.name: read})
    before = of_generation(previous, recorder.known.generation)
    of = source or before
    tables = {each.name: lake_files.partitions(lake.path(each.name)).values() for each in (*PARTS, spec)}
    named = [versions_of(row)._asdict() for row in pointers(lake.home).values()]
    parts = {f"vector_{name}": number for row in named[:1] for name, number in row.items()}
    return recorder.record(
        None,
        lake_files.partitions(lake.path(spec.name), recorder.known.version).values(),
        Levels(of.applied, of.flushed, of.durable) if of else Levels(),
        Watermark(believed(of, recorder.ceiling_us), of.held_by if of else None),
        before,
        input_versions={VECTORS.name: version, **parts},
        epochs=of.epochs if of else {},
        rows_in=sum(part.rows for part in lake_files.partitions(lake.path(VECTORS.name), version).values()),
        bytes=sum(part.bytes for parts_of in tables.values() for part in parts_of),
    )


def _contents(files: Sequence[str], deltas_in: str) -> tuple[Ranges, int]:
    """For rows that are states: the folded epochs, shard by shard, and the number of deltas in them."""
    if not files:
        return {}, 0
    with lake_files.quiet_database() as database:
        epochs = database.execute(_REACH, [list(files)]).fetchall()
        [(deltas,)] = database.execute(deltas_in, [list(files)]).fetchall()
    return {shard: (first, end) for shard, first, end in epochs}, int(deltas)
