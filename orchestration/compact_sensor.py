"""Compaction starts when vectors are due (K3).

Belongs here: the sensor. It keeps no cursor: who is due follows from the tables, without a JVM. So a lost tick, a crash
between a tick and its run, or a failed run are made up for at the next look.
"""

import time

import dagster as dg

from assets.vectors.due import count_due
from assets.vectors.schema import VECTOR_CHECKPOINTS, VECTORS
from orchestration.jobs import compaction_job
from orchestration.sensors import FAILED, MAX_ATTEMPTS, MAX_RUNTIME_S, OPEN
from orchestration.vectors import wrong_hours
from resources import lake_files
from resources.home import Home
from resources.vectors.checkpoints import CompactionRules

DUE_TAG = "tidemark/due_vectors"
# A vector may wait for a minute by the rules; twice as often it is asked.
TICK_SECONDS = 30


@dg.sensor(
    job=compaction_job,
    minimum_interval_seconds=TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Makes checkpoints when vectors are due: many pending deltas, or old ones.",
)
def compact_when_due(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """One compaction at a time, for as long as a vector is due."""
    home = Home.locate()
    state = lake_files.table_state(home.lake / VECTORS.name)
    if state is None:
        return dg.SkipReason("There are no vectors.")
    if context.instance.get_runs_count(dg.RunsFilter(job_name=compaction_job.name, statuses=OPEN)):
        return dg.SkipReason("A compaction is under way.")
    if wrong := wrong_hours(context.instance, home):
        return dg.SkipReason(f"Waits until what was found wrong in deltas is repaired: {', '.join(wrong)}.")
    due = count_due(home, CompactionRules.from_settings(home.settings.compaction), time.time_ns() // 1_000)
    if not due:
        return dg.SkipReason("No vector is due.")
    made = lake_files.table_state(home.lake / VECTOR_CHECKPOINTS.name)
    # What was looked at: if a run finds nothing to do about it, the same is not asked for again.
    seen = f"{state.version}/{made.version if made else -1}/{sum(due.values())}"
    attempts = context.instance.get_runs_count(dg.RunsFilter(tags={DUE_TAG: seen}, statuses=FAILED))
    if attempts >= MAX_ATTEMPTS:
        return dg.SkipReason(f"A compaction failed {attempts} times; read why on the page of its last run.")
    tags = {DUE_TAG: seen, "dagster/max_runtime": str(MAX_RUNTIME_S)}
    return dg.RunRequest(run_key=f"{seen}/{attempts}", tags=tags)
