"""A year of hours: definitions, conditions and questions stay as quick as with a day of them."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from assets.tables import TABLES
from orchestration.build import build_defs
from orchestration.instance import open_instance
from orchestration.materialize import hours_between
from tests.support.orchestrator import INPUTS, copy_to, judge, record_of, tell
from tidemark.model.timegrid import DAY, MONTH, WEEK, hour_start
from tidemark.storage.home import HOME_VARIABLE, Home

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
# Seconds are expected; whoever waits longer than this has something that grows with the square of the partitions.
GIVE_UP_S = 60.0
NOW = datetime(2026, 1, 5, 10, 30, tzinfo=UTC)
HOURS = hours_between("2025-01-01-00:00", "2025-12-31-23:00")
DAYS = sorted({DAY.key(hour_start(hour)) for hour in HOURS})
WEEKS = sorted({WEEK.key(hour_start(hour)) for hour in HOURS})
MONTHS = sorted({MONTH.key(hour_start(hour)) for hour in HOURS})
PARTITIONS = {
    "deltas": HOURS,
    "minute_counts": HOURS,
    "hourly_counts": HOURS,
    "daily_counts": DAYS,
    "weekly_counts": WEEKS,
    "monthly_counts": MONTHS,
}


def done(instance: dg.DagsterInstance, asset: str, partition: str, version: int = 1) -> None:
    """A materialization with its record, and a good verdict on it."""
    source = INPUTS.get(asset)
    tell(instance, record_of(asset, partition, version, {source: 1} if source else {}))
    judge(instance, asset, [partition])


@contextmanager
def at_most(what: str) -> Iterator[None]:
    started = time.monotonic()
    yield
    took_s = time.monotonic() - started
    print(f"{what}: {took_s:.1f} s")  # noqa: T201
    assert took_s < GIVE_UP_S, f"{what} took {took_s:.0f} s"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A year in which everything is done and proven."""
    home = Home(tmp_path / "home").create()
    monkeypatch.setenv(HOME_VARIABLE, str(home.root))
    with open_instance(home) as instance:
        for asset, keys in PARTITIONS.items():
            done(instance, asset, keys[0])
    for asset, keys in PARTITIONS.items():
        copy_to(home, asset, keys[0], keys[1:])
    return home


def test_a_late_delta_after_a_year_moves_its_hour_and_its_week_within_seconds(home: Home) -> None:
    late = HOURS[4_000]
    with open_instance(home) as instance:
        with at_most("loading definitions"):
            defs = build_defs()
            assert len(defs.resolve_asset_graph().get_all_asset_keys()) == len(TABLES) + 1, "and the drain"
        look = _evaluator(defs, instance)
        with at_most("the first look at a year"):
            assert look() == {}
        done(instance, "deltas", late, version=2)
        with at_most("a look after a late delta"):
            assert look() == {"minute_counts": [late], "hourly_counts": [late]}


def test_status_answers_within_seconds_after_a_year(home: Home) -> None:
    command = [sys.executable, "-m", "orchestration.cli", "status", "--json", "--home", str(home.root)]
    with at_most("status"):
        done = subprocess.run(command, cwd=ROOT, env=dict(os.environ), capture_output=True, check=True)
    checks = json.loads(done.stdout)["checks"]
    assert {asset: found["passed"] for asset, found in checks.items()} == {
        asset: len(keys) for asset, keys in PARTITIONS.items()
    }
    assert len(HOURS) == 8_760
    assert not any(found["failed"] or found["unjudged"] for found in checks.values())


def _evaluator(defs: dg.Definitions, instance: dg.DagsterInstance) -> Callable[[], dict[str, list[str]]]:
    """The automation sensor's looks, each with the cursor of the one before."""
    cursor: list[dg.AssetDaemonCursor | None] = [None]

    def look() -> dict[str, list[str]]:
        result = dg.evaluate_automation_conditions(defs, instance, cursor=cursor[0], evaluation_time=NOW)
        cursor[0] = result.cursor
        found = {asset: result.get_requested_partitions(dg.AssetKey(asset)) for asset in INPUTS}
        return {asset: sorted(str(key) for key in keys) for asset, keys in found.items() if keys}

    return look
