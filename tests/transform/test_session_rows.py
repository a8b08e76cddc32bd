"""Sessions and joins of streams as they are defined (N2, N3, N4, T4, T5): from rows of `deltas` to rows of tables."""

from typing import TYPE_CHECKING, Any, NamedTuple

from assets.ingest.schema import DELTAS
from assets.joins.rows import delta_pairs, session_pairs
from assets.windows.open_schema import open_table
from assets.windows.schema import window_table
from assets.windows.session_rows import admitted, closed_rows, open_rows, parts_of
from resources.session import frame_of
from tests.support.small_lake import Event, signal_row, table_rows
from tests.support.spark import plan_of
from tidemark.model.deltas import Kind
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US, MINUTE_US
from tidemark.streams import Aggregate, Function, Join, JoinForm, Lateness, LatePolicy, Stream, WindowSpec, WindowType

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

GAP_US = 10 * MINUTE_US
DAY = Range(0, 6 * HOUR_US)
SESSION = WindowSpec(WindowType.SESSION, gap_us=GAP_US)
TUMBLING = WindowSpec(WindowType.TUMBLING, size_us=GAP_US, step_us=GAP_US)
SLIDING = WindowSpec(WindowType.SLIDING, size_us=GAP_US, step_us=5 * MINUTE_US)
AGGREGATES = (
    Aggregate("clicks", Function.SUM, "count"),
    Aggregate("lightest", Function.MIN, "weight_millionths"),
    Aggregate("weight", Function.MEAN, "weight_millionths"),
    Aggregate("signals", Function.COUNT),
)


class Signal(NamedTuple):
    """A delta, as short as it can be; `stamp_us` is the watermark that was in force."""

    at_us: int
    entity: str = "a"
    signal: str = "view"
    stamp_us: int | None = None
    clicks: int = 1
    weight: int = 5


def stream(name: str, window: WindowSpec, late: Lateness | None = None, **more: Any) -> Stream:
    return Stream(name, "shop", Kind.SIGNAL, window, late=late or Lateness(), **{"key": ("entity_id",), **more})


def deltas_of(spark: "SparkSession", signals: list[Signal]) -> "DataFrame":
    rows = [
        signal_row(
            number,
            Event(each.at_us, each.entity, each.signal, each.clicks, each.weight),
            shard=int(each.entity == "b"),  # a key lies in one shard (Q3)
            watermark_ts=each.stamp_us,
        )
        for number, each in enumerate(signals, start=1)
    ]
    return frame_of(spark, table_rows(DELTAS, rows))


def nothing_open(spark: "SparkSession", visits: Stream) -> "DataFrame":
    columns = ", ".join(f"{column.name} {column.sql}" for column in open_table(visits).columns)
    return spark.createDataFrame([], columns)


def sessions(spark: "SparkSession", signals: list[Signal], visits: Stream) -> "DataFrame":
    parts = parts_of(deltas_of(spark, signals), nothing_open(spark, visits), visits, DAY)
    return closed_rows(parts, visits, DAY)


def test_a_session_says_of_its_deltas_what_every_window_says(spark: "SparkSession") -> None:
    visits = stream("visits", SESSION, aggregates=AGGREGATES)
    signals = [Signal(HOUR_US - MINUTE_US, clicks=2, weight=3), Signal(HOUR_US + MINUTE_US, signal="buy", weight=9)]
    rows = sessions(spark, signals, visits)
    assert rows.columns == window_table(visits).names
    found = rows.selectExpr("*", "unix_micros(window_end) AS end_us", "unix_micros(window_hour) AS hour_us").collect()
    assert len(found) == 1
    row = found[0]
    assert (row.deltas, row.revision, row.late, row["keys"], row.close_reason) == (2, 2, 0, 1, "gap")
    assert (row.clicks, row.lightest, row.weight, row.weight_sum, row.weight_count, row.signals) == (
        3,
        3,
        6.0,
        12,
        2,
        2,
    )
    assert [tuple(part) for part in row.epochs] == [(0, 1, 2)]
    assert (row.end_us, row.hour_us) == (HOUR_US + MINUTE_US + GAP_US, HOUR_US)
    assert row.mean_bytes == row.bytes / 2


def test_what_is_open_is_carried_with_its_aggregates_and_closes_as_in_one_range(spark: "SparkSession") -> None:
    visits = stream("visits", SESSION, aggregates=AGGREGATES, key=("signal",))
    signals = [Signal(HOUR_US - MINUTE_US, weight=3), Signal(HOUR_US + MINUTE_US, "b", weight=9)]
    deltas = deltas_of(spark, signals)
    first, second = Range(0, HOUR_US), Range(HOUR_US, DAY.end_us)
    before = parts_of(
        deltas.where("event_hour < timestamp '1970-01-01 01:00:00'"), nothing_open(spark, visits), visits, first
    )
    carried = open_rows(before, visits, first)
    assert carried.columns == open_table(visits).names
    after = parts_of(deltas.where("event_hour >= timestamp '1970-01-01 01:00:00'"), carried, visits, second)
    rows = closed_rows(after, visits, second).collect()
    assert rows == sessions(spark, signals, visits).collect()
    assert [row["keys"] for row in rows] == [2]
    assert [tuple(part) for part in rows[0].epochs] == [(0, 1, 1), (1, 2, 2)]


# What becomes of a delta without a stamp, on the edge, past it, at the edge of max_lateness and past that.
EDGES: list[tuple[Lateness, list[int | None]]] = [
    (Lateness(LatePolicy.REEMIT, 7), [0, 0, 1, 1, 1]),
    (Lateness(LatePolicy.REEMIT, 7, max_us=5), [0, 0, 1, 1, None]),
    (Lateness(LatePolicy.DISCARD, 7), [0, 0, None, None, None]),
    (Lateness(LatePolicy.SIDE_OUTPUT, 7, channel="x"), [0, 0, None, None, None]),
]


def test_a_delta_is_late_for_its_session_only_past_the_gap_and_what_is_allowed(spark: "SparkSession") -> None:
    """On the edge (event + gap + lateness = watermark) it is on time, and at the edge of max_lateness still taken."""
    edge = MINUTE_US + GAP_US + 7
    stamps = [None, edge, edge + 1, edge + 5, edge + 6]
    signals = [Signal(MINUTE_US, f"e{place}", stamp_us=stamp) for place, stamp in enumerate(stamps)]
    deltas = deltas_of(spark, signals)
    for late, expected in EDGES:
        found = {row.entity_id: int(row.is_late) for row in admitted(deltas, stream("visits", SESSION, late)).collect()}
        assert found == {f"e{place}": is_late for place, is_late in enumerate(expected) if is_late is not None}, late


def pairs(rows: "DataFrame") -> list[tuple[str, str]]:
    found = [(row.left_delta_id, row.right_delta_id) for row in rows.collect()]
    assert len(found) == len(set(found))
    return sorted(found)


def test_pairs_are_of_the_deltas_that_each_side_admits(spark: "SparkSession") -> None:
    views = stream("views", TUMBLING, where=(("signal", "view"),))
    buys = stream("buys", TUMBLING, Lateness(LatePolicy.DISCARD), where=(("signal", "buy"),))
    both = Join("both", "views", "buys", JoinForm.SAME_PANE)
    signals = [
        Signal(0),
        Signal(GAP_US - 1, signal="buy"),
        Signal(GAP_US, signal="buy"),
        Signal(1, "b", signal="buy"),
        Signal(2, signal="buy", stamp_us=GAP_US),  # exactly on the edge: late, and not taken
        Signal(3, signal="buy", stamp_us=GAP_US - 1),
    ]
    rows = delta_pairs(deltas_of(spark, signals), both, views, buys, DAY)
    assert pairs(rows) == [("d1", "d2"), ("d1", "d6")]
    assert {(row.left_namespace, row.left_key, row.right_key) for row in rows.collect()} == {("shop", "a", "a")}
    # Wide rows are not sorted to be joined, and what follows from the definitions is not shuffled with them.
    plan = plan_of(rows)
    assert "ShuffledHashJoin" in plan
    assert "SortMergeJoin" not in plan


def test_a_pair_with_slides_carries_those_that_took_its_delta(spark: "SparkSession") -> None:
    views = stream("views", TUMBLING, where=(("signal", "view"),))
    trends = stream("trends", SLIDING, Lateness(LatePolicy.DISCARD))
    join = Join("near", "views", "trends", JoinForm.PANE_AND_SLIDES)
    at, step = GAP_US + MINUTE_US, 5 * MINUTE_US
    signals = [
        Signal(GAP_US),
        Signal(at, signal="buy", stamp_us=GAP_US + step),
        Signal(at, signal="buy", stamp_us=2 * GAP_US),
        Signal(2 * GAP_US, signal="buy"),
    ]
    rows = delta_pairs(deltas_of(spark, signals), join, views, trends, DAY)
    found = {
        row.right_delta_id: row.starts
        for row in rows.selectExpr("*", "transform(right_windows, x -> unix_micros(x)) AS starts").collect()
    }
    assert found == {"d1": [GAP_US - step, GAP_US], "d2": [GAP_US]}


def test_the_key_may_be_called_otherwise_on_the_right(spark: "SparkSession") -> None:
    views, buys = stream("views", SESSION), stream("buys", SESSION, key=("key",), where=(("signal", "buy"),))
    join = Join("both", "views", "buys", JoinForm.SESSIONS)
    signals = [Signal(0), Signal(0, signal="buy"), Signal(0, "b")]
    lefts, rights = (sessions(spark, signals, each) for each in (views, buys))
    rows = session_pairs(lefts, rights, join, views, buys, DAY).collect()
    assert [(row.entity_id, row.left_deltas, row.right_deltas) for row in rows] == [("a", 2, 1)]
    tumbling = Join("panes", "views", "buys", JoinForm.SAME_PANE)
    views, buys = stream("views", TUMBLING), stream("buys", TUMBLING, key=("signal",))
    assert pairs(delta_pairs(deltas_of(spark, signals), tumbling, views, buys, DAY)) == []
