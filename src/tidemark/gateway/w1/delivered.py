"""What a subscriber gets: rows of the log as deltas that could be sent again, with their numbers beside them (W7, P2).

Belongs here: choosing the accepted rows of a cursor and its topics, and the payload of a delivery. Which rows come when
is in `subscribing.py`.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import reduce

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.door.row_objects import row_objects
from tidemark.model.deltas import Verdict
from tidemark.model.log_schema import SENT_FIELDS
from tidemark.wire.frames import FrameType
from tidemark.wire.messages import DeliveryForm, DeliveryHead, Topic, encode

# Beside what the producer sent.
_NUMBERS = ("shard", "epoch", "ordinal", "producer", "sequence", "received_ts", "key")
COLUMNS = (*_NUMBERS, *(name for name, _ in SENT_FIELDS))
# What is read of the log for it.
LOG_COLUMNS = (*COLUMNS, "verdict")
# So many are one delivery: enough to be efficient, and far below the limit of a frame for all but enormous deltas.
MOST_ROWS = 5_000
_MOST_BYTES = 8 * 1024 * 1024


def chosen(
    column: Callable[[str], pa.Array], after: int, upto: int, topics: Sequence[Topic], *, is_accepted: bool = False
) -> pa.RecordBatch:
    """The accepted rows above one epoch and up to another that have one of these topics; no topics: all."""
    epochs = np.asarray(column("epoch"))
    mask = pa.array((epochs > after) & (epochs <= upto))
    if not is_accepted:
        mask = pc.and_(mask, pc.equal(column("verdict"), str(Verdict.ACCEPTED)))
    if topics:
        mask = pc.and_(mask, reduce(pc.or_, [_has(column, topic, len(epochs)) for topic in topics]))
    mask = pc.fill_null(mask, False)
    return pa.RecordBatch.from_arrays([column(name).filter(mask) for name in COLUMNS], names=list(COLUMNS))


def _has(column: Callable[[str], pa.Array], topic: Topic, rows: int) -> pa.Array:
    wanted = [(name, getattr(topic, name)) for name in ("namespace", "kind", "key") if getattr(topic, name) is not None]
    masks = [pc.equal(column(name), value) for name, value in wanted]
    return reduce(pc.and_, masks) if masks else pa.array(np.ones(rows, dtype=bool))


def pieces(rows: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """Rows cut into deliveries."""
    size = max(1, len(rows) and int(rows.nbytes) // len(rows))
    at_once = max(1, min(MOST_ROWS, _MOST_BYTES // size))
    for start in range(0, len(rows), at_once):
        yield rows.slice(start, at_once)


def payload(rows: pa.RecordBatch, form: DeliveryForm, cursor: dict[int, int]) -> tuple[FrameType, bytes]:
    """A delivery of these rows; `cursor` says how far the subscriber is when it has it."""
    head = encode(DeliveryHead(cursor, len(rows)))
    if form is DeliveryForm.ARROW:
        sink = pa.BufferOutputStream()
        marked = rows.replace_schema_metadata({"tidemark": head})
        with pa.ipc.new_stream(sink, marked.schema) as stream:
            stream.write_batch(marked)
        return FrameType.BATCH, sink.getvalue().to_pybytes()
    columns = {name: rows[name] for name in COLUMNS}
    lines = (msgspec.json.encode(each) for each in row_objects(columns, range(len(rows))))
    return FrameType.DELTA, b"\n".join((head, *lines))
