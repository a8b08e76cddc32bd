"""`bench ingest`: sealed segments into `deltas` and `dead_letters`, exactly once, beside DuckDB on the same files.

Belongs here: how the two sides are run and compared. Both start from nothing in a process of their own, and all that
they and their children use counts, the start of the JVM too.
"""

import sys
import tempfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness import HOME_SETTINGS, Result, Usage, measure, options_of, peaks, say, show
from benchmarks.ingest_data import write_log
from benchmarks.ingest_sides import DELTA_COLUMNS, LETTER_COLUMNS
from tidemark.storage.home import Home
from tidemark.tables import lake_files

ROWS = 10_000_000
SEED = 7
CPU_TARGET = 3.0
MEMORY_TARGET_GB = 6.0

Fingerprint = list[tuple[int, int, int]]


def main(json_output: bool, rows: int) -> int:
    """Run both sides and compare; gives the exit code."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        home = Home(Path(scratch) / "home").create(HOME_SETTINGS)
        peer = Path(scratch) / "peer"
        say(f"writing {rows:,} deltas as sealed segments")
        write_log(home.segments(0), rows=rows, seed=SEED)
        by_duckdb = measure("ingest_sides", "duckdb", home.root, peer)
        say(f"duckdb: {_words(by_duckdb)}")
        by_drain = measure("ingest_sides", "drain", home.root)
        say(f"drain:  {_words(by_drain)}")
        is_equal = _is_equal(home, peer)
    return show(_results(by_drain, by_duckdb, is_equal=is_equal), is_json=json_output)


def _results(ours: Usage, peer: Usage, *, is_equal: bool) -> list[Result]:
    name = f"DuckDB {version('duckdb')}"
    cpu = ours.cpu_s / peer.cpu_s
    return [
        Result("ingest", ours.cpu_s, peer.cpu_s, name, "CPU-seconds", cpu, CPU_TARGET, cpu <= CPU_TARGET, is_equal),
        peaks("ingest memory", ours, peer, name, MEMORY_TARGET_GB, is_equal=is_equal),
    ]


def _is_equal(home: Home, peer: Path) -> bool:
    """Whether both sides wrote the same rows into the same hours, for both tables."""
    same = True
    for table, time, columns in (
        ("deltas", "event_ts", DELTA_COLUMNS),
        ("dead_letters", "received_ts", LETTER_COLUMNS),
    ):
        ours = lake_files.files(home.lake / table)
        theirs = [str(file) for file in (peer / table).rglob("*.parquet")]
        found = [_fingerprint(files, time, columns) for files in (ours, theirs)]
        say(f"{table}: {sum(hour[1] for hour in found[0]):,} rows, {'equal' if found[0] == found[1] else 'DIFFERENT'}")
        same = same and found[0] == found[1]
    return same


def _fingerprint(files: Sequence[str], time: str, columns: str) -> Fingerprint:
    """Per hour: rows, and the sum of the rows' hashes, which no order of rows or files can change."""
    with lake_files.quiet_database() as database:
        query = (
            f"SELECT epoch_us({time}) // 3600000000 AS hour, count(*), sum(hash(({columns}))::HUGEINT) "
            "FROM read_parquet(?, hive_partitioning = false) GROUP BY hour ORDER BY hour"
        )
        found: Fingerprint = database.execute(query, [list(files)]).fetchall()
        return found


def _words(usage: Usage) -> str:
    return f"{usage.cpu_s:.1f} CPU-seconds, {usage.wall_s:.1f} s, {usage.peak_bytes / 1e9:.2f} GB at peak"


if __name__ == "__main__":
    options = options_of("ingest", __doc__, rows=(int, ROWS, "how many deltas (default: 10 million)"))
    sys.exit(main(options.json, options.rows))
