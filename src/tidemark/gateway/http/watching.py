"""The page, and what it follows: `/` and `/v1/live`.

Belongs here: the two routes. What is shown is in `live.py`, how it looks in `page/`.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, cast

from tidemark.gateway.http.errors import HttpError
from tidemark.gateway.http.live import PAGE, live_events
from tidemark.gateway.http.responses import Handler, Receive, Send, respond
from tidemark.gateway.http.subscribing import EVENT_HEADERS, HEARTBEAT_S, until_gone, write_event
from tidemark.gateway.tokens import ALL

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from tidemark.gateway.http.app import HttpDoor

MOST_WATCHERS = 100


class Watching:
    """All who look at the page."""

    def __init__(self, door: "HttpDoor") -> None:
        self._door = door
        self._count = 0
        door.counters.gauge("watchers", "Pages that follow this home.", lambda: self._count)

    def handlers(self) -> dict[str, Handler]:
        """By path."""
        return {"/": self._page, "/v1/live": self._live}

    async def _page(self, scope: Any, _receive: Receive, send: Send) -> int:
        self._door.access.token(scope)  # the page itself is no secret; what it shows asks for a token
        return await respond(send, await asyncio.to_thread(PAGE.read_bytes), b"text/html; charset=utf-8")

    async def _live(self, scope: Any, receive: Receive, send: Send) -> int:
        grant = self._door.access.grant(scope)
        grant.require_read(ALL)
        if self._count >= MOST_WATCHERS:
            raise HttpError(
                503, "too_many_connections", f"{MOST_WATCHERS} pages follow this home.", retry_after_ms=10_000
            )
        self._count += 1
        try:
            await send({"type": "http.response.start", "status": 200, "headers": EVENT_HEADERS})
            events = cast("AsyncGenerator[bytes]", live_events(self._door.home))
            async with aclosing(events):
                with suppress(HttpError, TimeoutError):
                    await self._follow(events, receive, send, grant)
        finally:
            self._count -= 1
        return 200

    async def _follow(self, events: AsyncIterator[bytes], receive: Receive, send: Send, grant: Any) -> None:
        gone: asyncio.Future[Any] = asyncio.ensure_future(until_gone(receive))
        coming: asyncio.Future[Any] | None = None
        try:
            while True:
                coming = coming or asyncio.ensure_future(anext(events, None))
                await asyncio.wait({gone, coming}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return
                self._door.access.check_again(grant)
                if not coming.done():
                    await write_event(send, b": still here\n\n")
                    continue
                view, coming = coming.result(), None
                if view is None:
                    return
                await write_event(send, b"data: %s\n\n" % view)
        finally:
            gone.cancel()
            if coming is not None:
                coming.cancel()
                with suppress(asyncio.CancelledError):
                    await coming
            await send({"type": "http.response.body", "body": b"", "more_body": False})
