"""From deltas to windows: one row per key and pane, as one plan of Spark's own functions (N3, N5, N6).

Belongs here: what a pane says about its deltas. Sums of integers are exact, and an overflow is an error. A sum of
floats is taken in one order, by value, from the values themselves: it depends on the set of deltas, and neither on
their order nor on how slices are cut. Does not belong here: sessions (`sessions.py`), batches (`adaptive.py`), which
files are read and written (`factory.py`).
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.windows.lateness import floor_us
from assets.windows.panes import assign_panes, first_open_pane, first_pane, last_pane, within
from assets.windows.schema import WINDOW_HOUR, CloseReason, window_table
from assets.windows.view import epochs_between, epochs_of_one_key, together, value_column, view_of
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US
from tidemark.streams import Aggregate, Function, Stream, WindowType
from tidemark.streams.durations import show_duration
from tidemark.streams.fields import field_of


def count_windows(deltas: DataFrame, stream: Stream, hours: Range) -> DataFrame:
    """The windows that begin in these hours, from the rows of `deltas` that they are made from (or more rows)."""
    rows = view_of(deltas, stream)
    if stream.window.type is not WindowType.SLIDING:
        panes = assign_panes(rows, stream).where(within(hours))
        return finish(windows_by(panes, stream, ["pane_us"], F.count_if("is_late")), stream)
    # There are many keys of deltas, each with few slices: they are spread over panes without a shuffle.
    placed = together(rows, keys_of(stream), hours, hours_each=2) if stream.has_one_key else rows
    slices = _spread(_slices(placed, stream), stream).where(within(hours))
    return finish(_whole(_again(slices, stream, [*_parts(stream), "pane_us"]), stream, ["pane_us"]), stream)


def windows_by(rows: DataFrame, stream: Stream, by: Sequence[str], late: Column) -> DataFrame:
    """The deltas of a key, and of one value of `by`, aggregated; `late` counts the late ones among them."""
    return _whole(_summed(rows, stream, by, late), stream, by)


def keys_of(stream: Stream) -> list[str]:
    """The columns of a stream's key."""
    return [field.column for field in stream.key_fields]


def window_id(stream: Stream, *places: Column) -> Column:
    """A stable name of a window in its table: lengths come first, so different keys or places never look the same."""
    keys = [F.coalesce(F.concat(F.octet_length(key), F.lit(":"), key), F.lit("-")) for key in keys_of(stream)]
    return F.concat_ws("/", *keys, *(place.cast("string") for place in places))


def finish(windows: DataFrame, stream: Stream) -> DataFrame:
    """Rows of the table, from panes with their sums."""
    start, size_us = F.col("pane_us"), stream.window.size_us
    columns = {
        "window_id": window_id(stream, start, F.lit(show_duration(size_us))),
        "window_start": F.timestamp_micros(start),
        "window_end": F.timestamp_micros(start + F.lit(size_us)),
        "close_reason": F.lit(CloseReason.END.value),
        WINDOW_HOUR: F.timestamp_micros(floor_us(start, HOUR_US)),
    }
    return shown(windows, stream, columns)


def shown(windows: DataFrame, stream: Stream, columns: dict[str, Column]) -> DataFrame:
    """Rows of the table, from sums and the other columns of each window."""
    statistics = {
        "revision": F.col("deltas"),
        "mean_bytes": F.col("bytes").cast("double") / F.col("deltas"),
        "min_event_ts": F.timestamp_micros("min_event_us"),
        "max_event_ts": F.timestamp_micros("max_event_us"),
        **{name: _in_order(name) for each in stream.aggregates for name in _float_sums(stream, each)},
    }
    rows = windows.withColumns({**statistics, **columns})
    if averages := means(stream.aggregates):
        # Spark Connect refuses to add zero columns; a session in this process accepts it and does nothing.
        rows = rows.withColumns(averages)
    return rows.select(*window_table(stream).names)


def means(aggregates: Sequence[Aggregate]) -> dict[str, Column]:
    """Each mean from its sum and its count; null if the count is zero."""
    return {
        each.columns[0]: F.try_divide(F.col(each.columns[1]).cast("double"), F.col(each.columns[2]).cast("double"))
        for each in aggregates
        if each.function is Function.MEAN
    }


def _slices(rows: DataFrame, stream: Stream) -> DataFrame:
    """Sums by slice, kept apart by the panes that take their deltas and those for which they are late (N6)."""
    window = stream.window
    of_slice = floor_us(F.col("event_us"), window.slice_us, window.offset_us)
    by = {"slice_us": of_slice, "open_us": first_open_pane(stream)}
    if up_to_us := stream.late.admitted_up_to_us:
        by["takes_us"] = first_open_pane(stream, extra_us=up_to_us)
    return _summed(rows.withColumns(by), stream, list(by), F.lit(0).cast("bigint"))


def _spread(slices: DataFrame, stream: Stream) -> DataFrame:
    """Each slice once for each pane that takes it."""
    last, step_us = last_pane(stream, "slice_us"), F.lit(stream.window.step_us)
    up_to_us = stream.late.admitted_up_to_us
    first = first_pane(stream, "slice_us") if up_to_us is None else F.col("takes_us" if up_to_us else "open_us")
    spread = slices.where(first <= last).withColumn("pane_us", F.explode(F.sequence(first, last, step_us)))
    return spread.withColumn("late", F.when(F.col("pane_us") < F.col("open_us"), F.col("deltas")).otherwise(F.lit(0)))


def _parts(stream: Stream) -> list[str]:
    """The columns that keep first sums apart: the key; also the deltas' own key and shard if a window may hold several.

    All deltas of one own key are in one shard (Q3), so a window about one such key has one shard.
    """
    return keys_of(stream) if stream.has_one_key else [*keys_of(stream), "delta_key", "shard"]


def _summed(rows: DataFrame, stream: Stream, by: Sequence[str], late: Column) -> DataFrame:
    """First sums. Every one of them has a fixed width, so that Spark adds up in place, row by row."""
    return rows.groupBy(*_parts(stream), *by).agg(
        F.count(F.lit(1)).alias("deltas"),
        late.alias("late"),
        F.sum("bytes").alias("bytes"),
        F.min("event_us").alias("min_event_us"),
        F.max("event_us").alias("max_event_us"),
        F.min("position").alias("first_position"),
        F.max("position").alias("last_position"),
        *(column for each in stream.aggregates for column in _first_sums(stream, each)),
    )


def _again(partial: DataFrame, stream: Stream, by: Sequence[str], *more: Column) -> DataFrame:
    """Sums of sums."""
    return partial.groupBy(*by).agg(
        F.sum("deltas").alias("deltas"),
        F.sum("late").alias("late"),
        F.sum("bytes").alias("bytes"),
        F.min("min_event_us").alias("min_event_us"),
        F.max("max_event_us").alias("max_event_us"),
        *(
            []
            if more
            else [F.min("first_position").alias("first_position"), F.max("last_position").alias("last_position")]
        ),
        *more,
        *(column for each in stream.aggregates for column in _last_sums(stream, each)),
    )


def _whole(partial: DataFrame, stream: Stream, by: Sequence[str]) -> DataFrame:
    """A row for each key and window, with its keys, and its epochs by shard."""
    keys = keys_of(stream)
    if stream.has_one_key:
        return partial.withColumns({"keys": F.lit(1).cast("bigint"), "epochs": epochs_of_one_key(keys)})
    number = F.count(F.lit(1)).alias("keys")
    bounds = [F.min("first_position").alias("first_position"), F.max("last_position").alias("last_position")]
    by_shard = _again(partial, stream, [*keys, "shard", *by], number, *bounds)
    epochs = F.array_sort(F.collect_list(epochs_between())).alias("epochs")
    return _again(by_shard, stream, [*keys, *by], F.sum("keys").alias("keys"), epochs)


def _first_sums(stream: Stream, aggregate: Aggregate) -> list[Column]:
    name, function = aggregate.name, aggregate.function
    value = F.col(value_column(aggregate.field)) if aggregate.field else F.lit(1)
    # Floats keep their values until the window has them all, because their sum depends on the order.
    total = F.sum if _is_integral(stream, aggregate) else F.collect_list
    if function is Function.MEAN:
        return [total(value).alias(aggregate.columns[1]), F.count(value).alias(aggregate.columns[2])]
    functions = {Function.SUM: total, Function.COUNT: F.count, Function.MIN: F.min, Function.MAX: F.max}
    return [functions[function](value).alias(name)]


def _last_sums(stream: Stream, aggregate: Aggregate) -> list[Column]:
    def total(column: str) -> Column:
        return F.sum(column) if _is_integral(stream, aggregate) else F.flatten(F.collect_list(column))

    if aggregate.function is Function.MEAN:
        _, of_sum, of_count = aggregate.columns
        return [total(of_sum).alias(of_sum), F.sum(of_count).alias(of_count)]
    folds = {Function.SUM: total, Function.COUNT: F.sum, Function.MIN: F.min, Function.MAX: F.max}
    return [folds[aggregate.function](aggregate.name).alias(aggregate.name)]


def _float_sums(stream: Stream, aggregate: Aggregate) -> list[str]:
    """Columns that hold the values of a sum until the end."""
    if _is_integral(stream, aggregate) or aggregate.function not in (Function.SUM, Function.MEAN):
        return []
    return [aggregate.columns[1] if aggregate.function is Function.MEAN else aggregate.name]


def _in_order(column: str) -> Column:
    """The sum of the values of a column, the least first; null if there are none."""
    total = F.aggregate(F.array_sort(column), F.lit(0.0), lambda left, right: left + right)
    return F.when(F.size(column) > 0, total)


def _is_integral(stream: Stream, aggregate: Aggregate) -> bool:
    return aggregate.field is None or field_of(stream.kind, aggregate.field).is_integral
