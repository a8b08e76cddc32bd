"""Delivery: a bounded queue for each subscriber, into which the writer puts batches without ever waiting (C9).

Belongs here: which subscriber gets which batch, what is skipped, and the account of memory. The subscriber's side is in
`subscriptions.py`.

If a queue is full, the batch is skipped for that subscriber, which finds one `Missed` in its place, covering everything
that was skipped until it got there. Order is always kept.

Memory: a batch is buffered once, from `publish` until the last subscriber has taken or skipped it; then `release` is
called with its bytes, once. A batch that a subscriber has taken is its own: one that stops with a batch in hand takes
no memory from the shard. A subscriber that is forgotten (no reference to it is left) is closed by the next `publish`.

Locks: one of its own, taken briefly and never while foreign code runs. `release` and `delivered` are called without it,
on the thread that caused it: the writer's, a subscriber's or the closing one.
"""

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tidemark.delivery.batching import Batch
from tidemark.model.settings import BatchSettings
from tidemark.model.shard_errors import SubscriptionEndedError
from tidemark.model.timegrid import SECOND_US

Wants = Callable[[Batch], bool]
Waker = tuple[asyncio.AbstractEventLoop, asyncio.Future[None]]


class Missed(NamedTuple):
    """Batches of these epochs (half-open) were skipped: the subscriber was too slow. The snapshot has them."""

    from_epoch: int
    to_epoch: int


Item = Batch | Missed


class Published(NamedTuple):
    """How many subscribers got a batch when it was published."""

    queues: int  # queues that it is in
    missed: int  # how often it, or an older one to make room for it, was skipped


class _Parcel:
    """A batch that was published."""

    __slots__ = ("batch", "slowest_us", "unfinished", "waiting")

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        self.waiting = 0  # subscribers in whose queue it is
        self.unfinished = 0  # those, and the ones that have it in hand
        self.slowest_us: int | None = None  # time of the slowest subscriber that kept up


class Queue:
    """The batches that wait for one subscriber; touched only under the lock of all."""

    def __init__(self, lock: threading.Lock, wants: Wants | None) -> None:
        self.wants = wants
        self.changed = threading.Condition(lock)
        self.wakers: list[Waker] = []
        self.parcels: deque[_Parcel] = deque()
        self.bytes = 0
        self.missed: Missed | None = None  # comes after all parcels
        self.in_hand: _Parcel | None = None
        self.taken_us = 0
        self.is_closed = False
        self.is_forgotten = False

    def forget(self) -> None:
        """Runs when the subscriber is collected, at any time: takes no lock, the next `publish` does the rest."""
        self.is_forgotten = True

    def is_ready(self) -> bool:
        """Whether there is anything for its subscriber."""
        return bool(self.parcels) or self.missed is not None or self.is_closed

    def has_room(self, batch: Batch, settings: BatchSettings) -> bool:
        """Whether a batch fits. An empty queue takes any size: else a large batch would reach no subscriber."""
        if self.missed is not None:
            return False
        return not self.parcels or (
            len(self.parcels) < settings.queue_batches and self.bytes + batch.bytes <= settings.queue_bytes
        )

    def miss(self, from_epoch: int, to_epoch: int) -> None:
        """Skip a batch for this subscriber; one `Missed` covers all until it has been read."""
        self.missed = Missed(self.missed.from_epoch if self.missed else from_epoch, to_epoch)

    def wake(self) -> None:
        """Make waiting readers look again."""
        self.changed.notify_all()
        for loop, future in self.wakers:
            with suppress(RuntimeError):  # a loop that was closed in the meantime has no reader to wake
                loop.call_soon_threadsafe(_resolve, future)
        self.wakers.clear()


class Delivery:
    """The queues of all subscribers of a shard. `publish` belongs to one thread, everything else to any."""

    def __init__(
        self,
        settings: BatchSettings,
        clock: Callable[[], int],
        *,
        release: Callable[[int], None],
        delivered: Callable[[Batch, float], None] | None = None,
    ) -> None:
        self._settings, self._clock = settings, clock
        self._release, self._delivered = release, delivered
        self._lock = threading.Lock()
        self._queues: list[Queue] = []
        self._is_shut = False
        self._failure: BaseException | None = None
        self._finished: list[_Parcel] = []  # to be reported when the lock is free
        self._released_bytes: list[int] = []
        self.buffered_bytes = 0  # of batches that wait for a subscriber
        self.missed_batches = 0  # how often a batch was skipped for a subscriber

    def __len__(self) -> int:
        return len(self._queues)

    def open(self, wants: Wants | None) -> Queue:
        """A queue for one more subscriber."""
        queue = Queue(self._lock, wants)
        with self._lock:
            if not self._is_shut:
                self._queues.append(queue)
        return queue

    def publish(self, batch: Batch) -> Published:
        """Put a batch into every queue. Never waits, and takes over the account of its bytes."""
        with self._lock:
            parcel, missed_before = _Parcel(batch), self.missed_batches
            self._sweep()
            if not self._is_shut:
                self._make_room(batch)
                for queue in self._queues:
                    self._offer(queue, parcel)
            if parcel.waiting:
                self.buffered_bytes += batch.bytes
            else:
                self._released_bytes.append(batch.bytes)
            published = Published(parcel.waiting, self.missed_batches - missed_before)
        self._report()
        return published

    def shut(self, failure: BaseException | None = None) -> None:
        """Take no more batches. Subscribers still get what waits for them, then the end, or the failure.

        The shard is done with waiting batches: their bytes are given back now, whether they are read later or never.
        """
        with self._lock:
            self._sweep()
            self._is_shut, self._failure = True, self._failure or failure
            for queue in self._queues:
                for parcel in queue.parcels:
                    self._let_go(parcel)
                queue.wake()
            self._queues.clear()
        self._report()

    def _sweep(self) -> None:
        for queue in [queue for queue in self._queues if queue.is_forgotten]:
            self._remove(queue)

    def _make_room(self, batch: Batch) -> None:
        """Stay within the bound of all queues together, at the cost of the subscriber that is furthest behind."""
        if not any(queue.has_room(batch, self._settings) for queue in self._queues):
            return
        while self.buffered_bytes + batch.bytes > self._settings.held_bytes and self.buffered_bytes:
            self._skip(min((queue for queue in self._queues if queue.parcels), key=_oldest))

    def _offer(self, queue: Queue, parcel: _Parcel) -> None:
        batch = parcel.batch
        if queue.has_room(batch, self._settings):
            queue.parcels.append(parcel)
            queue.bytes += batch.bytes
            parcel.waiting += 1
            parcel.unfinished += 1
        else:
            queue.miss(batch.from_epoch, batch.to_epoch)
            self.missed_batches += 1
        queue.wake()

    def _skip(self, queue: Queue) -> None:
        """Everything that waits for a subscriber becomes part of what it missed."""
        to_epoch = queue.missed.to_epoch if queue.missed else queue.parcels[-1].batch.to_epoch
        queue.missed = Missed(queue.parcels[0].batch.from_epoch, to_epoch)
        self.missed_batches += len(queue.parcels)
        self._drop(queue)

    def _drop(self, queue: Queue) -> None:
        for parcel in queue.parcels:
            self._let_go(parcel)
            self._finish(parcel)
        queue.parcels.clear()
        queue.bytes = 0

    def _let_go(self, parcel: _Parcel) -> None:
        """The batch is in one queue less."""
        parcel.waiting -= 1
        if not parcel.waiting:
            self.buffered_bytes -= parcel.batch.bytes
            self._released_bytes.append(parcel.batch.bytes)

    def _finish(self, parcel: _Parcel) -> None:
        """One subscriber less is going to use it."""
        parcel.unfinished -= 1
        if not parcel.unfinished and parcel.slowest_us is not None:
            self._finished.append(parcel)

    def _remove(self, queue: Queue) -> None:
        """Close a queue that no subscriber reads any more."""
        if queue in self._queues:
            self._queues.remove(queue)
            self._drop(queue)
        queue.parcels.clear()
        if queue.in_hand is not None:
            self._finish(queue.in_hand)
        queue.in_hand = queue.missed = None
        queue.is_closed = True
        queue.wake()

    def _report(self) -> None:
        """Call foreign code, now that the lock is free; each report once, by the first thread that comes."""
        with self._lock:
            released, self._released_bytes = self._released_bytes, []
            finished, self._finished = self._finished, []
        for size in released:
            self._release(size)
        if self._delivered is not None:
            for parcel in finished:
                self._delivered(parcel.batch, (parcel.slowest_us or 0) / SECOND_US)

    # Calls of a subscriber.

    def next(self, queue: Queue, timeout: float | None) -> Item | None:
        """The next item for this subscriber, waiting for it; None if there was none in that time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while (item := self.poll(queue)) is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            with self._lock:
                queue.changed.wait_for(lambda: self._is_shut or queue.is_ready(), left)
        return item

    def poll(self, queue: Queue, waker: Waker | None = None) -> Item | None:
        """The next item for this subscriber, if there is one; else the waker will be called when there is.

        A subscriber that asks for the next item is done with the one before.
        """
        now_us = self._clock()
        with self._lock:
            self._done(queue, now_us)
            item = self._take(queue, now_us)
            if item is None and waker is not None:
                queue.wakers.append(waker)
        self._report()
        if item is None and (queue.is_closed or (self._is_shut and not queue.is_ready())):
            raise SubscriptionEndedError(None if queue.is_closed else self._failure)
        return item

    def forget_waker(self, queue: Queue, waker: Waker) -> None:
        """Remove a waker that no coroutine waits for any more."""
        with self._lock, suppress(ValueError):
            queue.wakers.remove(waker)

    def close(self, queue: Queue) -> None:
        """Give back everything that waits for this subscriber."""
        with self._lock:
            self._remove(queue)
        self._report()

    def _done(self, queue: Queue, now_us: int) -> None:
        """Note that a subscriber is done with its batch. One that fell behind does not count for the cost."""
        parcel, queue.in_hand = queue.in_hand, None
        if parcel is not None:
            if queue.missed is None:
                parcel.slowest_us = max(parcel.slowest_us or 0, now_us - queue.taken_us, 0)
            self._finish(parcel)

    def _take(self, queue: Queue, now_us: int) -> Item | None:
        if queue.parcels:
            parcel = queue.parcels.popleft()
            queue.bytes -= parcel.batch.bytes
            if not self._is_shut:
                self._let_go(parcel)
            queue.in_hand, queue.taken_us = parcel, now_us
            return parcel.batch
        missed, queue.missed = queue.missed, None
        return missed


def _oldest(queue: Queue) -> int:
    return queue.parcels[0].batch.number


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)
