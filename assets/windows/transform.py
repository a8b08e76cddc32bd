"""From deltas to windows: one row per key and pane, as one plan of Spark's own functions (N3, N5, N6).

Belongs here: what a pane says of its deltas. Sums of integers are exact, and an overflow is an error. A sum of floats
is taken in one order, by value, from the values themselves: it depends on the set of deltas, and neither on their order
nor on how slices are cut. Does not belong here: sessions (`sessions.py`), batches
(`adaptive.py`), which files are read and written (`factory.py`).
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.windows.lateness import floor_us
from assets.windows.panes import assign_panes, first_open_pane, first_pane, last_pane, within
from assets.windows.schema import WINDOW_HOUR, CloseReason, window_table
from assets.windows.view import has_one_key, value_column, view_of
from resources.lake import Range
from resources.streams import Aggregate, Function, LatePolicy, Stream, WindowType
from resources.streams.fields import field_of


def count_windows(deltas: DataFrame, stream: Stream, hours: Range) -> DataFrame:
    """The windows that begin in these hours, from the rows of `deltas` that they are made of (or more of them)."""
    rows = view_of(deltas, stream)
    if stream.window.type is WindowType.SLIDING:
        partial = _spread(_slices(rows, stream), stream).where(within(hours))
    else:
        panes = assign_panes(rows, stream).where(within(hours))
        partial = summed(panes, stream, ["pane_us"], F.count_if("is_late"))
    return finish(whole(partial, stream), stream)


def keys_of(stream: Stream) -> list[str]:
    """The columns of a stream's key."""
    return [field.column for field in stream.key_fields]


def window_id(stream: Stream, *bounds: Column) -> Column:
    """A stable name of a window: no two keys or bounds are written alike."""
    keys = [F.coalesce(F.concat(F.length(key), F.lit(":"), key), F.lit("-")) for key in keys_of(stream)]
    return F.md5(F.concat_ws("/", F.lit(stream.name), *keys, *(bound.cast("string") for bound in bounds)))


def finish(windows: DataFrame, stream: Stream) -> DataFrame:
    """Rows of the table, from panes with their sums."""
    start, end = F.col("pane_us"), F.col("pane_us") + F.lit(stream.window.size_us)
    columns = {
        "window_id": window_id(stream, start, end),
        "window_start": F.timestamp_micros(start),
        "window_end": F.timestamp_micros(end),
        "revision": F.col("deltas"),
        "mean_bytes": F.col("bytes").cast("double") / F.col("deltas"),
        "min_event_ts": F.timestamp_micros("min_event_us"),
        "max_event_ts": F.timestamp_micros("max_event_us"),
        "close_reason": F.lit(CloseReason.END.value),
        WINDOW_HOUR: F.date_trunc("HOUR", F.timestamp_micros(start)),
        **means(stream.aggregates),
    }
    return windows.withColumns(columns).select(*window_table(stream).names)


def means(aggregates: Sequence[Aggregate]) -> dict[str, Column]:
    """Each mean from its sum and its count; none where nothing was counted."""
    return {
        each.columns[0]: F.try_divide(F.col(each.columns[1]).cast("double"), F.col(each.columns[2]).cast("double"))
        for each in aggregates
        if each.function is Function.MEAN
    }


def _slices(rows: DataFrame, stream: Stream) -> DataFrame:
    """Sums by slice, kept apart by the panes that take their deltas and those for which they are late (N6)."""
    window, late = stream.window, stream.late
    is_open = first_open_pane(stream)
    admits_all = late.policy is LatePolicy.REEMIT and late.max_us is None
    takes = first_pane(stream) if admits_all else is_open
    if late.policy is LatePolicy.REEMIT and late.max_us is not None:
        takes = first_open_pane(stream, extra_us=late.max_us)
    cut = rows.withColumns(
        {"slice_us": floor_us(F.col("event_us"), window.slice_us), "open_us": is_open, "takes_us": takes}
    )
    return summed(cut, stream, ["slice_us", "open_us", "takes_us"], F.lit(0).cast("bigint"))


def _spread(slices: DataFrame, stream: Stream) -> DataFrame:
    """Each slice once for each pane that takes it."""
    first, last = F.col("takes_us"), last_pane(stream, "slice_us")
    panes = F.explode(F.sequence(first, last, F.lit(stream.window.step_us)))
    spread = slices.where(first <= last).withColumn("pane_us", panes)
    return spread.withColumn("late", F.when(F.col("pane_us") < F.col("open_us"), F.col("deltas")).otherwise(F.lit(0)))


def summed(rows: DataFrame, stream: Stream, by: Sequence[str], late: Column) -> DataFrame:
    """First sums: by key, by shard (for the epochs), and by the deltas' own key where a window may hold several."""
    own_key = [] if has_one_key(stream) else ["delta_key"]
    return rows.groupBy(*keys_of(stream), *own_key, "shard", *by).agg(
        F.count(F.lit(1)).alias("deltas"),
        late.alias("late"),
        F.sum("bytes").alias("bytes"),
        F.min("event_us").alias("min_event_us"),
        F.max("event_us").alias("max_event_us"),
        F.min("epoch").alias("first"),
        F.max("epoch").alias("last"),
        *(column for each in stream.aggregates for column in _first_sums(stream, each)),
    )


def whole(partial: DataFrame, stream: Stream, by: Sequence[str] = ("pane_us",)) -> DataFrame:
    """Sums of sums, a row for each key and pane."""
    keys = F.lit(1).cast("bigint") if has_one_key(stream) else F.count_distinct("delta_key")
    return partial.groupBy(*keys_of(stream), *by).agg(
        F.sum("deltas").alias("deltas"),
        F.sum("late").alias("late"),
        keys.alias("keys"),
        F.sum("bytes").alias("bytes"),
        F.min("min_event_us").alias("min_event_us"),
        F.max("max_event_us").alias("max_event_us"),
        _epochs(stream).alias("epochs"),
        *(column for each in stream.aggregates for column in _last_sums(stream, each)),
    )


def _epochs(stream: Stream) -> Column:
    """First and last epoch by shard, in the order of shards."""
    found = F.collect_list(F.struct("shard", "first", "last"))
    if stream.window.type is not WindowType.SLIDING and has_one_key(stream):
        return F.array_sort(found)  # one of each shard already
    shards = F.array_sort(F.array_distinct(F.transform(found, lambda each: each["shard"])))

    def of(shard: Column) -> Column:
        own = F.filter(found, lambda each: each["shard"] == shard)
        return F.struct(
            shard.alias("shard"),
            F.array_min(F.transform(own, lambda each: each["first"])).alias("first"),
            F.array_max(F.transform(own, lambda each: each["last"])).alias("last"),
        )

    return F.transform(shards, of)


def _first_sums(stream: Stream, aggregate: Aggregate) -> list[Column]:
    name, function = aggregate.name, aggregate.function
    value = F.col(value_column(aggregate.field)) if aggregate.field else F.lit(1)
    if function is Function.MEAN:
        _, total, count = aggregate.columns
        return [_first_sum(stream, aggregate).alias(total), F.count(value).alias(count)]
    if function is Function.SUM:
        return [_first_sum(stream, aggregate).alias(name)]
    if function is Function.COUNT:
        return [F.count(value).alias(name)]
    return [(F.min(value) if function is Function.MIN else F.max(value)).alias(name)]


def _first_sum(stream: Stream, aggregate: Aggregate) -> Column:
    """A sum; of floats, the values themselves until the pane, or its slice, has them all."""
    value = F.col(value_column(aggregate.field or ""))
    return F.sum(value) if _is_integral(stream, aggregate) else F.collect_list(value)


def _last_sums(stream: Stream, aggregate: Aggregate) -> list[Column]:
    if aggregate.function is Function.MEAN:
        _, total, count = aggregate.columns
        return [_last_sum(stream, aggregate, total).alias(total), F.sum(count).alias(count)]
    if aggregate.function is Function.SUM:
        return [_last_sum(stream, aggregate, aggregate.name).alias(aggregate.name)]
    folds = {Function.COUNT: F.sum, Function.MIN: F.min, Function.MAX: F.max}
    return [folds[aggregate.function](aggregate.name).alias(aggregate.name)]


def _last_sum(stream: Stream, aggregate: Aggregate, column: str) -> Column:
    if _is_integral(stream, aggregate):
        return F.sum(column)
    values = F.array_sort(F.flatten(F.collect_list(column)))
    total = F.aggregate(values, F.lit(0.0), lambda left, right: left + right)
    return F.when(F.size(values) > 0, total)


def _is_integral(stream: Stream, aggregate: Aggregate) -> bool:
    return aggregate.field is None or field_of(stream.kind, aggregate.field).is_integral
