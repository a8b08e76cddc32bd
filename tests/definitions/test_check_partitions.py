"""Which partitions a run of a check alone is about: those that it names, and all that there are if it names none."""

from collections.abc import Iterator, Sequence
from typing import Any

import dagster as dg
import pytest

from assets.names import CHECK_NAME, RANGE_END, RANGE_START, tags_for_more
from assets.partitions import PARTITIONS
from expectations import checks
from resources.platform import TidemarkResource
from resources.spark import SparkResource
from tidemark.model.timegrid import HOUR
from tidemark.storage.home import Home

TABLE = "hourly_counts"
MADE = ["2026-03-02-10:00", "2026-03-02-11:00", "2026-03-04-07:00"]
Asked = list[list[str | None]]


@dg.asset(name=TABLE, partitions_def=PARTITIONS[HOUR])
def hourly_counts() -> None: ...


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What suites would be evaluated on; evaluating them takes a JVM and tables."""
    found: Asked = []

    def evaluate(_instance: Any, _lake: Any, _suite: Any, keys: Sequence[str | None]) -> Iterator[Any]:
        found.append(list(keys))
        return iter(())

    monkeypatch.setattr(checks, "evaluate", evaluate)
    return found


def run_check(home: Home, instance: dg.DagsterInstance, tags: dict[str, str] | None = None) -> None:
    spark = SparkResource(home=str(home.root))
    defs = dg.Definitions(
        assets=[hourly_counts],
        asset_checks=[checks.suite_check(hourly_counts)],
        resources={"tidemark": TidemarkResource(spark=spark, root=str(home.root))},
    )
    key = dg.AssetCheckKey(dg.AssetKey(TABLE), CHECK_NAME)
    job = defs.resolve_implicit_global_asset_job_def().get_subset(asset_selection=set(), asset_check_selection={key})
    assert job.execute_in_process(instance=instance, tags=tags).success


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (None, MADE),
        ({RANGE_START: MADE[0], RANGE_END: MADE[1]}, MADE[:2]),
        ({"dagster/partition": MADE[1]}, [MADE[1]]),
        ({RANGE_START: MADE[0], RANGE_END: MADE[1], **tags_for_more([MADE[2]])}, MADE),
    ],
    ids=["execute all", "a range", "one", "a range and more"],
)
def test_a_check_without_partitions_is_about_all_that_were_materialized(
    home: Home, asked: Asked, tags: dict[str, str] | None, expected: list[str]
) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        for key in MADE:
            instance.report_runless_asset_event(dg.AssetMaterialization(TABLE, partition=key))
        run_check(home, instance, tags)
    assert asked == [expected]
