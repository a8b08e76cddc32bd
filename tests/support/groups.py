"""Flushed groups for tests of batches and subscriptions: rows of the log without a log."""

from typing import NamedTuple

import pyarrow as pa

from tests.support.live import TEN_O_CLOCK
from tidemark.delivery.batching import Batch, Batcher
from tidemark.log.batch_record import Trigger
from tidemark.log.log_rows import LogRows
from tidemark.model.log_schema import LOG_SCHEMA
from tidemark.model.settings import BatchSettings


class Row(NamedTuple):
    """One delta of a write; what is not said does not matter."""

    key: str = "item-1"
    event_us: int | None = TEN_O_CLOCK
    verdict: str = "accepted"
    namespace: str = "shop"


def group(*writes: tuple[int, list[Row]]) -> LogRows:
    """One flushed group: for each write its epoch and its rows."""
    rows = [
        {
            "shard": 0,
            "epoch": epoch,
            "ordinal": ordinal,
            "producer": "web",
            "sequence": epoch,
            "received_ts": TEN_O_CLOCK,
            "namespace": row.namespace,
            "key": row.key,
            "event_ts": row.event_us,
            "verdict": row.verdict,
            "delta_id": f"{epoch}-{ordinal}",
        }
        for epoch, write in writes
        for ordinal, row in enumerate(write)
    ]
    return LogRows.of(pa.RecordBatch.from_pylist(rows, schema=LOG_SCHEMA))


def one(epoch: int) -> LogRows:
    """A group of one delta."""
    return group((epoch, [Row()]))


def closed(batcher: Batcher, trigger: Trigger = Trigger.EXPLICIT, now_us: int = TEN_O_CLOCK) -> Batch:
    """What was pending, as a batch."""
    batch = batcher.close(trigger, now_us)
    assert batch is not None
    return batch


def batch_of(number: int, *, epoch: int | None = None, rows: int = 1) -> Batch:
    """A batch with one write: epoch = its number, if nothing else is said."""
    batcher = Batcher(BatchSettings(), next_number=number)
    batcher.add(group((epoch or number, [Row()] * rows)), 1, TEN_O_CLOCK)
    return closed(batcher, Trigger.COUNT)
