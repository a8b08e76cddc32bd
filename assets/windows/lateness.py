"""Lateness: what becomes of a delta, decided only by its time and the stamp that it got at arrival (T4, T5).

Belongs here: the one rule that windows, joins and `late_deltas` share. It is a function of a row and of a stream's
definition, so other segments, a backfill or a run a year later give the same result. A delta without a stamp came
before the first watermark, and is on time. Columns in microseconds: `event_us`, `stamp_us`.
"""

from enum import StrEnum

from pyspark.sql import Column
from pyspark.sql import functions as F

from tidemark.model.timegrid import HOUR_US
from tidemark.streams import LatePolicy, Stream, WindowType


class LateOutcome(StrEnum):
    """What became of a delta of a stream."""

    ON_TIME = "on_time"
    REEMITTED = "reemitted"  # admitted: its windows were emitted again
    TOO_LATE = "too_late"  # later than reemit allows, for at least one of its windows
    DISCARDED = "discarded"
    MOVED = "moved"  # admitted to the pane that was open under its stamp
    SIDE_OUTPUT = "side_output"


# What each policy does with a late delta that is not too late for it.
LATE = {
    LatePolicy.REEMIT: LateOutcome.REEMITTED,
    LatePolicy.DISCARD: LateOutcome.DISCARDED,
    LatePolicy.NEXT_WINDOW: LateOutcome.MOVED,
    LatePolicy.SIDE_OUTPUT: LateOutcome.SIDE_OUTPUT,
}


def floor_us(time: Column, step_us: int, offset_us: int = 0) -> Column:
    """Start of the step that holds a time, on a grid that begins so long after 1970; correct for times before, too."""
    since = time - F.lit(offset_us) if offset_us else time
    return time - F.pmod(since, F.lit(step_us))


def hour_of(time: Column) -> Column:
    """Start of the hour that holds a time."""
    return floor_us(time, HOUR_US)


def passed_by(end: Column, stream: Stream) -> Column:
    """By how much the stamp has passed the time at which a pane with this end closes; null without a stamp."""
    return F.col("stamp_us") - (end + F.lit(stream.late.allowed_us))


def is_late_for(end: Column, stream: Stream) -> Column:
    """Whether a delta is late for a pane: `pane_end + allowed_lateness <= stamp`; for a session, by more than that.

    Seen from a single event, its session ends at the event plus the gap; an event exactly there still belongs to it.
    """
    by = passed_by(end, stream)
    is_late = by > 0 if stream.window.type is WindowType.SESSION else by >= 0
    return F.coalesce(is_late, F.lit(False))


def is_too_late_for(end: Column, stream: Stream) -> Column:
    """Whether a delta is too late for a pane that takes late deltas."""
    if not stream.late.is_admitted or stream.late.max_us is None:
        return F.lit(False)
    return is_late_for(end + F.lit(stream.late.max_us), stream)


def is_admitted_to(end: Column, stream: Stream) -> Column:
    """Whether a pane with this end takes the delta."""
    if stream.late.is_admitted:
        return ~is_too_late_for(end, stream)
    return ~is_late_for(end, stream)


def session_end(stream: Stream) -> Column:
    """The time up to which, seen from a single event, its session is open."""
    return F.col("event_us") + F.lit(stream.window.gap_us)


def outcome_for(end: Column, stream: Stream) -> Column:
    """What becomes of a delta that lies in one pane, or session, with this end."""
    late = F.when(is_too_late_for(end, stream), LateOutcome.TOO_LATE.value).otherwise(LATE[stream.late.policy].value)
    return F.when(is_late_for(end, stream), late).otherwise(LateOutcome.ON_TIME.value)
