"""The sides of `bench windows`: our transformations, Spark's own formulations, and DuckDB, on the same files.

Belongs here: the work that is measured, warm: each plan is run five times, the first two do not count and of the others
the cheapest does, because a platform's session lives for months, and a JVM compiles when it likes. Every side writes
the same rows as Parquet: whole rows of the table (N3).
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.harness import cpu_s
from benchmarks.lake_data import START_US
from resources.lake import Lake
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US, MINUTE_US
from tidemark.storage.home import Home
from tidemark.streams import Aggregate, Function, Stream, WindowSpec, WindowType
from tidemark.tables.lake_files import quiet_database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZE_US, GAP_US, SLIDE_US, STEP_US = 10 * MINUTE_US, 30 * MINUTE_US, HOUR_US, 5 * MINUTE_US
WINDOWS = {
    "tumbling": WindowSpec(WindowType.TUMBLING, SIZE_US, SIZE_US),
    "sliding": WindowSpec(WindowType.SLIDING, SLIDE_US, STEP_US),
    "session": WindowSpec(WindowType.SESSION, gap_us=GAP_US),
}
# The end of the ids of panes.
SUFFIXES = {"tumbling": "10m", "sliding": "1h"}
WARMING_RUNS, COUNTED_RUNS = 2, 3
BYTES = "8 + {length}(key) + {length}(delta_id) + {length}(signal.signal) + 16"


def stream_of(name: str) -> Stream:
    """The stream that is measured: all signals by entity."""
    from tidemark.model.deltas import Kind

    aggregates = (Aggregate("views", Function.SUM, "count"),)
    return Stream(name, "shop", Kind.SIGNAL, WINDOWS[name], key=("entity_id",), aggregates=aggregates)


def whole_range(hours: int) -> Range:
    """The full range of windows: sessions close after the last event, panes begin before the first."""
    return Range(START_US - HOUR_US, START_US + (hours + 2) * HOUR_US)


def measured_hours(name: str, hours: int) -> int:
    """How many hours are measured: sliding windows over a fifth, because each delta is in twelve of them."""
    return max(1, hours // 5) if name.endswith("sliding") else hours


def measured(works: dict[str, Callable[[int, Path], None]], target: Path, hours: int) -> dict[str, Any]:
    """Do all works in turn, once and then some times more; CPU and wall seconds of the cheapest of these.

    In turn, because the speed of a machine and the warmth of a JVM change over minutes: no side should get all the
    better ones.
    """
    runs: dict[str, list[dict[str, float]]] = {name: [] for name in works}
    for _ in range(WARMING_RUNS + COUNTED_RUNS):
        for name, work in works.items():
            before, started = cpu_s(), time.monotonic()
            work(measured_hours(name, hours), target / name)
            runs[name].append({"cpu_s": cpu_s() - before, "wall_s": time.monotonic() - started})
            print(f"{name}: {runs[name][-1]['cpu_s']:.1f} CPU-seconds", file=sys.stderr, flush=True)
    return {name: min(each[WARMING_RUNS:], key=lambda run: run["cpu_s"]) for name, each in runs.items()}


# Ours, and Spark's own.


def spark_side(root: Path, target: Path, hours: int, names: list[str]) -> dict[str, Any]:
    """Each window type by our transformation, and by Spark's own functions."""
    from resources.session import start_session

    home = Home(root)
    session = start_session(home)
    lake = Lake(home, lambda: session)
    works: dict[str, Callable[[int, Path], None]] = {}
    for name in names:
        works[f"ours_{name}"] = lambda count, place, n=name: write(_ours(session, lake, n, count), place)  # type: ignore[misc]
        works[f"spark_{name}"] = lambda count, place, n=name: write(_stock(lake, n, count), place)  # type: ignore[misc]
    found = measured(works, target, hours)
    session.stop()
    return found


def write(rows: "DataFrame", place: Path) -> None:
    """Compute the rows, and leave them where they are compared."""
    rows.write.mode("overwrite").parquet(str(place))


def _deltas(lake: Lake, hours: int) -> "DataFrame":
    from tidemark.model.ranges import partition_predicate

    read = Range(START_US, START_US + hours * HOUR_US)
    return lake.read("deltas", 1).where(partition_predicate("event_hour", read))


def _ours(session: "SparkSession", lake: Lake, name: str, hours: int) -> "DataFrame":
    stream, all_hours = stream_of(name), whole_range(hours)
    if stream.window.type is not WindowType.SESSION:
        from assets.windows.transform import count_windows

        return count_windows(_deltas(lake, hours), stream, all_hours)
    from assets.windows.open_schema import open_table
    from assets.windows.session_rows import closed_rows, parts_of

    columns = ", ".join(f"{column.name} {column.sql}" for column in open_table(stream).columns)
    parts = parts_of(_deltas(lake, hours), session.createDataFrame([], columns), stream, all_hours)
    return closed_rows(parts, stream, all_hours)


def _stock(lake: Lake, name: str, hours: int) -> "DataFrame":
    """The usual formulation with Spark's own functions for windows."""
    from pyspark.sql import functions as F

    rows = _deltas(lake, hours).where("namespace = 'shop' AND kind = 'signal'")
    window, late = {
        "tumbling": (F.window("event_ts", "10 minutes"), F.col("window.end") <= F.col("watermark_ts")),
        "sliding": (F.window("event_ts", "1 hour", "5 minutes"), F.col("window.end") <= F.col("watermark_ts")),
        "session": (
            F.session_window("event_ts", "30 minutes"),
            F.col("event_ts") + F.expr("INTERVAL 30 MINUTES") < F.col("watermark_ts"),
        ),
    }[name]
    cut = rows.select(
        F.col("key").alias("entity_id"),
        F.col("signal.count").alias("count"),
        "event_ts",
        "watermark_ts",
        "epoch",
        "shard",
        F.expr(BYTES.format(length="octet_length")).cast("bigint").alias("bytes"),
    )
    if name == "session":
        grouped = cut.withColumn("is_late", late).groupBy("entity_id", window.alias("window"))
    else:
        placed = cut.withColumn("window", window)
        grouped = placed.withColumn("is_late", late).groupBy("entity_id", "window")
    sums = grouped.agg(
        F.count(F.lit(1)).alias("deltas"),
        F.count_if("is_late").alias("late"),
        F.sum("bytes").alias("bytes"),
        F.min("event_ts").alias("min_event_ts"),
        F.max("event_ts").alias("max_event_ts"),
        F.min("epoch").alias("first"),
        F.max("epoch").alias("last"),
        F.min("shard").alias("shard"),
        F.sum("count").alias("views"),
    )
    place = F.concat_ws(
        "/",
        F.concat(F.octet_length("entity_id"), F.lit(":"), "entity_id"),
        F.unix_micros("window.start"),
        *([] if name == "session" else [F.lit(SUFFIXES[name])]),
    )
    hour = F.col("window.end" if name == "session" else "window.start")
    return sums.select(
        place.alias("window_id"),
        "entity_id",
        F.col("window.start").alias("window_start"),
        F.col("window.end").alias("window_end"),
        "deltas",
        F.col("deltas").alias("revision"),
        "late",
        F.lit(1).cast("bigint").alias("keys"),
        "bytes",
        (F.col("bytes").cast("double") / F.col("deltas")).alias("mean_bytes"),
        "min_event_ts",
        "max_event_ts",
        F.array(F.struct("shard", "first", "last")).alias("epochs"),
        F.lit("gap" if name == "session" else "end").alias("close_reason"),
        "views",
        F.date_trunc("HOUR", hour).alias("window_hour"),
    )


# DuckDB.


def duckdb_side(root: Path, target: Path, hours: int, names: list[str]) -> dict[str, Any]:
    """The same windows by DuckDB, each in the formulation that was fastest for it."""
    target.mkdir(parents=True, exist_ok=True)
    with quiet_database() as database:
        for setting in ("threads = 2", "preserve_insertion_order = false", "TimeZone = 'UTC'"):
            database.execute(f"SET {setting}")

        def work(name: str) -> Callable[[int, Path], None]:
            def run(count: int, place: Path) -> None:
                query = QUERIES[name].format(deltas=duckdb_deltas(Home(root), count))
                database.execute(f"COPY ({query}) TO '{place}.parquet' (FORMAT parquet)")

            return run

        return measured({f"duckdb_{name}": work(name) for name in names}, target, hours)


def duckdb_deltas(home: Home, hours: int) -> str:
    """A query of the deltas of the first hours, times in microseconds."""
    end = START_US + hours * HOUR_US
    return (
        "SELECT key AS entity_id, signal.signal AS signal, signal.count AS count, shard, epoch, ordinal, "
        "delta_id, epoch_us(event_ts) AS event_us, epoch_us(watermark_ts) AS stamp_us, "
        f"{BYTES.format(length='strlen')} AS bytes "
        f"FROM read_parquet('{home.lake / 'deltas'}/*/*.parquet', hive_partitioning = false) "
        f"WHERE namespace = 'shop' AND kind = 'signal' AND event_ts < make_timestamptz({end})"
    )


_SUMS = (
    "count(*) AS deltas, {late} AS late, sum(bytes) AS bytes, min(event_us) AS min_us, max(event_us) AS max_us, "
    "min(shard) AS shard, min(epoch) AS first, max(epoch) AS last, sum(count) AS views"
)
_OF_SUMS = (
    "sum(deltas) AS deltas, sum({late}) AS late, sum(bytes) AS bytes, min(min_us) AS min_us, max(max_us) AS max_us, "
    "min(shard) AS shard, min(first) AS first, max(last) AS last, sum(views) AS views"
)
# Whole rows, from sums and the first and last time of a window.
_SHOWN = (
    "SELECT strlen(entity_id) || ':' || entity_id || '/' || {start}{suffix} AS window_id, entity_id, "
    "make_timestamptz({start}) AS window_start, make_timestamptz({end}) AS window_end, deltas::BIGINT AS deltas, "
    "deltas::BIGINT AS revision, late::BIGINT AS late, 1::BIGINT AS keys, bytes::BIGINT AS bytes, "
    "bytes::DOUBLE / deltas AS mean_bytes, make_timestamptz(min_us) AS min_event_ts, "
    "make_timestamptz(max_us) AS max_event_ts, [{{{{'shard': shard, 'first': first, 'last': last}}}}] AS epochs, "
    "'{reason}' AS close_reason, views::BIGINT AS views, "
    f"make_timestamptz({{hour}} // {HOUR_US} * {HOUR_US}) AS window_hour FROM "
)


def _panes(name: str, size_us: int) -> str:
    suffix = f" || '/{SUFFIXES[name]}'"
    return _SHOWN.format(start="pane", end=f"pane + {size_us}", suffix=suffix, reason="end", hour="pane")


QUERIES = {
    "tumbling": (
        f"{_panes('tumbling', SIZE_US)} (SELECT entity_id, event_us // {SIZE_US} * {SIZE_US} AS pane, "
        f"{_SUMS.format(late=f'count(*) FILTER (event_us // {SIZE_US} * {SIZE_US} + {SIZE_US} <= stamp_us)')} "
        "FROM ({deltas}) GROUP BY ALL)"
    ),
    # Slices, kept apart by the first pane for which their deltas are not late.
    "sliding": (
        f"{_panes('sliding', SLIDE_US)} ("
        f"SELECT entity_id, pane, {_OF_SUMS.format(late='CASE WHEN pane < open THEN deltas ELSE 0 END')} FROM ("
        f"SELECT *, unnest(range(slice - {SLIDE_US - STEP_US}, slice + 1, {STEP_US})) AS pane FROM ("
        f"SELECT entity_id, event_us // {STEP_US} * {STEP_US} AS slice, "
        f"greatest((stamp_us - {SLIDE_US}) // {STEP_US} * {STEP_US} + {STEP_US}, slice - {SLIDE_US - STEP_US}) "
        "AS open, "
        f"{_SUMS.format(late='0')} FROM ({{deltas}}) GROUP BY ALL)) GROUP BY ALL)"
    ),
    "session": (
        _SHOWN.format(start="min_us", end=f"(max_us + {GAP_US})", suffix="", reason="gap", hour=f"(max_us + {GAP_US})")
        + "(SELECT entity_id, session, "
        f"{_SUMS.format(late=f'count(*) FILTER (event_us + {GAP_US} < stamp_us)')} FROM ("
        "SELECT *, sum(is_start) OVER (PARTITION BY entity_id ORDER BY event_us, epoch, ordinal) AS session FROM ("
        f"SELECT *, CASE WHEN event_us - lag(event_us) OVER (PARTITION BY entity_id ORDER BY event_us, epoch, ordinal) "
        f"<= {GAP_US} THEN 0 ELSE 1 END AS is_start FROM ({{deltas}}))) GROUP BY ALL)"
    ),
}


def late_side(root: Path, hours: int) -> dict[str, Any]:
    """The files that a stream reads and writes for one more late delta: those of its hour only."""
    from assets.graph import Derived, made_of
    from assets.windows.catalog import pane_needs
    from assets.windows.factory import pane_windows, write_hours
    from assets.windows.schema import window_table
    from resources.session import start_session
    from tidemark.tables import lake_files

    home = Home(root)
    session = start_session(home)
    lake, found = Lake(home, lambda: session), dict[str, Any]()
    for name in ("tumbling", "sliding"):
        stream = stream_of(name)
        derived = Derived(window_table(stream), pane_needs(stream))
        write_hours(lake, derived, pane_windows(stream), whole_range(hours))
        late = Range(START_US + 3 * HOUR_US, START_US + 4 * HOUR_US)
        read = lake.read("deltas", 1, within=made_of(derived.needs, "deltas", [late])).inputFiles()
        before = cpu_s()
        write_hours(lake, derived, pane_windows(stream), late)
        path = lake.path(name)
        state = lake_files.table_state(path)
        actions = list(lake_files.actions_of(path, state.version if state else 0))
        found[name] = {
            "read": len(read),
            "added": sum("add" in action for action in actions),
            "removed": sum("remove" in action for action in actions),
            "of": len(lake_files.files(lake.path("deltas"), 1)),
            "cpu_s": cpu_s() - before,
        }
    session.stop()
    return found


SIDES = {"spark": spark_side, "duckdb": duckdb_side}


if __name__ == "__main__":
    side, home_root, out, length, wanted = sys.argv[1:6]
    if side == "late":
        answer = late_side(Path(home_root), int(length))
    else:
        answer = SIDES[side](
            Path(home_root), Path(out), int(length), [name for name in WINDOWS if name in wanted.split(",")]
        )
    (Path(out).parent / f"{side}.json").write_text(json.dumps(answer))
