"""What happens because the clock says so.

Belongs here: the hourly floor under the sensors, and the nightly maintenance. Nothing here is needed for a row to
arrive; it bounds how long a missed one can go unnoticed.
"""

from datetime import timedelta

import dagster as dg

from orchestration.jobs import drain_job
from orchestration.maintenance import maintenance_job
from orchestration.sensors import is_draining

HOURLY = "5 * * * *"
NIGHTLY = "30 3 * * *"

# The floor makes a drain every hour, also when nothing was sent: one that is older than two hours has been missed.
DRAIN_FRESHNESS = dg.FreshnessPolicy.time_window(
    fail_window=timedelta(hours=2), warn_window=timedelta(hours=1, minutes=15)
)


def with_freshness(asset: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """The drain, with how old it may get before the orchestrator's pages say so."""
    return asset.map_asset_specs(lambda spec: spec.replace_attributes(freshness_policy=DRAIN_FRESHNESS))


@dg.schedule(
    job=drain_job,
    cron_schedule=HOURLY,
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="A drain an hour, also when the sensor is off or finds nothing: shows that the platform is alive.",
)
def hourly_floor(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """Level-triggered: what the sensors missed is found, because a drain looks at the whole manifest."""
    if is_draining(context.instance):
        return dg.SkipReason("A drain is under way.")
    return dg.RunRequest()


nightly_maintenance = dg.ScheduleDefinition(
    name="nightly_maintenance",
    job=maintenance_job,
    cron_schedule=NIGHTLY,
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Compact closed hours, delete files beyond the retention, verify every checksum.",
)
