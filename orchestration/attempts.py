"""Runs that sensors request: one at a time, repeated after a failure, until a person has to look.

Belongs here: what all sensors have in common. Each sensor decides for itself when a run is due.
"""

from typing import Protocol

import dagster as dg

from orchestration.runs import tags_of
from orchestration.vectors import Due
from tidemark.model.buckets import BUCKET

# A run that takes longer than this hangs: a drain commits every twenty million rows.
MAX_RUNTIME_S = 3_600
# After so many failures about the same thing a person has to look.
MAX_ATTEMPTS = 5

OPEN = [
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
]
FAILED = [dg.DagsterRunStatus.FAILURE, dg.DagsterRunStatus.CANCELED]


class Job(Protocol):
    """A job, whether Dagster has resolved its assets yet or not: only its name is needed."""

    @property
    def name(self) -> str: ...


class GaveUpError(dg.DagsterError):
    """Several runs in a row about the same thing have failed."""


def is_under_way(instance: dg.DagsterInstance, job: Job) -> bool:
    """Whether a run of the job waits or runs."""
    return instance.get_runs_count(dg.RunsFilter(job_name=job.name, statuses=OPEN)) > 0


def attempt(
    instance: dg.DagsterInstance, job: Job, *, tag: str, about: str, what: str, work: Due | None = None
) -> dg.RunRequest:
    """A run about the thing that its tag names; `what` says in words what could not be done if all attempts fail.

    With `work` it covers these tables and buckets alone, otherwise the whole job. Its key names the thing and the
    attempt: if two ticks request the same run, the orchestrator starts it once, and a run that finds nothing to do is
    not requested again.
    """
    tried = dg.RunsFilter(job_name=job.name, tags={tag: about}, statuses=FAILED)
    failed = instance.get_runs_count(tried)
    if failed >= MAX_ATTEMPTS:
        raise GaveUpError(
            f"{what} in {failed} attempts. Read why on the page of the last run of {job.name}, repair it, and start "
            f"{job.name} by hand; after that it goes on by itself."
        )
    tags = {tag: about, "dagster/max_runtime": str(MAX_RUNTIME_S)}
    if work is None:
        return dg.RunRequest(run_key=f"{about}/{failed}", tags=tags)
    tags |= tags_of(work.buckets, BUCKET) if work.buckets else {}
    chosen = [dg.AssetKey(name) for name in work.tables]
    return dg.RunRequest(run_key=f"{about}/{failed}", tags=tags, asset_selection=chosen)
