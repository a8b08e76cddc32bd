"""Which runs a request takes: one for each unbroken range."""

from assets.names import RANGE_END, RANGE_START, more_partitions
from orchestration.materialize import hours_between, near_one_another, side_by_side
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


def test_assets_of_which_the_same_is_stale_are_one_run_and_none_is_put_before_its_input() -> None:
    """O2: each asset is run once for all of its partitions, not once for every set of assets that share one."""
    assert side_by_side({"views": ["b", "c"], "trends": ["a", "b", "c"], "buys": ["c", "b"]}) == [
        (("views", "buys"), ("b", "c")),
        (("trends",), ("a", "b", "c")),
    ]
    # hourly_counts are made from minute_counts, of which more is stale.
    stale = {"views": ["b"], "minute_counts": ["a", "b"], "hourly_counts": ["b"]}
    assert side_by_side(stale) == [
        (("views",), ("b",)),
        (("minute_counts",), ("a", "b")),
        (("hourly_counts",), ("b",)),
    ]


def test_hours_with_gaps_are_one_run_unless_more_than_a_week_lies_between_them() -> None:
    """O2: a lone hour beside a day does not cost a run of its own."""
    friday, day = "2026-02-27-17:00", hours_between("2026-03-01-23:00", "2026-03-02-23:00")
    assert list(near_one_another([(("minute_counts",), (*day, friday))])) == [(("minute_counts",), (friday, *day))]
    week_before = "2026-02-23-23:00"
    assert list(near_one_another([(("minute_counts",), (week_before, *day))])) == [
        (("minute_counts",), (week_before, *day[:-1])),
        (("minute_counts",), (day[-1],)),
    ]


def test_a_run_names_its_longest_range_to_the_orchestrator_and_the_other_partitions_besides() -> None:
    day = hours_between("2026-03-01-23:00", "2026-03-02-23:00")
    lone = ["2026-02-27-17:00", "2026-03-03-04:00"]
    tags = tags_of([lone[1], *day, lone[0]], HOUR)
    assert (tags[RANGE_START], tags[RANGE_END]) == (day[0], day[-1])
    assert more_partitions(tags) == tuple(lone)
    assert more_partitions(tags_of(day, HOUR)) == ()
