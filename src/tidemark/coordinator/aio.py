"""The coordinator for asyncio: the same shards, the same core, awaited instead of waited for.

Belongs here: how the writer thread wakes a coroutine, and the platform's interface for coroutines. Calls that only
touch memory run on the loop's own thread; calls that wait for a disk (opening, sealing, shutting down) go to a thread.
A whole group of writes wakes its loop once.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from tidemark.model.deltas import Level, Priority
from tidemark.model.shard_errors import BackpressureError, WaitTimeoutError

if TYPE_CHECKING:
    from tidemark.coordinator.core import WriteTicket
    from tidemark.coordinator.handles import WriteHandle
    from tidemark.coordinator.platform import Platform, PlatformReceipt, Producer, SplitWrite
    from tidemark.door.decoded import Deltas
    from tidemark.storage.home import Home

Heard = asyncio.Future[None]


class Listener(Protocol):
    """What is told of a write, on its own loop: a future, or whatever else looks like one."""

    def get_loop(self) -> asyncio.AbstractEventLoop:
        """The loop whose thread it is called on."""

    def done(self) -> bool:
        """Whether it wants to hear nothing more."""

    def set_result(self, result: None, /) -> None:
        """The write is flushed."""

    def set_exception(self, exception: Exception, /) -> None:
        """The write never will be."""


def tell(tickets: "Iterable[WriteTicket]") -> None:
    """Wake what waits for these writes: they are flushed, or never will be. Once for each loop."""
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[Listener, Exception | None]]] = {}
    for ticket in tickets:
        for listener in ticket.listeners:
            by_loop.setdefault(listener.get_loop(), []).append((listener, ticket.error))
        ticket.listeners.clear()
    for loop, heard in by_loop.items():
        if not loop.is_closed():
            loop.call_soon_threadsafe(_resolve, heard)


def _resolve(heard: list[tuple[Listener, Exception | None]]) -> None:
    for listener, error in heard:
        if listener.done():
            continue  # cancelled, or timed out
        if error is None:
            listener.set_result(None)
        else:
            listener.set_exception(error)


async def wait_flushed(handle: "WriteHandle", timeout: float | None = None) -> None:
    """Return when a write is flushed."""
    future: Heard = asyncio.get_running_loop().create_future()
    if handle.listen(future):
        if timeout is None:
            await future
            return
        try:
            await asyncio.wait_for(future, timeout)
        except TimeoutError:
            raise WaitTimeoutError(0, "flushed", timeout) from None


class AsyncSplitWrite:
    """A write that was sent and may not be flushed yet."""

    __slots__ = ("_split",)

    def __init__(self, split: "SplitWrite") -> None:
        self._split = split

    async def wait(self, level: Level = Level.FLUSHED, timeout: float | None = None) -> "PlatformReceipt":
        """Return when every part has reached `level`."""
        if level is Level.APPLIED:
            return self._split.wait(level, timeout)
        for handle, _ in self._split.parts.values():
            await wait_flushed(handle, timeout)
        if level is Level.DURABLE:
            return await asyncio.to_thread(self._split.wait, level, timeout)
        return self._split.receipt(level)


class AsyncProducer:
    """One instance of a named producer, for coroutines."""

    def __init__(self, producer: "Producer") -> None:
        self._producer = producer

    async def write(
        self, deltas: "Deltas", *, priority: Priority = Priority.NORMAL, timeout: float | None = None
    ) -> AsyncSplitWrite:
        """Send deltas; while there is no room, let others run, and after `timeout` seconds give them back."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                return AsyncSplitWrite(self._producer.try_write(deltas, priority=priority))
            except BackpressureError as full:
                is_over = not full.passes_by_itself if deadline is None else time.monotonic() >= deadline
                if full.write is not deltas or is_over:
                    raise  # some parts are taken already, or time is up: the caller decides
                await asyncio.sleep(full.retry_after_s)


class AsyncPlatform:
    """Every shard of a home, for coroutines."""

    def __init__(self, platform: "Platform") -> None:
        self.platform = platform

    @classmethod
    @asynccontextmanager
    async def open(cls, home: "Home", **options: Any) -> "AsyncIterator[AsyncPlatform]":
        """Open a home for writing; leaving it drains, flushes, seals and stops."""
        from tidemark.coordinator.platform import Platform

        platform = await asyncio.to_thread(Platform.open, home, **options)
        try:
            yield cls(platform)
        finally:
            await asyncio.to_thread(platform.shutdown)

    async def producer(self, name: str, *, from_start: bool = False) -> AsyncProducer:
        """A new instance of a producer; older ones may not write any more."""
        return AsyncProducer(await self._in_thread(self.platform.producer, name, from_start=from_start))

    async def seal(self) -> None:
        """Seal everything that the shards have flushed."""
        await self._in_thread(self.platform.seal)

    async def _in_thread(self, call: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        return await asyncio.to_thread(call, *arguments, **options)
