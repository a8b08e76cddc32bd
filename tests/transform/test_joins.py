"""The three joins (N4): each pair exactly once, as an oracle in a few lines says, over any cut into runs."""

from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from assets.joins.transform import pair_in_panes, pair_sessions, pair_with_panes
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US, MINUTE_US, floor_to, from_us

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

# An example is several jobs of Spark's: making a failing one smaller takes longer than looking at it.
PHASES = (Phase.generate,)
SIZE_US, STEP_US = 15 * MINUTE_US, 10 * MINUTE_US
FIRST_US, HOURS = -2 * HOUR_US, 4
ALL = Range(FIRST_US, FIRST_US + HOURS * HOUR_US)
DDL = (
    "who string, own_namespace string, own_key string, own_event_ts timestamp, own_delta_id string, own_shard int, "
    "own_epoch bigint, own_ordinal int, pane_us bigint, panes_us array<bigint>"
)
SESSION_DDL = "who string, window_id string, window_start timestamp, window_end timestamp, deltas bigint"


class Event(NamedTuple):
    """A delta; two with the same time and key differ in their id."""

    who: str
    at_us: int
    id: int


class Session(NamedTuple):
    """A closed session."""

    who: str
    first_us: int
    last_us: int
    gap_us: int

    @property
    def closes_us(self) -> int:
        return self.last_us + self.gap_us

    @property
    def name(self) -> str:
        return f"{self.who}/{self.first_us}"


MOMENTS = st.tuples(
    st.integers(FIRST_US // (5 * MINUTE_US), ALL.end_us // (5 * MINUTE_US) - 1).map(
        lambda place: place * 5 * MINUTE_US
    ),
    st.sampled_from((0, 0, 1, 5 * MINUTE_US - 1)),
).map(sum)
EVENTS = st.lists(
    st.builds(Event, st.sampled_from([f"who-{number}" for number in range(4)]), MOMENTS, st.integers(1, 2)),
    min_size=30,
    max_size=60,
    unique=True,
)


def panes_of(at_us: int) -> list[int]:
    """The sliding panes that hold a moment, one by one."""
    last = floor_to(at_us, STEP_US)
    return sorted(start for start in range(last - SIZE_US, last + 1, STEP_US) if start <= at_us < start + SIZE_US)


def deltas_of(spark: "SparkSession", events: Sequence[Event]) -> "DataFrame":
    rows = [
        (
            event.who,
            "shop",
            event.who,
            from_us(event.at_us),
            f"d{event.id}",
            0,
            1,
            place,
            floor_to(event.at_us, SIZE_US),
            panes_of(event.at_us),
        )
        for place, event in enumerate(events)
    ]
    return spark.createDataFrame(rows, DDL)


def found_pairs(rows: "DataFrame") -> list[tuple[int, Event, Event, list[int]]]:
    return sorted(
        (
            row.pane_us,
            Event(row.left_key, row.left_us, int(row.left_delta_id[1:])),
            Event(row.right_key, row.right_us, int(row.right_delta_id[1:])),
            row.right_panes_us,
        )
        for row in rows.selectExpr(
            "*", "unix_micros(left_event_ts) AS left_us", "unix_micros(right_event_ts) AS right_us"
        ).collect()
    )


def oracle(left: Sequence[Event], right: Sequence[Event]) -> list[tuple[Event, Event]]:
    """Every two of a key in the same pane."""
    return sorted(
        (one, other)
        for one, other in product(left, right)
        if one.who == other.who and floor_to(one.at_us, SIZE_US) == floor_to(other.at_us, SIZE_US)
    )


@settings(max_examples=1, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_deltas_in_a_pane_are_paired_once_whatever_order_they_come_in(
    spark: "SparkSession", data: st.DataObject
) -> None:
    left, right = data.draw(EVENTS), data.draw(EVENTS)
    lefts, rights = (deltas_of(spark, data.draw(st.permutations(each))) for each in (left, right))
    expected = oracle(left, right)
    assert expected
    pairs = found_pairs(pair_in_panes(lefts, rights, keys=["who"]))
    assert sorted((one, other) for _, one, other, _ in pairs) == expected
    assert all(pane == floor_to(one.at_us, SIZE_US) and not panes for pane, one, _, panes in pairs)
    with_panes = found_pairs(pair_with_panes(lefts, rights, keys=["who"], size_us=SIZE_US))
    assert sorted((one, other) for _, one, other, _ in with_panes) == expected
    assert all(panes == panes_of(other.at_us) for _, _, other, panes in with_panes)


def test_what_was_admitted_to_no_pane_is_in_no_pair(spark: "SparkSession") -> None:
    from pyspark.sql import functions as F

    events = [Event("a", 0, 1)]
    left, right = deltas_of(spark, events), deltas_of(spark, events)
    late = right.withColumn("panes_us", F.array().cast("array<bigint>"))
    assert pair_with_panes(left, late, keys=["who"], size_us=SIZE_US).count() == 0


def test_a_delta_that_went_into_the_next_pane_is_joined_there(spark: "SparkSession") -> None:
    from pyspark.sql import functions as F

    left = deltas_of(spark, [Event("a", 0, 1)]).withColumn("pane_us", F.lit(SIZE_US))
    right = deltas_of(spark, [Event("a", 1, 1), Event("a", SIZE_US, 2)])
    for pairs in (
        pair_in_panes(left, right, keys=["who"]),
        pair_with_panes(left, right, keys=["who"], size_us=SIZE_US),
    ):
        assert [(one.at_us, other.at_us) for _, one, other, _ in found_pairs(pairs)] == [(0, SIZE_US)]


def sessions(gap_us: int) -> st.SearchStrategy[list[Session]]:
    """Sessions of each key that lie further apart than the gap, as sessions do."""

    def apart(found: list[tuple[str, int, int]]) -> list[Session]:
        kept: dict[str, list[Session]] = {}
        for who, first, length in sorted(found):
            mine = kept.setdefault(who, [])
            if not mine or first > mine[-1].closes_us:
                mine.append(Session(who, first, first + length, gap_us))
        return [each for mine in kept.values() for each in mine]

    lengths = st.sampled_from((0, 1, 5 * MINUTE_US, HOUR_US, 2 * HOUR_US))
    one = st.tuples(st.sampled_from([f"who-{number}" for number in range(6)]), MOMENTS, lengths)
    return st.lists(one, min_size=20, max_size=60).map(apart)


def sessions_of(spark: "SparkSession", found: Sequence[Session]) -> "DataFrame":
    rows = [(each.who, each.name, from_us(each.first_us), from_us(each.closes_us), 1) for each in found]
    return spark.createDataFrame(rows, SESSION_DDL)


@settings(max_examples=1, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_sessions_that_meet_are_paired_once_in_the_hour_in_which_the_later_closes(
    spark: "SparkSession", data: st.DataObject
) -> None:
    left, right = data.draw(sessions(10 * MINUTE_US)), data.draw(sessions(25 * MINUTE_US))
    lefts, rights = (sessions_of(spark, data.draw(st.permutations(each))) for each in (left, right))
    expected = sorted(
        (floor_to(max(one.closes_us, other.closes_us), HOUR_US), one.name, other.name)
        for one, other in product(left, right)
        if one.who == other.who and one.first_us <= other.closes_us and other.first_us <= one.closes_us
    )
    assert expected
    ever = Range(FIRST_US, ALL.end_us + 4 * HOUR_US)
    found = pair_sessions(lefts, rights, keys=["who"], hours=ever).localCheckpoint()
    whole = sorted((row.hour_us, row.left_window_id, row.right_window_id) for row in found.collect())
    assert whole == expected
    border = data.draw(st.integers(1, HOURS)) * HOUR_US + FIRST_US
    parts = [
        pair_sessions(lefts, rights, keys=["who"], hours=hours)
        for hours in (Range(ever.start_us, border), Range(border, ever.end_us))
    ]
    rows = parts[0].unionByName(parts[1]).collect()
    assert sorted((row.hour_us, row.left_window_id, row.right_window_id) for row in rows) == expected


def test_sessions_that_touch_meet_and_a_microsecond_apart_they_do_not(spark: "SparkSession") -> None:
    gap_us = 10 * MINUTE_US
    left = [Session("a", 0, 5, gap_us), Session("b", 0, 5, gap_us)]
    right = [Session("a", 5 + gap_us, 5 + gap_us, gap_us), Session("b", 6 + gap_us, 6 + gap_us, gap_us)]
    pairs = pair_sessions(sessions_of(spark, left), sessions_of(spark, right), keys=["who"], hours=ALL)
    assert [row.who for row in pairs.collect()] == ["a"]


def test_joins_are_one_plan_without_python_rows(spark: "SparkSession", capsys: pytest.CaptureFixture[str]) -> None:
    deltas = deltas_of(spark, [Event("a", 0, 1)])
    closed = sessions_of(spark, [Session("a", 0, 0, 1)])
    for rows in (
        pair_in_panes(deltas, deltas, keys=["who"]),
        pair_with_panes(deltas, deltas, keys=["who"], size_us=SIZE_US),
        pair_sessions(closed, closed, keys=["who"], hours=ALL),
    ):
        rows.explain()
        text = capsys.readouterr().out
        assert "Join" in text
        assert "Python" not in text.replace("PythonRDD", "")
