"""The Spark session: one per process, with the settings that this platform relies on.

Belongs here: how a session is configured and started. Does not belong here: the Dagster resource that provides it
(`spark.py`), what is read or written with it (`lake.py`), where Java comes from (`toolchain.py`).
"""

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from resources.spark_internals import has_jvm, schema_of, start_jvm
from resources.toolchain import activate_toolchain
from tidemark.model.errors import TidemarkError
from tidemark.storage.home import Home
from tidemark.storage.privacy import make_directory, make_private, withheld_by

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

# Start-up takes half the time, throughput suffers: for tests and runs of seconds, never for a measurement. By default
# the JVM collects garbage about once a second while it grows, and discards code for lack of space: a tenth of its time.
FAST_START_OPTIONS = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:NewSize=256m -XX:MetaspaceSize=256m -XX:ReservedCodeCacheSize=240m"
)
# Settings that help large queries cost more than they save on small ones: one task less and no compilation is a fifth
# of the CPU time of a small demo.
FAST_START_SETTINGS = {
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
}
# The collector with the least work overall: a drain is a batch, and its pauses disturb no one. The optimizing compiler
# takes a quarter of a drain's time by default; within a minute it is worth it only for code ten times as hot as usual.
THROUGHPUT_OPTIONS = (
    "-XX:+UseParallelGC -XX:Tier4InvocationThreshold=50000 -XX:Tier4MinInvocationThreshold=6000 "
    "-XX:Tier4CompileThreshold=150000 -XX:Tier4BackEdgeThreshold=400000"
)
# The address of a server to use instead of a JVM of one's own (`spark_server.py`).
SERVER_VARIABLE = "TIDEMARK_SPARK_SERVER"
# The JVM's output is kept up to this size, then the file is begun anew.
NOTES_LIMIT = 4 * 1024 * 1024

# Nearly every row has its own value here: trying a dictionary first costs a fifth of writing them.
UNIQUE_COLUMNS = (
    *("identity_hash", "content_hash", "delta_id", "event_ts", "window_id", "pair_id"),
    *("values.list.element", "state"),
)


class SparkStartError(TidemarkError):
    """The JVM could not be started."""


def session_settings(home: Home, *, is_fast_start: bool = False) -> dict[str, str]:
    """All settings of a session for this home; the operator's own come last and win."""
    toolchain = activate_toolchain()
    logging = Path(__file__).with_name("log4j2.properties")
    java_options = [
        # Otherwise Delta re-verifies its checksum on every commit, and appends take three times as long.
        "-Duser.timezone=UTC",
        f"-Dlog4j2.configurationFile={logging.as_uri()}",
        FAST_START_OPTIONS if is_fast_start else THROUGHPUT_OPTIONS,
    ]
    return {
        "spark.app.name": "tidemark",
        "spark.master": home.settings.spark.master,
        "spark.driver.memory": home.settings.spark.driver_memory,
        "spark.driver.extraJavaOptions": " ".join(java_options),
        "spark.jars": ",".join(str(jar) for jar in toolchain.jars),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        # Parquet with this type is read by every reader as microseconds, UTC.
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        # A snapshot of a table of our size is one small task, not fifty.
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
        # Half a segment per task: the rows that a task sorts by hour then fit its memory beside the others'.
        "spark.sql.files.maxPartitionBytes": "32m",
        # Segments of a quiet day are small: many of them are one task, and not a file each in every hour they touch.
        "spark.sql.files.openCostInBytes": "256k",
        # A refresh of all tables compiles more than the hundred expressions that are cached by default, and repeats
        # the same ones for every table's log.
        "spark.sql.codegen.cache.maxEntries": "2000",
        # This many groups of an aggregation fit into a task's fast table; windows have more than the default of
        # sixteen bits allows.
        "spark.sql.codegen.aggregate.fastHashMap.capacityBit": "18",
        # Shuffled data are aggregates of hours, not raw deltas.
        "spark.sql.shuffle.partitions": "4",
        # Spark would compute the bytes of a batch after every row, and with a map in it count all rows before: rows of
        # vectors took about three times as long. Bounded by rows instead: 4,096 of a thousand numbers are 16 MB.
        "spark.sql.execution.arrow.maxBytesPerBatch": str(2**31 - 1),
        "spark.sql.execution.arrow.maxRecordsPerBatch": "4096",
        **(FAST_START_SETTINGS if is_fast_start else {}),
        **{f"spark.hadoop.parquet.enable.dictionary#{column}": "false" for column in UNIQUE_COLUMNS},
        # Workers that start without Spark's own archives: each task is a fifth of a second cheaper.
        "spark.python.daemon.module": "resources.python_workers",
        # Hadoop sets modes itself, by this and not by the process's umask.
        "spark.hadoop.fs.permissions.umask-mode": f"{withheld_by(home.root):03o}",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        # Tables are addressed by path, so nothing is ever written here; but it must not be the working directory.
        "spark.sql.warehouse.dir": (Path(tempfile.gettempdir()) / "tidemark-warehouse").as_uri(),
        **home.settings.spark.conf,
    }


def start_session(
    home: Home, *, is_fast_start: bool = False, overrides: dict[str, str] | None = None
) -> "SparkSession":
    """The process's session; the first call starts the JVM and decides its settings."""
    from pyspark.sql import SparkSession

    settings = {**session_settings(home, is_fast_start=is_fast_start), **(overrides or {})}
    _start_jvm(home, settings)
    return SparkSession.builder.config(map={**settings}).getOrCreate()


def frame_of(session: "SparkSession", table: "pa.Table") -> "DataFrame":
    """An Arrow table as a frame of this session, with its schema: a server would not see the schema of an empty one."""
    return session.createDataFrame(table, schema_of(table.schema))


def open_notes(home: Home) -> BinaryIO:
    """The file for a JVM's output, for debugging; it is not part of any answer."""
    make_directory(home.reports)
    notes = home.reports / "spark.log"
    if notes.exists() and notes.stat().st_size > NOTES_LIMIT:
        notes.unlink()
    return open(notes, "ab", opener=make_private)


def _start_jvm(home: Home, settings: dict[str, str]) -> None:
    """Start the JVM, with its output in a file."""
    from pyspark import SparkConf
    from pyspark.errors import PySparkRuntimeError

    if has_jvm() or "spark.remote" in settings:
        return
    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with open_notes(home) as sink:
        try:
            start_jvm(conf, sink)
        except PySparkRuntimeError as error:
            raise SparkStartError(
                f"The JVM did not start: {error}. Its output is at the end of {sink.name}."
            ) from error
