"""Counters that follow a running coordinator: every accepted signal is counted with the batch that brings it (R3, C9).

Belongs here: subscribing, catching up, checking from time to time what the tables cover, and the snapshot. How signals
are counted is in `state.py`; how counters are made from tables and log in `restore.py`.

    with Platform.open(home) as platform, Follower(platform, home) as follower:
        follower.counters.count("shop", "item-7", "view", Window.DAY)

A batch is counted by its epochs: those at or below the last counted one of the shard change nothing, however often the
batch comes. If an epoch is missing (the subscriber was too slow, or just began), the log itself is read.
"""

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from tidemark.coordinator.platform import Platform
from tidemark.counts.errors import CountersError, SnapshotDamageError
from tidemark.counts.warm.arrivals import accepted_signals, count_arrivals, of_table, rows_of
from tidemark.counts.warm.counters import CAPACITY, Counters
from tidemark.counts.warm.restore import catch_up, restored_state, resumed_state, settle_with
from tidemark.counts.warm.rollups import LakeRollups
from tidemark.counts.warm.snapshot import save_state
from tidemark.counts.warm.state import State
from tidemark.delivery.batching import Batch
from tidemark.delivery.queues import Item
from tidemark.model.shard_errors import SubscriptionEndedError
from tidemark.model.timegrid import HOUR_US, MINUTE_US
from tidemark.storage.disk import RealDisk
from tidemark.storage.home import Home
from tidemark.tables.tiers import DELTAS

# How often the clock and the tables are checked: minutes should expire soon after they end.
LOOK_SECONDS = 1.0
# Tables are opened again though they cover nothing new: replaced files are deleted after a week.
TABLES_AGE_US = HOUR_US
# A snapshot is worth its time only if reading it saves reading the tables.
SNAPSHOT_EVERY_US = 10 * MINUTE_US
# An hour at the far edge is read so long before its first minute leaves a window.
READ_AHEAD = 10


class NotFollowingError(CountersError):
    """The counters follow no coordinator any more: the coordinator stopped, or the follower did."""


class Follower:
    """Keeps counters equal to a home's tables and log. A context manager; the platform outlives it."""

    def __init__(
        self,
        platform: Platform,
        home: Home,
        *,
        clock: Callable[[], int] | None = None,
        capacity: int = CAPACITY,
        has_snapshots: bool = True,
        look_seconds: float = LOOK_SECONDS,
    ) -> None:
        # By default the platform's: minutes that a leap of the machine's clock skipped never come back (C15).
        clock = clock or platform.clock
        self._platform, self._home, self._clock, self._capacity = platform, home, clock, capacity
        self._look_seconds = look_seconds
        self._snapshot = snapshot_path(home) if has_snapshots else None
        self._is_stopping = threading.Event()
        self._moved = threading.Condition()
        self._failure: BaseException | None = None
        # Subscribed before reading: writes flushed in between come twice, and are counted once.
        self._subscriptions = {number: shard.subscribe() for number, shard in platform.shards.items()}
        self.counters = Counters(clock, state=self._first_state())
        self._tables_us = self._saved_us = clock()
        self._tables_mark = ""  # checked once more: they may have changed while they were read
        self._threads = [
            threading.Thread(target=self._guarded, args=(self._follow, number), name=f"counters-{number}", daemon=True)
            for number in self._subscriptions
        ]
        self._threads.append(threading.Thread(target=self._guarded, args=(self._look,), name="counters", daemon=True))
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop following, and leave a snapshot. The counters stay as they are, and expire."""
        self._is_stopping.set()
        for subscription in self._subscriptions.values():
            subscription.close()
        for thread in self._threads:
            thread.join()
        if self._failure is None:
            self.save()

    def wait(self, epochs: Mapping[int, int], timeout: float | None = None) -> bool:
        """Return when everything up to these epochs (by shard, as in a receipt) is counted; false after the timeout.

        To see your own write, close a batch, or wait until one is due.
        """
        with self._moved:
            self._moved.wait_for(lambda: self._has(epochs) or self._failure or self._is_stopping.is_set(), timeout)
            if self._failure is not None or (self._is_stopping.is_set() and not self._has(epochs)):
                raise NotFollowingError(
                    f"The counters stopped following the log: {self._failure or 'they were closed'}. Open them again."
                ) from self._failure
            return self._has(epochs)

    def look(self) -> None:
        """Check the clock and the tables now; done by itself about every second."""
        self.counters.advance()
        with self.counters.unchanged() as state:
            state.prepare(state.head + READ_AHEAD)
        now_us, mark = self._clock(), _last_commit(self._home)
        if (mark != self._tables_mark or now_us - self._tables_us > TABLES_AGE_US) and self._settle():
            self._tables_us, self._tables_mark = now_us, mark
        if now_us - self._saved_us > SNAPSHOT_EVERY_US:
            self.save()

    def save(self) -> None:
        """Write a snapshot, if snapshots are on. Batches wait meanwhile; readers do not."""
        if self._snapshot is not None:
            with self.counters.unchanged() as state:
                save_state(state, self._snapshot)
            self._saved_us = self._clock()

    def _first_state(self) -> State:
        head, flushed = self._clock() // MINUTE_US, self._flushed()
        if self._snapshot is not None and self._snapshot.exists():
            # Tables and log have everything that a snapshot has, so a damaged one costs time and nothing else.
            with suppress(SnapshotDamageError):
                resumed = resumed_state(self._home, self._snapshot, head, capacity=self._capacity, upto=flushed)
                if resumed is not None:
                    return resumed
        return restored_state(self._home, head, capacity=self._capacity, upto=flushed)

    def _settle(self) -> bool:
        """Drop what the tables cover now, and take back duplicates that the drain found; false if it is too early."""
        rollups = LakeRollups(self._home)
        with self.counters.unchanged() as state:
            if any(epoch > state.applied.get(shard, 0) for shard, epoch in rollups.covered.items()):
                return False  # a batch that is drained already has not come yet: next time
            is_back = any(epoch > rollups.covered.get(shard, 0) for shard, epoch in state.covered.items())
            if is_back or not settle_with(self.counters, rollups):
                # The tables lost something, or only they know: all delivered batches are flushed, so nothing is missed.
                flushed = self._flushed()
                self.counters.exchange(
                    restored_state(self._home, state.head, capacity=self._capacity, upto=flushed, rollups=rollups)
                )
        return True

    def _follow(self, number: int) -> None:
        while not self._is_stopping.is_set():
            try:
                item = self._subscriptions[number].get()
            except SubscriptionEndedError as end:
                if end.cause is not None and not self._is_stopping.is_set():
                    raise
                return
            if item is not None:
                self._count(number, item)
                with self._moved:
                    self._moved.notify_all()

    def _count(self, shard: int, item: Item) -> None:
        """Count one batch, or the epochs that were missed."""
        with self.counters.unchanged() as state:
            applied = state.applied.get(shard, 0)
            if not isinstance(item, Batch) or item.from_epoch > applied + 1:
                # Epochs lost in a crash are missing, too; the log has everything that exists.
                with self.counters.changing():
                    catch_up(state, self._home, shard, max(item.to_epoch - 1, self._flushed()[shard]))
                return
            last = item.to_epoch - 1
            arrivals = accepted_signals(of_table(item.deltas()), applied, last)
            rows = rows_of(state.names, arrivals.namespaces, arrivals.signals, arrivals.entities)
            with self.counters.changing():
                count_arrivals(state, rows, arrivals, shard, last)
            state.tidy()

    def _look(self) -> None:
        while not self._is_stopping.wait(self._look_seconds):
            self.look()

    def _guarded(self, call: Callable[..., None], *arguments: int) -> None:
        """Run a thread's loop; if it fails, waiters get the error, and readers get no counts that may be behind."""
        try:
            call(*arguments)
        except BaseException as error:  # noqa: BLE001 - it ends the thread, and is raised to the next waiter or reader
            self._failure = self._failure or error
            self.counters.fail(error)
        with self._moved:
            self._moved.notify_all()

    def _has(self, epochs: Mapping[int, int]) -> bool:
        applied = self.counters.applied
        return all(applied.get(shard, 0) >= epoch for shard, epoch in epochs.items())

    def _flushed(self) -> dict[int, int]:
        return {number: shard.snapshot().epoch for number, shard in self._platform.shards.items()}


def _last_commit(home: Home) -> str:
    """The name of the last commit to `deltas`: checked every second, so nothing is opened for it."""
    names = RealDisk().list(home.lake / DELTAS / "_delta_log")
    return max((name for name in names if name.endswith(".json")), default="")


def snapshot_path(home: Home) -> Path:
    """Where the snapshot of a home's counters is."""
    return home.root / "counters" / "snapshot"
