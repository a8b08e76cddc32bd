"""The three joins, inner and by key (N4): pure functions of DataFrames.

Belongs here: which two deltas, or sessions, are a pair. Each pair comes once, because each delta has one pane to be
joined in, and two sessions first meet at one time. Does not belong here: which deltas are admitted
(`assets/windows/lateness.py`), which rows are read and written (`asset.py`).
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.joins.schema import LEFT, OF_DELTA, OF_SESSION, RIGHT
from assets.windows.lateness import floor_us, hour_of
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US


def pair_in_panes(left: DataFrame, right: DataFrame, *, keys: Sequence[str]) -> DataFrame:
    """Tumbling with tumbling: every two deltas of a key that were admitted to the same pane.

    Both sides have the columns of the key, those of `OF_DELTA` as `own_…`, and `pane_us`, the start of the pane.
    """
    lefts, rights = _one_side(left, LEFT, keys, "pane_us"), _one_side(right, RIGHT, keys, "pane_us")
    joined = lefts.join(rights, on=[*keys, "pane_us"], how="inner")
    nothing = F.array().cast("array<bigint>")
    return joined.withColumn("right_panes_us", nothing).select(*_pair_columns(keys))


def pair_with_panes(
    left: DataFrame, right: DataFrame, *, keys: Sequence[str], size_us: int, offset_us: int = 0
) -> DataFrame:
    """Tumbling with sliding: every delta on the right that lies in the pane of one on the left.

    Instead of one pane, `right` has `panes_us`: the starts of all panes that it was admitted to. The pair keeps them,
    because it is needed until the last of them is closed. `size_us` and `offset_us` are those of the panes on the left.
    """
    lefts = _one_side(left, LEFT, keys, "pane_us")
    placed = right.where(F.size("panes_us") > 0).withColumns(
        {
            "pane_us": floor_us(F.unix_micros("own_event_ts"), size_us, offset_us),
            "right_panes_us": F.array_sort("panes_us"),
        }
    )
    rights = _one_side(placed, RIGHT, keys, "pane_us", "right_panes_us")
    joined = lefts.join(rights, on=[*keys, "pane_us"], how="inner")
    return joined.select(*_pair_columns(keys))


def pair_sessions(left: DataFrame, right: DataFrame, *, keys: Sequence[str], hours: Range) -> DataFrame:
    """Session with session: every two sessions of a key of which neither begins after the other has closed.

    A session is [first, last + gap], with both ends included: its `window_start` and `window_end`. A pair belongs to
    the hour in which the later of the two closes; the pairs of the range are returned. Two intervals that meet both
    contain the start of the later one, so the pair is found in the hour of that start, and only there.
    """
    lefts, rights = _by_hours(left, LEFT, keys), _by_hours(right, RIGHT, keys)
    meet_us = F.greatest("left_first_us", "right_first_us")
    is_met = meet_us <= F.least("left_closes_us", "right_closes_us")
    is_here = F.col("cell_us") == hour_of(meet_us)
    joined = lefts.join(rights, on=[*keys, "cell_us"], how="inner").where(is_met & is_here)
    closes_us = F.greatest("left_closes_us", "right_closes_us")
    timed = joined.withColumns({"meet_us": meet_us, "closes_us": closes_us, "hour_us": hour_of(closes_us)})
    is_asked_for = (F.col("hour_us") >= F.lit(hours.start_us)) & (F.col("hour_us") < F.lit(hours.end_us))
    sides = [f"{side}_{name}" for side in (LEFT, RIGHT) for name in OF_SESSION]
    return timed.where(is_asked_for).select(*keys, *sides, "meet_us", "closes_us", "hour_us")


def _one_side(deltas: DataFrame, side: str, keys: Sequence[str], *more: str) -> DataFrame:
    """The columns of one side, with its name as a prefix; columns that both sides share keep their names."""
    return deltas.select(*keys, *(F.col(f"own_{name}").alias(f"{side}_{name}") for name in OF_DELTA), *more)


def _by_hours(sessions: DataFrame, side: str, keys: Sequence[str]) -> DataFrame:
    """Each session once per hour that it reaches into, so that sessions that are far apart are never compared."""
    cells = F.explode(F.sequence(hour_of(F.col("first_us")), hour_of(F.col("closes_us")), F.lit(HOUR_US)))
    mine = [F.col(name).alias(f"{side}_{name}") for name in (*OF_SESSION, "first_us", "closes_us")]
    timed = sessions.withColumns({"first_us": F.unix_micros("window_start"), "closes_us": F.unix_micros("window_end")})
    return timed.select(*keys, *mine, cells.alias("cell_us"))


def _pair_columns(keys: Sequence[str]) -> list[str]:
    return [*keys, "pane_us", *(f"{side}_{name}" for side in (LEFT, RIGHT) for name in OF_DELTA), "right_panes_us"]
