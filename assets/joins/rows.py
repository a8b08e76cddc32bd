"""Joins of two streams: from their deltas, or their sessions, to rows of the join's table (N4).

Belongs here: what the definitions of a join and of its two sides mean for `transform.py`: which deltas each side admits
and to which panes, the names of the key columns, the columns of the table. Pure functions of DataFrames.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.joins.schema import OF_DELTA, OF_SESSION, join_table
from assets.joins.transform import pair_in_panes, pair_sessions, pair_with_panes
from assets.windows.lateness import floor_us, is_admitted_to
from assets.windows.panes import assign_panes, first_pane, last_pane, within
from assets.windows.schema import WINDOW_HOUR
from assets.windows.transform import keys_of
from assets.windows.view import together, view_of
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US
from tidemark.streams import Join, JoinForm, Stream
from tidemark.streams.fields import OWN_KEY


def delta_pairs(deltas: DataFrame, join: Join, left: Stream, right: Stream, hours: Range) -> DataFrame:
    """The pairs of deltas whose pane begins in these hours, from the rows of `deltas` that both sides need."""
    keys, size_us, slides = keys_of(left), left.window.size_us, join.form is not JoinForm.SAME_PANE
    lefts = _side(assign_panes(view_of(deltas, left), left).where(within(hours)), left, left, "pane_us")
    if not slides:
        rights = _side(assign_panes(view_of(deltas, right), right).where(within(hours)), right, left, "pane_us")
        pairs = pair_in_panes(*(_hashed(each, keys, hours) for each in (lefts, rights)), keys=keys)
    else:
        shown = view_of(deltas, right).withColumn("panes_us", admitting_panes(right))
        rights = _side(shown, right, left, "panes_us")
        pairs = pair_with_panes(lefts, rights, keys=keys, size_us=size_us, offset_us=left.window.offset_us)
    # Columns that follow from the definitions are added to the pairs, so that they are not shuffled with every delta.
    known = {**_own_key(left, left, "left"), **_own_key(right, left, "right")}
    pairs = pairs.withColumns(known) if known else pairs
    columns = {
        "pair_id": _pair_id(*(f"{side}_{name}" for side in ("left", "right") for name in OF_DELTA[:4])),
        "window_start": F.timestamp_micros("pane_us"),
        "window_end": F.timestamp_micros(F.col("pane_us") + F.lit(size_us)),
        "right_windows": F.transform("right_panes_us", F.timestamp_micros)
        if slides
        else F.array().cast("array<timestamp>"),
        WINDOW_HOUR: F.timestamp_micros(floor_us(F.col("pane_us"), HOUR_US)),
    }
    return pairs.withColumns(columns).select(*join_table(join, left, right).names)


def session_pairs(
    lefts: DataFrame, rights: DataFrame, join: Join, left: Stream, right: Stream, hours: Range
) -> DataFrame:
    """The pairs of sessions whose later one closes in these hours, from the rows of both tables that may meet."""
    renamed = rights.select(*_renamed(right, left), *OF_SESSION)
    pairs = pair_sessions(lefts, renamed, keys=keys_of(left), hours=hours)
    columns = {
        "pair_id": F.concat_ws("/", F.octet_length("left_window_id"), "left_window_id", "right_window_id"),
        WINDOW_HOUR: F.timestamp_micros("hour_us"),
    }
    return pairs.withColumns(columns).select(*join_table(join, left, right).names)


def admitting_panes(stream: Stream) -> Column:
    """Starts of the sliding panes that take a delta; a delta may be late for some of them and not for others (T4)."""
    panes = F.sequence(first_pane(stream), last_pane(stream), F.lit(stream.window.step_us))
    return F.filter(panes, lambda pane: is_admitted_to(pane + F.lit(stream.window.size_us), stream))


def _side(rows: DataFrame, stream: Stream, left: Stream, pane: str) -> DataFrame:
    """One side's deltas: the key under the left side's names, identity and place, and the pane."""
    # The namespace is the stream's own: a constant, which need not be carried along.
    given = {"key": F.col("delta_key"), "namespace": F.lit(stream.namespace)}
    own = [given.get(name, F.col(name)).alias(f"own_{name}") for name in OF_DELTA]
    return rows.select(*_renamed(stream, left), *own, pane)


def _own_key(stream: Stream, left: Stream, side: str) -> dict[str, Column]:
    """The key of one side's delta, if it is among the key columns that both sides have."""
    own = OWN_KEY[stream.kind]
    found = [name for field, name in zip(stream.key_fields, keys_of(left), strict=True) if field.name in own]
    return {f"{side}_key": F.col(found[0])} if found else {}


def _renamed(stream: Stream, left: Stream) -> list[Column]:
    return [F.col(own).alias(name) for own, name in zip(keys_of(stream), keys_of(left), strict=True)]


def _hashed(side: DataFrame, keys: Sequence[str], hours: Range) -> DataFrame:
    """One side in as many places as its hours need; the join hashes the smaller side there, instead of sorting both.

    A hash table cannot spill to disk, so the rows in one place must fit its memory, however long the range is.
    """
    return together(side, [*keys, "pane_us"], hours, hours_each=6).hint("shuffle_hash")


def _pair_id(*columns: str) -> Column:
    """A stable name of a pair of deltas: two 64-bit hashes over both identities, which are never null."""
    one, other = (F.hex(F.xxhash64(F.lit(seed), *columns)) for seed in ("one", "other"))
    return F.concat_ws("-", one, other)
