"""Columns of the joins, and their meaning (N4).

Belongs here: the declaration of a join's table: pairs of deltas, or pairs of sessions. The columns of the key have
their names from the left side. The change feed is on, as for windows.
"""

import pyarrow as pa

from assets.ingest.schema import DELTAS
from assets.windows.schema import PROPERTIES, WINDOW_HOUR
from tidemark.model.timegrid import HOUR
from tidemark.streams import Join, JoinForm, Stream
from tidemark.tables.table_spec import TIMESTAMP, Column, TableSpec

LEFT, RIGHT = "left", "right"
# What a pair says about each of its deltas: its identity (Q3), and its place in the log.
OF_DELTA = ("namespace", "key", "event_ts", "delta_id", "shard", "epoch", "ordinal")
# What a pair says about each of its sessions.
OF_SESSION = ("window_id", "window_start", "window_end", "deltas")


def join_table(join: Join, left: Stream, right: Stream) -> TableSpec:
    """The table of a join."""
    keys = [Column(field.column, field.type, f"{field.name} of both.") for field in left.key_fields]
    of_pairs = _session_columns(left, right) if join.form is JoinForm.SESSIONS else _delta_columns(left, right)
    about = join.description or f"{left.name} and {right.name}."
    return TableSpec(
        name=join.name,
        description=f"{about} One row per pair ({join.form}).",
        columns=(
            Column("pair_id", pa.string(), "Stable name: follows from what is paired.", is_required=True),
            *keys,
            *of_pairs,
            Column(WINDOW_HOUR, TIMESTAMP, _hour_comment(join.form), is_required=True),
        ),
        partition_by=WINDOW_HOUR,
        divided_by=HOUR,
        properties=PROPERTIES,
        order_by=tuple(field.column for field in left.key_fields),
    )


def _delta_columns(left: Stream, right: Stream) -> list[Column]:
    of_deltas = {column.name: column for column in DELTAS.columns}
    panes = (
        Column("window_start", TIMESTAMP, "First moment of the pane that both lie in.", is_required=True),
        Column("window_end", TIMESTAMP, "First moment after it.", is_required=True),
    )
    sides = [
        Column(f"{side}_{name}", of_deltas[name].type, f"{name} of the delta of {stream.name}.", is_required=True)
        for side, stream in ((LEFT, left), (RIGHT, right))
        for name in OF_DELTA
    ]
    slides = Column(
        "right_windows",
        pa.list_(TIMESTAMP),
        f"Starts of the sliding windows of {right.name} that hold its delta; empty if they do not slide.",
        is_required=True,
    )
    return [*panes, *sides, slides]


def _session_columns(left: Stream, right: Stream) -> list[Column]:
    comments = {
        "window_id": (pa.string(), "Name of the session of"),
        "window_start": (TIMESTAMP, "First event of the session of"),
        "window_end": (TIMESTAMP, "Last event and the gap of the session of"),
        "deltas": (pa.int64(), "Deltas in the session of"),
    }
    return [
        Column(f"{side}_{name}", comments[name][0], f"{comments[name][1]} {stream.name}.", is_required=True)
        for side, stream in ((LEFT, left), (RIGHT, right))
        for name in OF_SESSION
    ]


def _hour_comment(form: JoinForm) -> str:
    return "Hour in which the later of the two closes." if form is JoinForm.SESSIONS else "Hour of window_start."
