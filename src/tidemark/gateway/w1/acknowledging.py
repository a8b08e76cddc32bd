"""What a producer is told of its writes, level by level (W4).

Belongs here: acknowledgements, cumulative: one for all writes that a group commit has made safe. Refusals of whole
writes go out in the order of the writes, so that whoever reads an acknowledgement has read every refusal below it.
"""

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tidemark.coordinator.handles import WriteHandle
from tidemark.coordinator.platform import Places
from tidemark.gateway.w1.admitting import Asked
from tidemark.gateway.w1.connection import Connection
from tidemark.gateway.w1.refusing import nack_of
from tidemark.model.deltas import Level
from tidemark.wire.frames import Flag, FrameType
from tidemark.wire.messages import (
    FIRST_DUPLICATES,
    FIRST_REFUSALS,
    Ack,
    LevelName,
    Nack,
    RefusedDelta,
    WriteOutcome,
    encode,
)


@dataclass(slots=True)
class Pending:
    """A write that was sent on to the shards."""

    sequence: int
    size: int  # bytes of its frame's payload
    wants_ack: bool
    handles: list[WriteHandle] = field(default_factory=list)
    nack: Nack | None = None  # it was refused; to be said when its number is used up on the disk
    asked: Asked | None = None  # what the gate said of it, until that is settled
    # Of a write for several shards: shard → the places that the deltas of its part have in the write.
    places: dict[int, Places] = field(default_factory=dict)

    @property
    def is_waiting(self) -> bool:
        """Whether the disk still has to answer."""
        return not all(handle.is_flushed or handle.error is not None for handle in self.handles)

    def place(self, shard: int, ordinal: int) -> int:
        """The place in the write of a delta of a shard's part."""
        places = self.places.get(shard)
        return ordinal if places is None else int(places[ordinal])

    @property
    def epochs(self) -> dict[int, int]:
        """The epochs that it has, by shard."""
        receipts = (handle.receipt(Level.FLUSHED) for handle in self.handles)
        return {receipt.shard: receipt.epoch for receipt in receipts if receipt.epoch is not None}


class _Sum:
    """Writes that are acknowledged together."""

    def __init__(self, level: LevelName) -> None:
        self.level = level
        self.last = 0
        self.epochs: dict[int, int] = {}
        self.accepted = self.duplicate = self.refused = 0
        self.outcomes: list[WriteOutcome] = []
        self.refusals: list[RefusedDelta] = []

    def add(self, pending: Pending) -> None:
        """One more write, flushed."""
        receipts = [handle.receipt(Level.FLUSHED) for handle in pending.handles]
        accepted = sum(receipt.outcome.accepted for receipt in receipts)
        duplicate = sum(receipt.outcome.duplicate for receipt in receipts)
        refused = sum(receipt.outcome.refused for receipt in receipts)
        is_retry = all(receipt.is_retry for receipt in receipts)
        self.last = pending.sequence
        for receipt in receipts:
            if receipt.epoch is not None:
                self.epochs[receipt.shard] = max(receipt.epoch, self.epochs.get(receipt.shard, 0))
        self.accepted, self.duplicate, self.refused = (
            self.accepted + accepted,
            self.duplicate + duplicate,
            self.refused + refused,
        )
        if duplicate or refused or is_retry:
            duplicates = sorted(
                pending.place(handle.shard, ordinal) for handle in pending.handles for ordinal in handle.told.duplicates
            )
            first = tuple(duplicates[:FIRST_DUPLICATES])
            self.outcomes.append(WriteOutcome(pending.sequence, accepted, duplicate, refused, is_retry, first))
        if refused:
            self._add_refusals(pending)

    def ack(self) -> bytes:
        """The payload of the acknowledgement."""
        message = Ack(
            self.level,
            self.epochs,
            self.accepted,
            self.duplicate,
            self.refused,
            tuple(self.outcomes),
            tuple(self.refusals),
        )
        return encode(message)

    def _add_refusals(self, pending: Pending) -> None:
        rows = sorted(
            (pending.place(handle.shard, row.ordinal), row.reason, row.detail)
            for handle in pending.handles
            for row in handle.told.refused
        )
        room = FIRST_REFUSALS - len(self.refusals)
        self.refusals += [RefusedDelta(pending.sequence, *row) for row in rows[:room]]


class Answers:
    """The acknowledgements of one connection."""

    def __init__(self, connection: Connection, levels: Iterable[LevelName]) -> None:
        self._connection, self._levels = connection, frozenset(levels)
        self._applied = 0  # the last sequence that was acknowledged as applied
        self._durable: deque[tuple[int, dict[int, int]]] = deque()  # flushed, and not yet in the lake
        self._wants_seal = False

    def taken_before(self, mark: int, epochs: Mapping[int, int]) -> None:
        """What earlier connections have sent is durable when all is that the log has now: who waits hears of it."""
        if mark and LevelName.DURABLE in self._levels:
            self._durable.append((mark, dict(epochs)))

    @property
    def waits_for_durable(self) -> bool:
        """Whether something is flushed whose producer wants to hear when it is durable."""
        return bool(self._durable)

    def wants_seal(self) -> bool:
        """Whether a write since the last call wants to be durable at once."""
        wants, self._wants_seal = self._wants_seal, False
        return wants

    def applied(self, pending: Iterable[Pending]) -> None:
        """Acknowledge what has its epoch, if that is wanted."""
        if LevelName.APPLIED not in self._levels:
            return
        last = 0
        for each in pending:
            if each.nack is not None or not all(handle.is_applied for handle in each.handles):
                break
            last = each.sequence
        if last > self._applied:
            self._applied = last
            self._send(last, encode(Ack(LevelName.APPLIED)))

    def flushed(self, pending: deque[Pending]) -> list[Pending]:
        """Answer what the disk has answered, in order; returns the writes that are answered."""
        done: list[Pending] = []
        together = _Sum(LevelName.FLUSHED)
        while pending and not pending[0].is_waiting:
            write = pending.popleft()
            done.append(write)
            nack = write.nack or next((nack_of(handle.error) for handle in write.handles if handle.error), None)
            if nack is None:
                together.add(write)
                if LevelName.DURABLE in self._levels:
                    self._durable.append((write.sequence, write.epochs))
                    self._wants_seal = self._wants_seal or write.wants_ack
                continue
            self._acknowledge(together)
            together = _Sum(LevelName.FLUSHED)
            self._connection.nack(write.sequence, nack)
        self._acknowledge(together)
        return done

    def durable(self, epochs: Mapping[int, int]) -> None:
        """Acknowledge what is in the lake, given the last epoch of each shard there."""
        last, reached = 0, dict[int, int]()
        while self._durable:
            sequence, parts = self._durable[0]
            if any(epochs.get(shard, 0) < epoch for shard, epoch in parts.items()):
                break
            last = sequence
            reached |= parts
            self._durable.popleft()
        if last:
            self._send(last, encode(Ack(LevelName.DURABLE, reached)))

    def _acknowledge(self, together: _Sum) -> None:
        # It says what became of each delta, so it is sent whatever levels are wanted: it moves the window, too.
        if together.last:
            self._send(together.last, together.ack())

    def _send(self, sequence: int, payload: bytes) -> None:
        self._connection.send(FrameType.ACK, sequence, payload, Flag.BATCHED)
