"""The producer's side of a connection: frames of writes to shards, and what became of them back (W4, W5, W6, Q2).

Belongs here: the order of writes, what waits for room, and when an acknowledgement or a refusal is sent. How a frame
becomes deltas is in `write_frames.py`; what an acknowledgement says is in `acknowledging.py`.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from tidemark.admission.arriving import Turned
from tidemark.admission.gate import Pace
from tidemark.coordinator.handles import WriteHandle
from tidemark.coordinator.platform import Platform
from tidemark.door.decoded import Deltas
from tidemark.gateway.w1.acknowledging import Answers, Pending
from tidemark.gateway.w1.admitting import Admitting
from tidemark.gateway.w1.connection import Connection
from tidemark.gateway.w1.refusing import nack_of
from tidemark.gateway.w1.write_frames import Content, namespaces_of, read_write
from tidemark.model.deltas import Priority
from tidemark.model.shard_errors import (
    BackpressureError,
    CoordinatorError,
    NumberReuseError,
    WriteFormatError,
    WriteRefusedError,
    WriteTooLargeError,
)
from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.frames import Flag, Frame, FrameType
from tidemark.wire.limits import Limits
from tidemark.wire.messages import Backpressure, LevelName, Nack, encode

# How long a write waits here for room before it is given back: about what a sync of a busy disk takes.
PATIENCE_S = 1.0
# A refusal that names more of what was not taken would be larger than a message may be.
MOST_NOT_TAKEN = 9_000
# A step up for a write that says it is urgent, within what its connection may (Q1).
_URGENT = {
    Priority.LOW: Priority.NORMAL,
    Priority.NORMAL: Priority.HIGH,
    Priority.HIGH: Priority.HIGH,
    Priority.CRITICAL: Priority.CRITICAL,
}


class Numbering(NamedTuple):
    """Under which name and instance a connection numbers, and for which shards."""

    producer: str
    instances: Mapping[int, int]  # shard → instance; all shards for a thin producer
    is_thin: bool


class _Blocked(NamedTuple):
    """A write that waits for room, with what is left of it."""

    pending: Pending
    parts: dict[int, Deltas | None]
    priority: Priority
    until: float


class Producing:
    """One producer, on one connection."""

    def __init__(
        self,
        connection: Connection,
        platform: Platform,
        numbering: Numbering,
        *,
        levels: tuple[LevelName, ...],
        priority: Priority,
        mark: int,
        window: int,
        limits: Limits,
        may_write: Callable[[str], bool] | None,
        admitting: Admitting,
        on_durable: Callable[["Producing"], None],
    ) -> None:
        self._connection, self._platform, self._numbering = connection, platform, numbering
        self._priority, self._limits, self._may_write = priority, limits, may_write
        self._admitting = admitting
        self._window = window
        self._loop = asyncio.get_running_loop()
        self._answers = Answers(connection, levels)
        self._pending: deque[Pending] = deque()
        self._unacknowledged = 0  # bytes
        self._blocked: _Blocked | None = None
        self._is_drain_planned = self._is_closed = self._is_paused = False
        self._next = mark + 1  # what is below was sent before, and costs nobody's agreement anything
        self._on_durable = on_durable
        self._answers.taken_before(
            mark, {number: platform.shards[number].flushed_epoch for number in numbering.instances}
        )
        if self._answers.waits_for_durable:
            on_durable(self)

    # The connection.

    @property
    def producer(self) -> str:
        """Its name."""
        return self._numbering.producer

    @property
    def is_blocked(self) -> bool:
        return self._blocked is not None or self._is_paused or self._unacknowledged > self._window

    @property
    def is_idle(self) -> bool:
        return not self._pending and self._blocked is None

    def take(self, frame: Frame) -> None:
        if frame.type not in {FrameType.DELTA, FrameType.BATCH}:
            what = f"A producer sends writes (types 0 and 1) and heartbeats, and not type {frame.type}."
            self._connection.end(Nack(NackReason.UNEXPECTED, what, closes=True), frame.sequence)
            return
        size = len(frame.payload)
        pending = Pending(frame.sequence, size, bool(frame.flags & Flag.WANTS_ACK))
        try:
            content = read_write(frame, self._limits)
            parts = self._parts_of(content, pending)
        except (PayloadError, WriteFormatError) as error:
            self._refuse_for_good(pending, error)
            return
        if (nack := self._not_allowed(content)) is not None:
            self._connection.nack(frame.sequence, nack)
            return
        priority = _URGENT[self._priority] if frame.flags & Flag.PRIORITY else self._priority
        if frame.sequence == self._next and not self._is_admitted(pending, content, priority):
            return
        self._send(_Blocked(pending, parts, priority, self._loop.time() + PATIENCE_S))

    def frames_taken(self) -> None:
        self._answers.applied(self._pending)
        self._drain()

    def close(self) -> None:
        self._is_closed = True
        # What the shards have goes on without this connection.
        for write in (*self._pending, *([self._blocked.pending] if self._blocked is not None else [])):
            if write.asked is not None:
                self._admitting.done(write.asked)
        self._pending.clear()
        self._blocked = None

    def has_shard_of(self, shard: int | None) -> bool:
        """Whether a connection of the same producer to this shard (None: any) takes one of its shards over."""
        return shard is None or shard in self._numbering.instances

    def wants_seal(self) -> bool:
        """Whether a write wants to be durable at once, and not when its file is old enough to be sealed."""
        return self._answers.wants_seal()

    def fence(self, nack: Nack) -> None:
        """A newer instance has taken over."""
        self._connection.end(nack)

    def follow(self, pace: Pace) -> None:
        """Tell the producer how much it may send from now on (W6, A4)."""
        self._window = pace.window
        message = Backpressure(pace.window, pace.reason, pace.retry_after_ms, pace.rate)
        self._connection.send(FrameType.BACKPRESSURE, 0, encode(message))

    # A write.

    def _parts_of(self, content: Content, pending: Pending) -> dict[int, Deltas | None]:
        """What each shard gets; None where there is nothing for it but the number."""
        parts = dict[int, Deltas | None]()
        for shard, (part, places) in self._platform.split_with_places(content).items():
            parts[shard] = part
            if places is not None:
                pending.places[shard] = places
        instances = self._numbering.instances
        if self._numbering.is_thin:
            return {shard: parts.get(shard) for shard in instances}
        if strangers := sorted(set(parts) - set(instances)):
            raise PayloadError(
                NackReason.BAD_PAYLOAD,
                f"Some deltas belong to shard {strangers[0]}, and this connection is to shard {next(iter(instances))}. "
                "Split writes by the slots of the welcome, or say `shard: null` in the hello.",
            )
        return parts

    def _not_allowed(self, content: Content) -> Nack | None:
        if self._may_write is None:
            return None
        for namespace in sorted(namespaces_of(content)):
            if not self._may_write(namespace):
                self._admitting.turned_away(Turned.NOT_ALLOWED, self.producer, len(content))
                return Nack(
                    NackReason.NOT_ALLOWED,
                    f"This token may not write to the namespace {namespace!r}. Nothing of the write was taken.",
                )
        return None

    def _is_admitted(self, pending: Pending, content: Content, priority: Priority) -> bool:
        """Ask the gate about a write that is new; it is answered here if it may not be taken."""
        asked = self._admitting.ask(self.producer, priority, content, pending.size)
        if asked.pause_s > 0:
            self._is_paused = True
            self._loop.call_later(asked.pause_s, self._read_on)
        if (nack := asked.nack) is None:
            pending.asked = asked
            return True
        if nack.is_final:
            self._next = pending.sequence + 1
            pending.nack = nack
            self._use_up(pending, self._numbering.instances)
        else:
            self._connection.nack(pending.sequence, nack)
        return False

    def _read_on(self) -> None:
        self._is_paused = False
        if not self._is_closed:
            self._connection.go_on()

    def _send(self, write: _Blocked) -> None:
        pending, parts = write.pending, write.parts
        try:
            while parts:
                shard = next(iter(parts))
                pending.handles.append(self._send_part(shard, pending.sequence, parts[shard], write.priority))
                del parts[shard]
        except BackpressureError as full:
            self._wait_or_give_back(write, full)
            return
        except WriteTooLargeError as error:
            # What is left is refused with it; what other shards have taken stays taken.
            self._refuse_for_good(pending, error, parts)
            return
        except CoordinatorError as error:
            self._not_taken(pending, error)
            return
        self._next = max(self._next, pending.sequence + 1)
        self._hear_of(pending)

    def _send_part(self, number: int, sequence: int, part: Deltas | None, priority: Priority) -> WriteHandle:
        shard, instance = self._platform.shards[number], self._numbering.instances[number]
        if part is None:
            return shard.skip(self.producer, instance, sequence)
        return shard.try_write(self.producer, instance, sequence, part, priority)

    def _wait_or_give_back(self, write: _Blocked, full: BackpressureError) -> None:
        """There is no room now. It soon will be: nothing is read from this producer until then."""
        if full.passes_by_itself and self._loop.time() < write.until:
            self._blocked = write
            self._loop.call_later(full.retry_after_s, self._try_again)
            return
        # Shards that have taken their part answer the retry as one.
        asked, write.pending.asked = write.pending.asked, None
        if asked is not None:
            self._admitting.give_back(asked, sum(len(part) for part in write.parts.values() if part is not None))
        self._not_taken(write.pending, full, write.parts)

    def _try_again(self) -> None:
        write, self._blocked = self._blocked, None
        if write is not None and not self._is_closed:
            self._send(write)
            self._connection.go_on()

    def _not_taken(self, pending: Pending, error: CoordinatorError, left: Collection[int] = ()) -> None:
        """Say so. `left` are shards without room, of a write of which others may have their part."""
        if pending.asked is not None:
            self._admitting.done(pending.asked)
        nack = nack_of(error)
        if isinstance(error, NumberReuseError | WriteRefusedError) and self._pending:
            # What was sent before it is answered first.
            pending.nack = nack
            self._hear_of(pending)
            return
        if left and pending.handles:
            places = sorted(int(place) for shard in left for place in pending.places.get(shard, ()))
            nack = replace(nack, not_taken=tuple(places[:MOST_NOT_TAKEN]))
        self._connection.nack(pending.sequence, nack)

    def _refuse_for_good(self, pending: Pending, error: Exception, parts: Mapping[int, object] | None = None) -> None:
        """Use the number up, so that the writes behind it can follow; it is answered once that is on the disk."""
        pending.nack = nack_of(error)
        self._use_up(pending, self._numbering.instances if parts is None else parts)

    def _use_up(self, pending: Pending, shards: Iterable[int]) -> None:
        why = pending.nack.message if pending.nack is not None else ""
        try:
            for number in shards:
                instance = self._numbering.instances[number]
                shard = self._platform.shards[number]
                pending.handles.append(shard.refuse(self.producer, instance, pending.sequence, why))
        except CoordinatorError as other:
            self._not_taken(pending, other)
            return
        self._next = max(self._next, pending.sequence + 1)
        self._hear_of(pending)

    # What became of it.

    def _hear_of(self, pending: Pending) -> None:
        self._pending.append(pending)
        self._unacknowledged += pending.size
        try:
            for handle in pending.handles:
                handle.listen(self)
        except CoordinatorError as error:
            pending.nack = nack_of(error)
        if not pending.is_waiting:
            self._plan_drain()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The door's: shards call it there."""
        return self._loop

    def done(self) -> bool:
        """Whether it wants to hear nothing more."""
        return self._is_closed

    def set_result(self, result: None, /) -> None:  # noqa: ARG002 - as a future has it
        """A write is flushed. A whole group is told at once, and answered at once."""
        self._plan_drain()

    def set_exception(self, exception: Exception, /) -> None:  # noqa: ARG002 - its handle has it
        """A write never will be flushed."""
        self._plan_drain()

    def _plan_drain(self) -> None:
        if not self._is_drain_planned:
            self._is_drain_planned = True
            self._loop.call_soon(self._drain)

    def _drain(self) -> None:
        self._is_drain_planned = False
        if self._is_closed:
            return
        was_blocked = self.is_blocked
        for answered in self._answers.flushed(self._pending):
            self._unacknowledged -= answered.size
            if answered.asked is not None:
                self._admitting.done(answered.asked)
        if self._answers.waits_for_durable:
            self._on_durable(self)
        if was_blocked and not self.is_blocked:
            self._connection.go_on()

    def durable(self, epochs: Mapping[int, int]) -> bool:
        """Answer what is durable now, given how far each shard is; false if nothing more is waited for."""
        if not self._is_closed:
            self._answers.durable(epochs)
        return self._answers.waits_for_durable and not self._is_closed
