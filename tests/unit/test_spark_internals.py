"""What is used of Spark and py4j without being public is there, has the shape relied on, and is used in one place."""

import ast
import inspect
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

from resources.toolchain import activate_toolchain
from tests.support.private_parts import PRODUCT, ROOT, is_private, missing, modules_used, sources

INTERNALS = ROOT / "resources" / "spark_internals.py"
# In Spark's own processes, where nothing of ours is imported; `INTERNALS` says so.
WORKERS = ROOT / "resources" / "python_workers.py"
LIBRARIES = ("pyspark", "py4j", "delta")
# Not private by name, and in no reference of Spark's.
UNDOCUMENTED = ("pyspark.core", "pyspark.daemon", "pyspark.java_gateway", "pyspark.sql.connect", "pyspark.sql.pandas")
# Attributes of public classes that lead to the JVM.
HIDDEN = {"_ensure_initialized", "_gateway_client", "_jdf", "_jsc", "_jsparkSession", "_jvm"}

PARTS: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = [
    ("pyspark", "SparkContext._gateway", (), ()),
    ("pyspark", "SparkContext._ensure_initialized", ("gateway",), ()),
    ("pyspark.java_gateway", "launch_gateway", ("conf", "popen_kwargs"), ()),
    ("pyspark.daemon", "manager", (), ()),
    ("pyspark.sql.connect.client.retries", "DefaultPolicy", ("max_retries", "max_backoff"), ()),
    ("pyspark.sql.connect.client", "SparkConnectClient.set_retry_policies", ("policies",), ()),
    ("pyspark.sql.connect.session", "SparkSession.client", (), ()),
    ("pyspark.sql.pandas.types", "from_arrow_schema", ("arrow_schema", "prefer_timestamp_ntz"), ()),
    ("py4j.clientserver", "JavaClient", (), ("_get_connection", "_give_back_connection")),
    ("py4j.clientserver", "JavaClient.set_thread_connection", ("connection",), ()),
    ("py4j.clientserver", "JavaClient.get_thread_connection", (), ()),
]


def changed(what: str) -> str:
    return (
        f"Spark {version('pyspark')} or py4j {version('py4j')} has changed: {what}. Read in "
        f"{INTERNALS.relative_to(ROOT)} what it is needed for and what would replace it; use that, or stay with the "
        "versions before."
    )


@pytest.mark.parametrize(("module", "name", "parameters", "fields"), PARTS, ids=[name for _, name, *_ in PARTS])
def test_every_undocumented_part_has_the_shape_that_is_relied_on(
    module: str, name: str, parameters: tuple[str, ...], fields: tuple[str, ...]
) -> None:
    what = missing(module, name, parameters, fields)
    assert not what, changed(what)


def test_a_client_of_the_jvm_keeps_idle_connections_in_a_deque_and_one_for_each_thread() -> None:
    """What `guard` takes for granted, beside what `test_gateway.py` shows of the two together."""
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters

    gateway = ClientServer(JavaParameters(port=1), PythonParameters(port=0, eager_load=False, daemonize=True))
    client = getattr(gateway, "_gateway_client", None)
    assert client is not None, changed("a gateway has no _gateway_client any more")
    for name in ("deque", "thread_connection"):
        assert hasattr(client, name), changed(f"JavaClient has no {name} any more")
    assert client.get_thread_connection() is None, changed("a thread that has asked nothing has a connection")


def test_a_session_with_a_jvm_says_which() -> None:
    from pyspark.sql import SparkSession

    assert "self._jvm = " in inspect.getsource(SparkSession.__init__), changed("a session has no _jvm any more")


def test_delta_can_be_told_to_forget_its_tables() -> None:
    """`DeltaLog.clearCache` is in the jar; without it a table that was deleted would be seen behind a new one."""
    [jar] = [path for path in activate_toolchain().jars if "delta-spark_" in path.name]
    with zipfile.ZipFile(jar) as classes:
        code = classes.read("org/apache/spark/sql/delta/DeltaLog.class")
    assert b"clearCache" in code, changed("Delta's DeltaLog has no clearCache any more")


def test_nothing_else_in_the_product_uses_an_undocumented_module_of_spark_or_py4j() -> None:
    uses = [
        use
        for path in sources(*PRODUCT)
        if path not in (INTERNALS, WORKERS)
        for use in modules_used(path, LIBRARIES)
        if is_private(use.module) or use.module.startswith(UNDOCUMENTED)
    ]
    assert not uses, f"{', '.join(map(str, uses))}: use it in resources/spark_internals.py, or do without."


def test_the_workers_of_spark_use_one_undocumented_part() -> None:
    uses = {use.module for use in modules_used(WORKERS, LIBRARIES)}
    assert uses == {"pyspark.daemon", "pyspark.daemon.manager"}


def test_nothing_else_in_the_product_reaches_through_spark_to_the_jvm() -> None:
    """Benchmarks may: they read metrics that Spark shows in no other way."""
    found = [
        f"{path.relative_to(ROOT)}:{line} uses {name}"
        for path in sources(*(folder for folder in PRODUCT if folder != "benchmarks"))
        if path != INTERNALS
        for line, name in hidden(path)
    ]
    assert not found, f"{', '.join(found)}: use it in resources/spark_internals.py, or do without."


def test_a_way_to_the_jvm_is_found_however_it_is_written(tmp_path: Path) -> None:
    source = tmp_path / "sample.py"
    source.write_text("frame._jdf.count()\njvm = getattr(session, '_jvm', None)\n_jvm = 1\n")
    assert hidden(source) == [(1, "_jdf"), (2, "_jvm")]


def hidden(path: Path) -> list[tuple[int, str]]:
    """Where a file names a hidden attribute, as one or in a text."""
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        name = node.attr if isinstance(node, ast.Attribute) else node.value if isinstance(node, ast.Constant) else None
        if isinstance(name, str) and name in HIDDEN:
            found.append((getattr(node, "lineno", 0), name))
    return sorted(found)
