"""`bench rollups`: deltas into minutes, hours, days and weeks, beside DuckDB on the same files.

Belongs here: how the two sides are run and compared. Equality comes first: per partition, rows and a sum of the rows'
hashes. Then CPU-seconds of each tier, warm, and memory at its peak, the start included. At last what one late delta
costs in a month and in a year of data, which must be the same.
"""

import json
import sys
import tempfile
from importlib.metadata import version
from pathlib import Path

from assets.rollups.schema import TIERS
from benchmarks.harness import HOME_SETTINGS, Result, Usage, measure, options_of, peaks, say, show
from benchmarks.rollups_data import write_deltas
from benchmarks.rollups_late import MONTH_HOURS, YEAR_HOURS, Cost
from benchmarks.rollups_sides import COLUMNS
from tidemark.storage.home import Home
from tidemark.tables import lake_files

ROWS = 10_000_000
# A week: as many hours as one run takes at most.
HOURS = 7 * 24
SEED = 7
# Entities, and the minutes of an hour in which they act: about 8.5 million groups, and a hundredth of that.
SHAPES = {"many groups": (5_000, 60, 4.0), "few groups": (100, 1, 3.0)}
MEMORY_TARGET_GB = 5.0
COARSER_TARGET = 1.0


def main(json_output: bool, rows: int) -> int:
    """Run both sides on both shapes of data and compare; gives the exit code."""
    results: list[Result] = []
    for shape, (entities, minutes, target) in SHAPES.items():
        with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
            results += _compare(Path(scratch), shape, rows, entities, minutes, target)
    results += _late()
    return show(results, is_json=json_output)


def _compare(scratch: Path, shape: str, rows: int, entities: int, minutes: int, target: float) -> list[Result]:
    home = Home(scratch / "home").create(HOME_SETTINGS)
    say(f"{shape}: writing {rows:,} deltas of {entities:,} entities")
    write_deltas(home, rows=rows, entities=entities, hours=HOURS, minutes=minutes, seed=SEED)
    by_peer, peer = _run("duckdb", home, scratch, scratch / "peer")
    by_us, ours = _run("rollups", home, scratch)
    is_equal = all(_is_equal(home, scratch / "peer" / "all", spec.name) for spec in TIERS)
    name = f"DuckDB {version('duckdb')}"
    minute, *coarser = (spec.name for spec in TIERS)
    ratio = by_us[minute] / by_peer[minute]
    sums = sum(by_us[tier] for tier in coarser)
    ours_s, peer_s, unit, of_minutes = by_us[minute], by_peer[minute], "CPU-seconds", sums / by_us[minute]
    is_met, title = of_minutes <= COARSER_TARGET, f"hours, days and weeks, {shape}"
    return [
        Result(f"minutes, {shape}", ours_s, peer_s, name, unit, ratio, target, ratio <= target, is_equal),
        Result(title, sums, ours_s, "minutes", unit, of_minutes, COARSER_TARGET, is_met, is_equal),
        peaks(f"memory, {shape}", ours, peer, name, MEMORY_TARGET_GB, is_equal=is_equal),
    ]


def _late() -> list[Result]:
    """The same files and bytes, whatever else the table holds (R5)."""
    month, year = _late_cost(MONTH_HOURS), _late_cost(YEAR_HOURS)
    is_right = month.is_right and year.is_right
    figures = (
        ("files read", year.files_read, month.files_read),
        ("bytes read", year.bytes_read, month.bytes_read),
        ("files written", year.files_written, month.files_written),
        ("bytes written", year.bytes_written, month.bytes_written),
    )
    return [
        Result(
            f"a late delta into a year, {unit}", *(ours, its), "a month", unit, ours / its, 1.0, ours == its, is_right
        )
        for unit, ours, its in figures
    ]


def _late_cost(hours: int) -> Cost:
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        home, answer = Home(Path(scratch) / "home").create(HOME_SETTINGS), Path(scratch) / "answer.json"
        say(f"a late delta into {hours // 24} days of data")
        measure("rollups_late", home.root, answer, hours)
        return Cost(**json.loads(answer.read_text()))


def _run(side: str, home: Home, scratch: Path, *more: Path) -> tuple[dict[str, float], Usage]:
    answer = scratch / f"{side}.json"
    usage = measure("rollups_sides", side, home.root, answer, HOURS, *more)
    taken: dict[str, float] = json.loads(answer.read_text())
    words = ", ".join(f"{name} {seconds:.1f}" for name, seconds in taken.items())
    say(f"{side}: CPU-seconds {words}; {usage.wall_s:.0f} s in all, {usage.peak_bytes / 1e9:.2f} GB at peak")
    return taken, usage


def _is_equal(home: Home, peer: Path, table: str) -> bool:
    """Whether both sides wrote the same rows, bucket by bucket."""
    ours = lake_files.files(home.lake / table)
    theirs = [str(file) for file in (peer / table).rglob("*.parquet")]
    found = []
    for files in (ours, theirs):
        with lake_files.quiet_database() as database:
            query = (
                f"SELECT bucket_start, count(*), sum(hash(({COLUMNS}))::HUGEINT) "
                "FROM read_parquet(?, hive_partitioning = false) GROUP BY ALL ORDER BY ALL"
            )
            found.append(database.execute(query, [files]).fetchall())
    rows = sum(row[1] for row in found[0])
    say(f"{table}: {rows:,} rows, {'equal' if found[0] == found[1] else 'DIFFERENT'}")
    return bool(found[0] == found[1])


if __name__ == "__main__":
    options = options_of("rollups", __doc__, rows=(int, ROWS, "how many deltas (default: 10 million)"))
    sys.exit(main(options.json, options.rows))
