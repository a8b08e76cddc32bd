"""`GET /` and `GET /v1/live`: the live page, and what it follows.

Belongs here: the two routes. What is seen is in `live_view.py`, and how it looks in `page/index.html`. The page says
nothing of the home, so that anybody may have it: it asks for a token if its feed wants one.
"""

import asyncio
from contextlib import aclosing, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tidemark.gateway.access.tokens import ALL
from tidemark.gateway.http.errors import HttpError
from tidemark.gateway.http.event_stream import EVENT_HEADERS, until_gone, write_piecemeal
from tidemark.gateway.http.live import LiveFeed
from tidemark.gateway.http.live_view import Looker
from tidemark.gateway.http.responses import Handler, Receive, Send, respond

if TYPE_CHECKING:
    from tidemark.gateway.http.app import HttpDoor

PAGE = Path(__file__).with_name("page") / "index.html"
# A look is made once for all of them; each costs a few kilobytes a second.
MOST_VIEWERS = 100


class Watching:
    """The routes for people who watch."""

    def __init__(self, door: "HttpDoor") -> None:
        self._access = door.access
        self._feed = LiveFeed(Looker(door.home))
        self._viewers = 0
        door.counters.gauge("watchers", "Pages that follow this home.", lambda: self._viewers)

    def handlers(self) -> dict[str, Handler]:
        """By path."""
        return {"/": self._page, "/v1/live": self._live}

    async def _page(self, _scope: Any, _receive: Receive, send: Send) -> int:
        return await respond(send, _page(), b"text/html; charset=utf-8")

    async def _live(self, scope: Any, receive: Receive, send: Send) -> int:
        """Everything that the page shows, about once a second, for as long as both sides want."""
        grant = self._access.grant(scope)
        grant.require_read(ALL)
        if self._viewers >= MOST_VIEWERS:
            raise HttpError(
                503, "too_many_connections", f"{MOST_VIEWERS} pages are open. Close one.", retry_after_ms=10_000
            )
        self._viewers += 1
        gone = asyncio.ensure_future(until_gone(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": EVENT_HEADERS})
            async with aclosing(self._feed.events()) as events:
                while not gone.done():
                    coming = asyncio.ensure_future(anext(events))
                    try:
                        await asyncio.wait({gone, coming}, return_when=asyncio.FIRST_COMPLETED)
                        if gone.done():
                            break
                        self._access.check_again(grant)
                        await write_piecemeal(send, b"data: %s\n\n" % coming.result())
                    finally:
                        coming.cancel()
                        with suppress(asyncio.CancelledError, StopAsyncIteration):
                            await coming
        except (StopAsyncIteration, HttpError, TimeoutError):
            # Looking failed, the token was revoked, or nothing is read: whoever is there comes again, and is told.
            with suppress(TimeoutError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            self._viewers -= 1
            gone.cancel()
        return 200


@cache
def _page() -> bytes:
    return PAGE.read_bytes()
