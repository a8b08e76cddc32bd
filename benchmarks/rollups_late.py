"""What one late delta costs, in a table of a month and in one of a year (R5): a part of `bench rollups`.

Belongs here: the same delta into the same hour of both, the four tiers computed again for its hour, its day and its
week, and which files that read and wrote. Reads are taken from Spark's own metrics of the plans that ran, writes from
the tables' logs. Only files of data are counted: a log names every file that a table has, so it is longer in a year.
"""

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assets.rollups.asset import replace_sums
from assets.rollups.schema import CHAIN, TIERS
from assets.rollups.transform import count_tier
from benchmarks.lake_data import START_US
from benchmarks.rollups_data import SIGNALS_SQL, sums_sql, write_deltas, write_late, write_sums
from resources.lake import Lake
from resources.session import start_session
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.tiers import Tier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MONTH_HOURS, YEAR_HOURS = 30 * 24, 365 * 24
ROWS_PER_HOUR, ENTITIES, SEED = 50, 20, 7
# Three weeks before the month ends.
LATE_US = START_US + (MONTH_HOURS - 21 * 24) * HOUR_US
COLUMNS = "namespace, entity_id, signal, bucket_start, count, weight_sum, deltas"


@dataclass(frozen=True)
class Cost:
    """Files of data, and their bytes; and whether the sums are right afterwards."""

    files_read: int
    bytes_read: int
    files_written: int
    bytes_written: int
    is_right: bool


def late_cost(home: Home, hours: int) -> Cost:
    """Fill the tables, send a late delta, compute its buckets again."""
    write_deltas(home, rows=hours * ROWS_PER_HOUR, entities=ENTITIES, hours=hours, minutes=60, seed=SEED)
    write_sums(home)
    write_late(home, LATE_US, entities=ENTITIES)
    lake = Lake(home, lambda: start_session(home))
    read = bytes_read = 0
    before = {spec.name: _live(home, spec.name) for spec in TIERS}
    for (source, target), transform in zip(CHAIN, tuple(count_tier(tier) for tier in Tier), strict=True):
        start_us = target.grain.floor(LATE_US)
        window = Range(start_us, target.grain.next(start_us))
        seen, held = int(_store(lake.spark).executionsCount()), lake_files.partitions(home.lake / source.name)
        replace_sums(lake, source, target, transform, window)
        files = _files_read(lake.spark, seen)
        inputs = [held[each] for each in held if window.holds(each)]
        if files != sum(len(each.files) for each in inputs):
            raise AssertionError(f"{target.name}: {files} files were read, but {window} has {inputs}")
        read += files
        bytes_read += sum(each.bytes for each in inputs)
    lake.spark.stop()
    written = {name: _live(home, name) - files for name, files in before.items()}
    sizes = [Path(file).stat().st_size for files in written.values() for file in files]
    return Cost(read, bytes_read, len(sizes), sum(sizes), is_right=_is_right(home))


def _live(home: Home, table: str) -> set[str]:
    return set(lake_files.files(home.lake / table))


def _files_read(spark: "SparkSession", since: int) -> int:
    """How many files of data the plans have read that ran since then."""
    store, found = _store(spark), 0
    executions = store.executionsList()
    for place in range(since, executions.size()):
        number = executions.apply(place).executionId()
        values, nodes = store.executionMetrics(number), store.planGraph(number).allNodes()
        for node in (nodes.apply(at) for at in range(nodes.size())):
            if not node.name().startswith("Scan parquet"):
                continue  # a log is read as JSON
            for metric in (node.metrics().apply(at) for at in range(node.metrics().size())):
                value = values.get(metric.accumulatorId())
                if metric.name() == "number of files read" and value.isDefined():
                    found += int(value.get().replace(",", ""))
    return found


def _store(spark: "SparkSession") -> Any:
    session: Any = spark
    return session._jsparkSession.sharedState().statusStore()  # noqa: SLF001 - Spark's own interface shows no metrics


def _is_right(home: Home) -> bool:
    """Whether every tier has exactly the sums of the deltas, by DuckDB."""
    with lake_files.quiet_database() as database:
        database.execute("SET TimeZone = 'UTC'")
        for spec in TIERS:
            deltas = SIGNALS_SQL.format(files=home.lake / "deltas")
            right = f"SELECT {COLUMNS} FROM (SELECT {sums_sql(spec)} FROM ({deltas}) GROUP BY ALL)"
            found = f"SELECT {COLUMNS} FROM read_parquet(?, hive_partitioning = false)"
            query = f"SELECT count(*), sum(hash(({COLUMNS}))::HUGEINT) FROM ({{}})"
            files = sorted(_live(home, spec.name))
            if (
                database.execute(query.format(right)).fetchall()
                != database.execute(query.format(found), [files]).fetchall()
            ):
                return False
    return True


if __name__ == "__main__":
    root, answer, length = sys.argv[1:]
    Path(answer).write_text(json.dumps(asdict(late_cost(Home(Path(root)), int(length)))))
