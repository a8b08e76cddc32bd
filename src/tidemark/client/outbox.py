"""Where deltas wait until the server has them: put together into writes, numbered, spooled, acknowledged (C8, Q2).

Belongs here: everything between a caller's `send` and the connection, as one object that callers, the thread that seals
and the network's thread share. It knows no socket.

Numbers here begin at 1 and are given when a write is sealed. The protocol's number is this one plus `base`: the mark
that the server told when they first met.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence

from tidemark.client.batches import Batch, Content
from tidemark.client.encoding import Columns
from tidemark.client.errors import (
    ClientClosedError,
    ClientFullError,
    FencedError,
    ServerLostDataError,
    TakenBackError,
    TooLargeError,
    WrongServerError,
)
from tidemark.client.filling import Bounds, Filling, Part, packed
from tidemark.client.in_flight import Written
from tidemark.client.spool import Spool
from tidemark.wire.messages import LevelName, Nack, Welcome

# So much is synced at once.
_GROUP_BYTES = 8 * 1024 * 1024


class Outbox:
    """Deltas on their way to the server."""

    def __init__(
        self,
        producer: str,
        bounds: Bounds,
        spool: Spool | None,
        *,
        from_start: bool = False,
        is_compressing: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.producer, self.bounds, self.spool, self.clock = producer, bounds, spool, clock
        self._from_start, self._is_compressing = from_start, is_compressing
        self.wake: Callable[[], None] = lambda: None  # tells the network's thread that there is something to send
        self.error: BaseException | None = None  # why nothing more goes on
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._turn = threading.Lock()  # callers that wait for room, one after another
        self._filling = Filling(bounds, clock)
        self._is_closing = False
        self._sealed: deque[Batch] = deque()  # from `_first` on, in order
        self._first = 1
        self._in_memory = self._in_spool = 0  # bytes
        self._last = 0
        self.acknowledged = 0  # the last number known to be flushed
        self.durable = 0  # the last number known to be durable
        self.base: int | None = 0 if from_start else None
        self.home = ""
        self._mark = 0
        self._waits_for_durable: list[tuple[int, Callable[[], None]]] = []
        self._watchers: list[Callable[[], None]] = []
        if spool is not None:
            self._take_over(spool)

    def _take_over(self, spool: Spool) -> None:
        """Go on with what an earlier client has left."""
        self.home = spool.state.home
        self.base = spool.state.base
        for number, place in spool.waiting:
            batch = Batch(place.rows, place.payload_bytes)
            batch.number, batch.is_spooled = number, True
            self._sealed.append(batch)
            self._in_spool += batch.size
        self._last = spool.state.next - 1
        self._first = self._last + 1 - len(self._sealed)
        self.acknowledged = self._first - 1

    # Callers.

    def put(self, deltas: Sequence[bytes | Columns], timeout: float | None) -> list[Part]:
        """Take deltas in; waits for room, and takes all of them or none."""
        size = sum(len(each.payload) if isinstance(each, Columns) else len(each) + 1 for each in deltas)
        deadline = None if timeout is None else self.clock() + timeout
        if not self._turn.acquire(timeout=-1 if timeout is None else max(0.0, timeout)):
            raise ClientFullError(self.waiting_bytes, self._limit, timeout or 0.0)
        try:
            with self._changed:
                self._wait_for_room(size, deadline, timeout)
                parts = self._filling.add(deltas)
                self._in_memory += size
                self._changed.notify_all()
                return parts
        finally:
            self._turn.release()
            self._tell_watchers()

    def watch(self, tell: Callable[[], None]) -> None:
        """Call something once, when there may be room."""
        with self._lock:
            self._watchers.append(tell)

    def _tell_watchers(self) -> None:
        with self._lock:
            watchers, self._watchers = self._watchers, []
        for tell in watchers:
            tell()

    @property
    def _limit(self) -> int:
        return self.bounds.memory_bytes if self.spool is None else self.bounds.spool_bytes

    @property
    def waiting_bytes(self) -> int:
        """How much is not acknowledged."""
        return self._in_memory + self._in_spool

    def _wait_for_room(self, size: int, deadline: float | None, timeout: float | None) -> None:
        most = min(self._limit, self.bounds.memory_bytes)
        if size > most:
            raise TooLargeError(
                f"This call has {size:,} bytes of deltas, and {most:,} may wait in memory. Send them in several calls, "
                "or allow more (`memory_bytes`). Nothing of it was taken."
            )
        while True:
            self._check()
            if self._in_memory + size <= self.bounds.memory_bytes and self.waiting_bytes + size <= self._limit:
                return
            left = None if deadline is None else deadline - self.clock()
            if left is not None and left <= 0:
                raise ClientFullError(self.waiting_bytes, self._limit, timeout or 0.0)
            self._filling.is_due = True  # what lingers would hold up who waits for it
            self._changed.notify_all()
            self._changed.wait(left)

    def _check(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)  # it is raised for every call, and would grow
        if self._is_closing:
            raise ClientClosedError

    def flush(self) -> None:
        """Seal what there is, without waiting for more."""
        with self._changed:
            self._filling.is_due = True
            self._changed.notify_all()

    def hurry(self, batch: Batch) -> None:
        """Somebody waits for a write: it does not linger if nothing else is on its way."""
        with self._changed:
            if self._filling.open is batch:
                self._filling.is_awaited = True
                self._changed.notify_all()

    def close(self) -> None:
        """Take nothing more; what is there is sealed."""
        with self._changed:
            self._is_closing = self._filling.is_due = True
            self._changed.notify_all()

    # Sealing: for one thread.

    def seal_next(self) -> bool:
        """Wait until there is something to seal, and seal it; false once the outbox is closed and all is sealed."""
        filling = self._filling
        with self._changed:
            while not filling.closed:
                is_ending = self._is_closing or self.error is not None
                if filling.open is None and is_ending:
                    return False
                # After an error, too, what was taken from callers is spooled.
                left_s = filling.lingers_s(is_idle=not self._sealed)
                if filling.open is not None and (is_ending or left_s <= 0):
                    filling.close_open()
                    break
                self._changed.wait(None if filling.open is None else left_s)
            group = list(self._next_group())
        contents = [batch.content for batch in group if batch.content is not None]
        if self._is_compressing:
            contents = list(map(packed, contents))
        first = self._last + 1 if self.spool is None else self.spool.append(contents)
        self._sealed_now(group, contents, first)
        return True

    def _next_group(self) -> Iterator[Batch]:
        size = 0
        for batch in self._filling.closed:
            yield batch
            size += batch.size
            if size >= _GROUP_BYTES:
                break

    def _sealed_now(self, group: list[Batch], contents: list[Content], first: int) -> None:
        with self._changed:
            for number, (batch, content) in enumerate(zip(group, contents, strict=True), start=first):
                self._filling.closed.popleft()
                batch.number = self._last = number
                self._in_memory -= batch.size
                batch.size = len(content.payload)
                if self.spool is None:
                    batch.content = content
                    self._in_memory += batch.size
                else:
                    batch.content, batch.is_spooled = None, True
                    self._in_spool += batch.size
                self._sealed.append(batch)
            # In a numbering from the start, what is sealed now may have been taken long ago.
            told = [*group, *self._settle()]
            self._changed.notify_all()
        self._tell(told)
        self.wake()

    # The network.

    def begin(self, welcome: Welcome) -> int:
        """A connection is open. What the server has is settled; returns the first number to send."""
        with self._changed:
            if self.home and welcome.home and self.home != welcome.home:
                raise WrongServerError(self.home, welcome.home)
            if self.base is None:
                self.base = welcome.mark
            self.home = welcome.home or self.home
            self._remember(welcome)
            mark = welcome.mark - self.base
            if mark < self.acknowledged:
                raise ServerLostDataError(self.producer, self.base + self.acknowledged, welcome.mark)
            if mark > self._last and not self._from_start:
                raise FencedError(
                    self.producer,
                    f"the server has its write {welcome.mark}, and only {self.base + self._last} were numbered here.",
                )
            self._mark = mark
            told = self._settle()
            self._changed.notify_all()
        self._tell(told)
        return mark + 1

    def _remember(self, welcome: Welcome) -> None:
        """Before anything is sent, the spool knows what its numbers mean."""
        if self.spool is None:
            return
        state = self.spool.state
        if (state.base, state.instance, state.home) != (self.base, welcome.instance, self.home):
            state.base, state.instance, state.home = self.base, welcome.instance, self.home
            self.spool.save()

    def _settle(self) -> list[Batch]:
        """What is at or below the server's mark was taken."""
        told = []
        while self._sealed and self._sealed[0].number <= self._mark:
            batch = self._sealed[0]
            if not batch.is_answered:
                batch.written = Written(LevelName.FLUSHED, {}, 0, 0, 0, (), is_retry=True)
                told.append(batch)
            self._drop_first()
        self._after_drops()
        return told

    def next(self, number: int) -> tuple[Batch, Content] | None:
        """The write with this number, or the first one behind it that is to be sent; None if there is none yet."""
        with self._lock:
            place = max(0, number - self._first)
            while place < len(self._sealed) and self._sealed[place].is_answered:
                place += 1
            if place >= len(self._sealed):
                return None
            batch = self._sealed[place]
            content = batch.content
        if content is None:
            assert self.spool is not None  # noqa: S101 - it is in memory, or in the spool
            content = self.spool.read(batch.number)
        return batch, content

    def answer(self, batch: Batch, written: Written | None, nack: Nack | None = None) -> None:
        """The server has said what became of a write."""
        with self._changed:
            if batch.is_answered:
                return
            batch.written, batch.nack = written, nack
            while self._sealed and self._sealed[0].is_answered:
                self._drop_first()
            self._after_drops()
            self._changed.notify_all()
        self._tell([batch])

    def _drop_first(self) -> None:
        batch = self._sealed.popleft()
        self._first = batch.number + 1
        self.acknowledged = max(self.acknowledged, batch.number)
        if batch.is_spooled:
            self._in_spool -= batch.size
        else:
            self._in_memory -= batch.size
        batch.content = None

    def _after_drops(self) -> None:
        if self.spool is not None:
            self.spool.acknowledge(self._first - 1)

    def reached_durable(self, sequence: int) -> None:
        """Everything up to this number of the protocol is durable."""
        with self._lock:
            self.durable = max(self.durable, sequence - (self.base or 0))
            due = [tell for number, tell in self._waits_for_durable if number <= self.durable]
            self._waits_for_durable = [each for each in self._waits_for_durable if each[0] > self.durable]
        for tell in due:
            tell()

    def when_durable(self, number: int, tell: Callable[[], None]) -> None:
        """Call something once a write is durable."""
        with self._lock:
            if number > self.durable:
                self._waits_for_durable.append((number, tell))
                return
        tell()

    # The end.

    def fail(self, error: BaseException) -> None:
        """Nothing more goes on. What is not answered is kept, for the spool's next client or to be taken back."""
        with self._changed:
            if self.error is not None:
                return
            self.error = error
            told = [batch for batch in self._unanswered() if batch.error is None]
            for batch in told:
                batch.error = error
            waiting, self._waits_for_durable = self._waits_for_durable, []
            self._changed.notify_all()
        self._tell(told)
        for _, tell in waiting:
            tell()

    def _unanswered(self) -> list[Batch]:
        opened = [] if self._filling.open is None else [self._filling.open]
        return [batch for batch in (*self._sealed, *self._filling.closed, *opened) if not batch.is_answered]

    def wait_until_empty(self, timeout: float | None) -> bool:
        """Return true once everything is answered; false if that takes longer, or nothing goes on."""
        deadline = None if timeout is None else self.clock() + timeout
        with self._changed:
            while self._unanswered() and self.error is None:
                left = None if deadline is None else deadline - self.clock()
                if left is not None and left <= 0:
                    break
                self._changed.wait(left)
            return not self._unanswered()

    def left(self) -> tuple[int, int, int]:
        """Deltas that are not answered, how many of them are in the spool, and in how many writes."""
        with self._lock:
            found = self._unanswered()
            return sum(each.rows for each in found), sum(each.rows for each in found if each.is_spooled), len(found)

    def take_back(self) -> list[Content]:
        """Everything that is not answered, in order. Nothing of it is sent any more."""
        self.fail(TakenBackError())
        with self._changed:
            self._filling.close_open()
            found = self._unanswered()
        contents = []
        for batch in found:
            content = batch.content
            if content is None:
                assert self.spool is not None  # noqa: S101 - it is in memory, or in the spool
                content = self.spool.read(batch.number)
            contents.append(content)
        return contents

    def _tell(self, batches: Sequence[Batch]) -> None:
        for batch in batches:
            for listener in list(batch.listeners):
                listener()
        self._tell_watchers()
