"""The jobs that a person or the daemon starts by name.

Belongs here: which assets go together. All of them run in one process: a process per step would start a JVM per step.
"""

from functools import partial

import dagster as dg

from assets.ingest.asset import dead_letters, deltas
from assets.refresh import REFRESH
from assets.rollups.windowed_asset import windowed_counts
from assets.vectors.asset import vector_conflicts, vectors
from assets.vectors.compaction import vector_checkpoints
from assets.vectors.index_asset import vector_index
from tidemark.model.timegrid import HOUR, Grain
from tidemark.tables.tiers import Tier

EXECUTOR = dg.in_process_executor
_job = partial(dg.define_asset_job, executor_def=EXECUTOR)

drain_job = _job(
    "drain_job",
    selection=["drain"],
    description="Commit all sealed segments to deltas and dead_letters, report the touched hours and check them.",
)

refresh_job = _job(
    "refresh_job",
    selection=[REFRESH],
    description="Make every partition that is behind its inputs, table by table, and check it.",
)

rebuild_job = _job(
    "rebuild_job",
    selection=[deltas, dead_letters],
    description="Write hours of deltas and dead_letters again, from the segments of committed plans.",
)


def _sums(grain: Grain) -> str:
    """What a job of the tiers with these partitions does, in words."""
    tiers = [tier for tier in Tier if tier.partition_grain is grain]
    sums = [f"{tier}s from {f'{tier.made_from}s' if tier.made_from else tier.source}" for tier in tiers]
    return f"Sum up {sums[0]}." if len(sums) == 1 else f"Sum up {grain.name}s: {', '.join(sums)}."


# A job for the tiers of each partition: `rollups_job` for those of hours, then `days_job`, `weeks_job` and so on.
ROLLUP_JOBS = [
    _job(
        "rollups_job" if grain is HOUR else f"{grain.name}s_job",
        selection=[tier.table for tier in Tier if tier.partition_grain is grain],
        description=_sums(grain),
    )
    for grain in dict.fromkeys(tier.partition_grain for tier in Tier)
]

windows_job = _job(
    "windows_job", selection=[windowed_counts], description="All windows of all entities, as of one minute."
)

compaction_job = _job(
    "compaction_job", selection=[vector_checkpoints], description="Checkpoints of the vectors that are due."
)

vectors_job = _job(
    "vectors_job",
    selection=[vectors, vector_conflicts, vector_index],
    description="Fold new vector deltas into the vectors that they are about, compare their clocks, and index them.",
)

JOBS = [drain_job, refresh_job, rebuild_job, *ROLLUP_JOBS, windows_job, vectors_job, compaction_job]
