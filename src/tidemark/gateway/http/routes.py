"""All routes but the write route.

Belongs here: paths, and from an answer to a response. The answers themselves are in `questions/reads.py`,
`subscribing.py`, `framing.py` and `operating.py`; what is said of each route to programs is in `openapi.py`.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.routing import BaseRoute, Route, Router, WebSocketRoute
from starlette.types import ASGIApp

from tidemark.gateway.access.tokens import AccessError
from tidemark.gateway.http.access import refused
from tidemark.gateway.http.errors import HttpError
from tidemark.gateway.http.parameters import read_query
from tidemark.gateway.http.questions.reads import (
    Answers,
    CountsQuery,
    NearestQuery,
    NoQuery,
    Question,
    TopQuery,
    VectorQuery,
    WindowsQuery,
    require_read,
)
from tidemark.gateway.http.responses import Handler, Receive, Send, require_method, respond, send_error

if TYPE_CHECKING:
    from tidemark.gateway.http.app import HttpDoor


class Asked(NamedTuple):
    """One question: its path, its parameters, and who answers it."""

    path: str
    query: type[Question]
    answer: Callable[[Answers, Any, Any], object]


QUESTIONS = (
    Asked("/v1/counts", CountsQuery, Answers.counts),
    Asked("/v1/top", TopQuery, Answers.top),
    Asked("/v1/windows", WindowsQuery, Answers.windows),
    Asked("/v1/vector", VectorQuery, Answers.vector),
    Asked("/v1/nearest", NearestQuery, Answers.nearest),
    Asked("/v1/status", NoQuery, Answers.status),
    Asked("/v1/account", NoQuery, Answers.account),
    Asked("/v1/watermarks", NoQuery, Answers.watermarks),
)


class _Endpoint:
    """One route: it answers with a status, or raises."""

    def __init__(self, door: "HttpDoor", path: str, handler: Handler) -> None:
        self._door, self._path, self._handler = door, path, handler

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        counters = self._door.counters
        counters.running[self._path] += 1
        status = 500
        try:
            require_method(scope, "GET")
            status = await self._handler(scope, receive, send)
        except AccessError as error:
            status = await send_error(send, refused(error))
        except HttpError as error:
            status = await send_error(send, error)
        finally:
            counters.running[self._path] -= 1
            counters.requests[self._path, status] += 1


def make_router(door: "HttpDoor") -> ASGIApp:
    """The router of a door."""
    from tidemark.gateway.http.operating import Operating
    from tidemark.gateway.http.watching import Watching

    def question(asked: Asked) -> Handler:
        async def handle(scope: Any, _receive: Receive, send: Send) -> int:
            grant = door.access.grant(scope)
            query = read_query(scope["query_string"], asked.query)
            require_read(grant, query)

            def answer(query: Any, grant: Any) -> object:
                return asked.answer(door.answers, query, grant)

            return await respond(send, await door.answers.ask(answer, query, grant))

        return handle

    async def subscribe(scope: Any, receive: Receive, send: Send) -> int:
        await door.subscriptions.serve(scope, receive, send, door.access.grant(scope))
        return 200

    handlers: dict[str, Handler] = {
        **{asked.path: question(asked) for asked in QUESTIONS},
        "/v1/subscribe": subscribe,
        **Operating(door).handlers(),
        **Watching(door).handlers(),
    }
    routes: list[BaseRoute] = [Route(path, _Endpoint(door, path, handler)) for path, handler in handlers.items()]
    routes.append(WebSocketRoute("/v1/frames", _frames(door)))
    return Router(routes, redirect_slashes=False, default=_Endpoint(door, "other", _unknown))


def _frames(door: "HttpDoor") -> ASGIApp:
    async def serve(scope: Any, receive: Receive, send: Send) -> None:
        try:
            await door.framing.serve(scope, receive, send)
        except HttpError as error:
            body = error.encode()
            headers = [*error.headers(), (b"content-length", b"%d" % len(body))]
            await send({"type": "websocket.http.response.start", "status": error.status, "headers": headers})
            await send({"type": "websocket.http.response.body", "body": body})

    # A class, because Starlette takes a function for one that wants a WebSocket of its own.
    class Endpoint:
        async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
            await serve(scope, receive, send)

    return Endpoint()


async def _unknown(scope: Any, _receive: Receive, _send: Send) -> int:
    raise HttpError(404, "unknown", f"There is nothing at {scope['path']!r}. /openapi.json says what there is.")
