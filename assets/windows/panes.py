"""Which panes a delta is in: tumbling, fixed and sliding windows (N1), and which of them take it (T4, T5).

Belongs here: arithmetic on `event_us`, `received_us` and `stamp_us`. All grids are anchored at 1970, or at the stream's
offset from there, and use floor division. Does not belong here: what a pane says about its deltas (`transform.py`),
sessions (`sessions.py`).
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.windows.lateness import floor_us, is_admitted_to, is_late_for
from tidemark.model.ranges import Range
from tidemark.streams import Stream, WindowType


def on_grid(time: Column, stream: Stream) -> Column:
    """Start of the last pane of a stream that begins at a time or before it."""
    return floor_us(time, stream.window.step_us, stream.window.offset_us)


def pane_start(stream: Stream) -> Column:
    """Start of the one pane of a tumbling or fixed window that a delta lies in by its own time."""
    return on_grid(F.col("received_us" if stream.window.type is WindowType.FIXED else "event_us"), stream)


def open_pane(stream: Stream) -> Column:
    """Start of the earliest pane that was still open under the stamp."""
    return on_grid(F.col("stamp_us") - F.lit(stream.late.allowed_us), stream)


def assign_panes(deltas: DataFrame, stream: Stream) -> DataFrame:
    """Each delta that its tumbling or fixed pane takes, with `pane_us`, the start of that pane, and `is_late`."""
    own, size_us = pane_start(stream), F.lit(stream.window.size_us)
    if stream.window.type is WindowType.FIXED:
        return deltas.withColumns({"pane_us": own, "is_late": F.lit(False)})
    is_late = is_late_for(own + size_us, stream)
    if stream.late.is_moved:
        return deltas.withColumns({"pane_us": F.when(is_late, open_pane(stream)).otherwise(own), "is_late": is_late})
    return deltas.where(is_admitted_to(own + size_us, stream)).withColumns({"pane_us": own, "is_late": is_late})


def first_pane(stream: Stream, time: str = "event_us") -> Column:
    """Start of the first sliding pane that a time lies in."""
    return on_grid(F.col(time) - F.lit(stream.window.size_us), stream) + F.lit(stream.window.step_us)


def last_pane(stream: Stream, time: str = "event_us") -> Column:
    """Start of the last sliding pane that a time lies in."""
    return on_grid(F.col(time), stream)


def first_open_pane(stream: Stream, *, extra_us: int = 0) -> Column:
    """Of the panes that a delta lies in, the start of the first for which it is not late (by more than `extra_us`).

    It may be the one after the last: then the delta is late for all of them. Without a stamp it is late for none.
    """
    window, first = stream.window, first_pane(stream)
    closed = F.col("stamp_us") - F.lit(window.size_us + stream.late.allowed_us + extra_us)
    is_open = on_grid(closed, stream) + F.lit(window.step_us)
    after_last = last_pane(stream) + F.lit(window.step_us)
    return F.coalesce(F.least(F.greatest(first, is_open), after_last), first)


def within(hours: Range) -> Column:
    """Whether a pane begins in the hours."""
    return (F.col("pane_us") >= hours.start_us) & (F.col("pane_us") < hours.end_us)
