"""A write at the gate, and how busy the shard is: all that a decision looks at besides its own state.

Belongs here: the two, and the words for why something is turned away.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from tidemark.model.deltas import Priority, Source

Stream: TypeAlias = tuple[str, str]  # namespace, kind


class Turned(StrEnum):
    """Why deltas are turned away; the doors answer with the same words."""

    UNAUTHENTICATED = "unauthenticated"
    NOT_ALLOWED = "not_allowed"
    LAG = "lag"
    JITTER = "jitter"
    RATE = "rate"
    SHED = "shed"
    BACKPRESSURE = "backpressure"


class Part(NamedTuple):
    """What a write has of one stream."""

    deltas: int
    bytes: int
    oldest_us: int | None = None  # event time; None if no delta has a usable one
    newest_us: int | None = None


class Arriving(NamedTuple):
    """A write that has a known sender and no number yet."""

    producer: str
    parts: Mapping[Stream, Part]
    priority: Priority = Priority.NORMAL
    source: Source = Source.LOCAL
    ids: Sequence[str] = ()  # of its deltas, to be noted if they are turned away; the last few are enough

    @property
    def deltas(self) -> int:
        """All its deltas."""
        return sum(part.deltas for part in self.parts.values())

    @property
    def bytes(self) -> int:
        """All its bytes."""
        return sum(part.bytes for part in self.parts.values())


class Load(NamedTuple):
    """How busy a shard is; of several shards, the busiest."""

    waited_us: int = 0  # how long the write that is next for the disk has waited for it
    deltas: int = 0  # taken and not flushed
    bytes: int = 0  # in memory
    most_deltas: int = 100_000
    most_bytes: int = 50 * 1024 * 1024

    @property
    def fullness(self) -> float:
        """How much of the room is taken, from 0 to 1."""
        return max(self.deltas / self.most_deltas, self.bytes / self.most_bytes)
