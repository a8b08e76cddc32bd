"""The record of a batch, and why it was closed (C5, N3).

Belongs here: the record, as it is stored in the log and in the footer of a segment. It needs no Arrow, so that a reader
of the manifest need not load it. What a batch is, and when it is due, is in `delivery/batching.py`.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct

from tidemark.model.timegrid import hour_key


class Trigger(StrEnum):
    """Why a batch was closed."""

    EXPLICIT = "explicit"  # a caller requested it
    TIME = "time"  # the oldest delta in it has waited for the adaptive limit
    COUNT = "count"
    SIZE = "size"
    RATE_CHANGE = "rate_change"  # writes come faster or slower than when it was opened, by the configured factor
    MEMORY_PRESSURE = "memory_pressure"  # the shard is above its high-water mark
    SHUTDOWN = "shutdown"
    PREDICATE = "predicate"  # the user's own


class BatchRecord(Struct, frozen=True):
    """What is recorded of a batch (N3). Ranges are half-open, times in microseconds."""

    number: int  # from 1, without gaps
    trigger: Trigger
    also: tuple[Trigger, ...]  # other triggers that were due when it was closed
    from_epoch: int
    to_epoch: int
    writes: int
    deltas: int  # accepted ones: these are delivered
    duplicates: int
    refused: int
    keys: int  # distinct (namespace, key) of the deltas
    bytes: int  # of all rows in memory, refused and duplicate ones too
    mean_bytes: float  # of a row
    min_event_us: int | None  # None without deltas
    max_event_us: int | None
    opened_us: int  # when its first write was flushed
    closed_us: int


def encode_batches(batches: Sequence[BatchRecord]) -> bytes:
    """Records as a segment stores them; empty if there are none."""
    return msgspec.json.encode(batches) if batches else b""


def decode_batches(records: bytes) -> list[BatchRecord]:
    """The records of a segment."""
    return msgspec.json.decode(records, type=list[BatchRecord]) if records else []


def batch_hours(batches: Iterable[BatchRecord]) -> dict[str, int]:
    """How many of them were closed in each hour."""
    return dict(sorted(Counter(hour_key(batch.closed_us) for batch in batches).items()))
