"""The two sides of `bench rollups`: the tiers as the assets compute them, and DuckDB on the same files.

Belongs here: the work that is measured, each side in a process of its own and each tier by itself, warm: a run over two
days comes first, whose CPU time does not count, because a platform's session lives for months. Both sides write what
they have computed, partition by partition; ours also commits it to a Delta log and syncs it to the disk.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from assets.ingest.schema import DELTAS
from assets.rollups.schema import CHAIN
from benchmarks.harness import cpu_s
from benchmarks.lake_data import START_US
from benchmarks.rollups_data import SIGNALS_SQL, sums_sql
from tidemark.model.timegrid import HOUR_US
from tidemark.storage.home import Home
from tidemark.tables.lake_files import quiet_database
from tidemark.tables.tiers import Tier

WARM_HOURS = 48
COLUMNS = "namespace, entity_id, signal, bucket_start, count, weight_sum, deltas"


def measured(name: str, work: Callable[[], object], into: dict[str, float]) -> None:
    """Run it and record its cost."""
    before = cpu_s()
    work()
    into[name] = cpu_s() - before


def rollup_side(root: Path, hours: int) -> dict[str, float]:
    """All tiers over the whole range: each one Spark job and one commit (O2)."""
    from assets.rollups.asset import replace_sums
    from assets.rollups.transform import count_tier
    from resources.lake import Lake
    from resources.session import start_session
    from tidemark.model.ranges import Range

    home = Home(root)
    lake = Lake(home, lambda: start_session(home))
    transforms = tuple(count_tier(tier) for tier in Tier)
    found: dict[str, float] = {}
    for length in (WARM_HOURS, hours):
        for (source, target), transform in zip(CHAIN, transforms, strict=True):
            end_us = target.grain.next(START_US + length * HOUR_US - 1)
            window = Range(target.grain.floor(START_US), end_us)
            work = partial(replace_sums, lake, source, target, transform, window)
            measured(target.name, work, found)
    lake.spark.stop()
    return found


def duckdb_side(root: Path, target: Path, hours: int) -> dict[str, float]:
    """The same sums, each from the one before, as Parquet by partition: no log, no fsync."""
    found: dict[str, float] = {}
    with quiet_database() as database:
        database.execute("SET threads = 2")
        database.execute("SET preserve_insertion_order = false")
        database.execute("SET TimeZone = 'UTC'")
        for place, length in ((target / "warm", WARM_HOURS), (target / "all", hours)):
            place.mkdir(parents=True)
            end = START_US + length * HOUR_US
            deltas = SIGNALS_SQL.format(files=Home(root).lake / DELTAS.name) + (
                f" AND event_ts < make_timestamptz({end})"
            )
            for made_from, spec in CHAIN:
                finer = f"SELECT {COLUMNS} FROM read_parquet('{place / made_from.name}/*/*.parquet')"
                source = deltas if made_from is DELTAS else finer
                query = (
                    f"COPY (SELECT {sums_sql(spec)} FROM ({source}) GROUP BY ALL) TO '{place / spec.name}' "
                    f"(FORMAT parquet, PARTITION_BY ({spec.partition_by}))"
                )
                measured(spec.name, partial(database.execute, query), found)
    return found


if __name__ == "__main__":
    side, home_root, answer, hour_count, *more = sys.argv[1:]
    taken = (
        rollup_side(Path(home_root), int(hour_count))
        if side == "rollups"
        else duckdb_side(Path(home_root), Path(more[0]), int(hour_count))
    )
    Path(answer).write_text(json.dumps(taken))
