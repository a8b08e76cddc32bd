"""Subscribers on loops of asyncio, and on threads of their own while the writer goes on (C8, C9)."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.groups import batch_of
from tests.support.subscribers import SIZE, Shard, told
from tidemark.delivery.subscriptions import Subscription
from tidemark.model.shard_errors import SubscriptionEndedError


def test_c9_an_asynchronous_subscriber_gets_the_same_and_leaves_the_loop_to_others() -> None:
    shard = Shard(queue_batches=2)

    async def read(subscription: Subscription) -> list[int | tuple[int, int] | None]:
        async with subscription:
            return [told(item) async for item in subscription]

    async def main() -> list[list[int | tuple[int, int] | None]]:
        subscriptions = [shard.subscriptions.subscribe() for _ in range(2)]
        readers = [asyncio.create_task(read(subscription)) for subscription in subscriptions]
        await asyncio.sleep(0.01)
        for _ in range(20):
            await asyncio.to_thread(shard.publish)
            while shard.tracker.held:
                await asyncio.sleep(0)
        await asyncio.to_thread(shard.publish, 5)
        await asyncio.to_thread(shard.subscriptions.shut)
        return await asyncio.gather(*readers)

    for seen in asyncio.run(main()):
        assert seen[:20] == list(range(1, 21))
        heard = [epoch for item in seen[20:] for epoch in (range(*item) if isinstance(item, tuple) else [item])]
        assert heard == list(range(21, 26))
    assert shard.tracker.held == 0


def test_c9_an_asynchronous_wait_can_end_in_time_or_be_cancelled_and_loses_nothing() -> None:
    shard = Shard()

    async def main() -> None:
        subscription = shard.subscriptions.subscribe()
        assert await subscription.get_async(timeout=0.01) is None
        waiting = asyncio.create_task(subscription.get_async())
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert subscription._queue.wakers == []
        shard.publish(2)
        assert [told(await subscription.get_async()), told(await subscription.get_async(timeout=1))] == [1, 2]
        shard.subscriptions.shut(OSError("no disk"))
        with pytest.raises(SubscriptionEndedError, match="no disk"):
            await subscription.get_async()

    asyncio.run(main())


def test_c9_a_loop_that_was_closed_does_not_disturb_the_writer() -> None:
    shard = Shard()
    subscription, loop = shard.subscriptions.subscribe(), asyncio.new_event_loop()
    waiting = loop.create_task(subscription.get_async())
    loop.run_until_complete(asyncio.sleep(0.01))
    queue = subscription._queue
    wakers = list(queue.wakers)
    waiting.cancel()
    loop.run_until_complete(asyncio.gather(waiting, return_exceptions=True))
    loop.close()
    queue.wakers.extend(wakers)  # as if it had died without cleaning up
    shard.publish()
    assert told(subscription.get()) == 1


# With real threads.

Spans = list[tuple[int, int]]


def read(
    subscription: Subscription, pause: Callable[[int], float] = lambda _: 0.0, stop_at: int = 10**9, crash: int = 1
) -> Spans:
    """Hear until the end or until some epoch, and leave or crash there."""
    spans = []
    with subscription:
        for item in subscription:
            spans.append((item.from_epoch, item.to_epoch))
            if item.to_epoch > stop_at:
                return spans[: len(spans) // crash]
            time.sleep(pause(item.to_epoch))
    return spans


def read_async(subscription: Subscription) -> Spans:
    async def main() -> Spans:
        async with subscription:
            return [(item.from_epoch, item.to_epoch) async for item in subscription]

    return asyncio.run(main())


def test_c9_under_stress_every_reader_hears_of_every_epoch_once_in_order_and_all_memory_comes_back() -> None:
    # given one writer of 1,500 batches, and readers that are fast, slow, asynchronous, leaving, crashing
    shard = Shard(queue_batches=8, held_bytes=20 * SIZE)
    batches = [batch_of(number) for number in range(1, 1_501)]
    slowest_publish = 0.0
    fast, slow, bursts, asynchronous, leaving, crashing, stuck = (shard.subscriptions.subscribe() for _ in range(7))
    with ThreadPoolExecutor(6) as pool:
        to_the_end = [
            pool.submit(read, fast),
            pool.submit(read, slow, lambda _: 0.003),
            pool.submit(read, bursts, lambda epoch: 0.02 if epoch % 50 == 0 else 0.0),
            pool.submit(read_async, asynchronous),
        ]
        left = pool.submit(read, leaving, stop_at=200)
        crashed = pool.submit(read, crashing, lambda _: 0.001, stop_at=100, crash=0)
        # when it writes as fast as it can, with a breath now and then
        for batch in batches:
            shard.tracker.charge(batch.bytes)
            began = time.thread_time()
            shard.subscriptions.publish(batch)
            slowest_publish = max(slowest_publish, time.thread_time() - began)
            assert shard.subscriptions.buffered_bytes <= 20 * SIZE
            if batch.number % 10 == 0:
                time.sleep(0.001)
        shard.subscriptions.shut()
        heard = [future.result() for future in to_the_end] + [read(stuck)]
    # then each was told of every epoch once and in order, until it left
    assert isinstance(crashed.exception(), ZeroDivisionError)
    for spans in (*heard, left.result()):
        assert [begin for begin, _ in spans] == [1, *(end for _, end in spans)][: len(spans)]
    assert [spans[-1][1] for spans in heard] == [1_501] * 5
    # and all memory is back, each batch once
    assert shard.tracker.held == shard.subscriptions.buffered_bytes == 0
    assert len(shard.tracker.released) == 1_500
    # and the writer's own work was never more than moments
    assert slowest_publish < 0.1
