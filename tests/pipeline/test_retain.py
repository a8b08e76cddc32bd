"""Retention on real tables: what is kept answers as before, nothing dropped comes back, and no crash matters (R5)."""

import json
import signal as signals
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from assets.stale import stale_partitions
from orchestration.instance import open_instance
from orchestration.materialize import check_hours, drain, materialize_everything_stale, materialize_hours
from orchestration.retain import retain
from orchestration.testing import TinyPlatform
from tests.support.batch import checksums, run
from tidemark.counts.lake import LakeCounts, Measure
from tidemark.counts.retention import GoneError, gone_before
from tidemark.counts.windows import Window
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, hour_key, to_us
from tidemark.observe.status import read_raised
from tidemark.storage.failpoints import FAILPOINTS
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.tiers import Tier

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Scores whose half-life is long keep hours from going.
SETTINGS = '[counts]\nhalf_lives = ["1h"]\n[spark]\nmaster = "local[2]"\n'
NOW = to_us(datetime(2026, 3, 18, 12, tzinfo=UTC))
CUT = to_us(datetime(2026, 1, 12, tzinfo=UTC))
WANTED = {Tier.MINUTE: CUT, Tier.HOUR: CUT - DAY_US}  # as is shown: of the hours none is that old
# Hours next to each other, days and weeks too: each tier is one run.
EVENTS = """
    | event_ts             | signal.entity_id | signal.signal | signal.count |
    | 2026-01-11T22:30:00Z | item-1           | view          | 1            |
    | 2026-01-11T23:59:59Z | item-1           | view          | 2            |
    | 2026-01-12T00:00:00Z | item-1           | view          | 4            |
"""
TIERS = ("minute_counts", "hourly_counts", "daily_counts", "weekly_counts", "monthly_counts")


pytestmark = pytest.mark.usefixtures("own_home")


def filled(path: Path) -> TinyPlatform:
    platform = TinyPlatform(path, SETTINGS)
    platform.given(EVENTS)
    assert (drain(platform.home) + materialize_everything_stale(platform.home)).succeeded
    return platform


def counted(home: Home, as_of_us: int) -> dict[Window, Measure]:
    return LakeCounts(home).windows("item-1", "view", as_of_us, namespace="shop").windows


@pytest.mark.slow
def test_r5_what_is_kept_answers_as_before_and_what_went_does_not_come_back(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    platform = filled(tmp_path)
    home = platform.home
    moments = [CUT + 30 * DAY_US, CUT + 30 * DAY_US + MINUTE_US, NOW]
    before = [counted(home, as_of_us) for as_of_us in moments]
    assert [each[Window.ALL].count for each in before] == [7, 7, 7]

    retained = retain(home, WANTED, clock=lambda: NOW, is_clock_right=True)
    assert retained.is_done
    assert {each.table: each.partitions for each in retained.dropped} == {"minute_counts": 2, "hourly_counts": 0}
    assert read_raised(home) == CUT
    assert gone_before(home) == WANTED
    assert list(lake_files.partitions(home.lake / "minute_counts")) == [CUT]
    assert list(lake_files.partitions(home.lake / "hourly_counts")) == [CUT - 2 * HOUR_US, CUT - HOUR_US, CUT]
    assert [counted(home, as_of_us) for as_of_us in moments] == before
    assert LakeCounts(home).window("item-1", "view", Window.DAY, CUT, namespace="shop").count == 3
    with pytest.raises(GoneError, match="minutes"):
        counted(home, CUT - MINUTE_US)

    kept = checksums(home, *TIERS)
    assert retain(home, WANTED, clock=lambda: NOW, is_clock_right=True).dropped[0].partitions == 0, (
        "done again it changes nothing"
    )
    with open_instance(home) as instance:
        assert not any(stale_partitions(instance, home).values())
    hours = [hour_key(start) for start in lake_files.partitions(home.lake / "deltas")]
    assert check_hours(home, ["hourly_counts", "daily_counts"], hours).succeeded
    assert checksums(home, *kept) == kept

    platform.given("""
        | event_ts             | signal.entity_id | signal.signal | signal.count |
        | 2026-01-11T23:59:59Z | item-1           | view          | 100          |
        | 2026-01-12T00:00:00Z | item-1           | view          | 10           |
    """)
    assert (drain(home) + materialize_everything_stale(home)).succeeded
    answer = LakeCounts(home).windows("item-1", "view", NOW, namespace="shop")
    assert answer.windows[Window.ALL].count == 17, "the older one is refused, and the week has the other one"
    assert answer.reach.recounted_hours == ()
    assert answer.first_us == CUT - 90 * MINUTE_US


@pytest.mark.slow
def test_r5_deltas_may_be_rebuilt_and_what_is_settled_is_not_computed_again(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    home = filled(tmp_path).home
    assert retain(home, {Tier.MINUTE: CUT}, clock=lambda: NOW, is_clock_right=True).is_done
    kept = checksums(home, *TIERS)
    hours = [hour_key(start) for start in lake_files.partitions(home.lake / "deltas")]
    assert materialize_hours(home, ["deltas"], hours).succeeded
    assert materialize_everything_stale(home).succeeded
    assert check_hours(home, TIERS, hours).succeeded
    refused = materialize_hours(home, ["hourly_counts"], hours[:1])
    assert not refused.succeeded
    assert "is settled: what it is made of was dropped" in str(refused.runs[0].error)
    assert checksums(home, *kept) == kept
    assert counted(home, NOW)[Window.ALL].count == 7


@pytest.mark.slow
def test_r5_a_retention_killed_at_every_step_in_turn_ends_as_one_that_was_not(
    tmp_path: Path, spark: "SparkSession"
) -> None:
    killed, straight = filled(tmp_path / "killed").home, filled(tmp_path / "straight").home
    options = ("--minutes-before", "2026-01-12T00:00", "--hours-before", "2026-01-11", "--clock-is-right")
    steps = [name for name in FAILPOINTS if name.startswith("retain.")]
    for step in steps:
        assert run(killed, "retain", step, options)[0] == -signals.SIGKILL, f"{step} must be reached"
        assert counted(killed, NOW) == counted(straight, NOW)
    for home in (killed, straight):
        code, answer = run(home, "retain", None, options)
        assert code == 0
        assert json.loads(answer)["is_done"]
    assert checksums(killed, *TIERS) == checksums(straight, *TIERS)
    assert gone_before(killed) == gone_before(straight) == WANTED
    assert counted(killed, NOW) == counted(straight, NOW)
