"""A shard without threads: the door, the writer's steps, and delivery (C1 to C13, Q1 to Q3, T2).

Belongs here: how the parts of a shard work together. Its owner calls the door and the steps one at a time; only
`persist` may run at the same time as the door. `shard.py` does that with threads and a lock, a simulation by seed.

    door    open_producer, submit, ask_seal, adopt
    writer  has_work ─▶ take ─▶ persist ─▶ publish ─▶ close_batch, again and again
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from tidemark.coordinator.bounds import GROUP_BYTES, Place, ShardLoad, Tracker, most_bytes_logged
from tidemark.coordinator.engine import Engine, Group, State, Ticket, View
from tidemark.coordinator.epochs import RESERVED_AHEAD, Epochs
from tidemark.coordinator.flusher import ArrivedWrite, LogBuffer, LogFlusher, LogPart, LogSnapshot, Sealing
from tidemark.coordinator.handles import NOTHING_DECIDED, Sending
from tidemark.coordinator.unlogged import Unlogged
from tidemark.delivery.batching import Batch, Batcher, Predicate
from tidemark.door.decoded import Deltas
from tidemark.event_time.clock import Clock, steady
from tidemark.log.batch_record import BatchRecord, Trigger
from tidemark.log.control import (
    BatchClosed,
    EarliestRaised,
    NumberUsed,
    ProducerOpened,
    TurnedAway,
    VectorsCut,
    WriteRefused,
)
from tidemark.log.frames import PAYLOAD_LIMIT
from tidemark.log.log_rows import LogRows
from tidemark.model.deltas import Priority
from tidemark.model.event_time_rules import EventTimeRules, Stream
from tidemark.model.settings import Settings
from tidemark.model.shard_errors import (
    BackpressureError,
    EmptyWriteError,
    EpochLostError,
    EpochNotAssignedError,
    OutcomeUnknownError,
    ShardStoppedError,
    WriteRefusedError,
    WriteTooLargeError,
    how_to_go_on,
)
from tidemark.shard_state.recovery import ShardFiles, recover
from tidemark.storage.disk import Disk
from tidemark.verdicts.told_rows import NOTHING_TOLD

WriteTicket: TypeAlias = Ticket[ArrivedWrite]
WriteGroup: TypeAlias = Group[ArrivedWrite, LogPart]

# The latest states, for the tests and tools that ask what happened.
REMEMBERED_STATES = 100


class Transition(NamedTuple):
    """A change of state (C4)."""

    at_us: int
    state: State


class ShardCore:
    """One shard, in the order in which its owner calls it."""

    def __init__(
        self,
        files: ShardFiles,
        settings: Settings,
        clock: Clock,
        disk: Disk,
        sealing: Sealing,
        *,
        durable_epoch: Callable[[], int] = lambda: 0,
        predicate: Predicate | None = None,
        group_bytes: int = GROUP_BYTES,
        reserved_ahead: int = RESERVED_AHEAD,
        rules: EventTimeRules | None = None,
        token: str = "",
        resets: Sequence[int] = (),
    ) -> None:
        self.number = files.shard
        self._table_epoch = durable_epoch
        clock = steady(clock, settings.clock_leap_ms * 1_000)
        self._clock = clock
        found = recover(disk, files, settings, durable_epoch(), rules, token, resets)
        clock.expect(found.last_received_us)
        self._fence = found.fence
        self._producers = found.producers
        self._lost = found.lost
        self._first_epoch, self._found_epoch = found.next_epoch, found.logged_epoch
        self._manifest = found.manifest
        self._unflushed: dict[tuple[str, int], WriteTicket] = {}
        self.transitions: deque[Transition] = deque(maxlen=REMEMBERED_STATES)
        self.tracker = Tracker(settings.bounds)
        self._buffer = LogBuffer(found.last_received_us)
        self.flusher = LogFlusher(files, settings, clock, disk, found, sealing)
        self.engine: Engine[ArrivedWrite, LogPart, LogSnapshot] = Engine(
            self._buffer,
            self.flusher.snapshot(),
            Epochs(found.next_epoch, found.fence.reserve, reserved_ahead),
            self.tracker,
            name=self.number,
            group_bytes=group_bytes,
            on_state=lambda state: self.transitions.append(Transition(clock(), state)),
        )
        self.event_time = self.flusher.event_time()  # what the other shards may know
        self.batcher = Batcher(settings.batch, found.next_batch, predicate)
        self.last_batch: BatchRecord | None = None
        self._is_batch_asked = self.is_stopping = False
        self._unlogged = Unlogged(found.books, clock)
        for rows in found.unbatched:
            self._gather(rows, len(rows.writes.epochs))
            while (batch := self.close_batch()) is not None:
                self.settle(batch)
                self.release(batch.bytes)  # there can be no subscriber yet

    # The door.

    def open_producer(self, producer: str, *, is_thin: bool = False, instance: int = 0) -> tuple[int, int]:
        """An instance of a producer, and the last sequence taken from it; certain once it is flushed.

        A thin one sends every number to every shard of the platform (W5).
        """
        self._refuse_if_stopped()
        instance = self._producers.open(producer, is_thin=is_thin, instance=instance)
        self._buffer.note(ProducerOpened(producer, instance, is_thin))
        return instance, self._producers.mark(producer)

    def producer_instance(self, producer: str) -> int:
        """The newest instance of a producer; 0 if it was never opened."""
        return self._producers.instance(producer)

    def submit(
        self,
        producer: str,
        instance: int,
        sequence: int,
        deltas: Deltas,
        size: int,
        priority: Priority = Priority.NORMAL,
    ) -> Sending:
        """Take a write in; a retry gets the result of the first time (Q2).

        `same_write` checks that it is the same write: that takes a while and needs no lock.
        """
        self._refuse_if_stopped(deltas)
        if not len(deltas):
            raise EmptyWriteError
        if self._producers.is_retry(producer, instance, sequence):
            return self._answer(producer, sequence)
        self.flusher.gauge.check(deltas)
        now_us = self._clock()
        self._clock.check(deltas)
        logged = most_bytes_logged(size, len(deltas))
        try:
            _refuse_beyond_a_frame(logged)
            ticket = self.engine.submit(
                ArrivedWrite(producer, sequence, now_us, deltas, logged),
                size=size,
                deltas=len(deltas),
                producer=producer,
                now_us=now_us,
                priority=priority,
            )
        except WriteTooLargeError as error:
            self._use_up(WriteRefused(producer, sequence, str(error)))
            error.write = deltas
            raise
        except BackpressureError as error:
            error.write = deltas
            raise
        except OSError as error:  # the reservation could not be written
            self.fail(error)
            raise ShardStoppedError(self.number, how_to_go_on(error), deltas) from error
        self._producers.advance(producer, sequence)
        self._unflushed[producer, sequence] = ticket
        return Sending(sequence, False, ticket)

    def skip(self, producer: str, instance: int, sequence: int) -> Sending:
        """Use a number up for a write without deltas for this shard (W5); a retry gets the result of the first time."""
        self._refuse_if_stopped()
        if self._producers.is_retry(producer, instance, sequence):
            return self._answer(producer, sequence)
        return Sending(sequence, False, self._use_up(NumberUsed(producer, sequence)))

    def refuse(self, producer: str, instance: int, sequence: int, why: str) -> Sending:
        """Refuse a write for good that nothing could be made of; its number is used up, the next may follow (Q2)."""
        self._refuse_if_stopped()
        if self._producers.is_retry(producer, instance, sequence):
            ticket = self._unflushed.get((producer, sequence))
            return self._answer(producer, sequence) if ticket is None else Sending(sequence, True, ticket)
        return Sending(sequence, False, self._use_up(WriteRefused(producer, sequence, why)))

    def _use_up(self, message: NumberUsed | WriteRefused) -> WriteTicket:
        """Log that a number is used up without a write; returns what is told when that is flushed."""
        producer, sequence = message.producer, message.sequence
        if isinstance(message, WriteRefused):
            self._producers.refuse(producer, sequence, message.why)
        else:
            self._producers.advance(producer, sequence)
        # In the log the mark must not pass a write that is not there yet.
        self._buffer.note(message, behind=self.engine.last_queued(producer))
        now_us = self._clock()
        ticket = self._unflushed[producer, sequence] = Ticket(
            ArrivedWrite(producer, sequence, now_us, []), 0, 0, now_us
        )
        return ticket

    def ask_seal(self) -> None:
        """Ask for everything taken so far to be sealed with the next group."""
        self._refuse_if_stopped()
        self._buffer.ask_seal()

    def ask_batch(self) -> None:
        """Ask for everything flushed by then to be closed into a batch after the next group (C5)."""
        self._refuse_if_stopped()
        self.batcher.request()
        self._is_batch_asked = True

    def adopt(self, stream: Stream, watermark_us: int) -> None:
        """Let a watermark follow those of the other shards (T2)."""
        self._buffer.adopt(stream, watermark_us)

    def raise_earliest(self, earliest_us: int) -> None:
        """Refuse older events from the next group on, for ever; certain once it is flushed (D9, R5)."""
        self._refuse_if_stopped()
        self._buffer.note(EarliestRaised(earliest_us))

    def cut_vectors(self, cut_us: int) -> None:
        """Refuse older changes to vectors from the next group on, for ever; certain once it is flushed (K4)."""
        self._refuse_if_stopped()
        # Some writes that have an epoch by now may be on their way to the disk, with verdicts that do not know the cut.
        taken = self.engine.applied_epoch
        # Epochs lost before this start are in no segment, and no caller could wait for them.
        self._buffer.note(VectorsCut(cut_us, taken if taken >= self._first_epoch else self._found_epoch))

    def turn_away(self, message: TurnedAway, *, is_urgent: bool = False) -> None:
        """A door has turned this away; logged with the next group, or after a minute (A3)."""
        self._refuse_if_stopped()
        self._unlogged.add(message, self._clock(), is_urgent=is_urgent)

    def stop(self) -> None:
        """Take no more writes; the writer's next steps drain those taken already (C10)."""
        self.is_stopping = True

    def view(self) -> View[LogPart, LogSnapshot]:
        """What a reader of its own writes sees, taken in one step (C11)."""
        return self.engine.view()

    def check_epoch(self, epoch: int) -> None:
        """Raise for an epoch that can never be flushed (C6)."""
        if epoch > self.engine.applied_epoch:
            raise EpochNotAssignedError(epoch, self.engine.applied_epoch)
        is_older = epoch < min(self._first_epoch, self._manifest.to_epoch)  # of an earlier start, and sealed by now
        if any(begin <= epoch < end for begin, end in self._lost) or (is_older and self._manifest.is_lost(epoch)):
            raise EpochLostError(epoch)

    def durable_epoch(self) -> int:
        """Last epoch that is in the lake, as the table's marker says.

        The lake may be ahead of the flushed epoch: a segment can be drained as soon as it is sealed, and its last group
        may not be published yet. A write is never reported as durable before it is reported as flushed (C2).
        """
        return min(self._table_epoch(), self.engine.flushed_epoch)

    @property
    def sealed_epoch(self) -> int:
        """Last epoch that is in a segment."""
        return self._manifest.to_epoch - 1

    # The writer's steps.

    def has_work(self) -> bool:
        """Whether the writer has something to do now."""
        return self.engine.has_writes or self._buffer.is_urgent or self.engine.has_frozen or self._is_due()

    def next_look_us(self) -> int | None:
        """When time alone could give the writer something to do."""
        looks = [self.flusher.next_look_us(), self.batcher.next_look_us(), self._unlogged.due_us]
        return min((look for look in looks if look is not None), default=None)

    def take(self) -> WriteGroup:
        """The next group to flush. Every later write also has a later time of receipt."""
        self.flusher.taken_us = self._clock()
        self._buffer.time_is(self.flusher.taken_us)
        self._unlogged.move_to(self._buffer)
        return self.engine.take()

    def persist(self, group: WriteGroup) -> LogSnapshot:
        """Make the group safe. Needs no lock, and takes as long as the disk does."""
        return self.flusher.persist(group.frozen)

    def publish(self, group: WriteGroup, snapshot: LogSnapshot) -> list[WriteTicket]:
        """The group is safe: show it to readers, then say so. Returns everything that is flushed now."""
        file = self.flusher.file_number
        flushed = list(group.tickets)
        for ticket, outcome, digest in zip(group.tickets, snapshot.outcomes, snapshot.digests, strict=True):
            ticket.result, ticket.details = outcome, snapshot.told.get(ticket.epoch, NOTHING_TOLD)
            producer, sequence = ticket.write.producer, ticket.write.sequence
            self._producers.flushed(producer, sequence, ticket.epoch, digest, file)
            self._unflushed.pop((producer, sequence), None)
        for part in group.frozen:
            for message in part.controls:
                self._producers.noted(message, file)
                if isinstance(message, NumberUsed | WriteRefused):
                    number = self._unflushed.pop((message.producer, message.sequence))
                    number.result = NOTHING_DECIDED
                    flushed.append(number)
        self._producers.forget(self.flusher.next_to_seal)
        self.engine.publish(group, snapshot)
        self.event_time = self.flusher.event_time()
        if snapshot.rows is not None:
            self._gather(snapshot.rows, len(group.tickets))
        return flushed

    def close_batch(self) -> Batch | None:
        """Close the batch that is due, if one is."""
        now_us = self._clock()
        self._is_batch_asked = False
        trigger = self.batcher.due(now_us, is_pressed=self.tracker.is_pressed)
        if self.is_stopping and not self.engine.has_writes:
            trigger = Trigger.SHUTDOWN
        return self.batcher.close(trigger, now_us) if trigger else None

    def settle(self, batch: Batch) -> None:
        """A closed batch is on its way to the subscribers: log it with the next group.

        Compute its record before this call, without a lock: that takes a while.
        """
        self._buffer.note(BatchClosed(batch.record), is_urgent=False)
        self.last_batch = batch.record

    def release(self, size: int) -> None:
        """Give back the bytes of a batch that no subscriber needs any more."""
        self.tracker.release(Place.PENDING, size)

    def is_drained(self) -> bool:
        """Whether a stopping shard has nothing left to do but close its log."""
        return self.is_stopping and not self.engine.has_writes and not self.batcher.pending_deltas

    def close(self) -> None:
        """Log the rest, seal, and leave the reservation where the next start goes on."""
        self.engine.refuse_if_failed()
        self._unlogged.move_to(self._buffer)
        if not self._buffer.is_empty() or self.engine.has_frozen:
            group = self.take()
            self.publish(group, self.persist(group))
        self.flusher.close()
        self._fence.reserve(self.engine.applied_epoch + 1)

    def fail(self, error: BaseException) -> list[WriteTicket]:
        """Stop for good: an fsync is never repeated, and nothing may be written behind a hole (C3, C7)."""
        tickets = self.engine.fail(error)
        for ticket in self._unflushed.values():
            if ticket.error is None and not ticket.deltas:  # a number alone: the same answer may be asked for again
                ticket.error = ShardStoppedError(self.number, how_to_go_on(error))
                tickets.append(ticket)
        for ticket in tickets:
            if isinstance(ticket.error, OutcomeUnknownError | ShardStoppedError):
                ticket.error.write = ticket.write.deltas
        return tickets

    def _answer(self, producer: str, sequence: int) -> Sending:
        if (why := self._producers.refusal(producer, sequence)) is not None:
            raise WriteRefusedError(producer, sequence, why)
        ticket = self._unflushed.get((producer, sequence))
        if ticket is not None:
            return Sending(sequence, True, ticket)
        if (found := self._producers.recent(producer, sequence)) is not None:
            return Sending(sequence, True, None, found.epoch or None, found.epoch, found.digest)
        # It was flushed before all writes that are remembered.
        first = self._producers.first_recent(producer)
        return Sending(sequence, True, None, None, self.engine.flushed_epoch if first is None else first.epoch)

    def _gather(self, rows: LogRows, writes: int) -> None:
        self.tracker.take(Place.PENDING, self.batcher.add(rows, writes, self._clock()))

    def _is_due(self) -> bool:
        look = self.next_look_us()
        return self._is_batch_asked or (look is not None and self._clock() >= look)

    def load(self) -> ShardLoad:
        """How busy it is."""
        since_us = self.engine.next_since_us
        waited_us = 0 if since_us is None else max(0, self._clock() - since_us)
        return ShardLoad(waited_us, self.tracker.deltas, self.tracker.total_bytes)

    def _refuse_if_stopped(self, write: object = None) -> None:
        self.engine.refuse_if_failed(write)
        if self.is_stopping:
            raise ShardStoppedError(self.number, "it is shutting down.", write)


def _refuse_beyond_a_frame(most_bytes: int) -> None:
    """Nothing may be logged that recovery would not read, whatever its verdicts (C14)."""
    if most_bytes > PAYLOAD_LIMIT:
        raise WriteTooLargeError(most_bytes, PAYLOAD_LIMIT, "bytes in the log")
