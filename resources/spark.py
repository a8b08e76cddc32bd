"""The Spark session as a Dagster resource.

Belongs here: passing the process's session to assets. Does not belong here: how it is configured and started
(`session.py`, which needs no Dagster), or shared by many runs (`spark_server.py`).
"""

from typing import TYPE_CHECKING, Any

from dagster_pyspark import PySparkResource
from pydantic import Field

from resources.spark_server import find_session
from tidemark.observe.status import read_status
from tidemark.storage.home import Home

if TYPE_CHECKING:
    from dagster import InitResourceContext
    from pyspark.sql import SparkSession


# Below this a JVM that starts fast beats one that runs fast.
SMALL_LOG_ROWS = 1_000_000


class SparkResource(PySparkResource):
    """Dagster's PySpark resource, with this platform's settings and a session that starts when it is first needed."""

    spark_config: dict[str, Any] = Field(
        default_factory=dict, description="Settings for this process only; they win over the home's."
    )
    home: str = Field(default="", description="Directory of the platform; empty means TIDEMARK_HOME or the default.")
    is_fast_start: bool | None = Field(
        default=None, description="Start faster and run slower; by default, if there is little to do."
    )

    def setup_for_execution(self, context: "InitResourceContext") -> None:
        """Start nothing: a run that finds nothing to do never pays for a JVM."""

    @property
    def spark_session(self) -> "SparkSession":
        """The session, started on first use."""
        if self._spark_session is None:
            home = Home.locate(self.home or None)
            is_fast = is_small(home) if self.is_fast_start is None else self.is_fast_start
            self._spark_session = find_session(home, is_fast_start=is_fast, overrides=self.spark_config)
        session: SparkSession = self._spark_session
        return session


def is_small(home: Home) -> bool:
    """Whether the log is so small that a JVM's start costs more than its work."""
    return sum(shard.rows for shard in read_status(home)) < SMALL_LOG_ROWS
