"""The Spark session as a Dagster resource.

Belongs here: handing the process's session to assets. Does not belong here: how it is configured and started
(`session.py`, which needs no Dagster).
"""

from typing import TYPE_CHECKING, Any

from dagster_pyspark import PySparkResource
from pydantic import Field

from resources.home import Home
from resources.session import start_session

if TYPE_CHECKING:
    from dagster import InitResourceContext
    from pyspark.sql import SparkSession


class SparkResource(PySparkResource):
    """Dagster's PySpark resource, with this platform's settings and a session that starts when it is first needed."""

    spark_config: dict[str, Any] = Field(
        default_factory=dict, description="Settings for this process only; they win over the home's."
    )
    home: str = Field(default="", description="Directory of the platform; empty means TIDEMARK_HOME or the default.")
    is_fast_start: bool = Field(default=False, description="Start faster and run slower: for tests and short runs.")

    def setup_for_execution(self, context: "InitResourceContext") -> None:
        """Start nothing: a run that finds nothing to do never pays for a JVM."""

    @property
    def spark_session(self) -> "SparkSession":
        """The session, started on first use."""
        if self._spark_session is None:
            home = Home.locate(self.home or None)
            self._spark_session = start_session(home, is_fast_start=self.is_fast_start, overrides=self.spark_config)
        session: SparkSession = self._spark_session
        return session
