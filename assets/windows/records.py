"""Records (O1) of windows and joins: what they cover, how far event time has come, and what is in each partition.

Belongs here: where each number of a record comes from. No Spark: the contents of a partition are read from its files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assets.graph import Derived
from assets.ingest.records import levels
from assets.ingest.schema import DELTAS
from resources.lake import Lake, TableSpec
from resources.record import Record, not_below
from tidemark.observe.sealed_log import Log, Watermark, least
from tidemark.shard_state.clock_reset import ceiling_us
from tidemark.tables import lake_files
from tidemark.tables.known_table import app_id
from tidemark.tables.lineage import Input
from tidemark.tables.plans import Plan, PlanStore

if TYPE_CHECKING:
    import duckdb
    from dagster import DagsterInstance


# The epochs of pairs of deltas, and of parts of sessions.
PAIRS = (
    "SELECT shard, min(epoch), max(epoch) + 1, count(*) FROM (SELECT left_shard AS shard, left_epoch AS epoch FROM "
    "read_parquet($1) UNION ALL SELECT right_shard, right_epoch FROM read_parquet($1)) GROUP BY shard ORDER BY shard"
)
PARTS = (
    "SELECT shard, min(first_epoch), max(last_epoch) + 1, sum(deltas), sum(late) FROM read_parquet($1) "
    "GROUP BY shard ORDER BY shard"
)


@dataclass(frozen=True)
class Contents:
    """What a partition of windows holds."""

    deltas: int = 0  # in all its windows; a delta that lies in several panes counts in each
    late: int = 0
    epochs: dict[int, tuple[int, int]] = field(default_factory=dict)  # shard → first epoch, and the one after the last


@dataclass(frozen=True)
class Carried:
    """The carry-over from hour to hour, by checksums."""

    into: Mapping[int, str] = field(default_factory=dict)
    out_of: Mapping[int, str] = field(default_factory=dict)


def plan_at(lake: Lake, version: int) -> Plan | None:
    """The plan up to which a version of `deltas` holds the log: rows made from that version cover its epochs."""
    generation = lake.known(DELTAS.name).generation
    number = lake_files.marker(lake.path(DELTAS.name), app_id(DELTAS.name, generation), version) or 0
    return PlanStore(lake.home.plans / DELTAS.name, generation).committed(number)


def stream_watermark(log: Log, upto: Mapping[int, int], sources: Iterable[str]) -> Watermark:
    """The minimum over these namespaces and kinds, up to some epochs; idle ones do not count (T2, T3)."""
    marks = log.sources(upto)
    return least([marks[source] for source in dict.fromkeys(sources) if source in marks])


def window_records(
    instance: "DagsterInstance",
    lake: Lake,
    derived: Derived,
    inputs: Mapping[str, Input],
    starts: Sequence[int],
    *,
    sources: Iterable[str],
    duration_ms: int,
    now_us: int,
    carried: Carried | None = None,
) -> list[Record]:
    """One record for each hour, computed from the inputs as they were read, and from the carry-over."""
    spec = derived.spec
    known, path = lake.known(spec.name), lake.path(spec.name)
    plan = plan_at(lake, inputs[DELTAS.name].version)
    reached = levels(lake, plan)
    watermark = stream_watermark(Log(lake.home), plan.upto if plan else {}, sources)
    files = lake_files.partitions(path, known.version)
    own = Record.latest_by_partition(instance, spec.name, [spec.grain.key(start) for start in starts])
    held_in = _contents_by_start({start: files[start].files for start in starts if start in files}, spec)
    records, more, ceiling = [], carried or Carried(), ceiling_us(lake.home, now_us)
    for start in starts:
        held, contents = files.get(start), held_in.get(start, Contents())
        key = spec.grain.key(start)
        watermark_us, held_by = not_below(watermark.time_us, watermark.held_by, own.get(key), ceiling)
        records.append(
            Record(
                asset=spec.name,
                partition=key,
                generation=known.generation,
                table_version=known.version,
                table_id=known.table_id,
                input_versions={table: read.version for table, read in inputs.items()},
                input_generations={table: read.generation for table, read in inputs.items()},
                epochs=contents.epochs,
                applied=reached.applied,
                flushed=reached.flushed,
                durable=reached.durable,
                watermark_us=watermark_us,
                held_by=held_by,
                rows_in=contents.deltas,
                rows_out=held.rows if held else 0,
                rows_late=contents.late,
                bytes=held.bytes if held else 0,
                duration_ms=duration_ms,
                carried_in=more.into.get(start),
                carried_out=more.out_of.get(start),
                definition=derived.definition,
                recorded_us=now_us,
            )
        )
    return records


def _contents_by_start(files: Mapping[int, Sequence[str]], spec: TableSpec) -> dict[int, Contents]:
    """What each partition holds. They share one database, because opening one takes longer than reading an hour."""
    with lake_files.quiet_database() as database:
        return {start: contents_of(each, spec, database) for start, each in files.items()}


def contents_of(files: Sequence[str], spec: TableSpec, database: "duckdb.DuckDBPyConnection") -> Contents:
    """What the files of a partition hold, by the columns that the table has."""
    names = set(spec.names)
    if "left_epoch" in names:
        rows = database.execute(PAIRS, [list(files)]).fetchall()
        return Contents(sum(row[3] for row in rows) // 2, 0, {row[0]: (row[1], row[2]) for row in rows})
    if "left_deltas" in names:
        return Contents()
    if "first_epoch" in names:
        rows = database.execute(PARTS, [list(files)]).fetchall()
        epochs = {row[0]: (row[1], row[2]) for row in rows}
        return Contents(int(sum(row[3] for row in rows)), int(sum(row[4] for row in rows)), epochs)
    if "epochs" not in names:
        rows = database.execute(
            "SELECT shard, min(epoch), max(epoch) + 1, count(*) FROM read_parquet($1) GROUP BY shard", [list(files)]
        ).fetchall()
        deltas = sum(row[3] for row in rows)
        return Contents(deltas, deltas, {row[0]: (row[1], row[2]) for row in rows})
    deltas, late = database.execute(
        "SELECT coalesce(sum(deltas), 0), coalesce(sum(late), 0) FROM read_parquet($1)", [list(files)]
    ).fetchone() or (0, 0)
    shards = database.execute(
        "SELECT e.shard, min(e.first), max(e.last) + 1 FROM (SELECT unnest(epochs) AS e FROM read_parquet($1)) "
        "GROUP BY e.shard ORDER BY e.shard",
        [list(files)],
    ).fetchall()
    return Contents(int(deltas), int(late), {shard: (first, end) for shard, first, end in shards})
