"""Tumbling, fixed and sliding windows and every policy for late deltas, against the rules in plain Python (N1, T4, T5).

Many examples are one Spark job: events of different keys do not meet, so each example has a key of its own.
"""

from collections.abc import Iterable, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.graph import Need, made_of
from assets.windows.catalog import late_needs, pane_needs
from assets.windows.late import late_deltas
from assets.windows.transform import count_windows
from resources.lake import Range
from resources.streams import Aggregate, Function, Lateness, LatePolicy, Stream
from resources.timegrid import HOUR_US, MINUTE_US, floor_to
from tests.support.windows import (
    TEN_MINUTES,
    Event,
    deltas_of,
    fixed,
    late_of,
    policies,
    sliding,
    stream,
    tumbling,
    windows_of,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALL = Range(-5 * HOUR_US, 6 * HOUR_US)
# Before 1970 and after it; on the edges of panes and hours, and one microsecond beside them.
TIMES = st.one_of(
    st.integers(-2 * HOUR_US, 3 * HOUR_US),
    st.builds(
        lambda place, beside: place * 5 * MINUTE_US + beside, st.integers(-24, 36), st.sampled_from([-1, 0, 0, 1])
    ),
)
# An example holds more than a hundred events, each a case of its own: few are enough, and shrinking one costs minutes.
A_FEW = settings(
    max_examples=2,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
EVENTS = st.builds(
    Event,
    at_us=TIMES,
    stamp_us=st.one_of(st.none(), TIMES),
    entity=st.sampled_from("abc"),
    amount=st.integers(-3, 9),
    received_us=TIMES,
    shard=st.sampled_from([0, 0, 1]),
)


def named(streams: Iterable[Stream]) -> list[Stream]:
    import msgspec

    return [msgspec.structs.replace(each, name=f"s{number}") for number, each in enumerate(streams)]


STREAMS = named(
    [
        *(tumbling(TEN_MINUTES, late) for late in policies(MINUTE_US, 20 * MINUTE_US)),
        tumbling(TEN_MINUTES, Lateness(LatePolicy.NEXT_WINDOW, MINUTE_US)),
        tumbling(7 * MINUTE_US, Lateness(LatePolicy.NEXT_WINDOW)),
        tumbling(90 * MINUTE_US),
        fixed(7 * MINUTE_US),
        *(sliding(30 * MINUTE_US, TEN_MINUTES, late) for late in policies(MINUTE_US, 20 * MINUTE_US)),
        sliding(25 * MINUTE_US, TEN_MINUTES, Lateness(LatePolicy.DISCARD)),
        sliding(90 * MINUTE_US, 50 * MINUTE_US),
    ]
)
COLUMNS = ["deltas", "late", "total", "min_event_ts", "max_event_ts", "epochs"]


def needed(deltas: DataFrame, needs: Sequence[Need], hours: Range) -> DataFrame:
    return deltas.where(made_of(needs, "deltas", [hours]))


def rows_of(frames: Iterable[DataFrame]) -> dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]:
    """Stream → (key, start) → columns; all frames in one job."""
    found: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = {each.name: {} for each in STREAMS}
    for row in reduce(DataFrame.unionAll, frames).collect():
        epochs = tuple(tuple(each) for each in row["epochs"])
        key = (row["key"], row["start"])
        assert key not in found[row["stream"]], "one row per key and window"
        found[row["stream"]][key] = (*(row[name] for name in ("deltas", "late", "total", "first", "last")), epochs)
        assert row["revision"] == row["deltas"]
    return found


def windows(deltas: DataFrame, of: Stream, hours: Range) -> DataFrame:
    return count_windows(needed(deltas, pane_needs(of), hours), of, hours).select(
        F.lit(of.name).alias("stream"),
        "key",
        F.unix_micros("window_start").alias("start"),
        "deltas",
        "revision",
        "late",
        "total",
        F.unix_micros("min_event_ts").alias("first"),
        F.unix_micros("max_event_ts").alias("last"),
        "epochs",
    )


@A_FEW
@given(events=st.lists(EVENTS, min_size=60, max_size=160), border=st.integers(-1, 2))
def test_windows_of_every_type_and_policy_are_what_the_rules_say_whatever_the_border(
    spark: "SparkSession", events: list[Event], border: int
) -> None:
    """N1, N3, N6, T4, T5: whatever the times and stamps, and wherever the border between two runs lies."""
    deltas = deltas_of(spark, events).persist()
    expected = {of.name: windows_of(events, of) for of in STREAMS}
    parts = (Range(ALL.start_us, border * HOUR_US), Range(border * HOUR_US, ALL.end_us))
    assert rows_of(windows(deltas, of, part) for of in STREAMS for part in parts) == expected
    deltas.unpersist()


@A_FEW
@given(events=st.lists(EVENTS, min_size=60, max_size=160), border=st.integers(-1, 2))
def test_late_deltas_are_those_that_the_rules_call_late_with_what_became_of_them(
    spark: "SparkSession", events: list[Event], border: int
) -> None:
    """T5: one row per stream and late delta, and on_time + late by outcome = accepted."""
    by_event = [of for of in STREAMS if not of.window.is_by_arrival]
    deltas = deltas_of(spark, events)
    parts = (Range(ALL.start_us, border * HOUR_US), Range(border * HOUR_US, ALL.end_us))
    found: dict[str, dict[int, tuple[Any, ...]]] = {of.name: {} for of in by_event}
    needs = late_needs(by_event)
    rows = reduce(
        DataFrame.unionAll, [late_deltas(needed(deltas, needs, part), by_event, part) for part in parts]
    ).collect()
    for row in rows:
        hour = floor_to(int(row["effect_hour"].timestamp()) * 1_000_000, HOUR_US)
        place = (row["outcome"], row["late_by_us"], row["panes_late"], row["panes_missed"], hour)
        assert row["epoch"] not in found[row["stream"]]
        found[row["stream"]][row["epoch"]] = place
    assert found == {of.name: late_of(events, of) for of in by_event}


EDGE = TEN_MINUTES + MINUTE_US  # the end of the first pane, and the lateness that is allowed


@pytest.mark.parametrize(
    ("late", "stamp_us", "expected"),
    [
        (Lateness(allowed_us=MINUTE_US), EDGE - 1, {0: (1, 0)}),
        (Lateness(allowed_us=MINUTE_US), EDGE, {0: (1, 1)}),
        (Lateness(allowed_us=MINUTE_US, max_us=MINUTE_US), EDGE + MINUTE_US - 1, {0: (1, 1)}),
        (Lateness(allowed_us=MINUTE_US, max_us=MINUTE_US), EDGE + MINUTE_US, {}),
        (Lateness(LatePolicy.DISCARD, MINUTE_US), EDGE - 1, {0: (1, 0)}),
        (Lateness(LatePolicy.DISCARD, MINUTE_US), EDGE, {}),
        (Lateness(LatePolicy.SIDE_OUTPUT, MINUTE_US, channel="aside"), EDGE - 1, {0: (1, 0)}),
        (Lateness(LatePolicy.SIDE_OUTPUT, MINUTE_US, channel="aside"), EDGE, {}),
        (Lateness(LatePolicy.NEXT_WINDOW, MINUTE_US), EDGE - 1, {0: (1, 0)}),
        (Lateness(LatePolicy.NEXT_WINDOW, MINUTE_US), EDGE, {TEN_MINUTES: (1, 1)}),
        (Lateness(LatePolicy.NEXT_WINDOW, MINUTE_US), EDGE + TEN_MINUTES - 1, {TEN_MINUTES: (1, 1)}),
        (Lateness(LatePolicy.NEXT_WINDOW, MINUTE_US), EDGE + TEN_MINUTES, {2 * TEN_MINUTES: (1, 1)}),
    ],
)
def test_every_policy_decides_exactly_at_the_edge(
    spark: "SparkSession", late: Lateness, stamp_us: int, expected: dict[int, tuple[int, int]]
) -> None:
    """T4: a delta is late when `window_end + allowed_lateness = watermark`, and a microsecond earlier it is not."""
    of = tumbling(TEN_MINUTES, late)
    event = Event(TEN_MINUTES - 1, stamp_us)
    assert {start: place[:2] for (_, start), place in windows_of([event], of).items()} == expected
    rows = count_windows(deltas_of(spark, [event]), of, ALL).collect()
    assert {
        round(row["window_start"].timestamp() * 1_000_000): (row["deltas"], row["late"]) for row in rows
    } == expected


def test_a_delta_without_a_stamp_is_on_time(spark: "SparkSession") -> None:
    [row] = count_windows(
        deltas_of(spark, [Event(0)]), tumbling(TEN_MINUTES, Lateness(LatePolicy.DISCARD)), ALL
    ).collect()
    assert (row["deltas"], row["late"], row["close_reason"]) == (1, 0, "end")


def test_aggregates_are_exact_for_integers_and_keep_sum_and_count_of_a_mean(spark: "SparkSession") -> None:
    """N5: count, sum, min, max, mean as sum and count; 2**53 + 1 is no float."""
    of = tumbling(
        TEN_MINUTES,
        key=(),
        aggregates=(
            Aggregate("n", Function.COUNT),
            Aggregate("least", Function.MIN, "count"),
            Aggregate("most", Function.MAX, "count"),
            Aggregate("total", Function.SUM, "count"),
            Aggregate("middle", Function.MEAN, "count"),
        ),
    )
    events = [Event(0, entity="a", amount=2**53), Event(1, entity="b", amount=1), Event(2, entity="b", amount=-4)]
    [row] = count_windows(deltas_of(spark, events), of, ALL).collect()
    found = [row[name] for name in ("n", "least", "most", "total", "middle_sum", "middle_count", "keys")]
    assert found == [3, -4, 2**53, 2**53 - 3, 2**53 - 3, 3, 2]
    assert row["middle"] == (2**53 - 3) / 3


def test_a_sum_that_does_not_fit_is_an_error_and_not_a_number(spark: "SparkSession") -> None:
    """N5: exact, or refused."""
    events = [Event(0, amount=2**63 - 1), Event(1, amount=1)]
    with pytest.raises(Exception, match="overflow"):
        count_windows(deltas_of(spark, events), tumbling(TEN_MINUTES), ALL).collect()


def test_windows_are_one_plan_without_a_python_row_boundary(spark: "SparkSession") -> None:
    """N6: adjacent steps are fused by code generation, so no row may leave it for Python on the way."""
    for of in (*STREAMS, stream(STREAMS[-1].window, key=("producer",))):
        plan = count_windows(deltas_of(spark, [Event(0)]), of, ALL)._jdf.queryExecution().executedPlan().toString()
        assert not [word for word in ("Python", "Pandas", "Arrow", "MapInArrow") if word in plan], plan
    every = late_deltas(deltas_of(spark, [Event(0)]), [of for of in STREAMS if not of.window.is_by_arrival], ALL)
    assert "Python" not in every._jdf.queryExecution().executedPlan().toString()
