"""The jobs: what a person or a daemon starts by name.

Belongs here: which assets go together. All of them run in one process: a process per step would start a JVM per step.
"""

import dagster as dg

from assets.ingest.asset import dead_letters, deltas
from assets.rollups.asset import daily_counts, hourly_counts, minute_counts, weekly_counts
from assets.rollups.windowed_asset import windowed_counts
from assets.vectors.asset import vector_conflicts, vectors
from assets.vectors.compaction import vector_checkpoints
from assets.vectors.index_asset import vector_index

EXECUTOR = dg.in_process_executor

drain_job = dg.define_asset_job(
    "drain_job",
    selection=["drain"],
    executor_def=EXECUTOR,
    description="Commit all sealed segments to deltas and dead_letters, report the touched hours and judge them.",
)

rebuild_job = dg.define_asset_job(
    "rebuild_job",
    selection=[deltas, dead_letters],
    executor_def=EXECUTOR,
    description="Write hours of deltas and dead_letters again, from the segments of committed plans.",
)

rollups_job = dg.define_asset_job(
    "rollups_job",
    selection=[minute_counts, hourly_counts],
    executor_def=EXECUTOR,
    description="Sum up hours: minutes from deltas, hours from minutes.",
)

days_job = dg.define_asset_job(
    "days_job",
    selection=[daily_counts],
    executor_def=EXECUTOR,
    description="Sum up days from hours.",
)

weeks_job = dg.define_asset_job(
    "weeks_job",
    selection=[weekly_counts],
    executor_def=EXECUTOR,
    description="Sum up weeks from days.",
)

windows_job = dg.define_asset_job(
    "windows_job",
    selection=[windowed_counts],
    executor_def=EXECUTOR,
    description="All windows of all entities, as of one minute.",
)

compaction_job = dg.define_asset_job(
    "compaction_job",
    selection=[vector_checkpoints],
    executor_def=EXECUTOR,
    description="Checkpoints of the vectors that are due.",
)

vectors_job = dg.define_asset_job(
    "vectors_job",
    selection=[vectors, vector_conflicts, vector_index],
    executor_def=EXECUTOR,
    description="Fold new vector deltas into the vectors that they are about, compare their clocks, and index them.",
)

JOBS = [drain_job, rebuild_job, rollups_job, days_job, weeks_job, windows_job, vectors_job, compaction_job]
