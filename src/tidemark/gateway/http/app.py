"""The door as an ASGI application.

Belongs here: which route a request takes, and the end of every request: its answer or its error, and the count. Writes
are looked for first, by comparing a path; for the rest there is a router.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from tidemark.client.connection import Connection
from tidemark.gateway.access.tokens import AccessError, TokenStore
from tidemark.gateway.http.access import Access, refused
from tidemark.gateway.http.counters import Counters
from tidemark.gateway.http.errors import HttpError
from tidemark.gateway.http.framing import Framing
from tidemark.gateway.http.questions.reads import Answers
from tidemark.gateway.http.responses import Receive, Send, require_method, send_error
from tidemark.gateway.http.subscribing import Subscriptions
from tidemark.gateway.http.writes.bodies import DisconnectedError, Room
from tidemark.gateway.http.writes.outcomes import encode_answer
from tidemark.gateway.http.writes.writing import Writing
from tidemark.gateway.places import w1_socket
from tidemark.storage.home import Home
from tidemark.wire.messages import Hello

WRITES = "/v1/deltas"
_SWEEP_S = 5.0
_JSON = (b"content-type", b"application/json")
_OK_START = {"type": "http.response.start", "status": 200}


class HttpDoor:
    """The application, for one home."""

    def __init__(self, home: Home, *, port: int) -> None:
        self.home = home
        self.access = Access(TokenStore(home))
        self.counters = Counters()
        self._address = f"unix:{w1_socket(home)}"
        self.writing = Writing(self.open_connection, Room(), self.counters, port=port)
        self.answers = Answers(home)
        self.subscriptions = Subscriptions(self.open_connection, self.access)
        self.framing = Framing(str(w1_socket(home)), self.access)
        self.counters.gauge("subscribers", "Subscriptions by server-sent events.", lambda: self.subscriptions.count)
        self.counters.gauge("websockets", "WebSockets with frames.", lambda: self.framing.count)
        self.counters.gauge("questions", "Questions that are answered or wait.", lambda: self.answers.waiting)
        self._router: Callable[[Any, Receive, Send], Awaitable[None]] | None = None
        self._sweeping: asyncio.Task[None] | None = None

    async def open_connection(self, hello: Hello) -> Connection:
        """A connection to the coordinator."""
        return await Connection.open(self._address, hello)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """One request, one WebSocket, or the life of the process."""
        kind = scope["type"]
        if kind == "http" and scope["path"] == WRITES:
            await self._write(scope, receive, send)
        elif kind == "lifespan":
            await self._live(receive, send)
        else:
            await self._route(scope, receive, send)

    async def _write(self, scope: Any, receive: Receive, send: Send) -> None:
        counters = self.counters
        counters.running[WRITES] += 1
        status = 200
        try:
            require_method(scope, "POST")
            grant = self.access.grant(scope)
            body = encode_answer(await self.writing.answer(scope, receive, grant))
            headers = [_JSON, (b"content-length", b"%d" % len(body))]
            await send({**_OK_START, "headers": headers})
            await send({"type": "http.response.body", "body": body})
        except HttpError as error:
            status = await send_error(send, error)
        except AccessError as error:
            status = await send_error(send, refused(error))
        except DisconnectedError:
            status = 499  # as nginx counts those who did not wait
        finally:
            counters.running[WRITES] -= 1
            counters.requests[WRITES, status] += 1

    async def _route(self, scope: Any, receive: Receive, send: Send) -> None:
        if self._router is None:
            from tidemark.gateway.http.routes import make_router

            self._router = make_router(self)
        await self._router(scope, receive, send)

    async def _live(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                self._sweeping = asyncio.create_task(self._sweep())
                await send({"type": "lifespan.startup.complete"})
            else:
                await self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            await self.writing.forget_idle()

    async def close(self) -> None:
        """Give up everything that is open."""
        if self._sweeping is not None:
            self._sweeping.cancel()
            with suppress(asyncio.CancelledError):
                await self._sweeping
        await self.writing.close()
        self.answers.close()
