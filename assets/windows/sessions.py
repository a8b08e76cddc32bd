"""Sessions: deltas of a key that follow one another within the gap, whatever hours they lie in (N2).

Belongs here: which deltas are one session, over any range of hours and with its carry-over; which sessions close in the
range, and which are open at the end of each of its hours. Pure functions of DataFrames. Does not belong here: which
deltas are admitted (`lateness.py`), the definition of a stream (`session_rows.py`).

Deltas are first summed up in buckets, before any shuffle: a bucket is no wider than the gap and does not cross an hour,
so all its deltas are one session, and only buckets are shuffled and sorted. The buckets of a key are sorted by time,
and a session begins at a bucket that comes later than all before it by more than the gap. The carry-over has the form
of a bucket, so it is one more row in that order. If the session's key does not determine the key of its deltas, buckets
are kept apart by that key and by shard: this gives the epochs and the keys of a session without carrying a list along.

Sums of integers are exact. A sum of floats is taken in one order, which no border of a partition changes: by value at
the same time, then time by time, then by shard and key; a bucket is then a single point in time.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from assets.windows.lateness import floor_us, hour_of
from assets.windows.view import epochs_between, epochs_of_one_key, together
from tidemark.model.ranges import Range
from tidemark.model.timegrid import HOUR_US


class Fold(StrEnum):
    """How values of several deltas become one."""

    SUM = "sum"
    MIN = "min"
    MAX = "max"


FOLDS = {Fold.SUM: F.sum, Fold.MIN: F.min, Fold.MAX: F.max}


@dataclass(frozen=True)
class Folded:
    """A column of the deltas that every session folds into one value."""

    name: str
    fold: Fold
    is_float: bool = False


@dataclass(frozen=True)
class SessionShape:
    """The parameters of sessions: the columns of their key, the gap, and the folded columns."""

    keys: tuple[str, ...]
    gap_us: int
    folded: tuple[Folded, ...] = ()
    # Whether all deltas of a session have one key of their own, because it is among the columns of the session's key.
    is_one_key: bool = True

    @property
    def part_keys(self) -> list[str]:
        """The columns that tell the separately carried parts of a session apart."""
        return [*self.keys, *([] if self.is_one_key else ["shard", "delta_key"])]

    @property
    def bucket_us(self) -> int:
        """Any two deltas of an hour in a bucket of this width are one session, and may be added up in any order."""
        has_order = any(each.is_float and each.fold is Fold.SUM for each in self.folded)
        return 1 if has_order else self.gap_us

    @property
    def measures(self) -> tuple[Folded, ...]:
        """Everything that is folded, in the order of the columns."""
        return (*OWN_MEASURES, *self.folded)


# The bounds of a session in the log (`view.py`).
POSITIONS = (Folded("first_position", Fold.MIN), Folded("last_position", Fold.MAX))
# The columns of every session, whatever its aggregates are. Times are microseconds: only compared and added to.
OWN_MEASURES = (
    Folded("first_us", Fold.MIN),
    Folded("last_us", Fold.MAX),
    *POSITIONS,
    Folded("deltas", Fold.SUM),
    Folded("late", Fold.SUM),
    Folded("bytes", Fold.SUM),
)


def session_parts(deltas: DataFrame, carried: DataFrame, *, shape: SessionShape, hours: Range) -> DataFrame:
    """Buckets of the deltas of a range, and its carry-over, each with the start of its session.

    `deltas` are the admitted ones of the range: columns of the key, `delta_key`, `shard`, `position`, `event_us`,
    `is_late`, `bytes`, and the folded ones. `carried` is the result of `open_parts` for the hour before.
    """
    columns = [*shape.part_keys, *(measure.name for measure in shape.measures)]
    pieces = _buckets(deltas, shape).select(*columns).unionByName(carried.select(*columns))
    # From here on each key is handled by itself: rows are shuffled once, sorted by a number before the key's text.
    # An empty key is one for all deltas, and a hash of no columns does not exist.
    key_hash = F.xxhash64(*shape.keys) if shape.keys else F.lit(0).cast("bigint")
    parts = together(pieces.withColumn("key_hash", key_hash), ["key_hash"], hours, hours_each=6)
    in_order = Window.partitionBy("key_hash", *shape.keys).orderBy("first_us")
    # Parts of several shards or keys overlap, so the latest end so far counts, and not the end of the part before.
    so_far = F.max("last_us").over(in_order.rowsBetween(Window.unboundedPreceding, -1))
    goes_on = F.col("first_us") <= so_far + F.lit(shape.gap_us)
    started = parts.withColumn("started_us", F.when(~F.coalesce(goes_on, F.lit(False)), F.col("first_us")))
    of_session = F.max("started_us").over(in_order.rowsBetween(Window.unboundedPreceding, Window.currentRow))
    return started.withColumn("session_us", of_session).select("key_hash", *columns, "session_us")


def closed_sessions(parts: DataFrame, *, shape: SessionShape, hours: Range) -> DataFrame:
    """The sessions that close before the end of the range, one row each; the others are open.

    An event exactly at the gap still belongs, so one that closes on the border of an hour belongs to the later hour.
    """
    sessions = _one_place(parts, shape) if shape.is_one_key else _many_places(parts, shape)
    closes = F.col("last_us") + F.lit(shape.gap_us)
    closed = sessions.where(closes < F.lit(hours.end_us)).withColumns({"closes_us": closes, "hour_us": hour_of(closes)})
    names = [each.name for each in shape.measures if each not in POSITIONS]
    return closed.select(*shape.keys, *names, "keys", "epochs", "closes_us", "hour_us")


def _one_place(parts: DataFrame, shape: SessionShape) -> DataFrame:
    """Sessions about one key of deltas, all of which lie in one shard (Q3): each sum has a fixed width."""
    sessions = parts.groupBy("key_hash", *shape.keys, "session_us").agg(
        *(_folded(each, ["first_us"]) for each in shape.measures)
    )
    epochs = epochs_of_one_key(shape.keys)
    return sessions.withColumns({"keys": F.lit(1).cast("bigint"), "epochs": epochs})


def _many_places(parts: DataFrame, shape: SessionShape) -> DataFrame:
    """Sessions about several keys of deltas: by key and shard, then by shard, then as a whole."""
    of_session, order = ["key_hash", *shape.keys, "session_us"], ["shard", "delta_key"]
    places = parts.groupBy(*of_session, *order).agg(*(_folded(each, ["first_us"]) for each in shape.measures))
    by_shard = Window.partitionBy(*of_session, "shard")
    bounds = {each.name: FOLDS[each.fold](each.name).over(by_shard) for each in POSITIONS}
    return (
        places.withColumns(bounds)
        .groupBy(*of_session)
        .agg(
            *(_folded(each, order) for each in shape.measures if each not in POSITIONS),
            F.array_sort(F.collect_set(epochs_between())).alias("epochs"),
            F.count_distinct("delta_key").alias("keys"),
        )
    )


def open_parts(parts: DataFrame, *, shape: SessionShape, hours: Range) -> DataFrame:
    """The sessions open at the end of each hour of the range, with what each had by then, in parts.

    A session is open at an hour's end when an event at exactly that time would still belong to it.
    """
    of_session = Window.partitionBy("key_hash", *shape.keys, "session_us")
    ends = F.max("last_us").over(of_session) + F.lit(shape.gap_us)
    crossing = parts.withColumn("ends_us", hour_of(ends)).where(F.col("ends_us") > hour_of(F.col("session_us")))
    of_part = Window.partitionBy("key_hash", *shape.part_keys, "session_us").orderBy("first_us")
    so_far = of_part.rowsBetween(Window.unboundedPreceding, Window.currentRow)
    grown = crossing.withColumn("hour_us", hour_of(F.col("last_us"))).withColumns(
        {
            **{each.name: FOLDS[each.fold](each.name).over(so_far) for each in shape.measures},
            "next_us": F.lead("hour_us").over(of_part),
        }
    )
    # The last of a part's rows in an hour represents the part until its next row, or the end of the session.
    first_end = F.greatest(F.col("hour_us") + F.lit(HOUR_US), F.lit(hours.start_us + HOUR_US))
    last_end = F.least(F.coalesce("next_us", "ends_us"), F.lit(hours.end_us))
    standing = grown.withColumns({"first_end": first_end, "last_end": last_end}).where("first_end <= last_end")
    each_end = F.explode(F.sequence("first_end", "last_end", F.lit(HOUR_US))).alias("end_us")
    names = [each.name for each in shape.measures]
    shown = standing.select(*shape.part_keys, "session_us", *names, each_end)
    hour = (F.col("end_us") - F.lit(HOUR_US)).alias("hour_us")
    return shown.select(*shape.part_keys, "session_us", *names, hour)


def _buckets(deltas: DataFrame, shape: SessionShape) -> DataFrame:
    """Deltas of one bucket as one part."""
    event = F.col("event_us")
    hour = hour_of(event)
    pieces = deltas.select(
        *shape.part_keys,
        event.alias("first_us"),
        event.alias("last_us"),
        F.col("position").alias("first_position"),
        F.col("position").alias("last_position"),
        F.lit(1).cast("bigint").alias("deltas"),
        F.col("is_late").cast("bigint").alias("late"),
        "bytes",
        *(each.name for each in shape.folded),
        (hour + floor_us(event - hour, shape.bucket_us)).alias("bucket_us"),
    )
    return pieces.groupBy(*shape.part_keys, "bucket_us").agg(*(_folded(each, []) for each in shape.measures))


def _folded(measure: Folded, order: Sequence[str]) -> Column:
    """The measure over a group, null if no delta has it; floats are added by the columns' order, then by value."""
    if not (measure.is_float and measure.fold is Fold.SUM):
        return FOLDS[measure.fold](measure.name).alias(measure.name)
    value = F.struct(*order, F.col(measure.name).alias("value"))
    rows = F.array_sort(F.collect_list(F.when(F.col(measure.name).isNotNull(), value)))
    total = F.aggregate(rows, F.lit(0.0), lambda so_far, row: so_far + row["value"])
    return F.when(F.size(rows) > 0, total).alias(measure.name)
