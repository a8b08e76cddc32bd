"""Tumbling, fixed and sliding windows and every policy for late deltas, against the rules in plain Python (N1, T4, T5).

Many examples are one Spark job: events of different keys do not meet, so each example has a key of its own.
"""

from collections import defaultdict
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
from tests.support.spark import plan_of
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
from tidemark.model.ranges import Range, any_within
from tidemark.model.timegrid import HOUR_US, MINUTE_US, floor_to
from tidemark.streams import Aggregate, Function, Lateness, LatePolicy, Stream

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
    max_examples=1,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
# A key lies in one shard (Q3).
SHARDS = {"a": 0, "b": 1, "c": 0}
EVENTS = st.builds(
    Event,
    at_us=TIMES,
    stamp_us=st.one_of(st.none(), TIMES),
    entity=st.sampled_from(list(SHARDS)),
    amount=st.integers(-3, 9),
    received_us=TIMES,
).map(lambda event: event._replace(shard=SHARDS[event.entity]))


def named(streams: Iterable[Stream]) -> list[Stream]:
    import msgspec

    return [msgspec.structs.replace(each, name=f"s{number}") for number, each in enumerate(streams)]


BOUNDED = Lateness(allowed_us=MINUTE_US, max_us=20 * MINUTE_US)
# One of each, where they differ most: every plan costs half a second.
SHARPEST = [
    tumbling(TEN_MINUTES, BOUNDED),
    tumbling(7 * MINUTE_US, Lateness(LatePolicy.NEXT_WINDOW, MINUTE_US)),
    fixed(7 * MINUTE_US),
    sliding(30 * MINUTE_US, TEN_MINUTES, BOUNDED),
    sliding(25 * MINUTE_US, TEN_MINUTES, Lateness(LatePolicy.DISCARD)),
    sliding(90 * MINUTE_US, 50 * MINUTE_US),
    tumbling(TEN_MINUTES, Lateness(LatePolicy.NEXT_WINDOW, MINUTE_US), offset_us=3 * MINUTE_US),
    sliding(25 * MINUTE_US, TEN_MINUTES, BOUNDED, offset_us=7 * MINUTE_US),
]
STREAMS = named(SHARPEST)
EVERY = named(
    [
        *SHARPEST,
        *(tumbling(TEN_MINUTES, late) for late in policies(MINUTE_US, 20 * MINUTE_US)),
        tumbling(7 * MINUTE_US, Lateness(LatePolicy.NEXT_WINDOW)),
        tumbling(90 * MINUTE_US),
        fixed(90 * MINUTE_US, offset_us=61 * MINUTE_US),
        *(sliding(30 * MINUTE_US, TEN_MINUTES, late) for late in policies(MINUTE_US, 20 * MINUTE_US)),
    ]
)
COLUMNS = ["deltas", "late", "total", "min_event_ts", "max_event_ts", "epochs"]


def needed(deltas: DataFrame, needs: Sequence[Need], hours: Range) -> DataFrame:
    return deltas.where(any_within(made_of(needs, "deltas", [hours])))


def rows_of(frames: Iterable[DataFrame]) -> dict[str, dict[tuple[Any, ...], tuple[Any, ...]]]:
    """Stream → (key, start) → columns; all frames in one job."""
    found: dict[str, dict[tuple[Any, ...], tuple[Any, ...]]] = defaultdict(dict)
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


MANY_EVENTS = st.lists(EVENTS, min_size=150, max_size=250)


def holds_whatever_the_border(spark: "SparkSession", of: list[Stream], events: list[Event], border: int) -> None:
    """Windows and late deltas of the streams are what the oracle says, in two runs with a border between them."""
    deltas = deltas_of(spark, events).persist()
    parts = (Range(ALL.start_us, border * HOUR_US), Range(border * HOUR_US, ALL.end_us))
    expected = {each.name: windows_of(events, each) for each in of}
    assert rows_of(windows(deltas, each, part) for each in of for part in parts) == expected
    by_event = [each for each in of if not each.window.is_by_arrival]
    needs, found = late_needs(by_event), dict[tuple[str, int], tuple[Any, ...]]()
    late = [late_deltas(needed(deltas, needs, part), by_event, part) for part in parts]
    for row in reduce(DataFrame.unionAll, late).collect():
        hour = floor_to(int(row["effect_hour"].timestamp()) * 1_000_000, HOUR_US)
        place = (row["outcome"], row["late_by_us"], row["panes_late"], row["panes_missed"], hour)
        assert (row["stream"], row["epoch"]) not in found, "one row per stream and delta"
        found[row["stream"], row["epoch"]] = place
    assert found == {(each.name, epoch): row for each in by_event for epoch, row in late_of(events, each).items()}
    deltas.unpersist()


@A_FEW
@given(events=MANY_EVENTS, border=st.integers(-1, 2))
def test_windows_and_late_deltas_are_what_the_rules_say_whatever_the_border(
    spark: "SparkSession", events: list[Event], border: int
) -> None:
    """N1, N3, N6, T4, T5: whatever the times and stamps, and wherever the border between two runs lies."""
    holds_whatever_the_border(spark, STREAMS, events, border)


@pytest.mark.slow
@settings(A_FEW, max_examples=5)
@given(events=MANY_EVENTS, border=st.integers(-1, 2))
def test_windows_of_every_type_and_policy_are_what_the_rules_say(
    spark: "SparkSession", events: list[Event], border: int
) -> None:
    """N1, N3, N6, T4, T5, at length."""
    holds_whatever_the_border(spark, EVERY, events, border)


EDGE = TEN_MINUTES + MINUTE_US  # the end of the first pane, and the lateness that is allowed


# Policy → what becomes of the last delta of the first pane, by its stamp: start of its window → (deltas, late).
DECIDED: list[tuple[Lateness, dict[int, dict[int, tuple[int, int]]]]] = [
    (Lateness(allowed_us=MINUTE_US), {EDGE - 1: {0: (1, 0)}, EDGE: {0: (1, 1)}}),
    (
        Lateness(allowed_us=MINUTE_US, max_us=MINUTE_US),
        {EDGE + MINUTE_US - 1: {0: (1, 1)}, EDGE + MINUTE_US: {}},
    ),
    (Lateness(LatePolicy.DISCARD, MINUTE_US), {EDGE - 1: {0: (1, 0)}, EDGE: {}}),
    (Lateness(LatePolicy.SIDE_OUTPUT, MINUTE_US, channel="aside"), {EDGE - 1: {0: (1, 0)}, EDGE: {}}),
    (
        Lateness(LatePolicy.NEXT_WINDOW, MINUTE_US),
        {
            EDGE - 1: {0: (1, 0)},
            EDGE: {TEN_MINUTES: (1, 1)},
            EDGE + TEN_MINUTES - 1: {TEN_MINUTES: (1, 1)},
            EDGE + TEN_MINUTES: {2 * TEN_MINUTES: (1, 1)},
        },
    ),
]


# The same delta lies in two sliding panes, the first of which ends there: late for one is not late for both.
BOTH = {-TEN_MINUTES: (1, 0), 0: (1, 0)}
FIRST_AGAIN = {-TEN_MINUTES: (1, 1), 0: (1, 0)}
SECOND = {0: (1, 0)}
SLID: list[tuple[Lateness, dict[int, dict[int, tuple[int, int]]]]] = [
    (Lateness(allowed_us=MINUTE_US), {EDGE - 1: BOTH, EDGE: FIRST_AGAIN}),
    (
        Lateness(allowed_us=MINUTE_US, max_us=MINUTE_US),
        {EDGE + MINUTE_US - 1: FIRST_AGAIN, EDGE + MINUTE_US: SECOND},
    ),
    (Lateness(LatePolicy.DISCARD, MINUTE_US), {EDGE - 1: BOTH, EDGE: SECOND, EDGE + TEN_MINUTES: {}}),
    (Lateness(LatePolicy.SIDE_OUTPUT, MINUTE_US, channel="aside"), {EDGE - 1: BOTH, EDGE: SECOND}),
]


def test_every_policy_decides_exactly_at_the_edge(spark: "SparkSession") -> None:
    """T4: a delta is late when `window_end + allowed_lateness = watermark`, and a microsecond earlier it is not."""
    decided = [each for _, each in (*DECIDED, *SLID)]
    streams = named(
        [tumbling(TEN_MINUTES, late) for late, _ in DECIDED]
        + [sliding(2 * TEN_MINUTES, TEN_MINUTES, late) for late, _ in SLID]
    )
    # Each stamp is tried on a key of its own, and all of them on every policy; those that it is about are looked at.
    stamps = sorted({stamp for each in decided for stamp in each})
    events = [Event(TEN_MINUTES - 1, stamp_us, entity=str(stamp_us)) for stamp_us in stamps]
    deltas = deltas_of(spark, events).persist()
    found = rows_of(windows(deltas, each, ALL) for each in streams)
    for of, each in zip(streams, decided, strict=True):
        assert found[of.name] == windows_of(events, of), of.late
        for stamp, expected in each.items():
            mine = {start: row[:2] for (key, start), row in found[of.name].items() if key == str(stamp)}
            assert mine == expected, (of.late, stamp - EDGE)
    late = {(row["stream"], row["key"]) for row in late_deltas(deltas, streams, ALL).collect()}
    assert late == {(of.name, str(stamp)) for of in streams for stamp in stamps if stamp >= EDGE}
    deltas.unpersist()


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


def test_a_window_of_several_keys_counts_them_and_says_the_epochs_of_every_shard(spark: "SparkSession") -> None:
    """N3: for every type of panes; a key that lies in two shards is refused where a window has room for one (Q3)."""
    events = [Event(place, entity=entity, shard=SHARDS[entity]) for place, entity in enumerate("abcabb")]
    for of in (tumbling(TEN_MINUTES, key=()), sliding(TEN_MINUTES, TEN_MINUTES // 2, key=())):
        rows = count_windows(deltas_of(spark, events), of, ALL).collect()
        found = {(row["deltas"], row["keys"], tuple(tuple(each) for each in row["epochs"])) for row in rows}
        assert found == {(6, 3, ((0, 1, 4), (1, 2, 6)))}
    moved = [Event(0, shard=0), Event(1, shard=1)]
    with pytest.raises(Exception, match="in two shards"):
        count_windows(deltas_of(spark, moved), tumbling(TEN_MINUTES), ALL).collect()


def test_a_sum_that_does_not_fit_is_an_error_and_not_a_number(spark: "SparkSession") -> None:
    """N5: exact, or refused."""
    events = [Event(0, amount=2**63 - 1), Event(1, amount=1)]
    with pytest.raises(Exception, match="overflow"):
        count_windows(deltas_of(spark, events), tumbling(TEN_MINUTES), ALL).collect()


def test_windows_are_one_plan_without_a_python_row_boundary(spark: "SparkSession") -> None:
    """N6: adjacent steps are fused by code generation, so no row may leave it for Python on the way."""
    for of in (STREAMS[0], STREAMS[-1], stream(STREAMS[-1].window, key=("producer",))):
        plan = plan_of(count_windows(deltas_of(spark, [Event(0)]), of, ALL))
        assert not [word for word in ("Python", "Pandas", "Arrow", "MapInArrow") if word in plan], plan
    every = late_deltas(deltas_of(spark, [Event(0)]), [of for of in STREAMS if not of.window.is_by_arrival], ALL)
    assert "Python" not in plan_of(every)


def test_late_deltas_of_many_streams_are_found_in_one_pass(spark: "SparkSession") -> None:
    """Conditions of a hundred streams must not lie one within the other: a server refuses what is so deep."""
    events = [Event(TEN_MINUTES - 1, stamp_us) for stamp_us in (TEN_MINUTES - 1, TEN_MINUTES, 3 * TEN_MINUTES)]
    every = [tumbling(TEN_MINUTES, name=f"tried_{number}") for number in range(150)]
    none = tumbling(TEN_MINUTES, name="others", where=(("signal", "no such one"),))
    rows = late_deltas(deltas_of(spark, events), [*every, none], ALL).groupBy("stream").count().collect()
    assert {row["stream"]: row["count"] for row in rows} == {each.name: 2 for each in every}
