"""Sessions of a stream: from its deltas to rows of its two tables, closed sessions and open ones (N2, N3).

Belongs here: what a stream's definition means for `sessions.py`: its key, its gap, its aggregates, which of its deltas
are admitted; and the columns of both tables. Pure functions of DataFrames.
"""

from dataclasses import replace

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.windows.lateness import floor_us, is_admitted_to, is_late_for, session_end
from assets.windows.open_schema import OPEN_HOUR, open_table
from assets.windows.schema import WINDOW_HOUR, CloseReason, window_table
from assets.windows.sessions import Fold, Folded, SessionShape, closed_sessions, open_parts, session_parts
from assets.windows.transform import keys_of, means, window_id
from assets.windows.view import epoch_of, position, shard_of, value_column, view_of
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US
from tidemark.streams import Aggregate, Function, Stream
from tidemark.streams.fields import field_of

# Times of a part: the column in the table, and the one to compute with.
TIMES = {"session_start": "session_us", "first_event_ts": "first_us", "last_event_ts": "last_us", OPEN_HOUR: "hour_us"}


def shape_of(stream: Stream) -> SessionShape:
    """The shape of the stream's sessions."""
    folded = tuple(column for each in stream.aggregates for column, _ in _folds(stream, each))
    return SessionShape(tuple(keys_of(stream)), stream.window.gap_us, folded, is_one_key=stream.has_one_key)


def parts_of(deltas: DataFrame, carried: DataFrame, stream: Stream, hours: Range) -> DataFrame:
    """All parts of the sessions of a range: from its rows of `deltas`, and the sessions open before it."""
    shape = shape_of(stream)
    return session_parts(admitted(deltas, stream), _states(carried), shape=shape, hours=hours)


def admitted(deltas: DataFrame, stream: Stream) -> DataFrame:
    """The stream's deltas that its sessions take, each with its contribution to the aggregates."""
    rows = view_of(deltas, stream).where(is_admitted_to(session_end(stream), stream))
    values = {folded.name: value for each in stream.aggregates for folded, value in _folds(stream, each)}
    return rows.withColumns({"is_late": is_late_for(session_end(stream), stream), **values})


def closed_by_hour(deltas: DataFrame, carried: DataFrame, stream: Stream, hours: Range) -> DataFrame:
    """The sessions that close in each hour of the range, from the hour's own deltas and those open before it.

    Each hour is a pure function by itself: its carry-over is read, and not computed again.
    """
    shape, of_hour = shape_of(stream), "of_hour_us"
    mine = admitted(deltas, stream).withColumn(of_hour, floor_us(F.col("event_us"), HOUR_US))
    states = _states(carried).withColumn(of_hour, F.col("hour_us") + F.lit(HOUR_US))
    by_hour = replace(shape, keys=(of_hour, *shape.keys))
    parts = session_parts(mine, states, shape=by_hour, hours=hours)
    sessions = closed_sessions(parts, shape=by_hour, hours=hours)
    return _finished(sessions.where(F.col("hour_us") == F.col(of_hour)), stream)


def closed_rows(parts: DataFrame, stream: Stream, hours: Range) -> DataFrame:
    """The sessions that close in the range, as rows of the stream's table."""
    return _finished(closed_sessions(parts, shape=shape_of(stream), hours=hours), stream)


def _finished(sessions: DataFrame, stream: Stream) -> DataFrame:
    """Closed sessions as rows of the stream's table.

    A session is named by its key and its first event: a session that goes on keeps its name and gets a higher revision;
    if an earlier session joins it, its old name is gone (T6).
    """
    columns = {
        "window_id": window_id(stream, F.col("first_us")),
        "window_start": F.timestamp_micros("first_us"),
        "window_end": F.timestamp_micros("closes_us"),
        "revision": F.col("deltas"),
        "mean_bytes": F.col("bytes").cast("double") / F.col("deltas"),
        "min_event_ts": F.timestamp_micros("first_us"),
        "max_event_ts": F.timestamp_micros("last_us"),
        "close_reason": F.lit(CloseReason.GAP.value),
        WINDOW_HOUR: F.timestamp_micros("hour_us"),
        **means(stream.aggregates),
    }
    return sessions.withColumns(columns).select(*window_table(stream).names)


def open_rows(parts: DataFrame, stream: Stream, hours: Range) -> DataFrame:
    """The sessions open at the end of each hour of the range, as rows of their table."""
    states = open_parts(parts, shape=shape_of(stream), hours=hours)
    columns = {
        **{column: F.timestamp_micros(own) for column, own in TIMES.items()},
        "shard": shard_of("first_position"),
        "first_epoch": epoch_of("first_position"),
        "last_epoch": epoch_of("last_position"),
    }
    return states.withColumns(columns).select(*open_table(stream).names)


def _states(carried: DataFrame) -> DataFrame:
    """Rows of the table of open sessions, in the form to compute with; the inverse of `open_rows`."""
    times = {own: F.unix_micros(column) for column, own in TIMES.items()}
    places = {f"{end}_position": position("shard", f"{end}_epoch") for end in ("first", "last")}
    return carried.withColumns({**times, **places})


def _folds(stream: Stream, aggregate: Aggregate) -> list[tuple[Folded, Column]]:
    """The columns that an aggregate is folded in, each with the contribution of a delta."""
    if aggregate.field is None:
        return [(Folded(aggregate.name, Fold.SUM), F.lit(1).cast("bigint"))]
    value, is_float = F.col(value_column(aggregate.field)), not field_of(stream.kind, aggregate.field).is_integral
    is_there = value.isNotNull().cast("bigint")
    if aggregate.function is Function.COUNT:
        return [(Folded(aggregate.name, Fold.SUM), is_there)]
    if aggregate.function is Function.MEAN:
        _, total, count = aggregate.columns
        return [(Folded(total, Fold.SUM, is_float), value), (Folded(count, Fold.SUM), is_there)]
    return [(Folded(aggregate.name, Fold(aggregate.function.value), is_float), value)]
