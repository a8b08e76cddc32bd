"""Records (O1) of windows and joins: what they cover, how far event time has come, and what is in each partition.

Belongs here: where each number of a record comes from. No Spark: the contents of a partition are read from its files.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from assets.graph import Derived
from assets.ingest.schema import DELTAS
from assets.partitions import starts_of
from assets.records import Ranges, Recorder, Writing, reach_at
from resources.lake import TableSpec
from resources.record import Record
from tidemark.model.ranges import Range
from tidemark.tables import lake_files
from tidemark.tables.lineage import Input

if TYPE_CHECKING:
    import duckdb


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
    epochs: Ranges = field(default_factory=dict)


@dataclass(frozen=True)
class Carried:
    """The carry-over from hour to hour, by checksums."""

    into: Mapping[int, str] = field(default_factory=dict)
    out_of: Mapping[int, str] = field(default_factory=dict)


def window_records(
    run: Writing,
    derived: Derived,
    inputs: Mapping[str, Input],
    hours: Iterable[Range],
    *,
    sources: Iterable[str],
    carried: Carried | None = None,
) -> list[Record]:
    """One record for each hour, computed from the inputs as they were read, and from the carry-over."""
    lake, spec, more = run.lake, derived.spec, carried or Carried()
    starts, recorder = starts_of(hours, spec.grain), Recorder(run, spec.name, inputs)
    reached, watermark = reach_at(lake, inputs[DELTAS.name].version, sources)
    files = lake_files.partitions(lake.path(spec.name), recorder.known.version)
    own = Record.latest_by_partition(run.instance, spec.name, [spec.grain.key(start) for start in starts])
    held_in = _contents_by_start({start: files[start].files for start in starts if start in files}, spec)
    records = []
    for start in starts:
        key, contents = spec.grain.key(start), held_in.get(start, Contents())
        records.append(
            recorder.record(
                key,
                [files[start]] if start in files else [],
                reached,
                watermark,
                own.get(key),
                epochs=contents.epochs,
                rows_in=contents.deltas,
                rows_late=contents.late,
                carried_in=more.into.get(start),
                carried_out=more.out_of.get(start),
                definition=derived.definition,
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
