"""Which runs a request takes: one for each unbroken range."""

from assets.names import RANGE_END, RANGE_START, more_partitions
from assets.refresh import near_one_another
from orchestration.materialize import hours_between
from orchestration.runs import ranges_of, tags_of
from tidemark.model.timegrid import DAY, HOUR, WEEK


def test_hours_without_a_gap_are_one_range() -> None:
    hours = hours_between("2026-03-01-22:00", "2026-03-02-02:00")
    assert len(hours) == 5
    assert ranges_of(reversed(hours), HOUR) == [tuple(hours)]


def test_a_gap_begins_another_range() -> None:
    assert ranges_of(["2026-03-02-05:00", "2026-03-02-01:00", "2026-03-02-02:00"], HOUR) == [
        ("2026-03-02-01:00", "2026-03-02-02:00"),
        ("2026-03-02-05:00",),
    ]


def test_weeks_follow_one_another_by_seven_days() -> None:
    assert ranges_of(["2026-03-02", "2026-02-23", "2026-01-05"], WEEK) == [
        ("2026-01-05",),
        ("2026-02-23", "2026-03-02"),
    ]


def test_days_are_told_from_weeks_by_their_grain_and_not_by_their_names() -> None:
    mondays = ["2026-02-23", "2026-03-02"]
    assert ranges_of(mondays, WEEK) == [tuple(mondays)]
    assert ranges_of(mondays, DAY) == [("2026-02-23",), ("2026-03-02",)]
    assert ranges_of(["2026-03-02", "2026-02-28", "2026-03-01"], DAY) == [("2026-02-28", "2026-03-01", "2026-03-02")]


def test_hours_with_gaps_are_made_together_unless_more_than_a_week_lies_between_them() -> None:
    """O2: a lone hour beside a day does not cost a Spark job of its own."""
    friday, day = "2026-02-27-17:00", hours_between("2026-03-01-23:00", "2026-03-02-23:00")
    assert list(near_one_another((*day, friday), HOUR)) == [(friday, *day)]
    week_before = "2026-02-23-23:00"
    assert list(near_one_another((week_before, *day), HOUR)) == [(week_before, *day[:-1]), (day[-1],)]


def test_sums_of_hours_are_made_together_however_far_apart_they_are() -> None:
    months = [f"2026-{month:02d}-01-00:00" for month in range(1, 13)]
    assert list(near_one_another(months, HOUR, takes_gaps=True)) == [tuple(months)]
    hours = hours_between("2026-03-01-00:00", "2026-03-08-00:00")
    assert [len(part) for part in near_one_another(hours, HOUR, takes_gaps=True)] == [168, 1]


def test_a_run_names_its_longest_range_to_the_orchestrator_and_the_other_partitions_besides() -> None:
    day = hours_between("2026-03-01-23:00", "2026-03-02-23:00")
    lone = ["2026-02-27-17:00", "2026-03-03-04:00"]
    tags = tags_of([lone[1], *day, lone[0]], HOUR)
    assert (tags[RANGE_START], tags[RANGE_END]) == (day[0], day[-1])
    assert more_partitions(tags) == tuple(lone)
    assert more_partitions(tags_of(day, HOUR)) == ()
