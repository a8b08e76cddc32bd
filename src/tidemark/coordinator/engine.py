"""The heart of a coordinator: the order of one writer's steps, for any kind of write (C1 to C4, C6, C8, C11).

Belongs here: numbering, the queue in front of a full buffer, what is applied, frozen and flushed, and which callers may
learn of it. It knows neither deltas nor disks: a *buffer* takes writes in and is frozen, a *flusher* makes frozen
buffers safe, in order and as one, and gives the next snapshot; an error from it means that the outcome is unknown. It
has no thread, no lock and no sleep either: its owner calls it from one thread at a time, except `flusher.persist`,
which takes long and needs no lock. `writer.py` is one owner, a simulation another.

    submit ─▶ (queue) ─▶ buffer ─▶ take: freeze ─▶ flusher.persist ─▶ publish: snapshot, flushed epoch, waiters
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from tidemark.coordinator.bounds import Place, Tracker
from tidemark.coordinator.epochs import Epochs
from tidemark.coordinator.queue import FairQueue
from tidemark.model.deltas import Priority
from tidemark.model.shard_errors import CoordinatorError, OutcomeUnknownError, ShardStoppedError, how_to_go_on

W = TypeVar("W")
F = TypeVar("F")
S = TypeVar("S")
W_contra = TypeVar("W_contra", contravariant=True)
F_co = TypeVar("F_co", covariant=True)


class Buffer(Protocol[W_contra, F_co]):
    """Where writes gather in memory, in the order of their epochs."""

    def apply(self, epoch: int, write: W_contra) -> None:
        """Take one write in."""

    def is_empty(self) -> bool:
        """Whether nothing was applied since the last freeze."""

    def freeze(self) -> F_co:
        """Everything in it, never to change again; the buffer is empty afterwards."""


class State(StrEnum):
    """What a coordinator is doing (C4). While it flushes, it goes on taking writes."""

    IDLE = "idle"
    ACCUMULATING = "accumulating"
    FLUSHING = "flushing"
    FAILED = "failed"


class Ticket(Generic[W]):
    """A write that was taken. `epoch` is 0 until it has one, because 0 means "nothing yet"."""

    __slots__ = ("deltas", "details", "epoch", "error", "listeners", "result", "size", "submitted_us", "write")

    def __init__(self, write: W, size: int, deltas: int, submitted_us: int) -> None:
        self.write, self.size, self.deltas, self.submitted_us = write, size, deltas, submitted_us
        self.epoch = 0
        self.error: CoordinatorError | None = None  # why it will never be flushed by this process
        self.result: object = None  # what its owner reports of it once it is flushed
        self.details: object = None  # and more of the same
        self.listeners: list[Any] = []  # for its owner's use: callers to notify


class Group(NamedTuple, Generic[W, F]):
    """The writes that are flushed together. `number` counts groups, with writes or without."""

    number: int
    frozen: tuple[F, ...]
    tickets: tuple[Ticket[W], ...]
    size: int
    deltas: int
    last_epoch: int  # flushed when this group is


class View(NamedTuple, Generic[F, S]):
    """What a reader of its own writes sees: the snapshot, then the frozen buffers, up to `epoch` inclusive (C11)."""

    snapshot: S
    frozen: tuple[F, ...]
    epoch: int


class Engine(Generic[W, F, S]):
    """Numbers writes, gathers them, has them flushed, and never reports more than is true."""

    def __init__(
        self,
        buffer: Buffer[W, F],
        snapshot: S,
        epochs: Epochs,
        tracker: Tracker,
        *,
        name: int,
        group_bytes: int,
        on_state: Callable[[State], object] = lambda _: None,
    ) -> None:
        self._buffer, self._epochs, self.tracker = buffer, epochs, tracker
        self._name, self._group_bytes, self._on_state = name, group_bytes, on_state
        self.snapshot = snapshot
        self.flushed_epoch = epochs.last
        self.state = State.IDLE
        self.failure: BaseException | None = None
        self.groups_taken = self.groups_flushed = 0
        self._queue: FairQueue[Ticket[W]] = FairQueue()
        self._buffered: list[Ticket[W]] = []  # in the buffer, or frozen and not yet taken
        self._buffered_size = 0
        self._frozen: list[F] = []
        self._in_flight: Group[W, F] | None = None

    @property
    def applied_epoch(self) -> int:
        """Last epoch that was given out; 0 if none."""
        return self._epochs.last

    @property
    def queued(self) -> int:
        """Writes that wait in the queue."""
        return len(self._queue)

    @property
    def has_writes(self) -> bool:
        """Whether any write is not flushed yet."""
        return bool(self._buffered or self._in_flight or self._queue)

    @property
    def next_since_us(self) -> int | None:
        """When the write that is next for the disk came; None if none waits."""
        if self._buffered:
            return self._buffered[0].submitted_us
        return self._queue.first().submitted_us if self._queue else None

    @property
    def has_frozen(self) -> bool:
        """Whether a reader's view has frozen something that no group has taken yet."""
        return bool(self._frozen)

    def last_queued(self, producer: str) -> W | None:
        """The last write of a producer in the queue, if there is one."""
        ticket = self._queue.last_of(producer)
        return ticket.write if ticket is not None else None

    def submit(
        self, write: W, *, size: int, deltas: int, producer: str, now_us: int, priority: Priority = Priority.NORMAL
    ) -> Ticket[W]:
        """Take a write in, or raise and leave everything as it was."""
        self.refuse_if_failed(write)
        self.tracker.check(size, deltas, write)
        ticket = Ticket(write, size, deltas, now_us)
        if self._queue or self._buffered_size >= self._group_bytes:
            self._queue.push(producer, priority, now_us, ticket)
            self.tracker.take(Place.QUEUED, size, deltas)
        else:
            self._apply(ticket)
            self.tracker.take(Place.BUFFERED, size, deltas)
        self._show_state()
        return ticket

    def take(self) -> Group[W, F]:
        """Everything applied so far, as the next group; queued writes are applied after it. One group at a time."""
        self.refuse_if_failed()
        self._freeze()
        self.groups_taken += 1
        group = Group(
            self.groups_taken,
            tuple(self._frozen),
            tuple(self._buffered),
            self._buffered_size,
            sum(ticket.deltas for ticket in self._buffered),
            self.applied_epoch,
        )
        self._frozen, self._buffered, self._buffered_size = [], [], 0
        self._in_flight = group
        self.tracker.move(Place.BUFFERED, Place.IN_FLIGHT, group.size)
        self._show_state()
        while self._queue and self._buffered_size < self._group_bytes:
            ticket = self._queue.first()
            self._apply(ticket)  # may raise; then it is still in the queue
            self._queue.pop()
            self.tracker.move(Place.QUEUED, Place.BUFFERED, ticket.size)
        return group

    def publish(self, group: Group[W, F], snapshot: S) -> None:
        """The group is safe: show it to readers, and only then raise the flushed epoch (C6).

        Raises if the door has failed meanwhile: the group was given back as unknown, and stays so until a restart.
        """
        self.refuse_if_failed()
        self.snapshot = snapshot
        self.flushed_epoch = group.last_epoch
        self.groups_flushed = group.number
        self._in_flight = None
        self.tracker.release(Place.IN_FLIGHT, group.size, group.deltas)
        self._show_state()

    def view(self) -> View[F, S]:
        """Snapshot and buffers in one step: no epoch appears twice or in part."""
        self._freeze()
        in_flight = self._in_flight.frozen if self._in_flight else ()
        return View(self.snapshot, (*in_flight, *self._frozen), self.applied_epoch)

    def fail(self, error: BaseException) -> list[Ticket[W]]:
        """Stop for good, at the last flushed epoch (C3). Unflushed writes are given back with their outcome, if known.

        The outcome of a group in flight is unknown; of later writes nothing was written.
        """
        if self.failure is not None:
            return []
        self.failure = error
        in_flight = list(self._in_flight.tickets) if self._in_flight else []
        for ticket in in_flight:
            ticket.error = OutcomeUnknownError(ticket.epoch, error, ticket.write)
        untouched = [*self._buffered, *self._queue.clear()]
        for ticket in untouched:
            why = f"{how_to_go_on(error)} Nothing of this write was written: send it again."
            ticket.error = ShardStoppedError(self._name, why, ticket.write)
        self._buffered, self._frozen, self._in_flight = [], [], None
        for place in (Place.QUEUED, Place.BUFFERED, Place.IN_FLIGHT):
            self.tracker.bytes[place] = 0
        self.tracker.deltas = 0
        self._show_state()
        return in_flight + untouched

    def refuse_if_failed(self, write: object = None) -> None:
        """Raise if it has stopped for good."""
        if self.failure is not None:
            raise ShardStoppedError(self._name, how_to_go_on(self.failure), write) from self.failure

    def _apply(self, ticket: Ticket[W]) -> None:
        # The number is reserved on the disk before it is used; if that fails, nothing happened.
        ticket.epoch = self._epochs.take()
        self._buffer.apply(ticket.epoch, ticket.write)
        self._buffered.append(ticket)
        self._buffered_size += ticket.size

    def _freeze(self) -> None:
        if not self._buffer.is_empty():
            self._frozen.append(self._buffer.freeze())

    def _show_state(self) -> None:
        if self.failure is not None:
            state = State.FAILED
        elif self._in_flight is not None:
            state = State.FLUSHING
        else:
            state = State.ACCUMULATING if self._buffered or self._queue else State.IDLE
        if state is not self.state:
            self.state = state
            self._on_state(state)
