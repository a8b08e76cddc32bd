"""The client for asyncio: the same one, without a call that blocks the loop.

Belongs here: waiting. The client's own threads do the work, so that there is one way in which nothing is lost.
"""

import asyncio
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any

from tidemark.client.client import CLOSE_S, Client, Report, Stats, connect
from tidemark.client.errors import ClientFullError, NotSentError
from tidemark.client.handles import Sent

if TYPE_CHECKING:
    import pyarrow as pa


class AsyncClient:
    """Sends deltas from coroutines. Made by `connect_async`."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def send(self, deltas: Any) -> Sent:
        """Take deltas; waits while there is no room. Awaiting the handle waits until they are flushed.

        To give up after a while, use `asyncio.timeout`: then nothing of the call was taken.
        """
        loop = asyncio.get_running_loop()
        encoded = self._client.encode(deltas)
        while True:
            news = asyncio.Event()
            self._client.watch(partial(_tell, loop, news))
            try:
                return self._client.put(encoded, 0.0)
            except ClientFullError:
                await news.wait()

    async def flush(self) -> bool:
        """Send what lingers, and return once everything is acknowledged."""
        return await asyncio.to_thread(self._client.flush)

    @property
    def stats(self) -> Stats:
        """How it is doing."""
        return self._client.stats

    async def take_back(self) -> "list[list[bytes] | pa.Table]":
        """Everything that is not acknowledged; see `Client.take_back`."""
        return await asyncio.to_thread(self._client.take_back)

    async def close(self, timeout: float | None = CLOSE_S) -> Report:
        """Send what is left, wait at most so long for its acknowledgement, and stop."""
        return await asyncio.to_thread(self._client.close, timeout)

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        report = await self.close()
        if error is None and report.left > report.in_spool:
            raise NotSentError(str(report))


def _tell(loop: asyncio.AbstractEventLoop, news: asyncio.Event) -> None:
    with suppress(RuntimeError):  # the loop has ended, and with it who waited
        loop.call_soon_threadsafe(news.set)


async def connect_async(address: str, **options: Any) -> AsyncClient:
    """A client for asyncio, with the options of `connect`."""
    return AsyncClient(await asyncio.to_thread(connect, address, **options))
