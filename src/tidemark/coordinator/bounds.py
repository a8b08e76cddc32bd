"""How large things may be on the live plane, and how large they are: measured, not taken from the client's word (C8).

Belongs here: the measure, the tracker of what is in memory, and the gauge of what is left on the disk. What happens at
a mark is decided where it is met.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from enum import StrEnum

import msgspec
import pyarrow as pa

from tidemark.door.decode import Sent, original_bytes
from tidemark.door.decode_rows import text_bytes
from tidemark.model.log_schema import RAW_BUDGET
from tidemark.model.settings import BoundSettings
from tidemark.model.shard_errors import BackpressureError, DiskSpaceError, WriteTooLargeError

# Bytes logged with one sync: enough to be efficient, few enough to be quick.
GROUP_BYTES = 16 * 1024 * 1024
# A group is flushed within milliseconds; whoever is turned away may come back soon.
RETRY_AFTER_S = 0.05
# Space comes back when segments are drained and dropped, or when somebody clears up: that takes longer.
DISK_RETRY_AFTER_S = 1.0
# A row of columns: more than a signal or a sample takes, less than a share of a much larger table.
USUAL_ROW_BYTES = 512
# What the log adds to a row: numbers, hashes, verdict, reason, a bounded sentence, a short beginning of what was sent.
MOST_ROW_BYTES = 1_000
# Writes are taken again only when this much more is free than is kept free, or a shard would flutter at the mark.
DISK_RESUME_FACTOR = 1.1
# Named, because a union that is written where it is asked for is made anew for every delta.
_TEXT = (bytes, str)


class Place(StrEnum):
    """Where bytes are held: in line, applied to a buffer, being flushed, or flushed and not yet in a closed batch."""

    QUEUED = "queued"
    BUFFERED = "buffered"
    IN_FLIGHT = "in_flight"
    PENDING = "pending"


class Tracker:
    """Bytes and deltas in memory, by place. What is taken in is given back: after all work is done it reads 0."""

    def __init__(self, settings: BoundSettings) -> None:
        self._settings = settings
        self.bytes = dict.fromkeys(Place, 0)
        self.deltas = 0  # admitted and not yet flushed

    @property
    def total_bytes(self) -> int:
        """All that is held."""
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
        held = self.total_bytes
        if held + size > limits.bytes or held >= limits.emergency * limits.bytes:
            why = f"{held:,} bytes wait for the disk, and {limits.bytes:,} may."
            raise BackpressureError(why, RETRY_AFTER_S, write)
        if self.deltas + deltas > limits.deltas:
            why = f"{self.deltas:,} deltas wait for the disk, and {limits.deltas:,} may."
            raise BackpressureError(why, RETRY_AFTER_S, write)

    def take(self, place: Place, size: int, deltas: int = 0) -> None:
        """Hold bytes, and deltas that came with them."""
        self.bytes[place] += size
        self.deltas += deltas

    def move(self, source: Place, target: Place, size: int) -> None:
        """The same bytes in another place."""
        self.bytes[source] -= size
        self.bytes[target] += size

    def release(self, place: Place, size: int, deltas: int = 0) -> None:
        """Give bytes back, and deltas that need not be waited for any more."""
        self.bytes[place] -= size
        self.deltas -= deltas


class DiskGauge:
    """Whether the disk has room: looked at by the writer, and by the door for as long as there was none."""

    def __init__(self, free_bytes: Callable[[], int], keep_free: int) -> None:
        self._free_bytes, self._keep_free = free_bytes, keep_free
        self._wanted = keep_free
        self.free = free_bytes()
        self._judge()

    @property
    def is_low(self) -> bool:
        """Whether writes are turned away for want of space."""
        return self._wanted != self._keep_free

    def look(self) -> None:
        """Ask the disk."""
        self.free = self._free_bytes()
        self._judge()

    def check(self, write: object) -> None:
        """Raise while there is no room; looks again by itself, so that nobody has to say that there is."""
        if self._wanted == self._keep_free:
            return
        self.look()
        if self.is_low:
            raise DiskSpaceError(self.free, self._wanted, DISK_RETRY_AFTER_S, write)

    def _judge(self) -> None:
        self._wanted = int(self._keep_free * DISK_RESUME_FACTOR) if self.free < self._wanted else self._keep_free


def most_bytes_logged(size: int, deltas: int) -> int:
    """An upper bound of what a write of this size can take in the log, known before anything is decided on it (C14).

    Numbers may take twice the room of their shortest JSON; verdict, reason, sentence and hashes come to each row; and
    of what is refused a beginning is kept, up to a bound for the write.
    """
    return 2 * size + MOST_ROW_BYTES * deltas + RAW_BUDGET


def measure(deltas: Sequence[Sent] | pa.RecordBatch) -> int:
    """Bytes of a write: of the columns, or of the JSON that was or would be sent."""
    if isinstance(deltas, pa.RecordBatch):
        # Quick, and too much for a part of something larger; where it looks like that, the rows are measured.
        size = int(deltas.get_total_buffer_size())
        return size if size <= USUAL_ROW_BYTES * len(deltas) else int(deltas.nbytes)
    return sum([text_bytes(sent) if isinstance(sent, _TEXT) else _encoded_size(sent) for sent in deltas])


def _encoded_size(sent: Sent) -> int:
    try:
        return len(msgspec.json.encode(sent, enc_hook=_as_text))
    except Exception:  # noqa: BLE001 - a caller's object may raise anything
        # What JSON cannot say will be refused as malformed; it counts with what is kept of it.
        return len(original_bytes(sent))


def _as_text(value: object) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)
