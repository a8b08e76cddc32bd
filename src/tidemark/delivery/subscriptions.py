"""Subscriptions: the subscriber's side, for threads and for asyncio (C9).

Belongs here: waiting for batches, filters, and the end. How batches get into a subscriber's queue, and what happens to
a slow one, is in `queues.py`.
"""

import asyncio
import time
import weakref
from collections.abc import AsyncIterator, Iterator
from typing import Self

from tidemark.delivery.queues import Delivery, Item, Missed, Queue, Waker, Wants
from tidemark.model.shard_errors import SubscriptionEndedError

__all__ = ["Missed", "Subscription", "Subscriptions"]


class Subscriptions(Delivery):
    """All subscribers of a shard."""

    def subscribe(self, wants: Wants | None = None) -> "Subscription":
        """A subscriber of every batch from now on that `wants` accepts.

        `wants` is called on the subscriber's thread, so it slows no other down; its errors are raised there.
        """
        return Subscription(self, self.open(wants))


class Subscription:
    """One subscriber's side: a context manager, an iterator, and an asynchronous one. For one reader at a time.

    It yields a `Batch`, or `Missed` where it fell behind. After the shard's end, and after `close`, iteration stops;
    after a failure it raises `SubscriptionEndedError` with the cause, once everything flushed has been delivered.
    """

    def __init__(self, delivery: Delivery, queue: Queue) -> None:
        self._delivery, self._queue = delivery, queue
        # At exit there is nothing left to give back.
        weakref.finalize(self, queue.forget).atexit = False

    def get(self, timeout: float | None = None) -> Item | None:
        """The next batch, waiting up to `timeout` seconds (None: for ever); None if there was none in that time."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(deadline - time.monotonic(), 0.0)
            item = self._delivery.next(self._queue, left)
            if item is None or self._is_wanted(item):
                return item

    async def get_async(self, timeout: float | None = None) -> Item | None:
        """The same for asyncio. Nothing is lost when the wait is cancelled."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            await asyncio.sleep(0)  # others in the loop get their turn however fast batches come
            waker = loop, loop.create_future()
            item = self._delivery.poll(self._queue, waker)
            if item is None:
                if not await self._woken(waker, deadline):
                    return None
            elif self._is_wanted(item):
                return item

    async def _woken(self, waker: Waker, deadline: float | None) -> bool:
        loop, future = waker
        left = None if deadline is None else max(deadline - loop.time(), 0.0)
        try:
            done, _ = await asyncio.wait([future], timeout=left)
        finally:
            self._delivery.forget_waker(self._queue, waker)
        return bool(done)

    def close(self) -> None:
        """Give back everything that waits; may be called from any thread, and again."""
        self._delivery.close(self._queue)

    def _is_wanted(self, item: Item) -> bool:
        wants = self._queue.wants
        return wants is None or isinstance(item, Missed) or wants(item)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        try:
            item = self.get()
        except SubscriptionEndedError as end:
            if end.cause is None:
                raise StopIteration from None
            raise
        assert item is not None  # noqa: S101 - without a timeout there is no other way out
        return item

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    def __aiter__(self) -> AsyncIterator[Item]:
        return self

    async def __anext__(self) -> Item:
        try:
            item = await self.get_async()
        except SubscriptionEndedError as end:
            if end.cause is None:
                raise StopAsyncIteration from None
            raise
        assert item is not None  # noqa: S101 - as above
        return item
