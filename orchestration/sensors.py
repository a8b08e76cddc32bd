"""What happens because something happened: new segments in the manifest are drained, new vector deltas are folded.

Belongs here: the sensors. They keep no cursor of their own: how far has been drained stands in the drain's last record,
and how far has been sealed in the manifest; how far has been folded stands in the record of `vectors`. So two ticks, a
crash between a tick and its run, or a failed run can neither lose a segment nor drain it twice.
"""

import dagster as dg

from assets.ingest.log import Log
from orchestration.jobs import drain_job, vectors_job
from orchestration.vectors import due_tables, wrong_hours
from resources.home import Home
from resources.record import Record, RecordError

HEAD_TAG = "tidemark/manifest_head"
# A drain that takes longer than this hangs: it commits every twenty million rows.
MAX_RUNTIME_S = 3_600
# After so many failures on the same segments somebody has to look.
MAX_ATTEMPTS = 5
TICK_SECONDS = 5
VECTORS_TICK_SECONDS = 10

OPEN = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
FAILED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


class DrainGaveUpError(dg.DagsterError):
    """The same segments could not be drained, or folded, several times in a row."""


def reported_epochs(instance: dg.DagsterInstance) -> dict[int, int]:
    """Shard → first epoch that no drain has reported."""
    try:
        return {shard: end for shard, (_, end) in Record.latest(instance, "drain").epochs.items()}
    except RecordError:
        return {}


def head_of(sealed: dict[int, int]) -> str:
    """How far each shard is sealed, as a run is tagged with it."""
    return ",".join(f"{shard}:{epoch}" for shard, epoch in sorted(sealed.items()))


def is_draining(instance: dg.DagsterInstance) -> bool:
    """Whether a drain is waiting or under way."""
    return instance.get_runs_count(dg.RunsFilter(job_name=drain_job.name, statuses=OPEN)) > 0


@dg.sensor(
    job=drain_job,
    minimum_interval_seconds=TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Drains the segments that were sealed since the last drain.",
)
def follow_manifest(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """One drain at a time, for as long as something sealed is not reported."""
    sealed, reported = Log(Home.locate()).sealed, reported_epochs(context.instance)
    if all(epoch <= reported.get(shard, 1) for shard, epoch in sealed.items()):
        return dg.SkipReason("Every sealed segment is drained.")
    if is_draining(context.instance):
        return dg.SkipReason("A drain is under way.")
    head = head_of(sealed)
    # Folds of vectors are tagged with a head, too: theirs are no attempts at a drain.
    tried = dg.RunsFilter(job_name=drain_job.name, tags={HEAD_TAG: head}, statuses=FAILED)
    attempts = context.instance.get_runs_count(tried)
    if attempts >= MAX_ATTEMPTS:
        raise DrainGaveUpError(
            f"The segments up to {head} could not be drained in {attempts} attempts. Read why on the page of the last "
            "run of drain_job, repair it, and start drain_job by hand; after that it goes on by itself."
        )
    tags = {HEAD_TAG: head, "dagster/max_runtime": str(MAX_RUNTIME_S)}
    return dg.RunRequest(run_key=f"{head}/{attempts}", tags=tags)


@dg.sensor(
    job=vectors_job,
    minimum_interval_seconds=VECTORS_TICK_SECONDS,
    default_status=dg.DefaultSensorStatus.RUNNING,
    description="Folds the vector deltas that were drained since the last fold.",
)
def follow_vectors(context: dg.SensorEvaluationContext) -> dg.RunRequest | dg.SkipReason:
    """One fold at a time, for as long as `deltas` holds vector deltas that the tables of vectors do not."""
    instance, home = context.instance, Home.locate()
    if instance.get_runs_count(dg.RunsFilter(job_name=vectors_job.name, statuses=OPEN)):
        return dg.SkipReason("A fold is under way.")
    due = due_tables(instance, home)
    if not due:
        return dg.SkipReason("Every vector delta is folded.")
    if wrong := wrong_hours(instance, home):
        return dg.SkipReason(f"Waits until what was found wrong in deltas is repaired: {', '.join(wrong)}.")
    head = head_of(reported_epochs(instance))
    failed = instance.get_runs_count(dg.RunsFilter(job_name=vectors_job.name, tags={HEAD_TAG: head}, statuses=FAILED))
    if failed >= MAX_ATTEMPTS:
        raise DrainGaveUpError(
            f"The vector deltas up to {head} could not be folded in {failed} attempts. Read why on the page of the "
            "last run of vectors_job, repair it, and start vectors_job by hand; after that it goes on by itself."
        )
    tags = {HEAD_TAG: head, "dagster/max_runtime": str(MAX_RUNTIME_S)}
    return dg.RunRequest(run_key=f"vectors/{head}/{failed}", tags=tags)
