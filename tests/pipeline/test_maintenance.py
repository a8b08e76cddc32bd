"""The nightly job: files change and rows do not; a damaged segment fails it with its name."""

from typing import TYPE_CHECKING, Any

import dagster as dg

from assets.ingest.drain import drain
from orchestration.maintenance import maintenance_job
from resources.lake import Lake
from resources.platform import TidemarkResource
from resources.spark import SparkResource
from tests.support.batch import checksums, send
from tests.support.live import hour_of, signal
from tidemark.storage.home import Home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def maintain(home: Home) -> dg.ExecuteInProcessResult:
    spark = SparkResource(home=str(home.root), is_fast_start=True)
    resources: dict[str, Any] = {"tidemark": TidemarkResource(spark=spark, root=str(home.root))}
    return maintenance_job.execute_in_process(resources=resources, raise_on_error=False)


def test_maintenance_changes_no_row_and_names_what_is_damaged(
    tiny_home: Home, lake: Lake, spark: "SparkSession"
) -> None:
    for number in range(2):
        send(tiny_home, [signal(f"d{number}", at=hour_of(0) + number)], producer=f"p{number}")
        drain(lake)
    before, files = checksums(tiny_home), len(list((tiny_home.lake / "deltas").rglob("*.parquet")))
    assert maintain(tiny_home).success
    assert checksums(tiny_home) == before
    assert len(list((tiny_home.lake / "deltas").rglob("*.parquet"))) == files + 1, "two small files became one"
    assert lake.edits("deltas") == {}

    segment = next(tiny_home.segments(0).rglob("*.parquet"))
    segment.write_bytes(segment.read_bytes()[:-1])
    failed = maintain(tiny_home)
    assert not failed.success
    assert any(segment.name in str(event.event_specific_data) for event in failed.all_events)
