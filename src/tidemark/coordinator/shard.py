"""One shard, for threads: writing, waiting, subscribing, shutting down (C1, C6, C9, C10).

Belongs here: the public calls, the lock each takes, and how callers wait. The steps and their order are in `core.py`;
the threads that run them are in `writer.py`; the API for asyncio is in `aio.py`.
"""

import secrets
import threading
import time
from collections.abc import Callable, Sequence

from filelock import FileLock, Timeout

from tidemark.coordinator.aio import Listener
from tidemark.coordinator.bounds import Place, ShardLoad, measure
from tidemark.coordinator.core import ShardCore, WriteTicket
from tidemark.coordinator.engine import View
from tidemark.coordinator.flusher import LogPart, LogSnapshot
from tidemark.coordinator.handles import Sending, WriteHandle
from tidemark.coordinator.retries import same_write
from tidemark.coordinator.writer import BackgroundSealing, Writer
from tidemark.delivery.batching import Predicate
from tidemark.delivery.queues import Wants
from tidemark.delivery.subscriptions import Subscription
from tidemark.door.decoded import Deltas
from tidemark.event_time.alignment import ShardView
from tidemark.event_time.clock import Clock, steady
from tidemark.log.control import TurnedAway
from tidemark.model.deltas import Level, Priority
from tidemark.model.event_time_rules import EventTimeRules
from tidemark.model.settings import Settings, is_name
from tidemark.model.shard_errors import (
    BackpressureError,
    OutcomeUnknownError,
    ShardBusyError,
    ShardStoppedError,
    WaitTimeoutError,
    WriteFormatError,
)
from tidemark.model.timegrid import SECOND_US
from tidemark.model.turned_away import Tally
from tidemark.observe.metrics import Gauges, Metrics
from tidemark.shard_state.recovery import ShardFiles
from tidemark.storage.disk import Disk
from tidemark.storage.privacy import file_mode, make_directory

# How often a waiter for `durable` looks at the table: a look costs milliseconds, a commit takes seconds.
DURABLE_POLL_SECONDS = 0.2


class Shard:
    """The writer of one shard. Use as a context manager; leaving it drains, flushes, seals and stops (C10)."""

    def __init__(
        self,
        files: ShardFiles,
        settings: Settings,
        clock: Clock,
        disk: Disk,
        durable_epoch: Callable[[], int],
        *,
        predicate: Predicate | None = None,
        rules: EventTimeRules | None = None,
        resets: Sequence[int] = (),
    ) -> None:
        self.number = files.shard
        self._clock = clock = steady(clock, settings.clock_leap_ms * 1_000)
        self._process_lock = lock_process(files)
        self._sealing = BackgroundSealing(self.number)
        try:
            self.core = ShardCore(
                files,
                settings,
                clock,
                disk,
                self._sealing,
                durable_epoch=durable_epoch,
                predicate=predicate,
                rules=rules,
                token=secrets.token_hex(8),
                resets=resets,
            )
        except BaseException:
            self._sealing.shutdown()
            self._process_lock.release()
            raise
        # A thread that holds it may call the door; it is notified whenever something changed that a caller may wait
        # for. Taken without the condition where no thread waits: that saves two calls for every write.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._waiters = 0
        self.metrics = Metrics(self.number, self._gauges)
        self._writer = Writer(self.core, self._changed, settings, clock, files, self.metrics)

    def __enter__(self) -> "Shard":
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()

    @property
    def applied_epoch(self) -> int:
        """Last epoch that was given out; 0 if none."""
        return self.core.engine.applied_epoch

    @property
    def flushed_epoch(self) -> int:
        """Last epoch that is in the log and on the disk."""
        return self.core.engine.flushed_epoch

    @property
    def durable_epoch(self) -> int:
        """Last epoch that is in the lake, as the table's marker says."""
        return self.core.durable_epoch()

    @property
    def failure(self) -> BaseException | None:
        """What stopped it for good; None while it works."""
        return self.core.engine.failure

    def open_producer(self, producer: str, *, is_thin: bool = False, instance: int = 0) -> tuple[int, int]:
        """A new instance of a producer, and the last sequence taken from it; older instances are fenced out.

        If `instance` is the newest one, it goes on: a client that lost an answer is not fenced by itself.
        A thin one sends each of its numbers to every shard, with `skip` where a write has no deltas (W5).
        """
        if not is_name(producer):
            raise WriteFormatError(
                f"{producer!r} is no name for a producer. Use a lower-case letter, then up to 62 of a-z, 0-9 and _."
            )
        with self._changed:
            opened = self.core.open_producer(producer, is_thin=is_thin, instance=instance)
            self._wait_for_next_group()
        return opened

    def producer_instance(self, producer: str) -> int:
        """The newest instance of a producer; 0 if it was never opened."""
        with self._lock:
            return self.core.producer_instance(producer)

    def try_write(
        self, producer: str, instance: int, sequence: int, deltas: Deltas, priority: Priority = Priority.NORMAL
    ) -> WriteHandle:
        """Take a write in, or raise at once and give it back; a retry gets the epoch of the first time (Q2)."""
        size = measure(deltas)
        with self._lock:
            sending = self._submit(producer, instance, sequence, deltas, size, priority)
        return WriteHandle(self, same_write(producer, sending, deltas))

    def skip(self, producer: str, instance: int, sequence: int) -> WriteHandle:
        """Use a number up for a write that has no deltas for this shard (W5). Its handle says when that is flushed."""
        with self._changed:
            sending = self.core.skip(producer, instance, sequence)
            self._changed.notify_all()
        return WriteHandle(self, same_write(producer, sending, []))

    def refuse(self, producer: str, instance: int, sequence: int, why: str) -> WriteHandle:
        """Refuse a write for good that nothing could be made of, and use its number up (Q2)."""
        with self._changed:
            sending = self.core.refuse(producer, instance, sequence, why)
            self._changed.notify_all()
        return WriteHandle(self, sending)

    def write(
        self,
        producer: str,
        instance: int,
        sequence: int,
        deltas: Deltas,
        priority: Priority = Priority.NORMAL,
        *,
        timeout: float | None = None,
    ) -> WriteHandle:
        """Take a write in. While there is no room, wait; after `timeout` seconds give it back (C8)."""
        size = measure(deltas)
        deadline = None if timeout is None else time.monotonic() + timeout
        sending: Sending | None = None
        with self._changed:
            while sending is None:
                try:
                    sending = self._submit(producer, instance, sequence, deltas, size, priority)
                except BackpressureError as full:
                    left = full.retry_after_s if deadline is None else deadline - time.monotonic()
                    if left <= 0 or (deadline is None and not full.passes_by_itself):
                        raise
                    # Notified when there is room again; free disk space is checked again after a while.
                    self._changed.wait(min(left, full.retry_after_s))
        return WriteHandle(self, same_write(producer, sending, deltas))

    def _submit(
        self, producer: str, instance: int, sequence: int, deltas: Deltas, size: int, priority: Priority
    ) -> Sending:
        was_idle = not self.core.engine.has_writes
        sending = self.core.submit(producer, instance, sequence, deltas, size, priority)
        if was_idle:
            self._changed.notify_all()
        return sending

    def wait_applied(self, ticket: WriteTicket, timeout: float | None) -> int:
        """Return a write's epoch when it has one."""
        with self._changed:
            if not self._changed.wait_for(lambda: ticket.epoch or ticket.error, timeout):
                raise WaitTimeoutError(0, "applied", timeout or 0.0)
        if ticket.error is not None:
            raise ticket.error
        return ticket.epoch

    def listen(self, ticket: WriteTicket, listener: Listener) -> bool:
        """Notify a listener when a write is flushed; false if it is flushed already."""
        with self._lock:
            if ticket.error is not None:
                raise ticket.error
            if ticket.result is not None:
                return False
            ticket.listeners.append(listener)
            return True

    def flush(self, epoch: int | None = None, level: Level = Level.FLUSHED, timeout: float | None = None) -> None:
        """Return when `epoch` (default: the last one given out) has reached `level` (C6)."""
        wanted = self.applied_epoch if epoch is None else epoch
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._changed:
            if epoch is not None:  # the last one may have been lost in a crash, and then there is nothing to wait for
                self.core.check_epoch(wanted)
            if level is Level.APPLIED:
                return
            engine = self.core.engine
            self._waiters += 1
            is_there = self._changed.wait_for(lambda: engine.flushed_epoch >= wanted or engine.failure, timeout)
            self._waiters -= 1
            if not is_there:
                raise WaitTimeoutError(wanted, "flushed", timeout or 0.0)
            if engine.flushed_epoch < wanted:
                raise OutcomeUnknownError(wanted, engine.failure or ShardStoppedError(self.number, "it stopped."))
        if level is Level.DURABLE:
            self._wait_durable(wanted, deadline, timeout)

    def _wait_durable(self, epoch: int, deadline: float | None, timeout: float | None) -> None:
        if epoch > self.core.sealed_epoch and not self.core.is_stopping:
            self.seal()
        while self.durable_epoch < epoch:
            if deadline is not None and time.monotonic() >= deadline:
                raise WaitTimeoutError(epoch, "durable", timeout or 0.0)
            time.sleep(DURABLE_POLL_SECONDS)

    def load(self) -> ShardLoad:
        """How busy it is."""
        with self._lock:
            return self.core.load()

    def seal(self) -> None:
        """Seal everything taken so far into segments, and return when the manifest names them."""
        with self._changed:
            self.core.ask_seal()
            self._wait_for_next_group()
        self._sealing.wait()

    def close_batch(self) -> None:
        """Deliver everything that is flushed as a batch now; returns at once when nothing is pending (C5)."""
        with self._changed:
            self.core.ask_batch()
            mine = self._writer.ask_batch()
            self._changed.wait_for(lambda: self._writer.batches_answered >= mine or self.core.engine.failure)
            self.core.engine.refuse_if_failed()

    def subscribe(self, wants: Wants | None = None) -> Subscription:
        """Batches from now on, those that `wants` accepts. A slow subscriber is notified, and delays no other (C9)."""
        with self._changed:
            self.core.engine.refuse_if_failed()
            return self._writer.subscriptions.subscribe(wants)

    def snapshot(self) -> LogSnapshot:
        """What plain readers see: everything flushed."""
        return self.core.engine.snapshot

    def view(self) -> View[LogPart, LogSnapshot]:
        """What a reader of its own writes sees: everything applied (C11)."""
        with self._changed:
            return self.core.view()

    def event_time(self) -> ShardView:
        """How far event time has come in the log."""
        with self._changed:
            return self.core.event_time

    def adopt(self, stream: tuple[str, str], watermark_us: int) -> None:
        """Let a watermark follow those of the other shards (T2)."""
        with self._changed:
            self.core.adopt(stream, watermark_us)
            self._changed.notify_all()

    def raise_earliest(self, earliest_us: int) -> None:
        """Refuse events that are older, from now on and for ever; returns when that is in the log (D9, R5)."""
        with self._changed:
            self.core.raise_earliest(earliest_us)
            self._wait_for_next_group()

    def cut_vectors(self, cut_us: int) -> None:
        """Refuse changes to vectors that are older, from now on and for ever; returns when that is in the log (K4)."""
        with self._changed:
            self.core.cut_vectors(cut_us)
            self._wait_for_next_group()

    def begin_counting(self, now_us: int) -> None:
        """From here on a door counts what it turns away; returns when that is in the log (A3)."""
        with self._changed:
            self.core.turn_away(TurnedAway(Tally(), now_us, now_us), is_urgent=True)
            self._wait_for_next_group()

    def turn_away(self, message: TurnedAway) -> None:
        """A door has turned this away; it is in the log with the next write, at the latest after a minute (A3)."""
        with self._lock:
            self.core.turn_away(message)

    def shutdown(self) -> None:
        """Drain the queue, flush, seal, stop, and release the shard (C10)."""
        with self._changed:
            if self.core.is_stopping:
                return
            self.core.stop()
            self._changed.notify_all()
        self._writer.join()
        self._sealing.shutdown()
        self._process_lock.release()
        if (failure := self.core.engine.failure) is not None:
            raise ShardStoppedError(self.number, f"it failed before it was shut down: {failure}") from failure

    def _gauges(self) -> Gauges:
        """The current values for the metrics. It reads the lake, so this takes a while."""
        durable_epoch = self.durable_epoch
        with self._changed:
            sizes, engine, limits = self.core.tracker.bytes, self.core.engine, self.core.batcher.limits(self._clock())
            return Gauges(
                pending_bytes=sizes[Place.PENDING],
                in_flight_bytes=sizes[Place.IN_FLIGHT] + sizes[Place.BUFFERED],
                queued_writes=engine.queued,
                queued_bytes=sizes[Place.QUEUED],
                waiters=self._waiters,
                applied_epoch=engine.applied_epoch,
                flushed_epoch=engine.flushed_epoch,
                durable_epoch=durable_epoch,
                subscribers=len(self._writer.subscriptions),
                limit_seconds=limits.limit_us / SECOND_US,
                target_writes=limits.target_writes,
            )

    def _wait_for_next_group(self) -> None:
        """Return when everything that is in the buffer now is flushed. The caller holds the lock."""
        engine = self.core.engine
        wanted = engine.groups_taken + 1
        self._changed.notify_all()
        self._changed.wait_for(lambda: engine.groups_flushed >= wanted or engine.failure)
        engine.refuse_if_failed()


def lock_process(files: ShardFiles) -> FileLock:
    """Lock a shard for the one process that may write it; raise if another has it. Release it in the end."""
    make_directory(files.log)
    # The thread that shuts the shard down need not be the one that opened it.
    lock = FileLock(files.log / "writer.lock", mode=file_mode(), thread_local=False)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise ShardBusyError(files.shard, files.log / "writer.lock") from None
    return lock
