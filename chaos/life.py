"""One life of a shard in the simulation: the core, the writer's steps as separate actions, and waiting clients.

Belongs here: the work of `tidemark/coordinator/shard.py`'s threads, here one step at a time, and checks of the shard
after every step. `simulation.py` decides on the order of steps.
"""

from collections.abc import Callable, Sequence
from enum import Enum
from random import Random
from typing import Any

from chaos.checker import check_batch, check_read, check_recovered, check_view
from chaos.history import History, Limit, Raised, ViolationError, must
from chaos.lake import Lake
from chaos.scale import FILES, Scale, draw_rules
from chaos.stored import Stored, rows_of
from chaos.traffic import Write
from chaos.watching import BusyDisk, StepSealing, watch
from tidemark.coordinator.core import ShardCore, WriteGroup, WriteTicket
from tidemark.coordinator.engine import State
from tidemark.coordinator.flusher import LogSnapshot
from tidemark.delivery.batching import Batch
from tidemark.log.control import Control, EarliestRaised, VectorsCut
from tidemark.model.shard_errors import OutcomeUnknownError, ShardStoppedError


class Doing(Enum):
    """The writer's current step."""

    LOOKING = "looking"
    TAKEN = "taken"
    PERSISTED = "persisted"
    DELIVERING = "delivering"


class Life:
    """A shard from its start to its end, whatever that is."""

    def __init__(
        self,
        scale: Scale,
        disk: BusyDisk,
        clock: Callable[[], int],
        random: Random,
        history: History,
        stored: Stored,
        lake: Lake,
    ) -> None:
        self.disk, self.history, self.stored, self.lake = disk, history, stored, lake
        self._random = random
        self.sealing = StepSealing()
        self.is_busy = False  # whether the disk works while the door is open
        self.is_stopping = self.is_over = False
        # Writes whose outcome no client was told yet.
        self.waiting: dict[tuple[str, int], tuple[Write, WriteTicket]] = {}
        self._closed: list[Batch] = []  # on their way to the subscribers
        self._delivered: list[Batch] = []  # taken by subscribers
        self._requested: list[Control] = []  # limits to raise that no group has taken yet
        self._doing = Doing.LOOKING
        self._group: WriteGroup | None = None
        self._snapshot: LogSnapshot | None = None
        rules = draw_rules(random, scale.settings)
        self.core = ShardCore(
            FILES,
            scale.settings,
            clock,
            disk,
            self.sealing,
            durable_epoch=lake.durable_epoch,
            group_bytes=scale.group_bytes,
            reserved_ahead=scale.reserved_ahead,
            rules=rules,
            resets=[each.at_us for each in history.resets],
        )
        history.rules[self.core.flusher.incarnation] = rules
        watch(self.core.engine)
        stored.look(disk)
        check_recovered(self.core, stored, history, lake)
        self.look()

    @property
    def has_failed(self) -> bool:
        """Whether the shard has stopped for good."""
        return self.core.engine.failure is not None

    # The writer.

    def write(self) -> None:
        """The writer's next step, as `Shard._run` takes it; an error on the way is the end of the shard."""
        if self.is_over:
            return
        try:
            self._write()
        except (OSError, ShardStoppedError) as error:
            # An error of the disk; or the door has stopped the shard meanwhile, and the writer has noticed.
            what = f"the writer of a shard that runs was stopped: {error}"
            must(isinstance(error, OSError) or self.has_failed, "C4", what)
            self.history.note(f"the writer stops: {error}")
            self.core.fail(error)
            self.is_over = True
        self.look()

    def _write(self) -> None:
        core = self.core
        if self._doing is Doing.LOOKING:
            if core.has_work():
                self._group = core.take()
                self.history.note(f"takes group {self._group.number} up to epoch {self._group.last_epoch}")
                self._note_raising(self._group)
                self._doing = Doing.TAKEN
            else:
                self._doing = Doing.DELIVERING
        elif self._doing is Doing.TAKEN and self._group is not None:
            self._snapshot = self._at_work(core.persist, self._group)
            self._doing = Doing.PERSISTED
        elif self._doing is Doing.PERSISTED and self._group is not None and self._snapshot is not None:
            core.publish(self._group, self._snapshot)
            self.history.note(f"publishes group {self._group.number} up to epoch {core.engine.flushed_epoch}")
            self.history.raise_limits(is_logged=True)
            self._doing = Doing.DELIVERING
        else:
            batch = core.close_batch()
            if batch is None:
                self._doing = Doing.LOOKING
                return
            check_batch(batch, core)
            self._closed.append(batch)
            self.history.note(f"closes batch {batch.number} of epochs {batch.from_epoch} to {batch.to_epoch}")

    def consume(self) -> None:
        """Finish the subscribers' batches, and deliver those closed meanwhile."""
        while self._delivered:
            self.core.release(self._delivered.pop().bytes)
        for batch in self._closed:
            self.core.settle(batch)
        self._delivered, self._closed = self._closed, []

    def seal(self) -> None:
        """Seal in the background, if a file waits for it."""
        if self.sealing.has_job:
            self._at_work(lambda sealing: sealing.step(), self.sealing)

    def seal_meanwhile(self) -> None:
        """Seal while the writer is at the disk."""
        self.sealing.step()

    def _at_work(self, work: Callable[[Any], Any], on: Any) -> Any:
        self.is_busy = True
        try:
            return work(on)
        finally:
            self.is_busy = False

    def stop(self) -> None:
        """Drain and close (C10); an error on the way is the end of the shard."""
        self.core.stop()
        self.is_stopping = True
        self.history.note("is asked to stop")
        steps = 0
        while not self.is_over and not (self.core.is_drained() and self._doing is Doing.LOOKING):
            self.write()
            steps += 1
            must(steps < 1_000, "C10", "a shard that takes no more does not come to an end")
        if self.is_over:
            return
        while self._closed or self._delivered:
            self.consume()
        if self._requested:
            self.history.raising = _raised(self._requested, self.core.engine.applied_epoch + 1)
        try:
            self.core.close()
        except (OSError, ShardStoppedError) as error:
            must(isinstance(error, OSError) or self.has_failed, "C10", f"a shard that runs cannot close: {error}")
            self.history.note(f"cannot close: {error}")
            self.core.fail(error)
            self.is_over = True
            self.look()
            return
        self.history.raise_limits(is_logged=True)
        self.look()
        self._check_closed()
        self.is_over = True

    def _check_closed(self) -> None:
        engine, tracker = self.core.engine, self.core.tracker
        must(not self.waiting, "C10", f"{len(self.waiting)} writes wait for ever after a clean stop")
        must(engine.flushed_epoch == engine.applied_epoch, "C10", "a clean stop left writes that are not flushed")
        what = f"after a clean stop the tracker reads {tracker.bytes} and {tracker.deltas} deltas"
        must(not any(tracker.bytes.values()) and not tracker.deltas, "C8", what)
        self.history.note(f"has stopped at epoch {engine.applied_epoch}")

    # The door, for callers other than producers.

    def ask_seal(self) -> None:
        """A caller wants everything sealed."""
        self._ask(self.core.ask_seal)

    def ask_batch(self) -> None:
        """A caller wants a batch now."""
        self._ask(self.core.ask_batch)

    def raise_earliest(self, earliest_us: int) -> None:
        """A caller is about to drop old data."""
        if not self.has_failed and not self.is_stopping:
            self._requested.append(EarliestRaised(earliest_us))
        self._ask(lambda: self.core.raise_earliest(earliest_us))

    def cut_vectors(self, cut_us: int) -> None:
        """A caller is about to remove payloads of vectors."""
        if not self.has_failed and not self.is_stopping:
            self._requested.append(VectorsCut(cut_us, behind_epoch=0))
        self._ask(lambda: self.core.cut_vectors(cut_us))

    def _note_raising(self, group: WriteGroup) -> None:
        """Note the limits in a group, and the writes they apply to: all of its own, too."""
        messages = [message for part in group.frozen for message in part.controls]
        writes = [write.epoch for part in group.frozen for write in part.writes]
        raising = _raised(messages, min(writes, default=group.last_epoch + 1))
        if raising:
            self.history.raising = raising
            self._requested.clear()

    def _ask(self, what: Callable[[], None]) -> None:
        try:
            what()
        except ShardStoppedError:
            must(self.has_failed or self.is_stopping, "C4", "a shard that runs says that it has stopped")

    # Checks.

    def look(self) -> None:
        """Check everything visible after a step, and note the answers that follow for waiting clients."""
        engine, history = self.core.engine, self.history
        applied, flushed = engine.applied_epoch, engine.flushed_epoch
        must(applied >= history.applied, "C2", f"the applied watermark fell from {history.applied} to {applied}")
        history.applied = applied
        history.flushed[history.life] = max(history.flushed.get(history.life, 0), flushed)
        durable = self.core.durable_epoch()
        must(durable >= history.durable, "C2", f"the durable watermark fell from {history.durable} to {durable}")
        history.durable = durable
        what = f"applied {applied}, flushed {flushed} and durable {durable} are not in order"
        must(applied >= flushed >= durable, "C2", what)
        if min(self.core.tracker.bytes.values()) < 0:
            raise ViolationError("C8", f"the tracker reads {self.core.tracker.bytes}")
        if self.waiting:
            for key, (write, ticket) in sorted(self.waiting.items(), key=lambda item: item[1][1].epoch):
                self._look_at(key, write, ticket, flushed)
        if self.has_failed:
            must(engine.state is State.FAILED, "C4", f"a shard that has failed says that it is {engine.state}")
            must(not self.waiting, "C3", f"the shard has failed, and {list(self.waiting)} are not told")

    def _look_at(self, key: tuple[str, int], write: Write, ticket: WriteTicket, flushed: int) -> None:
        history = self.history
        if ticket.epoch and ticket.epoch not in history.given:
            history.give(ticket.epoch, write)
        if ticket.error is not None:
            self._look_at_error(write, ticket)
            del self.waiting[key]
        elif ticket.epoch and ticket.epoch <= flushed:
            history.acknowledge(write, ticket.epoch)
            del self.waiting[key]

    def _look_at_error(self, write: Write, ticket: WriteTicket) -> None:
        error = ticket.error
        is_known = isinstance(error, OutcomeUnknownError | ShardStoppedError)
        must(is_known, "C7", f"{write.name} ended with {error!r}", write.name)
        must(getattr(error, "write", None) is ticket.write.deltas, "C3", f"{write.name} was not given back", write.name)
        if isinstance(error, OutcomeUnknownError):
            must(ticket.epoch == error.epoch, "C7", f"{write.name} is unknown under another epoch", write.name)
            self.history.note(f"{write.name}: outcome unknown, epoch {ticket.epoch}")
        else:
            self.history.give_back(write, ticket.epoch)
        self.history.count(type(error).__name__)

    def note_epochs(self) -> None:
        """Note epochs at the end of a life that were given out and that no check has seen yet."""
        for write, ticket in sorted(self.waiting.values(), key=lambda item: item[1].epoch):
            if ticket.epoch and ticket.epoch not in self.history.given:
                self.history.give(ticket.epoch, write)
        self.history.applied = max(self.history.applied, self.core.engine.applied_epoch)

    # Readers.

    def view(self) -> None:
        """Read as a reader of its own writes."""
        if not self.has_failed:
            check_view(self.core.view(), self.history)

    def read(self) -> None:
        """Read as a plain reader."""
        snapshot = self.core.engine.snapshot
        check_read(rows_of(snapshot.read()), snapshot.epoch, self.history)
        self.history.count("reads")

    def drain(self) -> None:
        """Let the lake take sealed segments."""
        self.lake.drain(self.disk, self.stored, self._random)
        self.look()


def _raised(messages: Sequence[Control], from_epoch: int) -> list[Raised]:
    """The limits in these messages, each once."""
    events = [message.earliest_us for message in messages if isinstance(message, EarliestRaised)]
    cuts = [message.cut_us for message in messages if isinstance(message, VectorsCut)]
    said = ((Limit.EVENTS, events), (Limit.VECTORS, cuts))
    return [Raised(limit, max(earliest), from_epoch) for limit, earliest in said if earliest]
