"""A slow subscriber is told what it missed and never blocks the writer, nor keeps the shard's memory (C8, C9)."""

import gc
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.subscribers import SIZE, Shard, drain, told
from tidemark.delivery.batching import Batch
from tidemark.delivery.queues import Published
from tidemark.delivery.subscriptions import Subscription
from tidemark.model.shard_errors import SubscriptionEndedError

# What a subscriber gets.


def test_c9_every_subscriber_gets_every_batch_in_order() -> None:
    shard = Shard()
    first, second = shard.subscriptions.subscribe(), shard.subscriptions.subscribe()
    shard.publish(3)
    assert drain(first) == drain(second) == [1, 2, 3]
    assert first.get(timeout=0) is None


def test_c9_a_subscriber_starts_with_the_next_batch() -> None:
    shard = Shard()
    shard.publish()
    subscription = shard.subscriptions.subscribe()
    shard.publish()
    assert drain(subscription) == [2]


def test_c9_a_slow_subscriber_is_told_once_what_it_missed_and_then_goes_on() -> None:
    shard = Shard(queue_batches=3)
    slow, fast = shard.subscriptions.subscribe(), shard.subscriptions.subscribe()
    for _ in range(5):
        shard.publish()
        assert told(fast.get(timeout=0)) == shard.published
    # Room alone does not end it: until it has read that it missed something, the rest belongs to that too.
    assert told(slow.get(timeout=0)) == 1
    shard.publish()
    assert drain(slow) == [2, 3, (4, 7)]
    shard.publish(2)
    assert drain(slow) == [7, 8]
    assert shard.subscriptions.missed_batches == 3


def test_c13_the_writer_is_told_how_many_got_a_batch_and_how_many_missed_one() -> None:
    shard = Shard(queue_batches=1)
    assert shard.publish() == [Published(0, 0)]
    slow, fast = shard.subscriptions.subscribe(), shard.subscriptions.subscribe()
    assert shard.publish() == [Published(2, 0)]
    fast.get()
    assert shard.publish() == [Published(1, 1)]
    assert drain(slow) == [2, (3, 4)]


def test_c9_a_queue_is_bounded_in_bytes_too_and_takes_one_batch_of_any_size() -> None:
    shard = Shard(queue_batches=100, queue_bytes=3 * SIZE)
    subscription = shard.subscriptions.subscribe()
    shard.publish(5)
    assert drain(subscription) == [1, 2, 3, (4, 6)]
    small = Shard(queue_bytes=4_096)
    subscription = small.subscriptions.subscribe()
    small.publish(2)
    assert drain(subscription) == [1, (2, 3)]


def test_c9_all_queues_together_are_bounded_at_the_cost_of_whoever_is_furthest_behind() -> None:
    shard = Shard(queue_batches=100, held_bytes=3 * SIZE)
    behind, ahead = shard.subscriptions.subscribe(), shard.subscriptions.subscribe()
    shard.publish(2)
    assert drain(ahead) == [1, 2]
    shard.publish(2)
    assert shard.tracker.held == shard.subscriptions.buffered_bytes == 2 * SIZE
    assert drain(ahead) == [3, 4]
    assert drain(behind) == [(1, 5)]
    shard.publish()
    assert drain(ahead) == drain(behind) == [5]


def test_c9_a_filter_runs_on_the_subscribers_thread_and_what_it_does_not_want_is_not_delivered() -> None:
    shard, ran_on = Shard(), []

    def is_even(batch: Batch) -> bool:
        ran_on.append(threading.current_thread())
        return batch.record.from_epoch % 2 == 0 and batch.deltas().num_rows == 1

    subscription = shard.subscriptions.subscribe(is_even)
    writer = threading.Thread(target=shard.publish, args=(5,))
    writer.start()
    writer.join()
    assert drain(subscription) == [2, (4, 6)]
    assert set(ran_on) == {threading.current_thread()}
    assert shard.tracker.held == 0


def test_c9_what_a_filter_raises_reaches_its_subscriber_and_nobody_else() -> None:
    shard = Shard()
    broken = shard.subscriptions.subscribe(lambda batch: bool(1 // (batch.number - 1)))
    other = shard.subscriptions.subscribe()
    shard.publish(2)
    with pytest.raises(ZeroDivisionError):
        broken.get()
    assert told(broken.get()) == 2
    assert drain(other) == [1, 2]
    assert shard.tracker.held == 0


def test_c9_get_waits_no_longer_than_it_was_told_to() -> None:
    subscription, began = Shard().subscriptions.subscribe(), time.monotonic()
    assert subscription.get(timeout=0.02) is None
    assert time.monotonic() - began >= 0.02


# The end.


def test_c10_after_shutdown_subscribers_get_what_remains_and_then_the_end() -> None:
    shard = Shard()
    subscription, never_reads = shard.subscriptions.subscribe(), shard.subscriptions.subscribe()
    shard.publish(4)
    shard.subscriptions.shut()
    # The shard's account does not wait for them.
    assert shard.tracker.held == 0
    assert [told(item) for item in subscription] == [1, 2, 3, (4, 5)]
    with pytest.raises(SubscriptionEndedError) as end:
        subscription.get()
    assert end.value.cause is None
    never_reads.close()
    assert shard.tracker.released == [SIZE] * 4


def test_c3_after_a_failure_subscribers_get_what_was_flushed_and_then_the_error() -> None:
    shard = Shard()
    subscription = shard.subscriptions.subscribe()
    shard.publish(2)
    failure = OSError("no disk")
    shard.subscriptions.shut(failure)
    assert [told(subscription.get()), told(subscription.get())] == [1, 2]
    with pytest.raises(SubscriptionEndedError, match="no disk") as end:
        list(subscription)
    assert end.value.cause is failure
    late = shard.subscriptions.subscribe()
    with pytest.raises(SubscriptionEndedError, match="no disk"):
        late.get(timeout=0)
    assert shard.tracker.held == 0


def test_c9_a_closed_subscriber_gets_nothing_more_and_keeps_nothing() -> None:
    shard = Shard()
    with shard.subscriptions.subscribe() as subscription:
        shard.publish(2)
        assert shard.tracker.held == 2 * SIZE
    assert shard.tracker.held == 0
    shard.publish()
    assert list(subscription) == []
    subscription.close()
    assert (len(shard.subscriptions), shard.tracker.released) == (0, [SIZE] * 3)


def test_c9_closing_wakes_whoever_waits() -> None:
    for end in ("close", "shut"):
        shard = Shard()
        subscription = shard.subscriptions.subscribe()
        with ThreadPoolExecutor(1) as pool:
            seen = pool.submit(list, subscription)
            shard.publish()
            while shard.tracker.held:
                time.sleep(0.001)
            subscription.close() if end == "close" else shard.subscriptions.shut()
            assert [told(item) for item in seen.result(timeout=5)] == [1]


# Memory.


def test_c8_without_subscribers_a_batch_is_given_back_at_once() -> None:
    shard = Shard()
    shard.publish(3)
    assert shard.tracker.released == [SIZE] * 3


def test_c8_a_batch_is_given_back_once_when_the_last_subscriber_has_taken_it() -> None:
    shard = Shard()
    first, second = shard.subscriptions.subscribe(), shard.subscriptions.subscribe()
    shard.publish()
    first.get()
    assert (shard.tracker.held, shard.tracker.released) == (SIZE, [])
    second.get()
    # A subscriber that stands still with a batch in its hands takes no memory from the shard.
    assert (shard.tracker.held, shard.tracker.released) == (0, [SIZE])


def test_c8_a_subscriber_that_crashed_and_was_forgotten_keeps_nothing() -> None:
    shard = Shard()

    def crash() -> None:
        subscription = shard.subscriptions.subscribe()
        shard.publish(3)
        subscription.get()
        raise ZeroDivisionError

    with ThreadPoolExecutor(1) as pool:
        assert isinstance(pool.submit(crash).exception(), ZeroDivisionError)
    gc.collect()
    shard.publish()
    assert (len(shard.subscriptions), shard.tracker.held) == (0, 0)
    assert shard.tracker.released == [SIZE] * 4


def hear(subscription: Subscription, next_epoch: list[int]) -> bool:
    item = subscription.get(timeout=0)
    if item is not None:
        assert item.from_epoch == next_epoch[0]
        next_epoch[0] = item.to_epoch
    return item is not None


def hear_all(subscription: Subscription, next_epoch: list[int]) -> None:
    while hear(subscription, next_epoch):
        pass


steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 3)),
        st.tuples(st.sampled_from(["subscribe", "get", "close", "forget"]), st.integers(0, 3)),
    ),
    max_size=40,
)


@given(steps, st.integers(1, 4), st.integers(1, 6), st.booleans())
def test_c8_c9_whatever_subscribers_do_order_is_kept_nothing_is_unsaid_and_all_memory_comes_back(
    actions: list[tuple[str, int]], queue_batches: int, held: int, is_failed: bool
) -> None:
    shard = Shard(queue_batches, held_bytes=held * SIZE)
    active: list[tuple[Subscription, list[int]]] = []  # with the epoch that it should hear of next

    for action, number in actions:
        if action == "publish":
            shard.publish(number)
            assert shard.tracker.held == shard.subscriptions.buffered_bytes <= held * SIZE
        elif action == "subscribe":
            active.append((shard.subscriptions.subscribe(), [shard.published + 1]))
        elif number < len(active):
            if action == "get":
                hear(*active[number])
            elif action == "close":
                active.pop(number)[0].close()
            else:
                active.pop(number)
    shard.subscriptions.shut(OSError("no disk") if is_failed else None)
    assert shard.tracker.held == shard.subscriptions.buffered_bytes == 0
    assert len(shard.tracker.released) == shard.published
    for subscription, next_epoch in active:
        with pytest.raises(SubscriptionEndedError):
            hear_all(subscription, next_epoch)
        assert next_epoch == [shard.published + 1]


# What deliveries cost.


def test_c12_the_cost_of_a_delivery_is_what_its_slowest_subscriber_took() -> None:
    shard = Shard()
    slow, fast = shard.subscriptions.subscribe(), shard.subscriptions.subscribe()
    shard.publish(2)
    for subscription, seconds in ((slow, 0.5), (fast, 0.1)):
        subscription.get()
        shard.clock.advance(seconds)
        subscription.get()
    assert shard.costs == [(1, 0.5)]


def test_c12_a_subscriber_that_fell_behind_does_not_set_the_pace() -> None:
    shard = Shard(queue_batches=1)
    slow, fast = shard.subscriptions.subscribe(), shard.subscriptions.subscribe()
    shard.publish()
    slow.get()
    for _ in range(4):
        fast.get()
        shard.clock.advance(0.1)
        shard.publish()
    fast.get()
    drain(slow)
    assert max(seconds for _, seconds in shard.costs) == pytest.approx(0.1)
