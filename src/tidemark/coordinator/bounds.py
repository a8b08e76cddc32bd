"""Limits for live data, and how large it is: measured here, never the client's own figure (C8).

Belongs here: the measure, the tracker of memory in use, and the gauge of free disk space. The code that reaches a
limit decides what happens then.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import msgspec
import pyarrow as pa

from tidemark.door.decode import Sent, original_bytes
from tidemark.door.decode_rows import text_bytes
from tidemark.model.log_schema import RAW_BUDGET
from tidemark.model.settings import BoundSettings
from tidemark.model.shard_errors import BackpressureError, DiskSpaceError, WriteTooLargeError

# Bytes logged with one sync: enough to be efficient, few enough to be quick.
GROUP_BYTES = 16 * 1024 * 1024
# A group is flushed within milliseconds; a refused caller may come back soon.
RETRY_AFTER_S = 0.05
# Space comes back when segments are drained and dropped, or when an operator clears up: that takes longer.
DISK_RETRY_AFTER_S = 1.0
# A row of columns: more than a signal or a sample takes, less than a share of a much larger table.
USUAL_ROW_BYTES = 512
# What the log adds to a row: numbers, hashes, verdict, reason, a bounded sentence, the start of what was sent.
MOST_ROW_BYTES = 1_000
# Writes are accepted again only when this much more is free than the limit, or a shard would flutter around it.
DISK_RESUME_FACTOR = 1.1
# Named, because a union written inside a call is built anew for every delta.
_TEXT = (bytes, str)


class Place(StrEnum):
    """Where bytes are: queued, applied to a buffer, being flushed, or flushed and not yet in a closed batch."""

    QUEUED = "queued"
    BUFFERED = "buffered"
    IN_FLIGHT = "in_flight"
    PENDING = "pending"


class ShardLoad(NamedTuple):
    """How busy a shard is (A3)."""

    waited_us: int  # how long the write that is next for the disk has waited
    deltas: int  # taken and not flushed
    bytes: int  # in memory


class Tracker:
    """Bytes and deltas in memory, by place. Every take has its release: after all work is done it reads 0."""

    def __init__(self, settings: BoundSettings) -> None:
        self._settings = settings
        self.bytes = dict.fromkeys(Place, 0)
        self.deltas = 0  # admitted and not yet flushed

    @property
    def total_bytes(self) -> int:
        """All bytes in memory."""
        return sum(self.bytes.values())

    @property
    def is_pressed(self) -> bool:
        """Whether the high-water mark is reached: batches close early."""
        return self.total_bytes >= self._settings.high_water * self._settings.bytes

    def check(self, size: int, deltas: int, write: object) -> None:
        """Raise unless a write of this size may be taken in now."""
        limits = self._settings
        if size > limits.bytes:
            raise WriteTooLargeError(size, limits.bytes, write=write)
        if deltas > limits.deltas:
            raise WriteTooLargeError(deltas, limits.deltas, "deltas", write)
        total = self.total_bytes
        if total + size > limits.bytes or total >= limits.emergency * limits.bytes:
            why = f"{total:,} bytes wait for the disk, and {limits.bytes:,} may."
            raise BackpressureError(why, RETRY_AFTER_S, write)
        if self.deltas + deltas > limits.deltas:
            why = f"{self.deltas:,} deltas wait for the disk, and {limits.deltas:,} may."
            raise BackpressureError(why, RETRY_AFTER_S, write)

    def take(self, place: Place, size: int, deltas: int = 0) -> None:
        """Count bytes, and deltas that came with them."""
        self.bytes[place] += size
        self.deltas += deltas

    def move(self, source: Place, target: Place, size: int) -> None:
        """Count the same bytes in another place."""
        self.bytes[source] -= size
        self.bytes[target] += size

    def release(self, place: Place, size: int, deltas: int = 0) -> None:
        """Give bytes back, and deltas that no caller waits for any more."""
        self.bytes[place] -= size
        self.deltas -= deltas


class DiskGauge:
    """Whether the disk has room: read by the writer, and by the door for as long as there was none."""

    def __init__(self, free_bytes: Callable[[], int], keep_free: int) -> None:
        self._free_bytes, self._keep_free = free_bytes, keep_free
        self._wanted = keep_free
        self.free = free_bytes()
        self._update()

    @property
    def is_low(self) -> bool:
        """Whether writes are refused because the disk is nearly full."""
        return self._wanted != self._keep_free

    def look(self) -> None:
        """Read the free space from the disk."""
        self.free = self._free_bytes()
        self._update()

    def check(self, write: object) -> None:
        """Raise while there is no room; reads the disk again by itself, so no other code has to reset it."""
        if self._wanted == self._keep_free:
            return
        self.look()
        if self.is_low:
            raise DiskSpaceError(self.free, self._wanted, DISK_RETRY_AFTER_S, write)

    def _update(self) -> None:
        self._wanted = int(self._keep_free * DISK_RESUME_FACTOR) if self.free < self._wanted else self._keep_free


def most_bytes_logged(size: int, deltas: int) -> int:
    """An upper bound of what a write of this size can take in the log, known before any verdict (C14).

    Numbers may take twice the room of their shortest JSON; each row also gets a verdict, a reason, a sentence and
    hashes; and the log keeps the start of each refused delta, up to a bound for the write.
    """
    return 2 * size + MOST_ROW_BYTES * deltas + RAW_BUDGET


def measure(deltas: Sequence[Sent] | pa.RecordBatch) -> int:
    """Bytes of a write: of its columns, or of its JSON as it was or would be sent."""
    if isinstance(deltas, pa.RecordBatch):
        # Quick, but too much for a slice of a larger table; when it looks like one, the rows are measured.
        size = int(deltas.get_total_buffer_size())
        return size if size <= USUAL_ROW_BYTES * len(deltas) else int(deltas.nbytes)
    return sum([text_bytes(sent) if isinstance(sent, _TEXT) else _encoded_size(sent) for sent in deltas])


def _encoded_size(sent: Sent) -> int:
    try:
        return len(msgspec.json.encode(sent, enc_hook=_as_text))
    except Exception:  # noqa: BLE001 - a caller's object may raise anything
        # A value that JSON cannot express will be refused as malformed; it counts with the bytes that are kept of it.
        return len(original_bytes(sent))


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
