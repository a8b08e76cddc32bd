"""From the deltas of many calls to writes of a good size.

Belongs here: which write a delta goes into. The outbox calls it under its lock.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tidemark.client.batches import Batch, Content
from tidemark.client.encoding import Columns
from tidemark.wire.frames import Flag, FrameType
from tidemark.wire.payloads import as_json_lines, compress

# Below this, packing saves nothing worth the time; above this ratio a server suspects a bomb (W3).
_SMALL_BYTES, _RATIO = 512, 90


class Bounds(NamedTuple):
    """How deltas are put together, and how many may wait."""

    rows: int = 1_000  # in a write
    bytes: int = 1024 * 1024  # in a write
    linger_s: float = 0.01  # a write waits so long for more
    memory_bytes: int = 64 * 1024 * 1024  # in memory and not acknowledged
    spool_bytes: int = 1024 * 1024 * 1024  # on the disk and not acknowledged
    whole_calls: bool = False  # a call shares no write with another, so the same calls make the same writes


class Part(NamedTuple):
    """Some deltas of a call, and the write that carries them."""

    batch: Batch
    start: int  # their place in the write
    rows: int


class Filling:
    """The write that still takes deltas, and those that are closed and not sealed."""

    def __init__(self, bounds: Bounds, clock: Callable[[], float]) -> None:
        self._bounds, self._clock = bounds, clock
        self.open: Batch | None = None
        self.closed: deque[Batch] = deque()
        self.is_due = False  # the open one is to be closed now
        self.is_awaited = False  # somebody waits for the open one: it lingers only while others are on their way
        self._lines: list[bytes] = []
        self._opened_at = 0.0

    def add(self, deltas: Sequence[bytes | Columns]) -> list[Part]:
        """Put the deltas of one call into writes, in their order."""
        parts: list[Part] = []
        for each in deltas:
            if isinstance(each, Columns):
                self._add_columns(each, parts)
            else:
                self._add_line(each, parts)
        if self._bounds.whole_calls:
            self.close_open()
        return parts

    def _add_line(self, line: bytes, parts: list[Part]) -> None:
        batch, size = self.open, len(line) + 1  # with what is between two lines
        if batch is not None and batch.size + size > self._bounds.bytes:
            self.close_open()
            batch = None
        if batch is None:
            batch = self.open = Batch(0, 0)
            self._opened_at = self._clock()
        if parts and parts[-1].batch is batch:
            parts[-1] = parts[-1]._replace(rows=parts[-1].rows + 1)
        else:
            parts.append(Part(batch, batch.rows, 1))
        self._lines.append(line)
        batch.rows += 1
        batch.size += size
        if batch.rows >= self._bounds.rows or batch.size >= self._bounds.bytes:
            self.close_open()

    def _add_columns(self, columns: Columns, parts: list[Part]) -> None:
        self.close_open()  # the order of calls is kept
        batch = Batch(columns.rows, len(columns.payload))
        batch.content = Content(FrameType.BATCH, Flag.BATCHED, columns.rows, columns.payload)
        self.closed.append(batch)
        parts.append(Part(batch, 0, columns.rows))

    def close_open(self) -> None:
        """The open write takes nothing more."""
        batch, self.open = self.open, None
        if batch is not None:
            batch.content = Content(FrameType.DELTA, Flag.BATCHED, batch.rows, as_json_lines(self._lines))
            self._lines = []
            self.closed.append(batch)
        self.is_due = self.is_awaited = False

    def lingers_s(self, *, is_idle: bool) -> float:
        """How much longer the open write may wait for more. Idle: nothing else is on its way."""
        return (
            0.0
            if self.is_due or (self.is_awaited and is_idle)
            else self._opened_at + self._bounds.linger_s - self._clock()
        )


def packed(content: Content) -> Content:
    """The same content compressed, if that is worth it."""
    if len(content.payload) < _SMALL_BYTES:
        return content
    payload = compress(content.payload)
    if not len(content.payload) / _RATIO < len(payload) < len(content.payload):
        return content
    return content._replace(flags=content.flags | Flag.COMPRESSED, payload=payload)
