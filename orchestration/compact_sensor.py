"""Compaction starts when vectors are due (K3).

Belongs here: the sensor. It keeps no cursor: the tables say which vectors are due, without a JVM. So the next look
makes up for a lost tick, a crash between a tick and its run, or a failed run.
"""

import time

import dagster as dg

from assets.as_seen import as_seen
from assets.trust import found_wrong, waits_for
from assets.vectors.due import find_due
from assets.vectors.schema import VECTOR_CHECKPOINTS, VECTORS
from orchestration.attempts import attempt, is_under_way
from orchestration.foreign import refuse_foreign
from orchestration.jobs import compaction_job, drain_job, vectors_job
from orchestration.news import files_of, look_until, patience_s
from orchestration.sensors import reported_epochs
from orchestration.timetable import COMPACTION_EVERY_S
from orchestration.vectors import Due, wrong_hours
from tidemark.model.buckets import BUCKET
from tidemark.observe.sealed_log import Log
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.vectors.checkpoints import CompactionRules

DUE_TAG = "tidemark/due_vectors"
# After the sensor was started.
GIVES_WAY_S = 600.0


@dg.sensor(
    job=compaction_job,
    minimum_interval_seconds=COMPACTION_EVERY_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Makes checkpoints when vectors are due: many pending deltas, or old ones.",
)
def compact_when_due(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """One compaction at a time, for as long as a vector is due."""
    home = Home.locate()
    refuse_foreign(context.instance, home)
    if not _has_vectors(context, home):
        return dg.SkipReason("There are no vectors.")
    if why := _must_wait(context, home):
        return dg.SkipReason(why)
    rules, now_us = CompactionRules.from_settings(home.settings.compaction), time.time_ns() // 1_000
    due = find_due(home, rules, now_us)
    if not due.reasons:
        return dg.SkipReason("No vector is due.")
    # `vectors` says which vectors are due; a bucket of it that failed its check cannot.
    wrong_buckets = found_wrong(home, context.instance, VECTORS.name)
    buckets = tuple(key for key in map(BUCKET.key, due.buckets) if key not in wrong_buckets)
    if not buckets:
        return dg.SkipReason(waits_for({VECTORS.name: sorted(wrong_buckets)}))
    number = sum(due.reasons.values())
    # Time alone can make more of them due, and only the end of an interval gives some due vectors work to do.
    seen = f"{as_seen(home, (VECTORS.name, VECTOR_CHECKPOINTS.name))} due:{number} in:{now_us // rules.interval_us}"
    what = f"The pending deltas of {number} vectors could not be compacted"
    work = Due((VECTOR_CHECKPOINTS.name,), buckets)
    return attempt(context.instance, compaction_job, tag=DUE_TAG, about=seen, what=what, work=work)


def _has_vectors(context: dg.SensorEvaluationContext, home: Home) -> bool:
    """Whether there are any; without any, the tick waits for news: nothing becomes due by the clock alone."""
    return look_until(
        lambda: lake_files.readable_state(home.lake / VECTORS.name) is not None,
        bool,
        files_of(home, context.instance),
        patience_s=patience_s(context.instance),
    )


def _must_wait(context: dg.SensorEvaluationContext, home: Home) -> str:
    """Why nothing can be due, or must not be compacted now; empty if it can."""
    if is_under_way(context.instance, compaction_job):
        return "A compaction is under way."
    if _gives_way(context, home):
        return "What was sent is drained first."
    wrong = wrong_hours(context.instance, home)
    return waits_for(wrong) if wrong else ""


def _gives_way(context: dg.SensorEvaluationContext, home: Home) -> bool:
    """Whether somebody who opens the pages of a home for the first time waits for a drain: a compaction slows it down.

    Only for a while: where deltas never stop, a drain is always under way.
    """
    started_s = context.last_sensor_start_time
    if started_s is not None and time.time() - started_s >= GIVES_WAY_S:
        return False
    sealed, reported = Log(home).sealed, reported_epochs(context.instance)
    is_behind = any(epoch > reported.get(shard, 1) for shard, epoch in sealed.items())
    return is_behind or any(is_under_way(context.instance, job) for job in (drain_job, vectors_job))
