"""Counts from the tables equal a count over the deltas, whatever is behind, changed or dropped (R2, R4, R5)."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import pytest

from tests.support.small_lake import Event, SmallLake
from tidemark.counts.lake import Counts, LakeCounts, Measure, UnknownNamespaceError
from tidemark.counts.retention import GoneError, remember
from tidemark.counts.windows import NotOnAMinuteError, Window
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, WEEK_US, from_us, to_us
from tidemark.storage.home import Home
from tidemark.tables.tiers import Tier

MONDAY = to_us(datetime(2024, 2, 26, tzinfo=UTC))  # of a week with a leap day
LEAP_DAY = to_us(datetime(2024, 2, 29, tzinfo=UTC))
ENTITIES, SIGNALS = ("item-1", "item-2", "käse/7"), ("view", "buy")


@pytest.fixture
def lake(tmp_path: Path) -> SmallLake:
    return SmallLake(Home(tmp_path / "home").create())


def counted(events: Sequence[Event], entity: str, signal: str, window: Window, as_of_us: int) -> Measure:
    """The definition: a loop over all that ever happened."""
    start_us = window.start_us(as_of_us)
    inside = [
        event
        for event in events
        if (event.namespace, event.entity, event.signal) == ("shop", entity, signal)
        and event.at_us < as_of_us
        and (start_us is None or start_us <= event.at_us)
    ]
    return Measure(sum(event.count for event in inside), sum(event.weight for event in inside), len(inside))


def some_events(random: Random, number: int) -> list[Event]:
    """Over five weeks around a leap day, many of them exactly on a border, some of them retractions."""
    borders = (MONDAY, LEAP_DAY, LEAP_DAY + DAY_US, MONDAY + WEEK_US, MONDAY - 3 * WEEK_US, MONDAY + 5 * HOUR_US)
    return [
        Event(
            random.choice(borders) + random.choice((-1, 0, 1, MINUTE_US, random.randrange(-DAY_US, DAY_US))),
            random.choice(ENTITIES),
            random.choice(SIGNALS),
            random.choice((1, 1, 1, 5, -2)),
            random.randrange(-(10**6), 10**6),
            random.choice(("shop", "shop", "other")),
        )
        for _ in range(number)
    ]


def some_minute(random: Random) -> int:
    near = random.choice((MONDAY, LEAP_DAY, LEAP_DAY + DAY_US, MONDAY + WEEK_US, MONDAY + 30 * DAY_US))
    return near + random.choice((0, 0, 1, -1, random.randrange(-3_000, 3_000))) * MINUTE_US


def assert_equal_to_the_deltas(lake: SmallLake, random: Random, questions: int) -> None:
    counts = LakeCounts(lake.home)
    for _ in range(questions):
        entity, signal, as_of_us = random.choice(ENTITIES), random.choice(SIGNALS), some_minute(random)
        found = counts.windows(entity, signal, as_of_us, namespace="shop")
        expected = {window: counted(lake.events, entity, signal, window, as_of_us) for window in Window}
        assert found.windows == expected
        assert sum(count for _, count in found.hours) == expected[Window.DAY].count
        assert found.first_us == first_minute(lake.events, entity, signal, as_of_us)


def first_minute(events: Sequence[Event], entity: str, signal: str, as_of_us: int) -> int | None:
    mine = [each for each in events if (each.namespace, each.entity, each.signal) == ("shop", entity, signal)]
    times = [each.at_us for each in mine if each.at_us < as_of_us]
    return min(times) // MINUTE_US * MINUTE_US if times else None


def test_r2_every_window_at_any_minute_equals_a_count_over_the_deltas(lake: SmallLake) -> None:
    random = Random(1)
    lake.send(some_events(random, 150))
    lake.roll_up_everything()
    assert_equal_to_the_deltas(lake, random, 25)


@pytest.mark.parametrize("seed", range(6))
def test_a_sum_that_is_behind_or_was_changed_is_never_used(lake: SmallLake, seed: int) -> None:
    random = Random(seed)
    lake.send(some_events(random, 40))
    lake.roll_up_everything()
    for _ in range(4):
        match random.randrange(5):
            case 0 | 1:
                lake.send(some_events(random, 3))
            case 2:
                lake.roll_up(random.choice(list(Tier)))
            case 3:
                lake.roll_up(Tier.MINUTE, is_remembered=False)
            case _:
                lake.tamper(random.choice(list(Tier)), MONDAY)
        assert_equal_to_the_deltas(lake, random, 4)


def test_the_answer_names_the_hours_of_which_deltas_were_counted(lake: SmallLake) -> None:
    lake.send([Event(MONDAY), Event(MONDAY + HOUR_US)])
    lake.roll_up_everything()
    as_of_us = MONDAY + DAY_US
    fresh = LakeCounts(lake.home).windows("item-1", "view", as_of_us, namespace="shop")
    assert fresh.reach.recounted_hours == ()
    lake.send([Event(MONDAY + HOUR_US + 1)])
    late = LakeCounts(lake.home).windows("item-1", "view", as_of_us, namespace="shop")
    assert late.windows[Window.ALL].count == 3
    assert late.reach.recounted_hours == (MONDAY + HOUR_US,)
    assert late.reach.versions["deltas"] == fresh.reach.versions["deltas"] + 1
    lake.roll_up_everything()
    assert LakeCounts(lake.home).windows("item-1", "view", as_of_us, namespace="shop").reach.recounted_hours == ()


def test_a_deleted_table_is_answered_from_what_lies_below_it(lake: SmallLake) -> None:
    from shutil import rmtree

    lake.send(some_events(Random(3), 30))
    lake.roll_up_everything()
    rmtree(lake.home.lake / "weekly_counts")
    rmtree(lake.home.lake / "minute_counts")
    assert_equal_to_the_deltas(lake, Random(3), 5)


def test_without_what_is_remembered_everything_is_counted_from_the_deltas(lake: SmallLake) -> None:
    lake.send(some_events(Random(4), 30))
    lake.roll_up_everything()
    for table in ("deltas", "minute_counts", "hourly_counts", "daily_counts", "weekly_counts"):
        (lake.home.plans / table / "provenance.json").unlink()
    assert_equal_to_the_deltas(lake, Random(4), 5)


def test_one_window_is_the_same_as_that_window_of_all(lake: SmallLake) -> None:
    lake.send(some_events(Random(5), 40))
    lake.roll_up_everything()
    counts = LakeCounts(lake.home)
    whole = counts.windows("item-1", "view", MONDAY, namespace="shop")
    for window in Window:
        assert counts.window("item-1", "view", window, from_us(MONDAY), namespace="shop") == whole.windows[window]
        assert counts.window("item-1", "view", str(window), MONDAY, namespace="shop") == whole.windows[window]


def test_all_signals_of_an_entity_are_those_that_it_had_before(lake: SmallLake) -> None:
    lake.send([Event(MONDAY), Event(MONDAY + HOUR_US, signal="buy"), Event(MONDAY, entity="item-2", signal="like")])
    lake.roll_up_everything()
    counts = LakeCounts(lake.home)
    assert list(counts.signals("item-1", MONDAY + DAY_US, namespace="shop")) == ["buy", "view"]
    assert list(counts.signals("item-1", MONDAY + HOUR_US, namespace="shop")) == ["view"]
    assert counts.signals("nobody", MONDAY + DAY_US, namespace="shop") == {}


def test_r4_velocity_is_over_the_window_or_the_age_if_that_is_shorter(lake: SmallLake) -> None:
    lake.send([Event(MONDAY + 30_000_000, count=6), Event(MONDAY + HOUR_US, count=6)])
    lake.roll_up_everything()
    found = LakeCounts(lake.home).windows("item-1", "view", MONDAY + 6 * HOUR_US, namespace="shop")
    assert found.first_us == MONDAY
    assert found.velocity == {**dict.fromkeys(Window, 2.0), Window.HOUR: 0.0}


def test_nothing_is_zero_everywhere(lake: SmallLake) -> None:
    found = LakeCounts(lake.home).windows("item-1", "view", MONDAY, namespace="shop")
    assert set(found.windows.values()) == {Measure()}
    assert set(found.velocity.values()) == {0.0}
    assert found.first_us is None
    assert found.reach.epochs == {}


def test_the_last_day_is_cut_at_both_ends(lake: SmallLake) -> None:
    lake.send([Event(MONDAY + minute * MINUTE_US) for minute in (29, 30, 31)])
    lake.roll_up_everything()
    found: Counts = LakeCounts(lake.home).windows("item-1", "view", MONDAY + DAY_US + 30 * MINUTE_US, namespace="shop")
    assert len(found.hours) == 25
    assert found.hours[0] == (MONDAY, 2)
    assert found.windows[Window.DAY].count == 2


def test_a_moment_between_minutes_is_refused(lake: SmallLake) -> None:
    with pytest.raises(NotOnAMinuteError):
        LakeCounts(lake.home).windows("item-1", "view", from_us(MONDAY) + timedelta(seconds=1), namespace="shop")


def test_an_unknown_namespace_is_refused_with_those_that_are_known(lake: SmallLake) -> None:
    counts = LakeCounts(lake.home)
    with pytest.raises(UnknownNamespaceError, match="Nothing is in the tables yet"):
        counts.refuse_unknown("shop")
    lake.send([Event(MONDAY), Event(MONDAY, namespace="fleet")])
    counts.refuse_unknown("shop")
    with pytest.raises(UnknownNamespaceError, match=r"no namespace 'shoop'\. Known here: fleet, shop"):
        counts.refuse_unknown("shoop")


@pytest.mark.parametrize("seed", range(2))
def test_r5_what_is_left_after_a_drop_answers_or_says_that_it_cannot(lake: SmallLake, seed: int) -> None:
    random = Random(seed)
    lake.send(some_events(random, 60))
    lake.roll_up_everything()
    cuts = {Tier.MINUTE: MONDAY + 5 * HOUR_US, Tier.HOUR: MONDAY - DAY_US, Tier.DAY: MONDAY - 2 * WEEK_US}
    remember(lake.home, cuts)
    for tier, cut_us in cuts.items():
        lake.drop(tier, cut_us)
    lake.send([event for event in some_events(random, 20) if event.at_us >= cuts[Tier.MINUTE]])
    counts, answered = LakeCounts(lake.home), 0
    for _ in range(12):
        entity, signal, as_of_us = random.choice(ENTITIES), random.choice(SIGNALS), some_minute(random)
        for window in Window:
            try:
                found = counts.window(entity, signal, window, as_of_us, namespace="shop")
            except GoneError:
                assert as_of_us < cuts[Tier.MINUTE] + 30 * DAY_US
                continue
            answered += 1
            assert found == counted(lake.events, entity, signal, window, as_of_us)
    assert answered > 20
    as_of_us = cuts[Tier.MINUTE] + 30 * DAY_US
    whole = counts.windows("item-1", "view", as_of_us, namespace="shop").windows
    assert whole == {window: counted(lake.events, "item-1", "view", window, as_of_us) for window in Window}
