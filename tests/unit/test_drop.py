"""Settled buckets of real tables are dropped without a JVM: nothing uncounted goes, and nothing is hidden (R5)."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from orchestration.retain import drop_settled, plan_retention, raise_earliest
from tests.support.live import signal
from tests.support.small_lake import Event, SmallLake
from tidemark.counts.lake import LakeCounts
from tidemark.counts.retention import RetentionError, dropped_before, gone_before
from tidemark.counts.tables import Tables
from tidemark.counts.windows import Window
from tidemark.model.timegrid import DAY_US, HOUR_US, WEEK_US, to_us
from tidemark.observe.status import read_raised
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.lineage import FOREIGN, LineageFile
from tidemark.tables.tiers import TRAILING, Tier

MONDAY = to_us(datetime(2026, 1, 12, tzinfo=UTC))
NOW = MONDAY + 60 * DAY_US
CUTS = {Tier.MINUTE: MONDAY + DAY_US, Tier.HOUR: MONDAY}
SETTINGS = '[counts]\nhalf_lives = ["1h"]\n'


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    made = SmallLake(Home(tmp_path / "home").create(SETTINGS))
    made.send([Event(MONDAY + day * DAY_US + HOUR_US, count=10**day) for day in (0, 1, 2)] + [Event(MONDAY - 1)])
    made.roll_up_everything()
    return made


def total(home: Home) -> int:
    return LakeCounts(home).window("item-1", "view", Window.ALL, NOW, namespace="shop").count


def starts(home: Home, table: str) -> list[int]:
    return list(lake_files.partitions(home.lake / table))


def test_r5_settled_buckets_go_finest_first_and_all_stays_right(lake: SmallLake) -> None:
    assert total(lake.home) == 112
    dropped = drop_settled(lake.home, CUTS, lambda: NOW)
    assert [(each.table, each.partitions, each.rows) for each in dropped] == [
        ("minute_counts", 2, 2),
        ("hourly_counts", 1, 1),
    ]
    assert starts(lake.home, "minute_counts") == [MONDAY + day * DAY_US + HOUR_US for day in (1, 2)]
    assert starts(lake.home, "hourly_counts") == [MONDAY + day * DAY_US + HOUR_US for day in (0, 1, 2)]
    assert total(lake.home) == 112
    assert Tables(lake.home, gone_before(lake.home)).behind == {tier: frozenset() for tier in TRAILING}
    assert [each.partitions for each in drop_settled(lake.home, CUTS, lambda: NOW)] == [0, 0], "done again: nothing"


def test_r5_what_is_not_counted_in_what_is_kept_does_not_go(lake: SmallLake) -> None:
    lake.send([Event(MONDAY + HOUR_US)])
    for tier in (Tier.MINUTE, None):
        if tier:
            lake.roll_up(tier)
        with pytest.raises(RetentionError, match=r"hour\(s\) before .* are not known to be the sum"):
            drop_settled(lake.home, CUTS, lambda: NOW)
    assert gone_before(lake.home) == {}
    assert len(starts(lake.home, "minute_counts")) == 4
    lake.roll_up_everything()
    drop_settled(lake.home, CUTS, lambda: NOW)
    assert total(lake.home) == 113


def test_r5_a_drop_hides_nothing_that_somebody_else_has_changed(lake: SmallLake) -> None:
    changed = MONDAY + 2 * DAY_US + HOUR_US
    lake.tamper(Tier.MINUTE, changed)
    with pytest.raises(RetentionError):  # the hours above it are not known to be right any more
        drop_settled(lake.home, {Tier.MINUTE: MONDAY + WEEK_US}, lambda: NOW)
    drop_settled(lake.home, CUTS, lambda: NOW)
    made = LineageFile(lake.home.plans, "minute_counts").read().partitions[changed]
    assert made.source == FOREIGN
    assert total(lake.home) == 112


def test_r5_settled_buckets_that_somebody_changes_later_are_not_relied_on(lake: SmallLake) -> None:
    drop_settled(lake.home, CUTS, lambda: NOW)
    lake.tamper(Tier.HOUR, MONDAY + HOUR_US)
    lake.tamper(Tier.WEEK, MONDAY)
    assert total(lake.home) == 112


def test_r5_a_plan_changes_nothing(lake: SmallLake) -> None:
    planned = plan_retention(lake.home, {Tier.MINUTE: MONDAY}, now_us=NOW)
    assert not planned.is_done
    assert [(each.table, each.partitions) for each in planned.dropped] == [("minute_counts", 1)]
    assert gone_before(lake.home) == {}
    assert read_raised(lake.home) is None


def test_r5_the_log_is_raised_once_and_not_opened_again(lake: SmallLake) -> None:
    from tidemark import Platform

    raise_earliest(lake.home, MONDAY, lambda: NOW)
    assert read_raised(lake.home) == MONDAY
    with Platform.open(lake.home, clock=lambda: NOW, durable_epochs=dict) as platform:
        raise_earliest(lake.home, MONDAY, lambda: NOW)  # else the home would be busy
        receipt = platform.producer("late").write([signal("d1", at=MONDAY - 1)]).wait()
    assert receipt.refused == 1


def behind_months(lake: SmallLake) -> frozenset[int]:
    dropped = dropped_before(lake.home)
    return Tables(lake.home, gone_before(lake.home), dropped_before=dropped, tiers=tuple(Tier)).behind[Tier.MONTH]


def test_r5_a_month_is_still_the_sum_of_its_days_after_a_cut_in_its_middle(lake: SmallLake) -> None:
    """The cut is on the twelfth: the days before it stay, as long as days after it can change the month."""
    lake.send([Event(MONDAY - 30 * DAY_US, count=7)])
    lake.roll_up_everything()
    dropped = drop_settled(lake.home, dict.fromkeys((Tier.MINUTE, Tier.HOUR, Tier.DAY), MONDAY), lambda: NOW)
    assert [(each.table, each.partitions) for each in dropped] == [
        ("minute_counts", 2),
        ("hourly_counts", 2),
        ("daily_counts", 1),
    ]
    assert starts(lake.home, "daily_counts")[0] == MONDAY - DAY_US
    late = MONDAY + 5 * DAY_US
    lake.send([Event(late, count=1_000)])
    for tier in TRAILING:
        lake.roll_up(tier, [tier.partition_grain.floor(late)])
    january = Tier.MONTH.floor(MONDAY)
    assert behind_months(lake) == {january}
    lake.roll_up(Tier.MONTH, [january])
    assert behind_months(lake) == frozenset()
    found = lake_files.open_table(lake.home.lake / "monthly_counts")
    assert found is not None
    counts = {to_us(row["bucket_start"]): row["count"] for row in found.to_pyarrow_table().to_pylist()}
    assert counts == {january: 1_112, Tier.MONTH.floor(january - 1): 7}
    assert total(lake.home) == 1_119


def test_r5_days_do_not_go_while_their_month_is_not_the_sum_of_them(lake: SmallLake) -> None:
    cuts = dict.fromkeys((Tier.MINUTE, Tier.HOUR, Tier.DAY), MONDAY + 3 * WEEK_US)  # in February
    lake.tamper(Tier.MONTH, Tier.MONTH.floor(MONDAY))
    with pytest.raises(RetentionError, match=r"1 month\(s\) before .* are not known to be the sum"):
        drop_settled(lake.home, cuts, lambda: NOW)
    lake.roll_up(Tier.MONTH)
    assert [each.partitions for each in drop_settled(lake.home, cuts, lambda: NOW)] == [4, 4, 4]
    assert behind_months(lake) == frozenset()
