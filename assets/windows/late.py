"""`late_deltas`: every delta that was late for a window of a stream, with what became of it (T5).

Belongs here: one row per stream and late delta, in the hour in which it takes effect: that of the first pane it lies
in, of the pane it was moved to, or, for sessions, of the end of its own gap. Pure functions; one plan for all streams.
"""

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.windows.catalog import with_same_windows
from assets.windows.lateness import LateOutcome, is_late_for, outcome_for, passed_by, session_end
from assets.windows.panes import first_open_pane, first_pane, last_pane, open_pane, pane_start
from assets.windows.schema import LATE_DELTAS
from assets.windows.view import is_of
from tidemark.model.ranges import Range
from tidemark.streams import Stream, WindowType


def late_deltas(deltas: DataFrame, streams: Sequence[Stream], hours: Range) -> DataFrame:
    """The late deltas of all streams that take effect in these hours."""
    found = reduce(DataFrame.unionByName, [late_of(deltas, alike) for alike in with_same_windows(streams)])
    start, end = (F.timestamp_micros(F.lit(time_us)) for time_us in (hours.start_us, hours.end_us))
    return found.where((F.col("effect_hour") >= start) & (F.col("effect_hour") < end)).select(*LATE_DELTAS.names)


def late_of(deltas: DataFrame, streams: Sequence[Stream]) -> DataFrame:
    """The late deltas of streams with the same windows and the same policy: the rows are read once for all of them."""
    stream = streams[0]
    times = {
        "event_us": F.unix_micros("event_ts"),
        "received_us": F.unix_micros("received_ts"),
        "stamp_us": F.unix_micros("watermark_ts"),
    }
    # Not joined by OR, one within the other: a server refuses what is nested a hundred deep.
    is_of_any = is_of(stream) if len(streams) == 1 else F.array_contains(F.array(*map(is_of, streams)), F.lit(True))
    own = deltas.where(is_of_any).withColumns(times)
    found = _sliding(own, stream) if stream.window.type is WindowType.SLIDING else _in_one(own, stream)
    named = F.array_compact(F.array(*[F.when(is_of(each), F.lit(each.name)) for each in streams]))
    columns = {
        "stream": F.explode(named),
        "policy": F.lit(stream.late.policy.value),
        "channel": F.lit(stream.late.channel).cast("string"),
        "effect_hour": F.date_trunc("HOUR", F.timestamp_micros("effect_us")),
    }
    return found.withColumns(columns).select(*LATE_DELTAS.names)


def _in_one(own: DataFrame, stream: Stream) -> DataFrame:
    """Late deltas of a stream in which each delta lies in one pane, or session."""
    is_session = stream.window.type is WindowType.SESSION
    end = session_end(stream) if is_session else pane_start(stream) + F.lit(stream.window.size_us)
    home = end if is_session else pane_start(stream)
    outcome = outcome_for(end, stream)
    return own.where(is_late_for(end, stream)).withColumns(
        {
            "outcome": outcome,
            "late_by_us": passed_by(end, stream),
            "panes": _count(F.lit(1)),
            "panes_late": _count(F.lit(1)),
            "panes_missed": _count(F.when(outcome == LateOutcome.REEMITTED.value, 0).otherwise(1)),
            "effect_us": open_pane(stream) if stream.late.is_moved else home,
        }
    )


def _sliding(own: DataFrame, stream: Stream) -> DataFrame:
    """Late deltas of a stream in which a delta lies in several panes; it is late if it is late for the first one."""
    first, last, up_to_us = first_pane(stream), last_pane(stream), stream.late.admitted_up_to_us
    end, step_us = first + F.lit(stream.window.size_us), F.lit(stream.window.step_us)
    panes_late = (first_open_pane(stream) - first) / step_us
    missed = F.lit(0) if up_to_us is None else (first_open_pane(stream, extra_us=up_to_us) - first) / step_us
    outcome = outcome_for(end, stream)
    return own.where(is_late_for(end, stream)).withColumns(
        {
            "outcome": outcome,
            "late_by_us": passed_by(end, stream),
            "panes": _count((last - first) / step_us + 1),
            "panes_late": _count(panes_late),
            "panes_missed": _count(missed),
            "effect_us": first,
        }
    )


def _count(number: Column) -> Column:
    return number.cast("int")
