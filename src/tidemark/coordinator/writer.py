"""The threads of a shard: one writes, one delivers, one seals (C1, C5).

Belongs here: which step comes next, and which of them take the lock. The writer flushes group after group; while it
waits for the disk the next group gathers. After each it notifies waiters and closes the batches that are due. A thread
of its own computes each batch's record and passes the batch to the subscribers: no flush waits for that.
"""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from queue import SimpleQueue

from tidemark.coordinator import aio
from tidemark.coordinator.core import ShardCore, WriteGroup
from tidemark.coordinator.flusher import LogSnapshot
from tidemark.delivery.batching import Batch
from tidemark.delivery.subscriptions import Subscriptions
from tidemark.event_time.clock import Clock, boot_clock
from tidemark.model.deltas import Level
from tidemark.model.settings import Settings
from tidemark.model.shard_errors import ShardStoppedError, how_to_go_on
from tidemark.model.timegrid import SECOND_US
from tidemark.observe.metrics import BatchOutcome, FlushOutcome, Metrics
from tidemark.shard_state.live import LiveFile, LiveStatus
from tidemark.shard_state.recovery import ShardFiles

# The writer wakes at least this often: the clock that it was given need not run like the machine's.
LOOK_SECONDS = 1.0


class BackgroundSealing:
    """Seals on a thread of its own."""

    def __init__(self, shard: int) -> None:
        self._pool = ThreadPoolExecutor(1, thread_name_prefix=f"seal-{shard}")
        self._last: Future[None] | None = None

    def submit(self, job: Callable[[], None]) -> None:
        self._last = self._pool.submit(job)

    def wait(self) -> None:
        if self._last is not None:
            self._last.result()

    def shutdown(self) -> None:
        """Stop the thread."""
        self._pool.shutdown()


class Writer:
    """The writing thread. `changed` is the shard's lock, notified when a value changes that a caller may wait for."""

    def __init__(
        self,
        core: ShardCore,
        changed: threading.Condition,
        settings: Settings,
        clock: Clock,
        files: ShardFiles,
        metrics: Metrics,
    ) -> None:
        self._core, self._changed, self._clock, self._metrics = core, changed, clock, metrics
        self.subscriptions = Subscriptions(settings.batch, clock, release=self._release, delivered=self._delivered)
        self.batches_answered = 0  # of the requested ones
        self._batches_asked = self._batches_closed = 0
        # Closed batches; a number answers the callers that had requested a batch by then; None is the end.
        self._closed: SimpleQueue[Batch | int | None] = SimpleQueue()
        self._shard, self._live = files.shard, LiveFile(files.log)
        self._deliverer = threading.Thread(target=self._deliver, name=f"deliver-{files.shard}", daemon=True)
        self._thread = threading.Thread(target=self._run, name=f"shard-{files.shard}", daemon=True)
        self._deliverer.start()
        self._thread.start()

    def join(self) -> None:
        """Return when it has stopped."""
        self._thread.join()

    def ask_batch(self) -> int:
        """Request a batch now; answered when `batches_answered` has come this far. The caller holds the lock."""
        self._batches_asked += 1
        self._changed.notify_all()
        return self._batches_asked

    def _run(self) -> None:
        try:
            while not self._core.is_drained():
                self._flush_next_group()
                self._close_batches()
                self._live.show(partial(_live_status, self._core, self._shard, self._clock()))
            self._end_delivery()
            self._core.close()
            self.subscriptions.shut()
        except BaseException as error:  # noqa: BLE001 - whatever it is, waiters must hear of it and nothing may be written after it
            self._metrics.flushed(FlushOutcome.FAILED, 0.0)
            self._fail(error)
            self._end_delivery()
            self.subscriptions.shut(ShardStoppedError(self._core.number, how_to_go_on(error)))
        finally:
            self._live.remove()

    def _fail(self, error: BaseException) -> None:
        with self._changed:
            tickets = self._core.fail(error)
            self._changed.notify_all()
        aio.tell(tickets)

    def _flush_next_group(self) -> None:
        core = self._core
        with self._changed:
            self._changed.wait_for(lambda: core.has_work() or core.is_stopping, self._seconds_to_wait())
            if not core.has_work():
                return
            group = core.take()
        started = time.monotonic()
        snapshot = core.persist(group)
        took_s = time.monotonic() - started
        with self._changed:
            flushed = core.publish(group, snapshot)
            self._changed.notify_all()
        aio.tell(flushed)
        if group.tickets:
            self._count(group, snapshot, took_s)

    def _count(self, group: WriteGroup, snapshot: LogSnapshot, took_s: float) -> None:
        now_us = self._clock()
        latencies = [(now_us - ticket.submitted_us) / SECOND_US for ticket in group.tickets]
        accepted, duplicate, refused = map(sum, zip(*snapshot.outcomes, strict=True))
        self._metrics.flushed(FlushOutcome.FLUSHED, took_s, (accepted, duplicate, refused), snapshot.reasons)
        self._metrics.reached(Level.FLUSHED, writes=len(latencies), deltas=group.deltas, latencies=latencies)

    def _close_batches(self) -> None:
        """Close batches that are due; a request is answered once everything before it was delivered."""
        with self._changed:
            asked = self._batches_asked
            while (batch := self._core.close_batch()) is not None:
                self._closed.put(batch)
        if asked > self._batches_closed:
            self._batches_closed = asked
            self._closed.put(asked)

    def _deliver(self) -> None:
        try:
            while (closed := self._closed.get()) is not None:
                if isinstance(closed, int):
                    with self._changed:
                        self.batches_answered = closed
                        self._changed.notify_all()
                else:
                    self._deliver_batch(closed)
        except BaseException as error:  # noqa: BLE001 - as above; the writer notices that the shard has failed
            self._fail(error)

    def _deliver_batch(self, batch: Batch) -> None:
        started = time.monotonic()
        _ = batch.record  # computed here, on first access and without the lock
        with self._changed:
            self._core.settle(batch)
        delivery = self.subscriptions.publish(batch)
        heard = BatchOutcome.DELIVERED if delivery.queues else BatchOutcome.UNHEARD
        outcome = BatchOutcome.MISSED if delivery.missed else heard
        self._metrics.batched(batch.trigger, outcome, time.monotonic() - started)

    def _end_delivery(self) -> None:
        """Return when every closed batch has been delivered."""
        self._closed.put(None)
        self._deliverer.join()

    def _release(self, size: int) -> None:
        """Called when the last subscriber is done with a batch."""
        with self._changed:
            self._core.release(size)
            self._changed.notify_all()

    def _delivered(self, batch: Batch, seconds: float) -> None:
        with self._changed:
            self._core.batcher.delivered(batch, seconds)

    def _seconds_to_wait(self) -> float:
        look = self._core.next_look_us()
        return LOOK_SECONDS if look is None else min(max(look - self._clock(), 0) / SECOND_US, LOOK_SECONDS)


def _live_status(core: ShardCore, shard: int, now_us: int) -> LiveStatus:
    """What other processes see of this shard."""
    batch = core.last_batch
    return LiveStatus(
        shard=shard,
        pid=os.getpid(),
        at_us=now_us,
        state=core.engine.state.value,
        applied_epoch=core.engine.applied_epoch,
        flushed_epoch=core.engine.flushed_epoch,
        queued_writes=core.engine.queued,
        bytes={place.value: size for place, size in core.tracker.bytes.items()},
        is_disk_low=core.flusher.gauge.is_low,
        last_flush_us=core.flusher.taken_us,
        last_batch_trigger=batch.trigger.value if batch else None,
        last_batch_us=batch.closed_us if batch else None,
        batch_limit_ms=core.batcher.limits(now_us).limit_us / 1_000,
        boot_us=boot_clock(),
    )
