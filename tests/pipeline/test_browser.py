"""The orchestrator's pages in a real browser, used as a person uses them (O5): materialize, look, backfill a day."""

import subprocess
from pathlib import Path

import dagster as dg
import pytest

from assets.names import RANGE_END, RANGE_START
from orchestration.materialize import hours_between
from resources.record import Record
from tests.support.browser import Browser, find_chromium
from tests.support.running import (
    COMMAND_LIMIT_S,
    TIDEMARK,
    Ui,
    changes,
    environment,
    materialized,
    not_proven,
    wait_until,
)
from tidemark.storage.home import Home

pytestmark = pytest.mark.slow

HOUR = "2026-03-02-12:00"
DAY = hours_between("2026-03-02-00:00", "2026-03-02-23:00")
RUN_LIMIT_S = 360.0
DIALOG = "[class*=ialog]"


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A day of few deltas."""
    find_chromium()
    home = Home(tmp_path / "home")
    command = [str(TIDEMARK), "demo", "--deltas", "1200", "--home", str(home.root)]
    subprocess.run(command, env=environment(), check=True, capture_output=True, timeout=COMMAND_LIMIT_S)
    return home


def launch(browser: Browser, partitions: str, count: str, button: str) -> None:
    """Fill in the dialog of the asset's page, and launch."""
    browser.click("button", "^Materialize…")
    browser.click(f"{DIALOG} button", "^Show all partitions")
    browser.write(f"{DIALOG} input:not([type=checkbox])", partitions)
    browser.see(count)
    browser.screenshot(f"the dialog for {count}")
    browser.click(f"{DIALOG} button", f"^{button}")


def wait_for(instance: dg.DagsterInstance, before: dict[str, dict[str, int]], hours: list[str]) -> None:
    """Until the hours of `minute_counts` were materialized and judged; what follows from them is the daemon's."""
    wait_until(
        f"{len(hours)} hours of minute_counts are materialized and proven",
        lambda: (
            sorted(changes(before, materialized(instance))["minute_counts"]),
            not_proven(instance, {"minute_counts": hours}),
        ),
        lambda seen: seen[0] == hours and not seen[1],
        limit_s=RUN_LIMIT_S,
    )


def test_a_person_materializes_an_hour_and_backfills_a_day(
    home: Home, instance: dg.DagsterInstance, tmp_path: Path
) -> None:
    with Ui(home) as ui, Browser(tmp_path) as browser:
        browser.open(ui.url)
        browser.see("Catalog", "Runs")
        browser.open(f"{ui.url}/assets/minute_counts?view=partitions")
        browser.see("Materialized (26)")

        before = materialized(instance)
        launch(browser, HOUR, "1 partition", "Launch 1 run")
        wait_for(instance, before, [HOUR])
        browser.open(f"{ui.url}/assets/minute_counts?view=partitions&partition={HOUR}")
        browser.see(HOUR, "View all historical events (2)", "tidemark/record")
        browser.screenshot("the hour")
        browser.open(f"{ui.url}/assets/minute_counts?view=checks")
        browser.see("Latest execution", "Passed", "All 9 expectations hold.", HOUR)
        browser.screenshot("its check")
        browser.open(f"{ui.url}/assets/minute_counts?view=overview")
        browser.see("durable_epoch")
        browser.click("button", "^Plots$")
        browser.click("button", "^Events$")
        browser.see("durable_epoch", "watermark_lag_s")
        browser.evaluate("[...document.querySelectorAll('canvas')][0].scrollIntoView()")
        browser.screenshot("its plots")

        before = materialized(instance)
        browser.open(f"{ui.url}/assets/minute_counts?view=partitions")
        browser.see("Materialized (26)")
        launch(browser, f"[{DAY[0]}...{DAY[-1]}]", "24 partitions", "Launch backfill")
        wait_for(instance, before, DAY)
        browser.open(f"{ui.url}/runs")
        browser.see("minute_counts", "Success")
        browser.screenshot("the runs")
    assert_one_run_with_a_record_for_each_hour(instance)


def assert_one_run_with_a_record_for_each_hour(instance: dg.DagsterInstance) -> None:
    records = Record.latest_by_partition(instance, "minute_counts", DAY)
    assert [records[hour].partition for hour in DAY] == DAY
    chosen = dg.AssetRecordsFilter(dg.AssetKey("minute_counts"), asset_partitions=DAY)
    events = instance.fetch_materializations(chosen, limit=len(DAY)).records
    assert sorted(str(event.partition_key) for event in events) == DAY
    [run_id] = {event.run_id for event in events}
    run = instance.get_run_by_id(run_id)
    assert run is not None
    assert run.status == dg.DagsterRunStatus.SUCCESS
    assert (run.tags[RANGE_START], run.tags[RANGE_END]) == (DAY[0], DAY[-1])
    assert not_proven(instance, {"minute_counts": DAY}) == {}
