"""Answers that are sent whole.

Belongs here: the two messages of each.
"""

from collections.abc import Awaitable, Callable
from typing import Any

from tidemark.gateway.http.errors import HttpError

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[Any], Awaitable[None]]
# A route: it answers with a status, or raises.
Handler = Callable[[Any, Receive, Send], Awaitable[int]]


async def respond(send: Send, body: bytes, content_type: bytes = b"application/json") -> int:
    """Answer with success; returns the status."""
    headers = [(b"content-type", content_type), (b"content-length", b"%d" % len(body)), (b"cache-control", b"no-store")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    return 200


async def send_error(send: Send, error: HttpError) -> int:
    """Answer with an error; returns the status."""
    body = error.encode()
    headers = [*error.headers(), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": error.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
    return error.status


def require_method(scope: Any, method: str) -> None:
    """Raise for another method; HEAD is GET without the body, which the server leaves out."""
    asked = "GET" if scope["method"] == "HEAD" else scope["method"]
    if asked != method:
        raise HttpError(405, "bad_method", f"{scope['path']} answers {method} alone.", allow=method, closes=True)
