"""The deltas of a stream: which rows of `deltas` it is a view of, and the columns that windows are made from.

Belongs here: the condition, the key's columns, the values that are aggregated, and the size of a delta in bytes. Times
are microseconds from here on: panes are arithmetic. Does not belong here: which pane a delta is in (`panes.py`).
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from assets.ingest.schema import IDENTITY, PLACE
from tidemark.model.deltas import KINDS
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US
from tidemark.streams import Stream
from tidemark.streams.fields import OWN_KEY, field_of

# How many bits of a position are its epoch. A shard's number has ten.
EPOCH_BITS = 48

# The bytes of a delta: those of its texts, four for each dimension and index, eight for each number and for its time.
# This is the size as sent, whatever the encoding; it stays the same in every table and after the payload is removed.
BYTES = {kind: f"8 + octet_length(key) + octet_length(delta_id) + {rule.bytes}" for kind, rule in KINDS.items()}


def value_column(field: str) -> str:
    """The column that holds a field's values until they are aggregated."""
    return f"value_{field.replace('.', '_')}"


def position(shard: str, epoch: str) -> Column:
    """Shard and epoch as one ordered number: the least and the greatest give the epochs and the shard of all."""
    return F.shiftleft(F.col(shard).cast("bigint"), EPOCH_BITS) + F.col(epoch)


def shard_of(place: str) -> Column:
    """The shard of a position."""
    return F.shiftright(F.col(place), EPOCH_BITS).cast("int")


def epoch_of(place: str) -> Column:
    """The epoch of a position."""
    return F.col(place).bitwiseAND(F.lit((1 << EPOCH_BITS) - 1))


def epochs_between() -> Column:
    """Epochs of one shard, from `first_position` to `last_position`."""
    first, last = "first_position", "last_position"
    return F.struct(shard_of(first).alias("shard"), epoch_of(first).alias("first"), epoch_of(last).alias("last"))


def epochs_of_one_key(keys: Sequence[str]) -> Column:
    """The list of epochs of everything about a key, from `first_position` to `last_position`; two shards are an error.

    A key lies in one shard (Q3), and the number of shards is fixed once there is data. A change that lets keys move
    must keep windows apart by shard.
    """
    two = F.raise_error(F.concat_ws(" ", F.lit("A key has deltas in two shards, which no window can say:"), *keys))
    is_one = shard_of("first_position") == shard_of("last_position")
    return F.array(F.when(is_one, epochs_between()).otherwise(two))


def together(rows: DataFrame, keys: Sequence[str], hours: Range, *, hours_each: int) -> DataFrame:
    """Rows of a key in one place, so that later steps need no more shuffles.

    There is one place per so many hours: the rows of one place fit its memory, however long the range is.
    """
    return rows.repartition(max(1, hours.asked_us // (hours_each * HOUR_US)), *keys)


def is_of(stream: Stream) -> Column:
    """Whether a delta is one of the stream's."""
    found = (F.col("namespace") == stream.namespace) & (F.col("kind") == stream.kind.value)
    for name, value in stream.where:
        found &= F.expr(field_of(stream.kind, name).sql) == F.lit(value)
    return found


def view_of(deltas: DataFrame, stream: Stream) -> DataFrame:
    """The stream's deltas: identity, place and key, their times in microseconds, `position`, `bytes` and the values."""
    fields = dict.fromkeys(aggregate.field for aggregate in stream.aggregates if aggregate.field)
    # The key of a delta is in its envelope, too, where reading it is faster.
    own = OWN_KEY[stream.kind]
    keys = {each.column: F.col("key") if each.name in own else F.expr(each.sql) for each in stream.key_fields}
    envelope = [name for name in (*PLACE, *IDENTITY) if name not in keys]
    return deltas.where(is_of(stream)).select(
        *envelope,
        *(column.alias(name) for name, column in keys.items()),
        F.col("key").alias("delta_key"),
        position("shard", "epoch").alias("position"),
        F.unix_micros("event_ts").alias("event_us"),
        F.unix_micros("received_ts").alias("received_us"),
        F.unix_micros("watermark_ts").alias("stamp_us"),
        F.expr(BYTES[stream.kind]).cast("bigint").alias("bytes"),
        *(F.expr(field_of(stream.kind, name).sql).alias(value_column(name)) for name in fields),
    )
