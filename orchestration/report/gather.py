"""Finding the report's numbers in the files of a home.

Belongs here: sums over the manifests, the tables and the segments by DuckDB, so that millions of rows cost seconds and
no Python memory. The numbers of `status` are taken from there. Nothing is written.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import TYPE_CHECKING

from orchestration.report.figures import AHEAD, LATENESS_RANGES, Figures, Hourly, Lag, LagPoint, Lateness
from orchestration.report.timeline import LAG_WIDTHS_US, MOST_STRETCHES, width_for
from orchestration.snapshot import take_snapshot
from tidemark.log.manifest import Entry, Manifest
from tidemark.model.deltas import Verdict
from tidemark.model.timegrid import HOUR_US, hour_start
from tidemark.observe.account import take_account
from tidemark.storage.home import Home
from tidemark.tables import lake_files

if TYPE_CHECKING:
    import duckdb

# More lines than this in one plot cannot be told apart; the rest are summed up in one more line with its own name.
MOST_SERIES = 6
OTHERS = "all others"
DETAIL_CHARACTERS = 160


def gather(home: Home, *, now_us: int) -> Figures:
    """Read the home as it is now."""
    files = {name: lake_files.files(home.lake / name) for name in ("deltas", "dead_letters", "hourly_counts")}
    # Taken after the files: what a drain commits in between is missed once, and never counted twice.
    snapshot = take_snapshot(home, now_us=now_us)
    manifests = [Manifest(home.segments(shard.shard)) for shard in snapshot.shards]
    waiting = [
        str(manifest.directory / entry.file)
        for shard, manifest in zip(snapshot.shards, manifests, strict=True)
        for entry in manifest.since(snapshot.durable.get(shard.shard, 0) + 1)
    ]
    with lake_files.quiet_database() as database:
        has_accepted = _create_accepted(database, files["deltas"], waiting)
        return Figures(
            snapshot=snapshot,
            account=take_account(home),
            arrivals=_arrivals(chain.from_iterable(manifest.all() for manifest in manifests)),
            lateness=_lateness(database) if has_accepted else None,
            lag=_lag(database),
            counts=_counts(database, files["hourly_counts"]),
            details=_details(database, [*files["dead_letters"], *waiting]),
        )


def _arrivals(entries: Iterable[Entry]) -> Hourly:
    found: Counter[tuple[int, str]] = Counter()
    for entry in entries:
        for hour, counts in entry.receipt_hours.items():
            for verdict in Verdict:
                found[hour_start(hour), str(verdict)] += getattr(counts, verdict)
    return {key: number for key, number in found.items() if number}


def _create_accepted(database: "duckdb.DuckDBPyConnection", drained: Sequence[str], waiting: Sequence[str]) -> bool:
    """Create the view `accepted`, one row per accepted delta with its times; false when there are none."""
    parts = []
    for name, files, condition in (("drained", drained, "true"), ("waiting", waiting, "verdict = 'accepted'")):
        if files:
            # As a relation and not as text: a path may contain quotes. The files contain the values in the directories'
            # names, too.
            database.read_parquet(list(files), hive_partitioning=False).create_view(name)
            parts.append(
                "SELECT namespace || '/' || kind AS stream, epoch_us(event_ts) AS event_us, "
                "epoch_us(received_ts) AS received_us, epoch_us(watermark_ts) AS watermark_us "
                f"FROM {name} WHERE {condition}"
            )
    none = "SELECT '' AS stream, 0 AS event_us, 0 AS received_us, 0 AS watermark_us WHERE false"
    database.execute(f"CREATE VIEW accepted AS {' UNION ALL '.join(parts) or none}")
    return database.execute("SELECT 1 FROM accepted LIMIT 1").fetchone() is not None


def _lateness(database: "duckdb.DuckDBPyConnection") -> Lateness:
    starts = [start for _, start in LATENESS_RANGES]
    ends = [f"late_us < {end}" for end in starts[1:]] + ["true"]
    ranges = ", ".join(
        ["count(*) FILTER (late_us < 0)"]
        + [f"count(*) FILTER (late_us >= {start} AND {end})" for start, end in zip(starts, ends, strict=True)]
    )
    median, p99, most, *numbers = database.execute(
        f"SELECT quantile_disc(late_us, 0.5), quantile_disc(late_us, 0.99), max(late_us), {ranges} "
        "FROM (SELECT received_us - event_us AS late_us FROM accepted)"
    ).fetchone() or (0, 0, 0)
    hours = database.execute(
        # A delta is late for its hour if the watermark in force had already passed the hour's end (T4).
        f"SELECT hour_us, coalesce(watermark_us >= hour_us + {HOUR_US}, false) AS is_late, count(*) "
        f"FROM (SELECT {_floor('event_us', HOUR_US)} AS hour_us, watermark_us FROM accepted) GROUP BY ALL"
    ).fetchall()
    return Lateness(
        ranges=dict(zip([AHEAD, *(name for name, _ in LATENESS_RANGES)], numbers, strict=True)),
        median_us=median,
        p99_us=p99,
        most_us=most,
        hours={(hour, "late" if is_late else "in time"): number for hour, is_late, number in hours},
    )


def _lag(database: "duckdb.DuckDBPyConnection") -> Lag:
    stamped = (
        "SELECT stream, received_us, received_us - watermark_us AS lag_us FROM accepted WHERE watermark_us IS NOT NULL"
    )
    first, last = database.execute(f"SELECT min(received_us), max(received_us) FROM ({stamped})").fetchone() or (0, 0)
    width_us = width_for((last or 0) - (first or 0), LAG_WIDTHS_US, most=MOST_STRETCHES)
    rows = database.execute(
        f"WITH stamped AS ({stamped}), largest AS "
        f"(SELECT stream FROM stamped GROUP BY stream ORDER BY count(*) DESC, stream LIMIT {MOST_SERIES}) "
        f"SELECT {_floor('received_us', width_us)} AS start_us, coalesce(largest.stream, $others) AS name, "
        "quantile_disc(lag_us, 0.5), quantile_disc(lag_us, 0.95) "
        "FROM stamped LEFT JOIN largest USING (stream) GROUP BY ALL ORDER BY start_us, name",
        {"others": OTHERS},
    ).fetchall()
    return Lag(width_us, tuple(LagPoint(*row) for row in rows))


def _counts(database: "duckdb.DuckDBPyConnection", files: Sequence[str]) -> Hourly:
    if not files:
        return {}
    database.read_parquet(list(files), hive_partitioning=False).create_view("hourly_counts")
    rows = database.execute(
        "WITH largest AS "
        f"(SELECT signal FROM hourly_counts GROUP BY signal ORDER BY sum(abs(count)) DESC, signal LIMIT {MOST_SERIES}) "
        "SELECT epoch_us(bucket_start) AS start_us, coalesce(largest.signal, $others) AS name, "
        "sum(count)::BIGINT FROM hourly_counts LEFT JOIN largest USING (signal) GROUP BY ALL",
        {"others": OTHERS},
    ).fetchall()
    return {(start, name): number for start, name, number in rows}


def _details(database: "duckdb.DuckDBPyConnection", files: Sequence[str]) -> dict[str, str]:
    """One sentence per reason; any will do, as long as it is the same one every time."""
    if not files:
        return {}
    # By name: a table's file and a segment have these columns in other places.
    database.read_parquet(list(files), hive_partitioning=False, union_by_name=True).create_view("letters")
    rows = database.execute(
        f"SELECT reason, left(min(detail), {DETAIL_CHARACTERS}) FROM letters "
        "WHERE reason IS NOT NULL AND detail IS NOT NULL GROUP BY reason ORDER BY reason"
    ).fetchall()
    return dict(rows)


def _floor(column: str, step_us: int) -> str:
    """Start of the bucket, in SQL; rounds down also before 1970, as `tidemark.model.timegrid.floor_to` does."""
    return f"{column} - (({column} % {step_us}) + {step_us}) % {step_us}"
