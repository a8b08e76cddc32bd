"""What every tier of tests shares."""

import os
import signal
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from resources.lake import Lake
from tests.support.batch import FORGETFUL
from tests.support.spark import START_LIMIT_S, served
from tidemark.storage.home import HOME_VARIABLE, Home

if TYPE_CHECKING:
    from dagster import DagsterInstance
    from pyspark.sql import SparkSession

# Which streams there are is decided when the tables are first imported. Most tests are about none: every stream would
# be computed and checked wherever they refresh what is stale. Those that are about streams define some, or run a
# process.
os.environ.setdefault("TIDEMARK_STREAMS", str(Path(__file__).parent / "support" / "no_streams"))

# A shell switches the signal of Ctrl-C off for what it starts in the background. Tests send it.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Nothing that a test starts may outlive it or be shared with another test. Those that are about the warm host of a
# home allow it for that home, and end it.
os.environ["TIDEMARK_WARM"] = "0"

# Time is no property of a law: these machines are noisy, and a slow example is not a wrong one.
settings.register_profile("tidemark", deadline=None, derandomize=True)
settings.load_profile("tidemark")


# What starts Spark, in two halves: the tests of a half run in one process, one after the other, in one session.
NEED_SPARK = {
    "pipeline": (
        "tests/pipeline/",
        "tests/chaos/test_batch_kills.py",
        "tests/chaos/test_compact_beside_ingest.py",
        "tests/chaos/test_warm_kills.py",
    ),
    "transform": ("tests/transform/",),
}


# Each task would write the code of its projections anew, only to find it compiled: on a handful of rows, most of them
# Delta's own, that is a third of a drain. On a day of deltas it pays, so processes that tests start do it as ever.
WITHOUT_CODE = {"spark.sql.codegen.factoryMode": "NO_CODEGEN"}


class FewSessions(LoadScopeScheduling):  # type: ignore[misc]
    """Deals tests out to processes: those that share a session together, and first, because they take longest."""

    def _split_scope(self, nodeid: str) -> str:
        return next((half for half, files in NEED_SPARK.items() if nodeid.startswith(files)), nodeid)


@pytest.hookimpl(optionalhook=True)  # asked for only where there is more than one process
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> FewSessions:
    """Marks for groups would be simpler, but pytest 9.2 does not let xdist 3.8 write them down, and says nothing."""
    return FewSessions(config, log)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator["SparkSession"]:
    """The one session of all tests of a process, on a Spark server as the runs of the daemon have it.

    A server refuses things that a session in this process takes, so everything that a run may execute is executed
    here through one. Commands start a JVM of their own: those that tests run in a process of its own do too.
    """
    from resources.session import SERVER_VARIABLE
    from resources.spark_server import connect

    home = Home(tmp_path_factory.mktemp("session")).create(FORGETFUL)
    with nullcontext() if SERVER_VARIABLE in os.environ else served(home, WITHOUT_CODE):
        session = connect(is_fast_start=True, patience_s=START_LIMIT_S)
        assert session is not None, "there is a Spark server, and it does not answer"
        yield session
        session.stop()


@pytest.fixture
def tiny_home(tmp_path: Path) -> Home:
    """An empty home whose shard remembers no identities, so that every copy is left to the drain."""
    return Home(tmp_path / "home").create(FORGETFUL)


@pytest.fixture
def instance(home: Home) -> "Iterator[DagsterInstance]":
    """Dagster's storage of the test's own home."""
    from orchestration.instance import open_instance

    with open_instance(home) as found:
        yield found


@pytest.fixture
def own_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs point the process's home to theirs; it is put back for the tests after these."""
    monkeypatch.setenv(HOME_VARIABLE, "unset")


@pytest.fixture
def lake(tiny_home: Home, spark: "SparkSession") -> Lake:
    """The lake of the tiny home."""
    return Lake(tiny_home, lambda: spark)
