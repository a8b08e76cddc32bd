"""`kill -9` of the drain at each named step from plan to record: nothing lost, nothing twice, checks green (C7, O2)."""

import json
import signal as signals
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from assets.ingest.drain import drain_all
from resources.lake import Lake
from tests.support.batch import DRAIN_STEPS, run, send
from tests.support.live import TEN_O_CLOCK, hour_of, sample, signal, vector
from tidemark.storage.home import Home
from tidemark.tables import table_checksums

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = ("deltas", "dead_letters", "minute_counts", "hourly_counts", "daily_counts", "weekly_counts", "monthly_counts")
SETTINGS = 'recent_identities = 2\n[spark]\nmaster = "local[2]"\n'


def filled_home(path: Path) -> Home:
    """Three hours of deltas, with copies that only the drain can see and some that are refused."""
    home = Home(path).create(SETTINGS)
    writes: list[list[dict[str, Any]]] = [
        [signal(f"d{hour}-{at}", at=hour_of(-hour) + at * 1_000_000, entity=f"item-{at % 3}") for at in range(20)]
        for hour in range(3)
    ]
    writes.append([signal("d2-0", at=hour_of(-2), entity="item-0"), signal("")])
    writes.append([vector("v1", "create", values=[1.0, 2.0]), sample("s1", 0.5, at=TEN_O_CLOCK - 1)])
    send(home, *writes)
    return home


def assert_same_tables(killed: Home, straight: Home, tables: tuple[str, ...]) -> None:
    for table in tables:
        assert table_checksums.checksum(killed.lake / table) == table_checksums.checksum(straight.lake / table), table


@pytest.mark.slow  # a JVM for each process; without processes, each step is in tests/pipeline/test_drain.py
def test_a_drain_killed_between_its_two_commits_ends_with_the_same_rows(tmp_path: Path, spark: "SparkSession") -> None:
    killed, straight = filled_home(tmp_path / "killed"), filled_home(tmp_path / "straight")
    assert run(killed, "drain", "dead_letters.committed")[0] == -signals.SIGKILL
    assert list(killed.plans.glob("scratch-*")), "what a killed drain had set aside is left"
    for home in (killed, straight):
        drain_all(Lake(home, lambda: spark))
    assert not list(killed.plans.glob("scratch-*"))
    assert_same_tables(killed, straight, ("deltas", "dead_letters"))
    assert json.loads(run(killed, "account")[1])["disagreements"] == []


@pytest.mark.slow
def test_a_drain_killed_at_every_step_in_turn_ends_with_the_same_rows_and_green_checks(tmp_path: Path) -> None:
    killed, straight = filled_home(tmp_path / "killed"), filled_home(tmp_path / "straight")
    # A chain of killed runs gets one step further each time. A run that has nothing to drain records that first; the
    # second record of a run is a rollup's.
    for step in (*DRAIN_STEPS, "record.logged:2"):
        assert run(killed, "drain", step)[0] == -signals.SIGKILL, f"{step} must be reached"
    for home in (killed, straight):
        code, answer = run(home, "drain")
        assert code == 0
        assert json.loads(answer)["checks"]["failed"] == []
    assert_same_tables(killed, straight, TABLES)
    assert json.loads(run(killed, "account")[1])["disagreements"] == []
