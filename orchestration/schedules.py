"""Runs that start by the clock.

Belongs here: the hourly floor under the sensors, the windows of the hour, and the nightly maintenance. Nothing here is
needed for a row to arrive; the floor bounds how long a missed segment can go unnoticed.
"""

from datetime import timedelta

import dagster as dg

from assets.trust import waits_for
from orchestration.attempts import is_under_way
from orchestration.foreign import refuse_foreign
from orchestration.jobs import drain_job, windows_job
from orchestration.maintenance import maintenance_job
from orchestration.timetable import DRAIN_AT, MAINTENANCE_AT, WINDOWED_COUNTS_AT
from orchestration.windowed_counts import standing, wrong_inputs
from tidemark.storage.home import Home

# The floor drains every hour, even if nothing was sent: if the last drain is older than two hours, one was missed.
DRAIN_FRESHNESS = dg.FreshnessPolicy.time_window(
    fail_window=timedelta(hours=2), warn_window=timedelta(hours=1, minutes=15)
)


def with_freshness(asset: dg.AssetsDefinition) -> dg.AssetsDefinition:
    """The drain, with how old it may get before the orchestrator's pages say so."""
    return asset.map_asset_specs(lambda spec: spec.replace_attributes(freshness_policy=DRAIN_FRESHNESS))


@dg.schedule(
    job=drain_job,
    cron_schedule=DRAIN_AT,
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="A drain an hour, also when the sensor is off or finds nothing: shows that the platform is alive.",
)
def hourly_floor(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """Level-triggered: what the sensors missed is found, because a drain looks at the whole manifest."""
    refuse_foreign(context.instance, Home.locate())
    if is_under_way(context.instance, drain_job):
        return dg.SkipReason("A drain is under way.")
    return dg.RunRequest()


@dg.schedule(
    job=windows_job,
    cron_schedule=WINDOWED_COUNTS_AT,
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="All windows of all entities, once for every hour of event time.",
)
def hourly_windows(context: dg.ScheduleEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """Level-triggered, as the floor is: an hour that was missed is made up for at the next look."""
    instance, home = context.instance, Home.locate()
    refuse_foreign(instance, home)
    if is_under_way(instance, windows_job):
        return dg.SkipReason("It is under way.")
    if not standing(instance, home).is_an_hour_behind:
        return dg.SkipReason("The hour has been computed.")
    if wrong := wrong_inputs(instance, home):
        return dg.SkipReason(waits_for(wrong))
    return dg.RunRequest()


nightly_maintenance = dg.ScheduleDefinition(
    name="nightly_maintenance",
    job=maintenance_job,
    cron_schedule=MAINTENANCE_AT,
    execution_timezone="UTC",
    default_status=dg.DefaultScheduleStatus.RUNNING,
    description="Compact closed hours, delete files beyond the retention, verify every checksum.",
)
