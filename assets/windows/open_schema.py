"""Columns of the tables of open sessions, and their meaning (N2).

Belongs here: the declaration of the table `<stream>_open`. A session is carried in parts, one for each shard (and, if
the stream's key does not determine the key of its deltas, for each of these keys), so that the session still has the
epochs and the keys of all its deltas when it closes.
"""

import pyarrow as pa

from assets.windows.schema import PROPERTIES, aggregate_columns
from tidemark.model.timegrid import HOUR
from tidemark.streams import Function, Stream
from tidemark.streams.load import OPEN_SUFFIX
from tidemark.tables.table_spec import TIMESTAMP, Column, TableSpec

OPEN_HOUR = "open_hour"


def open_name(stream: Stream) -> str:
    """The name of the table of a stream's open sessions."""
    return f"{stream.name}{OPEN_SUFFIX}"


def open_table(stream: Stream) -> TableSpec:
    """The table of the sessions that are open at the end of each hour."""
    keys = [Column(field.column, field.type, f"{field.name} of the deltas.") for field in stream.key_fields]
    own_key = [] if stream.has_one_key else [Column("delta_key", pa.string(), "What the deltas are about.")]
    means = {each.columns[0] for each in stream.aggregates if each.function is Function.MEAN}
    folded = [column for each in stream.aggregates for column in aggregate_columns(stream, each)]
    return TableSpec(
        name=open_name(stream),
        description=f"Sessions of {stream.name} that are open at the end of each hour, with what they had by then.",
        columns=(
            *keys,
            *own_key,
            Column("shard", pa.int32(), "The shard that numbered the deltas.", is_required=True),
            Column("session_start", TIMESTAMP, "First event of the session.", is_required=True),
            Column("first_event_ts", TIMESTAMP, "First event of this part.", is_required=True),
            Column("last_event_ts", TIMESTAMP, "Last event of this part, by the hour's end.", is_required=True),
            Column("first_epoch", pa.int64(), "First epoch of its deltas.", is_required=True),
            Column("last_epoch", pa.int64(), "Last epoch of its deltas.", is_required=True),
            Column("deltas", pa.int64(), "How many deltas it has.", is_required=True),
            Column("late", pa.int64(), "How many of the deltas came late.", is_required=True),
            Column("bytes", pa.int64(), "Bytes of the deltas.", is_required=True),
            *(column for column in folded if column.name not in means),
            Column(OPEN_HOUR, TIMESTAMP, "The hour at whose end it is open.", is_required=True),
        ),
        partition_by=OPEN_HOUR,
        divided_by=HOUR,
        constraints={"deltas_are_counted": "deltas >= 1"},
        properties=PROPERTIES,
        order_by=tuple(field.column for field in stream.key_fields),
    )
