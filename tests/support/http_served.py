"""A home with its door and its HTTP door, on a thread of the test: real sockets, no process to wait for.

Belongs here: starting and stopping it, and talking to it. The door as a process is in `test_http_process.py`.
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec

from tests.support.live import TEN_O_CLOCK
from tests.support.served import ServedHome, home_at, served
from tidemark.gateway import places
from tidemark.gateway.access.tls import Listen
from tidemark.gateway.control import Asked, ControlServer
from tidemark.gateway.http.server import DoorServer, listen, make_server

JSON, LINES, ARROW = "application/json", "application/x-ndjson", "application/vnd.apache.arrow.stream"


class HttpServed:
    """A running HTTP door; what it may do without a token, it does for this machine."""

    def __init__(self, served: ServedHome, port: int) -> None:
        self.served, self.home, self.port = served, served.home, port
        self.url = f"http://127.0.0.1:{port}"
        self.client = httpx.Client(base_url=self.url, timeout=30)

    def post(self, *deltas: dict[str, Any], query: str = "", **headers: str) -> httpx.Response:
        """Send deltas as an array; underscores in names of headers are dashes."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(
            f"/v1/deltas{query}", content=msgspec.json.encode(deltas), headers={"content-type": JSON, **sent}
        )

    def post_body(self, body: bytes, content_type: str = JSON, query: str = "", **headers: str) -> httpx.Response:
        """Send a body as it is."""
        sent = {name.replace("_", "-"): value for name, value in headers.items()}
        return self.client.post(f"/v1/deltas{query}", content=body, headers={"content-type": content_type, **sent})


def view(number: object, **changes: Any) -> dict[str, Any]:
    """A good signal delta with an id of its own."""
    return {
        "namespace": "shop",
        "kind": "signal",
        "delta_id": str(number),
        "event_ts": TEN_O_CLOCK,
        "signal": {"entity_id": "item-7", "signal": "view"},
        **changes,
    }


def error_of(answer: httpx.Response) -> Any:
    """The error in an answer."""
    body = answer.json()
    assert set(body) == {"error"}
    assert {"reason", "message"} <= set(body["error"])
    return body["error"]


@contextmanager
def http_served(path: Path, settings: str = "", **options: Any) -> Iterator[HttpServed]:
    """A new home, served."""
    with served(home_at(path, settings), **options) as found, http_door(found) as door:
        yield door


@contextmanager
def http_door(found: ServedHome) -> Iterator[HttpServed]:
    """An HTTP door of a home that is served."""
    control = ControlServer(lambda asked: _answer(found, asked))
    found.call(control.listen(places.control_socket(found.home)))
    listening = listen(Listen("127.0.0.1", 0))
    server = make_server(found.home, listening)
    serving = asyncio.run_coroutine_threadsafe(server.serve(sockets=[listening]), found._loop)
    door = HttpServed(found, listening.getsockname()[1])
    try:
        found.call(_until_started(server))
        yield door
    finally:
        door.client.close()
        server.should_exit = True
        serving.result(30)
        listening.close()
        control.close()


async def _until_started(server: DoorServer) -> None:
    while not server.started:
        await asyncio.sleep(0.005)


async def _answer(found: ServedHome, asked: Asked) -> Any:
    answers = {"metrics": found.platform.metrics, "watermarks": found.platform.watermarks, "status": dict}
    return await asyncio.to_thread(answers[asked.ask])
