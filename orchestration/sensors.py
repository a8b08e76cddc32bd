"""Runs that start because data arrived: new segments in the manifest are drained, new vector deltas are folded.

Belongs here: the sensors. Where ticks may wait (`news.py`), one that finds nothing waits for news and does not end.
They keep no cursor of their own: the drain's last record says how far the log is drained, the manifest how far it is
sealed, and the records of the buckets how far vectors are folded. So two ticks, a crash between a tick and its run, or
a failed run can neither lose a segment nor drain it twice.
"""

from collections.abc import Callable

import dagster as dg

from assets.as_seen import as_seen
from assets.ingest.schema import DELTAS
from assets.trust import waits_for
from orchestration.attempts import attempt, is_under_way
from orchestration.foreign import refuse_foreign
from orchestration.jobs import drain_job, vectors_job
from orchestration.news import files_of, look_until, patience_s
from orchestration.timetable import DRAIN_EVERY_S, VECTORS_EVERY_S
from orchestration.vectors import ALL_TABLES, due_work, wrong_hours
from resources.record import Record, RecordError
from tidemark.observe.sealed_log import Log
from tidemark.storage.home import Home

HEAD_TAG = "tidemark/manifest_head"
SEEN_TAG = "tidemark/tables_seen"


def reported_epochs(instance: dg.DagsterInstance) -> dict[int, int]:
    """Shard → the first epoch that no drain has recorded."""
    try:
        return {shard: end for shard, (_, end) in Record.latest(instance, "drain").epochs.items()}
    except RecordError:
        return {}


def head_of(sealed: dict[int, int]) -> str:
    """How far each shard is sealed, as a run is tagged with it."""
    return ",".join(f"{shard}:{epoch}" for shard, epoch in sorted(sealed.items()))


@dg.sensor(
    job=drain_job,
    minimum_interval_seconds=DRAIN_EVERY_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Drains the segments that were sealed since the last drain.",
)
def follow_manifest(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """One drain at a time, for as long as something sealed is not reported."""
    return patiently(context.instance, lambda home: _due_drain(context.instance, home))


def _due_drain(instance: dg.DagsterInstance, home: Home) -> dg.RunRequest | dg.SkipReason:
    sealed, reported = Log(home).sealed, reported_epochs(instance)
    if all(epoch <= reported.get(shard, 1) for shard, epoch in sealed.items()):
        return dg.SkipReason("Every sealed segment is drained.")
    if is_under_way(instance, drain_job):
        return dg.SkipReason("A drain is under way.")
    head = head_of(sealed)
    what = f"The segments up to {head} could not be drained"
    return attempt(instance, drain_job, tag=HEAD_TAG, about=head, what=what)


@dg.sensor(
    job=vectors_job,
    minimum_interval_seconds=VECTORS_EVERY_S,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Folds the vector deltas that were drained since the last fold.",
)
def follow_vectors(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """One fold at a time, for as long as `deltas` holds vector deltas that the tables of vectors do not."""
    return patiently(context.instance, lambda home: _due_fold(context.instance, home))


def _due_fold(instance: dg.DagsterInstance, home: Home) -> dg.RunRequest | dg.SkipReason:
    if is_under_way(instance, vectors_job):
        return dg.SkipReason("A fold is under way.")
    due = due_work(instance, home)
    if not due.tables:
        return dg.SkipReason("Every vector delta is folded.")
    if wrong := wrong_hours(instance, home):
        return dg.SkipReason(waits_for(wrong))
    what = f"The vector deltas up to {head_of(reported_epochs(instance))} could not be folded"
    about = " ".join((as_seen(home, (DELTAS.name, *ALL_TABLES)), *due.buckets))
    return attempt(instance, vectors_job, tag=SEEN_TAG, about=about, what=what, work=due)


def patiently(
    instance: dg.DagsterInstance, look: Callable[[Home], dg.RunRequest | dg.SkipReason]
) -> dg.RunRequest | dg.SkipReason:
    """Look until there is a run to start, for as long as a tick may take; each look reads the settings anew."""
    refuse_foreign(instance, Home.locate())
    return look_until(
        lambda: look(Home.locate()),
        lambda found: isinstance(found, dg.RunRequest),
        files_of(Home.locate(), instance),
        patience_s=patience_s(instance),
    )
