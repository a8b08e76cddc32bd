"""The sensor that refreshes: one run for all that became stale, as soon as it is.

Belongs here: when a refresh is due, and whether there was one for the tables as they are now. Partition by partition
(`automation.py`), Dagster's conditions request what a refresh has left: a table that failed is tried again by itself,
less and less often. Does not belong here: what a refresh does (`assets/refresh.py`), how often a sensor looks
(`timetable.py`).
"""

import dagster as dg

from assets.as_seen import STATE_TAG, state_of
from assets.ingest.schema import DELTAS
from assets.refresh import REFRESH
from assets.trust import unchecked
from orchestration.attempts import MAX_RUNTIME_S, is_under_way
from orchestration.jobs import drain_job, refresh_job
from orchestration.refreshes import stale_now, was_refreshed
from orchestration.sensors import patiently
from orchestration.timetable import TABLES_EVERY_S
from tidemark.storage.home import Home


@dg.sensor(
    job=refresh_job,
    minimum_interval_seconds=TABLES_EVERY_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Brings every table up to date that is made partition by partition, in one run.",
)
def follow_tables(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """One refresh at a time, and one for each state of the tables: what it leaves waits until they change."""
    return patiently(context.instance, lambda home: _due(context.instance, home))


def _due(instance: dg.DagsterInstance, home: Home) -> dg.RunRequest | dg.SkipReason:
    if is_under_way(instance, refresh_job):
        return dg.SkipReason("A refresh is under way.")
    # For seconds, and not for as long as drains follow one another: each begins with hours that have all been checked.
    if is_under_way(instance, drain_job) and unchecked(instance, DELTAS.name):
        return dg.SkipReason("A drain checks what it has brought in.")
    state = state_of(home, instance)
    if was_refreshed(instance, home):
        return dg.SkipReason("There was a refresh of the tables as they are now.")
    if not any(stale_now(instance).values()):
        return dg.SkipReason("Every table is up to date.")
    tags = {STATE_TAG: state, "dagster/max_runtime": str(MAX_RUNTIME_S)}
    # Two ticks that request the same run have the same key, and a state that has come back has another one: when a
    # drain has checked all that it brought in, all is as it looked between its commit and its report.
    key = f"{state}/{instance.get_runs_count(dg.RunsFilter(job_name=refresh_job.name))}"
    return dg.RunRequest(run_key=key, tags=tags, run_config={"ops": {REFRESH: {"config": {"repairs": False}}}})
