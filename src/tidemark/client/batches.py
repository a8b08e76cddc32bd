"""Writes on the client's side: deltas that go together under one number, and how far each has come.

Belongs here: a batch and its levels. Where batches wait is in `outbox.py`.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from tidemark.client.in_flight import Written
from tidemark.wire.frames import Flag, FrameType
from tidemark.wire.messages import LevelName, Nack


class Reached(StrEnum):
    """How safe deltas are, in order: on this machine's disk, then as the server says (C2)."""

    SPOOLED = "spooled"
    APPLIED = LevelName.APPLIED.value
    FLUSHED = LevelName.FLUSHED.value
    DURABLE = LevelName.DURABLE.value


ORDER = {level: place for place, level in enumerate(Reached, start=1)}


class Content(NamedTuple):
    """What a frame carries."""

    kind: FrameType
    flags: Flag
    rows: int
    payload: bytes


class Batch:
    """One write. All of it but `listeners` is changed under the outbox's lock."""

    __slots__ = ("content", "error", "is_spooled", "listeners", "nack", "number", "rows", "size", "written")

    def __init__(self, rows: int, size: int) -> None:
        self.number = 0  # once it is sealed; in the client's own numbering (see `outbox.py`)
        self.rows, self.size = rows, size
        self.content: Content | None = None  # in memory; None: in the spool, or no longer needed
        self.is_spooled = False
        self.written: Written | None = None  # once it is acknowledged as flushed
        self.nack: Nack | None = None  # once it is refused for good
        self.error: BaseException | None = None  # nothing more will become of it here
        self.listeners: list[Callable[[], None]] = []

    @property
    def is_answered(self) -> bool:
        """Whether the server has said what becomes of it."""
        return self.written is not None or self.nack is not None
