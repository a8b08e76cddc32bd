"""Sessions (N2): what an oracle in a few lines says, over any cut into runs and whatever hours they cross."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from assets.windows.sessions import Fold, Folded, SessionShape, closed_sessions, open_parts, session_parts
from assets.windows.view import position
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US, MINUTE_US, floor_to

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

DDL = (
    "who string, delta_key string, shard int, epoch bigint, event_us bigint, is_late boolean, bytes bigint, "
    "clicks bigint, value double"
)
FOLDED = (
    Folded("clicks", Fold.SUM),
    Folded("value", Fold.SUM, is_float=True),
)
# An example is several jobs of Spark's: making a failing one smaller takes longer than looking at it.
PHASES = (Phase.generate,)
# Hours on both sides of 1970: floor division and truncation part there.
FIRST_US, HOURS = -2 * HOUR_US, 5
ALL = Range(FIRST_US, FIRST_US + HOURS * HOUR_US)


class Event(NamedTuple):
    """An admitted delta."""

    who: str
    key: str
    shard: int
    epoch: int
    at_us: int
    is_late: bool
    bytes: int
    clicks: int
    value: float


class Session(NamedTuple):
    """A session as the oracle has it; the sum of floats is left to the tests of their order."""

    who: str
    first_us: int
    last_us: int
    deltas: int
    late: int
    bytes: int
    keys: int
    clicks: int
    epochs: tuple[tuple[int, int, int], ...]


def oracle(events: Sequence[Event], gap_us: int) -> list[Session]:
    """Sort, and begin anew where the gap is exceeded."""
    found: dict[str, list[list[Event]]] = defaultdict(list)
    for event in sorted(events, key=lambda event: event.at_us):
        mine = found[event.who]
        if mine and event.at_us - mine[-1][-1].at_us <= gap_us:
            mine[-1].append(event)
        else:
            mine.append([event])
    return sorted(_session(group) for groups in found.values() for group in groups)


def _session(group: list[Event]) -> Session:
    shards = {event.shard: [each.epoch for each in group if each.shard == event.shard] for event in group}
    return Session(
        who=group[0].who,
        first_us=group[0].at_us,
        last_us=group[-1].at_us,
        deltas=len(group),
        late=sum(event.is_late for event in group),
        bytes=sum(event.bytes for event in group),
        keys=len({event.key for event in group}),
        clicks=sum(event.clicks for event in group),
        epochs=tuple((shard, min(epochs), max(epochs)) for shard, epochs in sorted(shards.items())),
    )


def deltas_of(spark: "SparkSession", events: Sequence[Event]) -> "DataFrame":
    return spark.createDataFrame(list(events), DDL).withColumn("position", position("shard", "epoch"))


def nothing_carried(deltas: "DataFrame", shape: SessionShape) -> "DataFrame":
    empty = deltas.limit(0)
    return open_parts(session_parts(empty, _no_parts(empty, shape), shape=shape, hours=ALL), shape=shape, hours=ALL)


def _no_parts(empty: "DataFrame", shape: SessionShape) -> "DataFrame":
    kinds = {"value": "double"}
    columns = [f"CAST(NULL AS {kinds.get(each.name, 'bigint')}) AS {each.name}" for each in shape.measures]
    return empty.selectExpr(*shape.part_keys, *columns)


def run(deltas: "DataFrame", carried: "DataFrame", shape: SessionShape, hours: Range) -> tuple[list[Any], "DataFrame"]:
    """Closed sessions, and what is open at each hour's end, as an asset computes and stores them."""
    mine = deltas.where(f"event_us >= {hours.start_us} AND event_us < {hours.end_us}")
    parts = session_parts(mine, carried, shape=shape, hours=hours).localCheckpoint()
    closed = closed_sessions(parts, shape=shape, hours=hours).collect()
    return closed, open_parts(parts, shape=shape, hours=hours).localCheckpoint()


def sessions_of(rows: Sequence[Any]) -> list[Session]:
    return sorted(
        Session(
            row.who, row.first_us, row.last_us, row.deltas, row.late, row.bytes, row["keys"], row.clicks,
            tuple(tuple(part) for part in row.epochs),
        )
        for row in rows
    )  # fmt: skip


def states_of(carried: "DataFrame") -> list[tuple[Any, ...]]:
    """Rows of what is open, floats by their bits."""
    columns = sorted(carried.columns)
    rows = carried.select(*columns).collect()
    return sorted(tuple(repr(value) if isinstance(value, float) else value for value in row) for row in rows)


def in_runs(
    deltas: "DataFrame", shape: SessionShape, borders: Sequence[int]
) -> tuple[list[Any], list[tuple[Any, ...]]]:
    """The same hours in several runs: each begins with what the one before it carried."""
    closed, states = [], []
    carried = nothing_carried(deltas, shape)
    edges = [0, *borders, HOURS]
    for first, last in pairwise(edges):
        hours = Range(FIRST_US + first * HOUR_US, FIRST_US + last * HOUR_US)
        rows, out = run(deltas, carried, shape, hours)
        closed += rows
        states += states_of(out)
        carried = out.where(f"hour_us = {hours.end_us - HOUR_US}")
    return closed, sorted(states)


def moments(gap_us: int) -> st.SearchStrategy[int]:
    """Times on, just before and just after what could be a border, so that they collide."""
    near = st.sampled_from((-1, 0, 1))
    on_the_grid = st.integers(FIRST_US // gap_us + 1, (ALL.end_us - 2) // gap_us).map(lambda place: place * gap_us)
    on_the_hour = st.integers(1, HOURS - 1).map(lambda hour: FIRST_US + hour * HOUR_US)
    return st.tuples(st.one_of(on_the_grid, on_the_hour), near).map(sum)


def events_of(gap_us: int) -> st.SearchStrategy[list[Event]]:
    """Many keys at once, so that one job of Spark's tries many cases."""
    event = st.builds(
        Event,
        who=st.integers(0, 11).map(lambda number: f"who-{number}"),
        key=st.sampled_from(["a", "b", "c"]),
        shard=st.just(0),
        epoch=st.integers(1, 9),
        at_us=moments(gap_us),
        is_late=st.booleans(),
        bytes=st.integers(1, 9),
        clicks=st.integers(-3, 3),
        value=st.sampled_from([0.1, 0.2, 0.3, 1e16, -1e16, 1.0]),
    )
    # A key lies in one shard (Q3).
    placed = event.map(lambda event: event._replace(shard=int(event.key == "b")))
    return st.lists(placed, min_size=80, max_size=160)


# A gap that does not divide the hour, and one that is longer than it.
@pytest.mark.parametrize("gap_us", [25 * MINUTE_US, pytest.param(90 * MINUTE_US, marks=pytest.mark.slow)])
@settings(max_examples=1, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_run_by_run_one_backfill_and_the_oracle_give_the_same_sessions(
    spark: "SparkSession", gap_us: int, data: st.DataObject
) -> None:
    events = data.draw(events_of(gap_us))
    shape = SessionShape(("who",), gap_us, FOLDED, is_one_key=False)
    deltas = deltas_of(spark, data.draw(st.permutations(events))).cache()
    whole, states = in_runs(deltas, shape, [])
    expected = [each for each in oracle(events, gap_us) if each.last_us + gap_us < ALL.end_us]
    assert sessions_of(whole) == expected
    assert all(row.hour_us == floor_to(row.last_us + gap_us, HOUR_US) for row in whole)
    borders = sorted(data.draw(st.sets(st.integers(1, HOURS - 1), min_size=1, max_size=2)))
    parted, parted_states = in_runs(deltas, shape, borders)
    assert sorted(map(repr, parted)) == sorted(map(repr, whole)), "floats too, bit for bit"
    assert parted_states == states


@settings(max_examples=1, phases=PHASES, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_is_open_at_an_hours_end_are_the_sessions_that_an_event_at_that_moment_would_join(
    spark: "SparkSession", data: st.DataObject
) -> None:
    gap_us = data.draw(st.sampled_from([7 * MINUTE_US, 90 * MINUTE_US]))
    events = [event._replace(key=event.who, shard=0) for event in data.draw(events_of(gap_us))]
    shape = SessionShape(("who",), gap_us, FOLDED)
    deltas = deltas_of(spark, events)
    _, carried = run(deltas, nothing_carried(deltas, shape), shape, ALL)
    found = defaultdict(list)
    for row in carried.collect():
        found[row.hour_us + HOUR_US, row.who, row.session_us].append((row.deltas, row.last_us))
    expected = {
        (end, each.who, each.first_us): (each.deltas, each.last_us)
        for end in range(FIRST_US + HOUR_US, ALL.end_us + 1, HOUR_US)
        for each in oracle([event for event in events if event.at_us < end], gap_us)
        if each.last_us + gap_us >= end
    }
    parts = {key: (sum(n for n, _ in parts), max(last for _, last in parts)) for key, parts in found.items()}
    assert parts == expected


def at(time_us: int, who: str = "a") -> Event:
    return Event(who, who, 0, 1, time_us, False, 1, 1, 0.5)


def test_the_edges_of_a_session_are_exact(spark: "SparkSession") -> None:
    """N2: each case is a key of its own, in two runs with a border at 0."""
    gap_us = 30 * MINUTE_US
    shape = SessionShape(("who",), gap_us, FOLDED)
    cases = {
        "exactly_at_the_gap": [0, gap_us],
        "a_microsecond_later": [1, gap_us + 2],
        "closes_on_the_hour": [-gap_us],
        "closes_before_the_hour": [-gap_us - 1],
        "apart": [-25 * MINUTE_US, 25 * MINUTE_US],
        "bridged_over_the_hour": [-25 * MINUTE_US, 25 * MINUTE_US, 0],
    }
    events = [at(time_us, who) for who, times in cases.items() for time_us in times]
    closed, states = in_runs(deltas_of(spark, events), shape, [2])
    assert sessions_of(closed) == oracle(events, gap_us)
    counts = {who: sorted(each.deltas for each in sessions_of(closed) if each.who == who) for who in cases}
    assert counts == {
        "exactly_at_the_gap": [2],
        "a_microsecond_later": [1, 1],
        "closes_on_the_hour": [1],
        "closes_before_the_hour": [1],
        "apart": [1, 1],
        "bridged_over_the_hour": [3],
    }
    hours = {row.who: row.hour_us for row in closed if row.who.startswith("closes")}
    assert hours == {"closes_on_the_hour": 0, "closes_before_the_hour": -HOUR_US}, "on the border it is the later one"
    carried = {value for state in states for value in state if isinstance(value, str)}
    assert "closes_before_the_hour" not in carried, "an event on the hour would not join it"
    assert "closes_on_the_hour" in carried


def test_a_sum_beyond_64_bits_is_an_error_and_not_a_number(spark: "SparkSession") -> None:
    from pyspark.errors import PySparkException

    events = [at(0)._replace(clicks=2**63 - 1), at(1)]
    with pytest.raises(PySparkException, match="ARITHMETIC_OVERFLOW"):
        in_runs(deltas_of(spark, events), SessionShape(("who",), HOUR_US, FOLDED), [])


def test_sessions_are_one_plan_without_python_rows(spark: "SparkSession", capsys: pytest.CaptureFixture[str]) -> None:
    shape = SessionShape(("who",), HOUR_US, FOLDED)
    deltas = deltas_of(spark, [at(0)])
    parts = session_parts(deltas, _no_parts(deltas.limit(0), shape), shape=shape, hours=ALL)
    for rows in (closed_sessions(parts, shape=shape, hours=ALL), open_parts(parts, shape=shape, hours=ALL)):
        rows.explain()
        text = capsys.readouterr().out
        assert "Window" in text
        assert "Python" not in text.replace("PythonRDD", "")
