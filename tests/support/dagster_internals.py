"""Names of Dagster that are not public and that only tests need: the one place from which tests import them.

What the product needs too is in `resources/dagster_internals.py`.
"""

from dagster._core.definitions.run_request import InstigatorType
from dagster._core.execution.backfill import PartitionBackfill
from dagster._core.instance.config import dagster_instance_config
from dagster._core.instance.ref import InstanceRef
from dagster._core.scheduler.instigation import TickStatus
from dagster._core.storage import tags
from dagster._daemon.monitoring.run_monitoring import execute_run_monitoring_iteration

__all__ = [
    # Dagster's own reading of dagster.yaml, for settings whose storage is not installed here.
    "InstanceRef",
    # How long ticks are kept is answered by kind of tick, and by how it ended.
    "InstigatorType",
    # A backfill as the daemon keeps it, to have one without a daemon.
    "PartitionBackfill",
    "TickStatus",
    # As `InstanceRef`.
    "dagster_instance_config",
    # One look of the daemon's monitoring at the runs; otherwise it takes a daemon, and its pauses.
    "execute_run_monitoring_iteration",
    # Names of tags that are documented, but not exported.
    "tags",
]
