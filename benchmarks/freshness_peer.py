"""The peer of `bench freshness`: Spark Structured Streaming, from files to `deltas` and minute counts in Delta.

Belongs here: the two queries, as the documentation of Spark and of Delta writes them, in a process of their own; and
what a file takes from its name in the folder to its rows in the tables. It proves nothing and keeps no account; it is
what somebody would write who wants rows in Delta soon.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.freshness_ledger import FamilyLedger
from benchmarks.freshness_watch import has_row
from benchmarks.harness import say
from resources.toolchain import activate_toolchain
from tidemark.model.timegrid import from_us
from tidemark.storage.home import Below

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = "namespace STRING, kind STRING, delta_id STRING, event_ts TIMESTAMP, entity_id STRING, signal STRING, n LONG"
# One file before the measured ones has the queries planned and compiled; a second one, their state stores.
WARM_UPS = 3
LIMIT_S, LOOK_S, PAUSE_S = 300.0, 0.02, 2.0
SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.extraJavaOptions": "-Duser.timezone=UTC",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    # The defaults, 200 and 50, are for clusters: with them each small batch would take many times as long.
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
}


@dataclass(frozen=True)
class PeerTurn:
    """One file; seconds are from its name in the folder, CPU-seconds until both tables have its rows."""

    deltas_s: float
    minutes_s: float
    cpu_s: float


@dataclass(frozen=True)
class Places:
    """The folders of the peer."""

    root: Path

    incoming = Below("incoming", "Where files appear.")
    deltas = Below("lake/deltas", "A row for each delta.")
    minutes = Below("lake/minute_counts", "A row for each minute, entity and signal.")


def peer_turns(root: Path, base: int, turns: int) -> list[PeerTurn]:
    """A file of `base` deltas and some small ones first; then each turn is a file with one delta."""
    places, found = Places(root), list[PeerTurn]()
    places.incoming.mkdir(parents=True)
    with _running(places) as ledger:
        _turn(places, ledger, "base", base)
        for number in range(WARM_UPS + turns):
            time.sleep(PAUSE_S)
            turn = _turn(places, ledger, f"fresh-{number}", 1)
            say(f"Structured Streaming: {turn}")
            found.append(turn)
    return found[WARM_UPS:]


@contextmanager
def _running(places: Places) -> Iterator[FamilyLedger]:
    command = [sys.executable, "-m", "benchmarks.freshness_peer", str(places.root)]
    ledger = FamilyLedger()
    # It runs until its input is closed.
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=sys.stderr, stderr=sys.stderr)
    try:
        with ledger.watching():
            yield ledger
    finally:
        if process.stdin:
            process.stdin.close()
        process.wait()


def _turn(places: Places, ledger: FamilyLedger, name: str, deltas: int) -> PeerTurn:
    now_us = time.time_ns() // 1_000 - 1_000_000
    rows = [
        {
            "namespace": "shop",
            "kind": "signal",
            "delta_id": f"{name}-{number}",
            "event_ts": from_us(now_us - number * 1_000_000).isoformat(),
            "entity_id": name if deltas == 1 else f"item-{number % 200}",
            "signal": "view",
            "n": 1,
        }
        for number in range(deltas)
    ]
    hidden = places.root / f"{name}.json"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    before = ledger.look()
    hidden.rename(places.incoming / hidden.name)
    begun = time.time()
    wanted = {places.deltas: ("delta_id", f"{name}-0"), places.minutes: ("entity_id", rows[0]["entity_id"])}
    found: dict[Path, float] = {}
    seen: dict[Path, set[str]] = {table: set() for table in wanted}
    while len(found) < len(wanted):
        if time.time() - begun > LIMIT_S:
            raise TimeoutError(
                f"Structured Streaming did not write {name} within {LIMIT_S:.0f} s; its output is above."
            )
        for table, (column, value) in wanted.items():
            log = table / "_delta_log"
            versions = {path.name for path in log.glob("*.json")} if log.exists() else set()
            fresh, seen[table] = versions - seen[table], versions
            if table not in found and has_row(table, fresh, column, str(value)):
                found[table] = time.time() - begun
        time.sleep(LOOK_S)
    return PeerTurn(found[places.deltas], found[places.minutes], ledger.look().cpu_s - before.cpu_s)


def serve(root: Path) -> None:
    """Run both queries until standard input is closed."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    places, toolchain = Places(root), activate_toolchain()
    jars = ",".join(str(jar) for jar in toolchain.jars)
    spark: SparkSession = SparkSession.builder.config(map={**SETTINGS, "spark.jars": jars}).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    incoming = spark.readStream.schema(SCHEMA).json(str(places.incoming))
    counts = (
        incoming.withWatermark("event_ts", "1 hour")
        .groupBy(F.window("event_ts", "1 minute"), "namespace", "entity_id", "signal")
        .agg(F.sum("n").alias("n"))
        .select(F.col("window.start").alias("minute"), "namespace", "entity_id", "signal", "n")
    )
    checkpoints = root / "checkpoints"
    queries = [
        incoming.writeStream.format("delta")
        .outputMode("append")
        .option("checkpointLocation", str(checkpoints / "deltas"))
        .start(str(places.deltas)),
        counts.writeStream.outputMode("update")
        .option("checkpointLocation", str(checkpoints / "minutes"))
        .foreachBatch(lambda batch, _: merge(spark, batch, places.minutes))
        .start(),
    ]
    sys.stdin.read()
    for query in queries:
        query.stop()
    spark.stop()


def merge(spark: "SparkSession", batch: "DataFrame", minutes: Path) -> None:
    """Bring the changed counts of a batch into the table."""
    from delta.tables import DeltaTable

    if not DeltaTable.isDeltaTable(spark, str(minutes)):
        batch.write.format("delta").save(str(minutes))
        return
    same = " AND ".join(f"old.{name} = new.{name}" for name in ("minute", "namespace", "entity_id", "signal"))
    table = DeltaTable.forPath(spark, str(minutes)).alias("old")
    table.merge(batch.alias("new"), same).whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


if __name__ == "__main__":
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    serve(Path(sys.argv[1]))
