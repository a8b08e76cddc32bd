"""The parts of Spark and py4j that are not their public interface and are still needed: the one place for them.

Belongs here: each use of an undocumented part of PySpark, of py4j or of the JVM behind them, with why it is needed and
what would replace it. Nothing of Spark is imported until one of them is called. Does not belong here: how a session is
configured (`session.py`). Both are pinned; `tests/unit/test_spark_internals.py` says which part has changed when other
versions are tried, and that no other module of the product uses a private one.

There is one more in `python_workers.py`: `pyspark.daemon.manager`, which starts the Python workers. That module runs in
Spark's own processes, before the first worker is forked, so it imports nothing of ours.
"""

from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark import SparkConf
    from pyspark.sql import SparkSession
    from pyspark.sql.types import StructType

# What a session on a server imports when it is made. A process that forks others imports them before, so that none of
# these waits for it; if they had other names, it would only take longer.
CLIENT_MODULES = ("pyspark.sql.connect.functions", "pyspark.sql.connect.session")


def has_jvm() -> bool:
    """Whether this process has a JVM. `SparkSession.getActiveSession` only knows about a session."""
    from pyspark import SparkContext

    return SparkContext._gateway is not None  # noqa: SLF001 - there is no public way to ask


def start_jvm(conf: "SparkConf", sink: BinaryIO) -> None:
    """Start the JVM of this process, with its output in a file.

    By default it writes to the terminal. A setting of Spark for its output would replace this, except for the guard
    below.
    """
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway(conf, {"stdout": sink, "stderr": sink})  # type: ignore[no-untyped-call]
    guard(gateway)
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001 - the only way to a gateway of our own


def guard(gateway: Any) -> None:
    """Make every call use a connection without an outstanding answer, or else open another one.

    Each thread has one connection, on which questions and answers alternate. An exception that arrives in the middle of
    a call (a run is interrupted, a test takes too long) leaves the answer unread, and from then on every call of that
    thread gets the answer of the call before: `KeyError: 'm'` or, worse, a wrong value. A call that begins within
    another one, in a signal handler or while garbage is collected, swaps the two answers. py4j handles
    KeyboardInterrupt alone; a py4j that closes the connection after any exception would replace this.

    It keeps idle connections in a deque, and takes one out for the time of a call. So one that is not there is in the
    middle of a call, or was left there by an exception. Python code that the JVM calls back would lose its pinned
    thread by this; we register none.
    """
    client = gateway._gateway_client  # noqa: SLF001 - there is no public way
    get, give_back = client._get_connection, client._give_back_connection  # noqa: SLF001 - nor here

    def get_idle() -> Any:
        if client.get_thread_connection() not in client.deque:
            client.thread_connection.connection = None
        return get()

    def give_back_own(connection: Any) -> None:
        # After a call within this one: its connection is closed, because this one has the thread's state in the JVM.
        if client.get_thread_connection() is not connection:
            client.set_thread_connection(connection)
        give_back(connection)

    client._get_connection, client._give_back_connection = get_idle, give_back_own  # noqa: SLF001 - nor here


def forget_delta_logs(session: "SparkSession") -> None:
    """Make Delta read the disk again: it caches tables by path, even one that was deleted meanwhile.

    A session on a server cannot reach its JVM. `DeltaLog.clearCache` has no counterpart in `delta.tables`, which would
    replace this.
    """
    jvm = getattr(session, "_jvm", None)
    if jvm is not None:
        jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()


def limit_retries(session: "SparkSession", *, retries: int, longest_pause_ms: int) -> None:
    """Bound how often a session on a server retries when there is no answer: by default it would for ten minutes.

    A parameter of the address of the server would replace this.
    """
    from pyspark.sql.connect.client.retries import DefaultPolicy

    on_server: Any = session
    on_server.client.set_retry_policies([DefaultPolicy(max_retries=retries, max_backoff=longest_pause_ms)])


def schema_of(schema: "pa.Schema") -> "StructType":
    """An Arrow schema as Spark's, with timestamps that are points in time.

    A server would not see the schema of an empty table; a Spark that does would replace this.
    """
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema, prefer_timestamp_ntz=False)
