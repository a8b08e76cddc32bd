"""All parts together: assets, a suite for each table, jobs and resources, as one `Definitions`.

Belongs here: the lists. A table in `TABLE_ASSETS` gets its checks, its metadata and its automation; declared tiers of
counts and streams are added by themselves. Loading this starts no JVM and imports no Great Expectations.
"""

from collections.abc import Mapping
from typing import Any

import dagster as dg

from assets.ingest.asset import INGESTED, drain_asset
from assets.joins.asset import join_assets
from assets.refresh import refresh_asset
from assets.rollups.asset import rollup_assets
from assets.rollups.windowed_asset import windowed_counts
from assets.vectors.asset import vector_conflicts, vectors
from assets.vectors.compaction import vector_checkpoints
from assets.vectors.index_asset import vector_index
from assets.windows.factory import stream_assets
from assets.windows.session_assets import adaptive_assets, session_assets
from expectations.checks import check_drained, check_partitions, suite_check
from orchestration.automation import automated, follow_inputs_sensor
from orchestration.compact import remove_payloads_job
from orchestration.compact_sensor import compact_when_due
from orchestration.jobs import EXECUTOR, JOBS
from orchestration.maintenance import maintenance_job
from orchestration.refresh_sensor import follow_tables
from orchestration.schedules import hourly_floor, hourly_windows, nightly_maintenance, with_freshness
from orchestration.sensors import follow_manifest, follow_vectors
from resources.platform import TidemarkResource
from resources.spark import SparkResource
from tidemark.storage.home import Home

# The tables that are made partition by partition: a refresh makes what is stale of them, and what failed its check.
REFRESHED = (*INGESTED, *rollup_assets(), *stream_assets(), *session_assets(), *adaptive_assets(), *join_assets())

# Every table of the lake; each has a suite.
TABLE_ASSETS = (
    *(table.definition for table in REFRESHED),
    windowed_counts,
    vectors,
    vector_conflicts,
    vector_checkpoints,
    vector_index,
)


def build_defs(resource_overrides: Mapping[str, Any] | None = None) -> dg.Definitions:
    """All definitions; a test passes its own resources."""
    return dg.Definitions(
        assets=[
            with_freshness(drain_asset(check_drained)),
            refresh_asset(REFRESHED, check_partitions),
            *(automated(asset) for asset in TABLE_ASSETS),
        ],
        asset_checks=[suite_check(asset) for asset in TABLE_ASSETS],
        jobs=[*JOBS, maintenance_job, remove_payloads_job],
        sensors=[follow_manifest, follow_tables, follow_vectors, compact_when_due, follow_inputs_sensor],
        schedules=[hourly_floor, hourly_windows, nightly_maintenance],
        executor=EXECUTOR,
        resources={**default_resources(), **(resource_overrides or {})},
    )


def default_resources(home: Home | None = None) -> dict[str, Any]:
    """Resources for a home; without one, for the home that the environment names when a run starts."""
    root = str(home.root) if home else ""
    spark = SparkResource(home=root)
    return {"spark": spark, "tidemark": TidemarkResource(spark=spark, root=root)}
