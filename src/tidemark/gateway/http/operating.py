"""What operators and their tools ask a door: metrics, health, readiness, and what it can do.

Belongs here: those routes. The coordinator's part of an answer comes from the serving process, by its control socket.
"""

import asyncio
from functools import cache
from typing import TYPE_CHECKING, Any

import msgspec

from tidemark.gateway.access.tokens import ALL
from tidemark.gateway.control import Answer, Asked
from tidemark.gateway.http.errors import RETRY_AFTER_MS, HttpError
from tidemark.gateway.http.responses import Handler, Receive, Send, respond
from tidemark.gateway.places import control_socket

if TYPE_CHECKING:
    from tidemark.gateway.http.app import HttpDoor

ANSWER_S = 5.0
_LONGEST_LINE = 16 * 1024 * 1024


class Operating:
    """The routes for operators."""

    def __init__(self, door: "HttpDoor") -> None:
        self._door = door

    def handlers(self) -> dict[str, Handler]:
        """By path."""
        return {
            "/metrics": self._metrics,
            "/-/healthy": self._healthy,
            "/-/ready": self._ready,
            "/openapi.json": self._openapi,
        }

    async def _metrics(self, scope: Any, _receive: Receive, send: Send) -> int:
        """Both parts; without the coordinator the door's own, with a value that says so."""
        self._door.access.grant(scope).require_read(ALL)
        try:
            coordinator, is_up = str(await self.ask_coordinator("metrics")), 1
        except HttpError:
            coordinator, is_up = "", 0
        self._door.counters.gauge("coordinator_up", "Whether the coordinator answers.", lambda: is_up)
        text = coordinator + self._door.counters.text()
        return await respond(send, text.encode(), b"text/plain; version=0.0.4; charset=utf-8")

    async def _healthy(self, _scope: Any, _receive: Receive, send: Send) -> int:
        """This process answers."""
        return await respond(send, b'{"healthy":true}')

    async def _ready(self, _scope: Any, _receive: Receive, send: Send) -> int:
        """The coordinator answers as well, so that writes are taken."""
        await self.ask_coordinator("watermarks")
        return await respond(send, b'{"ready":true}')

    async def _openapi(self, _scope: Any, _receive: Receive, send: Send) -> int:
        return await respond(send, _document())

    async def ask_coordinator(self, what: str) -> Any:
        """The serving process's answer; raises `HttpError` with 503 if there is none."""
        path = control_socket(self._door.home)
        try:
            async with asyncio.timeout(ANSWER_S):
                reader, writer = await asyncio.open_unix_connection(path, limit=_LONGEST_LINE)
                try:
                    writer.write(msgspec.json.encode(Asked(what)) + b"\n")
                    answer = msgspec.json.decode(await reader.readline(), type=Answer)
                finally:
                    writer.close()
        except (OSError, TimeoutError, ValueError) as error:
            raise _not_ready(str(error) or "it does not answer") from error
        if answer.error is not None:
            raise _not_ready(answer.error)
        return answer.result


def _not_ready(why: str) -> HttpError:
    return HttpError(503, "stopped", f"The coordinator is not there: {why}", retry_after_ms=RETRY_AFTER_MS)


@cache
def _document() -> bytes:
    from tidemark.gateway.http.openapi import document

    return msgspec.json.encode(document())
