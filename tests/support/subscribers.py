"""The writer's side of subscriptions: it publishes numbered batches, and keeps the account of their memory."""

import threading

from tests.support.groups import batch_of
from tests.support.live import HandClock
from tidemark.delivery.batching import Batch
from tidemark.delivery.queues import Item, Published
from tidemark.delivery.subscriptions import Missed, Subscription, Subscriptions
from tidemark.model.settings import BatchSettings

SIZE = batch_of(1).bytes


class Tracker:
    """The shard's account: what was published must come back, each batch once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.held = 0
        self.released: list[int] = []

    def charge(self, size: int) -> None:
        with self._lock:
            self.held += size

    def release(self, size: int) -> None:
        with self._lock:
            self.held -= size
            self.released.append(size)
            assert self.held >= 0


class Shard:
    """The writer's side of a test: publishes numbered batches and keeps the account."""

    def __init__(self, queue_batches: int = 3, queue_bytes: int = 10**9, held_bytes: int = 10**9) -> None:
        self.tracker, self.clock = Tracker(), HandClock()
        self.costs: list[tuple[int, float]] = []
        self.subscriptions = Subscriptions(
            BatchSettings(queue_batches=queue_batches, queue_bytes=queue_bytes, held_bytes=held_bytes),
            self.clock,
            release=self.tracker.release,
            delivered=lambda batch, seconds: self.costs.append((batch.number, seconds)),
        )
        self.published = 0

    def publish(self, count: int = 1) -> list[Published]:
        handed = []
        for _ in range(count):
            self.published += 1
            batch = batch_of(self.published)
            self.tracker.charge(batch.bytes)
            handed.append(self.subscriptions.publish(batch))
        return handed


def told(item: Item | None) -> int | tuple[int, int] | None:
    """A batch by its number, what was missed by its range."""
    return item.number if isinstance(item, Batch) else tuple(item) if isinstance(item, Missed) else None  # type: ignore[return-value]


def drain(subscription: Subscription) -> list[int | tuple[int, int] | None]:
    seen = []
    while (item := subscription.get(timeout=0)) is not None:
        seen.append(told(item))
    return seen
