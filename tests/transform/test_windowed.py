"""All windows of all entities as of a minute (R2, R4): equal to a count over the raw deltas, bit for bit."""

import random
from collections import defaultdict
from datetime import UTC
from typing import TYPE_CHECKING, Any

import pytest

from assets.rollups.schema import WINDOWED_COUNTS
from assets.rollups.transform import count_tier
from assets.rollups.windowed import count_windows
from tidemark.counts.decay import ONE, half_life
from tidemark.counts.windows import Window, velocity
from tidemark.model.timegrid import DAY_US, HOUR, HOUR_US, MINUTE, MINUTE_US, WEEK, WEEK_US, from_us, to_us
from tidemark.tables.tiers import TRAILING, Tier

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = (
    "namespace string, kind string, event_ts timestamp, event_hour timestamp, "
    "signal struct<entity_id: string, signal: string, count: bigint, weight_millionths: bigint>"
)
HALF_LIVES = [half_life(name) for name in ("1h", "1d", "7d", "30d")]
MONDAY = WEEK.start("2026-03-02")
# In the middle of everything; on the border of a week, and of a month with a leap day before it; years ago.
MOMENTS = (MONDAY + 2 * DAY_US + 10 * HOUR_US + 37 * MINUTE_US, MONDAY, to_us(from_us(0).replace(year=2024, month=3)))
Signal = tuple[str, int, int, int]


def signals_around(moments: tuple[int, ...]) -> list[Signal]:
    """Deltas on every border of every window of the moments, just before and just after, and some anywhere."""
    pick = random.Random(7)
    found = []
    for as_of in moments:
        for length in (0, MINUTE_US, HOUR_US, DAY_US, WEEK_US, 30 * DAY_US, 33 * DAY_US, 225 * DAY_US, 400 * DAY_US):
            for off in (-MINUTE_US, -1, 0, 1, MINUTE_US):
                entity = pick.choice(("a", "b", "c"))
                found.append((entity, as_of - length + off, pick.randint(-3, 9), pick.randint(-(10**9), 10**9)))
        found += [
            (f"only-{pick.randint(0, 5)}", as_of - pick.randint(0, 300 * DAY_US), pick.choice((1, 2**40)), 1)
            for _ in range(60)
        ]
    return found


def brute_force(signals: list[Signal], as_of: int) -> dict[str, dict[str, Any]]:
    """What the definitions say, one delta at a time."""
    by_entity: dict[str, list[Signal]] = defaultdict(list)
    for each in signals:
        if each[1] < as_of:
            by_entity[each[0]].append(each)
    expected: dict[str, dict[str, Any]] = {}
    for entity, mine in by_entity.items():
        minutes: dict[int, int] = defaultdict(int)
        for _, time, count, _ in mine:
            minutes[MINUTE.floor(time)] += count
        row: dict[str, Any] = {
            "deltas_all": len(mine),
            "first_minute": min(minutes),
            "lowest_minute": min(minutes.values()),
            "decay": {
                each.name: float(sum(count * each.weight(each.age(time, as_of)) for _, time, count, _ in mine)) / ONE
                for each in HALF_LIVES
            },
        }
        for window in Window:
            inside = [each for each in mine if window.length_us is None or as_of - window.length_us <= each[1]]
            row[f"count_{window}"] = sum(each[2] for each in inside)
            row[f"weight_sum_{window}"] = sum(each[3] for each in inside)
            row[f"velocity_{window}"] = velocity(row[f"count_{window}"], window, as_of, min(minutes))
        expected[entity] = row
    return expected


def found(rows: "DataFrame") -> dict[str, dict[str, Any]]:
    answers = {}
    for row in rows.collect():
        answer = row.asDict()
        assert (answer.pop("namespace"), answer.pop("signal")) == ("shop", "view")
        answer["first_minute"] = to_us(answer["first_minute"].astimezone(UTC))
        answer.pop("as_of")
        answers[answer.pop("entity_id")] = answer
    return answers


@pytest.fixture(scope="module")
def signals() -> list[Signal]:
    return signals_around(MOMENTS)


@pytest.fixture(scope="module")
def tiers(spark: "SparkSession", signals: list[Signal]) -> "dict[Tier, DataFrame]":
    rows = [
        ("shop", "signal", from_us(time), from_us(HOUR.floor(time)), (entity, "view", count, weight))
        for entity, time, count, weight in signals
    ]
    made: dict[Tier, DataFrame] = {}
    for tier in TRAILING:
        finer = spark.createDataFrame(rows, DDL) if tier.made_from is None else made[tier.made_from]
        made[tier] = count_tier(tier)(finer).localCheckpoint()
    return made


@pytest.mark.parametrize("as_of", MOMENTS)
def test_every_window_velocity_and_score_is_what_the_deltas_say(
    tiers: "dict[Tier, DataFrame]", signals: list[Signal], as_of: int
) -> None:
    rows = count_windows(tiers, as_of_us=as_of, half_lives=HALF_LIVES)
    assert rows.columns == WINDOWED_COUNTS.names
    expected = brute_force(signals, as_of)
    assert expected
    assert found(rows) == expected


def test_neither_the_order_of_rows_nor_their_partitions_change_a_bit(tiers: "dict[Tier, DataFrame]") -> None:
    """A sum of floats would depend on both."""
    as_of = MOMENTS[0]
    once = found(count_windows(tiers, as_of_us=as_of, half_lives=HALF_LIVES))
    from pyspark.sql import functions as F

    shuffled = {tier: rows.orderBy(F.rand(seed=tier.width_us)).repartition(7) for tier, rows in tiers.items()}
    assert found(count_windows(shuffled, as_of_us=as_of, half_lives=HALF_LIVES)) == once


def test_without_half_lives_there_are_no_scores(tiers: "dict[Tier, DataFrame]") -> None:
    rows = count_windows(tiers, as_of_us=MOMENTS[0], half_lives=[]).select("decay").limit(1).collect()
    assert rows[0].decay == {}


def test_all_windows_are_one_plan_without_python_rows(
    tiers: "dict[Tier, DataFrame]", capsys: pytest.CaptureFixture[str]
) -> None:
    count_windows(tiers, as_of_us=MOMENTS[0], half_lives=HALF_LIVES).explain()
    text = capsys.readouterr().out
    assert "HashAggregate" in text or "SortAggregate" in text or "ObjectHashAggregate" in text
    assert "Python" not in text.replace("PythonRDD", "")
