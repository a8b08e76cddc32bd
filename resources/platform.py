"""The platform as the orchestrator's assets see it: its home, its session and its lake, as one Dagster resource.

Belongs here: providing what assets need. Does not belong here: any work.
"""

import dagster as dg
from pydantic import Field, PrivateAttr

from resources.lake import Lake
from resources.spark import SparkResource
from tidemark.event_time.clock import system_clock
from tidemark.storage.home import Home


class TidemarkResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """One platform. The session starts when a table is first written or read with Spark, not before."""

    spark: dg.ResourceDependency[SparkResource]
    root: str = Field(default="", description="Directory of the platform; empty means TIDEMARK_HOME or the default.")
    _lake: Lake | None = PrivateAttr(default=None)

    @property
    def home(self) -> Home:
        """The home of the platform."""
        return self.lake.home

    @property
    def lake(self) -> Lake:
        """The tables; one object per run, so that the run can take its own locks again."""
        if self._lake is None:
            home = Home.locate(self.root or None).create()
            self._lake = Lake(home, lambda: self.spark.spark_session)
        return self._lake

    def now_us(self) -> int:
        """The clock of the batch plane, in microseconds; a test's resource has its own."""
        return system_clock()
