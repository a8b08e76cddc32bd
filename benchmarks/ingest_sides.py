"""The two sides of `bench ingest`, each run in a process of its own: the drain, and DuckDB on the same segments.

Belongs here: the work that is measured. The peer gets the formulation that was fastest for it: repeated identity
hashes first, whole identities only for those, as the drain does.
"""

import sys
from pathlib import Path

from assets.ingest.schema import DELTAS
from tidemark.model.log_schema import LOG_SCHEMA
from tidemark.storage.home import Home
from tidemark.tables.lake_files import quiet_database

# The columns of a dead letter that both sides write; `detail` and a duplicate's payload as JSON differ by side.
LETTER_COLUMNS = (
    "shard, epoch, ordinal, namespace, kind, key, delta_id, event_ts, received_ts, producer, sequence, origin, source, "
    "priority, verdict, reason"
)
DELTA_COLUMNS = ", ".join(name for name in DELTAS.names if name in LOG_SCHEMA.names)


def drain_side(root: Path) -> None:
    """Everything that a drain does: verify, plan, deduplicate, commit both tables, fsync."""
    from assets.ingest.drain import drain_all
    from resources.lake import Lake
    from resources.session import start_session

    home = Home(root)
    lake = Lake(home, lambda: start_session(home))
    drain_all(lake)
    lake.spark.stop()


def duckdb_side(root: Path, target: Path) -> None:
    """Deduplicate and write hourly Parquet: no log, no check of earlier rows, no fsync."""
    target.mkdir(parents=True)
    log = f"read_parquet('{Home(root).segments(0)}/*.parquet', union_by_name = true)"
    accepted = f"(SELECT * FROM {log} WHERE verdict = 'accepted')"
    with quiet_database() as database:
        database.execute("SET threads = 2")
        database.execute("SET preserve_insertion_order = false")
        database.execute(
            f"CREATE TEMP TABLE suspects AS SELECT identity_hash FROM {accepted} GROUP BY 1 HAVING count(*) > 1"
        )
        database.execute(
            "CREATE TEMP TABLE copies AS SELECT *, row_number() OVER first AS place, "
            f"first_value(content_hash) OVER first AS first_content FROM {accepted} "
            "WHERE identity_hash IN (FROM suspects) "
            "WINDOW first AS (PARTITION BY namespace, key, event_ts, delta_id ORDER BY epoch, ordinal) "
            "QUALIFY place > 1"
        )
        database.execute(
            "COPY (SELECT * EXCLUDE (place, first_content) "
            "REPLACE (CASE WHEN content_hash = first_content THEN 'duplicate' ELSE 'id_reuse' END AS reason), "
            "date_trunc('hour', received_ts::TIMESTAMP) AS received_hour FROM copies "
            f"UNION ALL BY NAME SELECT *, date_trunc('hour', received_ts::TIMESTAMP) AS received_hour FROM {log} "
            f"WHERE verdict = 'refused') TO '{target / 'dead_letters'}' (FORMAT parquet, PARTITION_BY (received_hour))"
        )
        database.execute(
            f"COPY (SELECT {DELTA_COLUMNS}, date_trunc('hour', event_ts::TIMESTAMP) AS event_hour "
            f"FROM {accepted} AS delta ANTI JOIN copies ON delta.shard = copies.shard AND delta.epoch = copies.epoch "
            f"AND delta.ordinal = copies.ordinal) TO '{target / 'deltas'}' (FORMAT parquet, PARTITION_BY (event_hour))"
        )


if __name__ == "__main__":
    if sys.argv[1] == "drain":
        drain_side(Path(sys.argv[2]))
    else:
        duckdb_side(Path(sys.argv[2]), Path(sys.argv[3]))
