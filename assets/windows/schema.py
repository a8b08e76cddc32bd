"""Columns of the windows and of `late_deltas`, and their meaning (N3, T5).

Belongs here: the declaration of a stream's table. The columns are the same for every type of window, plus those of the
stream's key and its aggregates. The change feed is on, so that consumers can follow which windows are emitted again and
which are gone (T6).
"""

from enum import StrEnum

import pyarrow as pa

from tidemark.model.timegrid import HOUR
from tidemark.streams import Aggregate, Function, Stream
from tidemark.streams.fields import field_of
from tidemark.tables import table_spec
from tidemark.tables.table_spec import TIMESTAMP, Column, TableSpec

WINDOW_HOUR = "window_hour"
EPOCHS = pa.list_(pa.struct([("shard", pa.int32()), ("first", pa.int64()), ("last", pa.int64())]))
PROPERTIES = {**table_spec.PROPERTIES, "delta.enableChangeDataFeed": "true"}
HOUR_COMMENTS = {
    "tumbling": "Hour of window_start.",
    "sliding": "Hour of window_start.",
    "fixed": "Hour of window_start, by receipt.",
    "session": "Hour in which the session closes: its last event plus the gap.",
    "adaptive": "Hour in which the batch was closed.",
}


class CloseReason(StrEnum):
    """Why a window closed; a batch closes by its trigger (C5)."""

    END = "end"  # its time is over
    GAP = "gap"  # no delta came for as long as the gap


def window_table(stream: Stream) -> TableSpec:
    """The table of a stream's windows."""
    keys = [Column(field.column, field.type, f"{field.name} of the deltas.") for field in stream.key_fields]
    aggregates = [column for aggregate in stream.aggregates for column in aggregate_columns(stream, aggregate)]
    about = stream.description or f"Windows of {stream.source}."
    return TableSpec(
        name=stream.name,
        description=f"{about} One row per key and window ({stream.window.type}).",
        columns=(
            Column("window_id", pa.string(), "Stable name in this table: its key and its place.", is_required=True),
            *keys,
            Column("window_start", TIMESTAMP, "First moment of the window.", is_required=True),
            Column("window_end", TIMESTAMP, "First moment after it.", is_required=True),
            Column("deltas", pa.int64(), "How many deltas are in it.", is_required=True),
            Column("revision", pa.int64(), "Rises with every change: the deltas admitted so far.", is_required=True),
            Column("late", pa.int64(), "How many of the deltas came late.", is_required=True),
            Column("keys", pa.int64(), "How many different keys the deltas are about.", is_required=True),
            Column("bytes", pa.int64(), "Bytes of the deltas: texts, numbers and dimensions.", is_required=True),
            Column("mean_bytes", pa.float64(), "bytes by deltas.", is_required=True),
            Column("min_event_ts", TIMESTAMP, "Time of the first event in it.", is_required=True),
            Column("max_event_ts", TIMESTAMP, "Time of the last event in it.", is_required=True),
            Column("epochs", EPOCHS, "First and last epoch of the deltas, by shard.", is_required=True),
            Column("close_reason", pa.string(), "What ends the window.", is_required=True),
            *aggregates,
            Column(WINDOW_HOUR, TIMESTAMP, HOUR_COMMENTS[stream.window.type], is_required=True),
        ),
        partition_by=WINDOW_HOUR,
        divided_by=HOUR,
        constraints={"deltas_are_counted": "deltas >= 1"},
        properties=PROPERTIES,
        order_by=(*(field.column for field in stream.key_fields), "window_start"),
    )


def aggregate_columns(stream: Stream, aggregate: Aggregate) -> list[Column]:
    """The columns that an aggregate becomes."""
    of = f" of {aggregate.field}" if aggregate.field else ""
    kind = field_of(stream.kind, aggregate.field).type if aggregate.field else pa.int64()
    if aggregate.function is Function.COUNT:
        return [Column(aggregate.name, pa.int64(), f"How many deltas have {aggregate.field or 'come'}.")]
    if aggregate.function is not Function.MEAN:
        return [Column(aggregate.name, kind, f"The {aggregate.function}{of}.")]
    mean, total, count = aggregate.columns
    return [
        Column(mean, pa.float64(), f"The mean{of}: {total} by {count}."),
        Column(total, kind, f"The sum{of}."),
        Column(count, pa.int64(), f"How many deltas have {aggregate.field}."),
    ]


LATE_DELTAS = TableSpec(
    name="late_deltas",
    description="Every delta that was late for a window, and what became of it: one row per stream and delta.",
    columns=(
        Column("stream", pa.string(), "The stream that it was late for.", is_required=True),
        Column("shard", pa.int32(), "Where the delta stands in the log: its shard,", is_required=True),
        Column("epoch", pa.int64(), "its write,", is_required=True),
        Column("ordinal", pa.int32(), "and its place in that.", is_required=True),
        Column("namespace", pa.string(), "The namespace that it belongs to.", is_required=True),
        Column("key", pa.string(), "What it is about.", is_required=True),
        Column("event_ts", TIMESTAMP, "When it happened; never changed.", is_required=True),
        Column("delta_id", pa.string(), "The producer's name for it.", is_required=True),
        Column("watermark_ts", TIMESTAMP, "The watermark that was in force before it came.", is_required=True),
        Column("policy", pa.string(), "What the stream does with what is late.", is_required=True),
        Column("outcome", pa.string(), "What became of this one.", is_required=True),
        Column("channel", pa.string(), "Of a side output: which."),
        Column("late_by_us", pa.int64(), "How long the first of its windows had been closed.", is_required=True),
        Column("panes", pa.int32(), "In how many windows it lies by its time.", is_required=True),
        Column("panes_late", pa.int32(), "For how many of them it was late.", is_required=True),
        Column("panes_missed", pa.int32(), "How many of those did not take it.", is_required=True),
        Column("effect_hour", TIMESTAMP, "Hour in which it takes effect, or would have.", is_required=True),
    ),
    partition_by="effect_hour",
    divided_by=HOUR,
    constraints={"late_is_late": "late_by_us >= 0"},
    properties=PROPERTIES,
    order_by=("stream", "event_ts"),
)
