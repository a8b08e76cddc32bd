"""What a server knows of producers, in the simplest way that follows the rules (Q2, Q3).

Belongs here: instances, marks, retries, gaps and digests, and the deltas that were taken. It knows no socket and no
disk; what it has is lost with the process, or when a test says so.
"""

import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from tidemark.model.deltas import Reason
from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.frames import Flag, FrameType
from tidemark.wire.limits import LIMITS
from tidemark.wire.messages import Nack, RefusedDelta, WriteOutcome
from tidemark.wire.payloads import decompress, json_lines


class Taken(NamedTuple):
    """A write that was taken, or refused for good: then it has no deltas."""

    sequence: int
    digest: bytes
    deltas: tuple[Any, ...]
    nack: Nack | None = None


class Answer(NamedTuple):
    """What became of a write that arrived."""

    nack: Nack | None = None
    outcome: WriteOutcome | None = None  # None: everything in it was accepted
    accepted: int = 0
    refusals: tuple[RefusedDelta, ...] = ()


@dataclass
class Producer:
    """One producer: its writes from number 1 on, none missing."""

    name: str
    instance: int = 0
    writes: list[Taken] = field(default_factory=list)

    @property
    def mark(self) -> int:
        """The last number that was taken."""
        return len(self.writes)

    def open(self, instance: int) -> Nack | None:
        """A client says hello with the instance that it had; the same one goes on, 0 takes over."""
        if 0 < instance != self.instance:
            return fenced(self.name, instance, self.instance)
        if instance == 0:
            self.instance += 1
        return None

    def take(self, sequence: int, write: Taken) -> Answer | None:
        """Take a write in; an answer if it is not a new one."""
        if sequence > self.mark + 1:
            why = f"Write {sequence} was sent, but {self.mark + 1} is next."
            return Answer(Nack(NackReason.SEQUENCE_GAP, why, expected=self.mark + 1))
        if sequence == self.mark + 1:
            self.writes.append(write)
            return None
        first = self.writes[sequence - 1]
        if first.nack is not None:
            return Answer(Nack(NackReason.REFUSED_BEFORE, first.nack.message, is_final=True))
        if first.digest != write.digest:
            why = f"Another write was taken under number {sequence} before. That one was taken, and this one was not."
            return Answer(Nack(NackReason.NUMBER_REUSE, why, is_final=True))
        return Answer(outcome=WriteOutcome(sequence, 0, 0, 0, is_retry=True))


def fenced(producer: str, instance: int, current: int) -> Nack:
    """What the older of two instances is told."""
    why = f"Producer {producer!r} was opened again (instance {current}), so this instance {instance} may not write."
    return Nack(NackReason.FENCED, why, closes=True)


def read_write(sequence: int, kind: FrameType, flags: Flag, payload: bytes) -> tuple[Taken, tuple[RefusedDelta, ...]]:
    """A frame's deltas, and those among them that are none. Raises `PayloadError` if nothing can be made of it."""
    if flags & Flag.COMPRESSED:
        payload = decompress(payload, LIMITS)
    found = _rows(payload) if kind == FrameType.BATCH else list(map(_read, _lines(flags, payload)))
    if not found:
        raise PayloadError(NackReason.BAD_PAYLOAD, "A write needs at least one delta.")
    refusals = tuple(
        RefusedDelta(sequence, ordinal, Reason.MALFORMED, "This is no JSON object.")
        for ordinal, delta in enumerate(found)
        if not isinstance(delta, dict)
    )
    taken = tuple(delta for delta in found if isinstance(delta, dict))
    return Taken(sequence, sha256(payload).digest(), taken), refusals


def _lines(flags: Flag, payload: bytes) -> list[bytes]:
    return json_lines(payload, LIMITS) if flags & Flag.BATCHED else [payload]


def _read(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except msgspec.MsgspecError:
        try:
            return json.loads(line)  # which knows NaN
        except (ValueError, RecursionError):
            return None


def _rows(payload: bytes) -> list[Any]:
    try:
        import pyarrow as pa
    except ImportError as error:
        raise PayloadError(NackReason.NOT_SUPPORTED, "To read columns, this server needs PyArrow.") from error
    try:
        with pa.ipc.open_stream(pa.py_buffer(payload)) as stream:
            rows: list[Any] = stream.read_all().to_pylist()
    except pa.lib.ArrowException as error:
        raise PayloadError(NackReason.BAD_PAYLOAD, f"This is no Arrow stream: {error}.") from error
    return rows
