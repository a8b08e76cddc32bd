"""What is stale in this home, and whether a refresh has seen the tables as they are now.

Belongs here: the two questions that the sensor of refreshes and the conditions of the tables both ask. A refresh makes
all that is stale; only what it leaves is requested partition by partition. Does not belong here: what a refresh does
(`assets/refresh.py`), when one is requested (`refresh_sensor.py`), when a partition is (`automation.py`).
"""

import dagster as dg

from assets.as_seen import STATE_TAG, state_of
from assets.stale import stale_partitions
from orchestration.attempts import OPEN
from orchestration.jobs import refresh_job
from orchestration.seen import seen_records
from tidemark.storage.home import Home


def stale_now(instance: dg.DagsterInstance) -> dict[str, dict[str, str]]:
    """The stale partitions of this home, by asset, and why; records that were read before are not read again."""
    with seen_records(instance) as seen:
        return stale_partitions(instance, Home.locate(), seen=seen)


def was_refreshed(instance: dg.DagsterInstance, home: Home) -> bool:
    """Whether a refresh has ended that found the tables as they are now, and left them so."""
    tags = {STATE_TAG: state_of(home, instance)}
    of_state = dg.RunsFilter(job_name=refresh_job.name, tags=tags)
    still_open = dg.RunsFilter(job_name=refresh_job.name, statuses=OPEN)
    return instance.get_runs_count(of_state) > 0 and not instance.get_runs_count(still_open)
