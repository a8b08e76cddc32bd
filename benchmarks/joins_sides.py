"""The sides of `bench joins`: our joins, Spark's own formulation, and DuckDB, on the same files.

Belongs here: the work that is measured, warm, as in `windows_sides.py`. Pairs of deltas are of views and purchases of
an entity within ten minutes; pairs of sessions are of the sessions of both, which are computed before and are the same
files for both sides.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.joins.schema import OF_DELTA
from benchmarks.lake_data import START_US
from benchmarks.windows_sides import GAP_US, SIZE_US, measured, whole_range, write
from resources.lake import Lake
from tidemark.model.deltas import Kind
from tidemark.model.ranges import Range, partition_predicate
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Home
from tidemark.streams import Join, JoinForm, Stream, WindowSpec, WindowType
from tidemark.tables.lake_files import quiet_database

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PANES = WindowSpec(WindowType.TUMBLING, SIZE_US, SIZE_US)
SESSIONS = WindowSpec(WindowType.SESSION, gap_us=GAP_US)
SIGNALS = {"left": "view", "right": "purchase"}


def side_of(side: str, window: WindowSpec) -> Stream:
    """A stream of one signal, by entity."""
    where = (("signal", SIGNALS[side]),)
    return Stream(f"{SIGNALS[side]}s", "shop", Kind.SIGNAL, window, key=("entity_id",), where=where)


@dataclass(frozen=True)
class SparkJoins:
    """The works of Spark, ours and its own."""

    session: "SparkSession"
    lake: Lake
    place: Path

    def works(self) -> dict[str, Callable[[int, Path], None]]:
        """Each by its name."""
        return {
            "ours_panes": self.ours_panes,
            "spark_panes": self.stock_panes,
            "ours_sessions": self.ours_sessions,
        }

    def deltas(self, hours: int) -> "DataFrame":
        """Of the first hours."""
        read = Range(START_US, START_US + hours * HOUR_US)
        return self.lake.read("deltas", 1).where(partition_predicate("event_hour", read))

    def ours_panes(self, hours: int, place: Path) -> None:
        """Tumbling with tumbling, as the asset computes it."""
        from assets.joins.rows import delta_pairs

        join = Join("both", "views", "purchases", JoinForm.SAME_PANE)
        sides = [side_of(side, PANES) for side in SIGNALS]
        write(delta_pairs(self.deltas(hours), join, sides[0], sides[1], whole_range(hours)), place)

    def stock_panes(self, hours: int, place: Path) -> None:
        """The same by Spark's `window()` and a join."""
        from pyspark.sql import functions as F

        sides = []
        for side, signal in SIGNALS.items():
            rows = self.deltas(hours).where(f"namespace = 'shop' AND kind = 'signal' AND signal.signal = '{signal}'")
            own = [F.col(name).alias(f"{side}_{name}") for name in OF_DELTA]
            window = F.window("event_ts", "10 minutes").alias("window")
            sides.append(rows.select(F.col("key").alias("entity_id"), window, *own))
        pairs = sides[0].join(sides[1], on=["entity_id", "window"], how="inner")
        places = [f"{side}_{name}" for side in SIGNALS for name in OF_DELTA]
        named = F.concat_ws("-", *(F.hex(F.xxhash64(F.lit(seed), *places)) for seed in ("one", "other")))
        shown = pairs.select(
            named.alias("pair_id"),
            "entity_id",
            F.col("window.start").alias("window_start"),
            F.col("window.end").alias("window_end"),
            *places,
            F.array().cast("array<timestamp>").alias("right_windows"),
            F.date_trunc("HOUR", F.col("window.start")).alias("window_hour"),
        )
        write(shown, place)

    def write_sessions(self, hours: int, place: Path) -> None:
        """Both sides' sessions, for both engines."""
        from assets.windows.open_schema import open_table
        from assets.windows.session_rows import closed_rows, parts_of

        for side in SIGNALS:
            stream, all_hours = side_of(side, SESSIONS), whole_range(hours)
            columns = ", ".join(f"{column.name} {column.sql}" for column in open_table(stream).columns)
            parts = parts_of(self.deltas(hours), self.session.createDataFrame([], columns), stream, all_hours)
            write(closed_rows(parts, stream, all_hours), place / side)

    def ours_sessions(self, hours: int, place: Path) -> None:
        """Session with session, as the asset computes it, from sessions that are there."""
        from assets.joins.rows import session_pairs

        join = Join("both", "views", "purchases", JoinForm.SESSIONS)
        read = [self.session.read.parquet(str(self.place / f"sessions_{hours}" / side)) for side in SIGNALS]
        sides = [side_of(side, SESSIONS) for side in SIGNALS]
        write(session_pairs(read[0], read[1], join, sides[0], sides[1], whole_range(hours)), place)


def spark_side(root: Path, target: Path, hours: int) -> dict[str, Any]:
    """Pairs of deltas, ours and Spark's own; pairs of sessions."""
    from resources.session import start_session

    home = Home(root)
    session = start_session(home)
    joins = SparkJoins(session, Lake(home, lambda: session), target)
    joins.write_sessions(hours, target / f"sessions_{hours}")
    found = measured(joins.works(), target, hours)
    session.stop()
    return found


def duckdb_side(root: Path, target: Path, hours: int, sessions: Path) -> dict[str, Any]:
    """The same pairs by DuckDB."""
    target.mkdir(parents=True, exist_ok=True)
    with quiet_database() as database:
        for setting in ("threads = 2", "preserve_insertion_order = false", "TimeZone = 'UTC'"):
            database.execute(f"SET {setting}")

        def panes(count: int, place: Path) -> None:
            end = START_US + count * HOUR_US
            deltas = (
                f"SELECT * FROM read_parquet('{Home(root).lake / 'deltas'}/*/*.parquet', hive_partitioning = false) "
                f"WHERE namespace = 'shop' AND kind = 'signal' AND event_ts < make_timestamptz({end})"
            )
            sides = [
                f"(SELECT key AS entity_id, epoch_us(event_ts) // {SIZE_US} * {SIZE_US} AS pane, "
                + ", ".join(f"{name} AS {side}_{name}" for name in OF_DELTA)
                + f" FROM ({deltas}) WHERE signal.signal = '{signal}')"
                for side, signal in SIGNALS.items()
            ]
            places = ", ".join(f"{side}_{name}" for side in SIGNALS for name in OF_DELTA)
            query = (
                f"SELECT printf('%x-%x', hash('one', {places}), hash('other', {places})) AS pair_id, entity_id, "
                f"make_timestamptz(pane) AS window_start, make_timestamptz(pane + {SIZE_US}) AS window_end, {places}, "
                f"[]::TIMESTAMPTZ[] AS right_windows, make_timestamptz(pane // {HOUR_US} * {HOUR_US}) AS window_hour "
                f"FROM {sides[0]} JOIN {sides[1]} USING (entity_id, pane)"
            )
            database.execute(f"COPY ({query}) TO '{place}.parquet' (FORMAT parquet)")

        def met(count: int, place: Path) -> None:
            left, right = (f"read_parquet('{sessions / f'sessions_{count}' / side}/*.parquet')" for side in SIGNALS)
            names = ("window_id", "window_start", "window_end", "deltas")
            chosen = ", ".join(
                f"{side}.{name} AS {title}_{name}" for side, title in (("l", "left"), ("r", "right")) for name in names
            )
            last = "greatest(l.window_end, r.window_end)"
            query = (
                "SELECT strlen(l.window_id) || '/' || l.window_id || '/' || r.window_id AS pair_id, l.entity_id, "
                f"{chosen}, date_trunc('hour', {last}) AS window_hour "
                f"FROM {left} l JOIN {right} r ON l.entity_id = r.entity_id "
                "AND l.window_start <= r.window_end AND r.window_start <= l.window_end"
            )
            database.execute(f"COPY ({query}) TO '{place}.parquet' (FORMAT parquet)")

        return measured({"duckdb_panes": panes, "duckdb_sessions": met}, target, hours)


if __name__ == "__main__":
    side_name, home_root, out, length, made = sys.argv[1:6]
    answer = (
        spark_side(Path(home_root), Path(out), int(length))
        if side_name == "spark"
        else duckdb_side(Path(home_root), Path(out), int(length), Path(made))
    )
    (Path(out).parent / f"{side_name}.json").write_text(json.dumps(answer))
