"""The process of the door: its socket, and limits on those who have not said anything yet.

Belongs here: uvicorn with what it lacks. It waits for ever for the end of a header and takes any number of them; here
a connection has seconds for its first request, a header has a bound, and there is a bound on connections.
"""

import asyncio
import os
import socket
import ssl
from asyncio import TimerHandle
from typing import Any, ClassVar

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from tidemark.gateway.access.connection_limits import ConnectionLimits
from tidemark.gateway.access.tls import Listen, certificate_name
from tidemark.gateway.http.access import PLACE, Place
from tidemark.gateway.http.app import HttpDoor
from tidemark.gateway.http.errors import RETRY_AFTER_MS, HttpError
from tidemark.gateway.places import read_serving
from tidemark.model.errors import ConfigurationError
from tidemark.storage.home import Home
from tidemark.wire.limits import LIMITS

# From the connection, or from the first byte of a header, to its end.
HEADER_S = 10.0
HEADER_BYTES = 32 * 1024
# Between two requests.
KEEP_ALIVE_S = 75.0
_DRAIN_S = 5
# The length of a chunk in hexadecimal, and two ends of lines.
_FRAMING_BYTES = 24
_BACKLOG = 2_048


class DoorProtocol(HttpToolsProtocol):
    """One connection."""

    limits: ConnectionLimits[Place]
    _places: ClassVar[dict[Place, "DoorProtocol"]] = {}
    _place: Place | None = None
    _timer: TimerHandle | None = None
    # What came since the last piece of a body: of a header, or of what may stand behind a body and has no end either.
    _quiet_bytes = 0
    # Of the bytes that came together: those that are no body.
    _framed_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        place = self._place = Place(self.limits, certificate_name(transport.get_extra_info("peercert")))
        self.app_state = {**self.app_state, PLACE: place}
        self._places[place] = self
        pushed = self.limits.opened(place, self.client[0] if self.client else "")
        if pushed is not None:
            self._places[pushed].push_out()
        self._timer = self.loop.call_later(HEADER_S, self._too_slow)

    def data_received(self, data: bytes) -> None:
        self._quiet_bytes += len(data)
        self._framed_bytes = len(data)
        super().data_received(data)
        if self._quiet_bytes > HEADER_BYTES and not self.transport.is_closing():
            self._refuse(
                HttpError(431, "header_too_large", f"A header has at most {HEADER_BYTES:,} bytes.", closes=True)
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        if self._timer is None:
            self._timer = self.loop.call_later(HEADER_S, self._too_slow)

    def on_headers_complete(self) -> None:
        self._quiet_bytes = 0
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._quiet_bytes = 0
        super().on_message_complete()

    def on_body(self, body: bytes) -> None:
        # What came with it may stand behind it, but for the few bytes that frame each piece.
        self._framed_bytes = max(0, self._framed_bytes - len(body) - _FRAMING_BYTES)
        self._quiet_bytes = self._framed_bytes
        super().on_body(body)

    def handle_websocket_upgrade(self) -> None:
        # From here on the connection belongs to another protocol, and who serves that gives the place back.
        if self._place is not None:
            self._places.pop(self._place, None)
        super().handle_websocket_upgrade()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._place is not None:
            self._places.pop(self._place, None)
            self._place.leave()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self._refuse(HttpError(400, "bad_request", f"This is no HTTP/1.1: {msg}", closes=True))

    def push_out(self) -> None:
        """Go, to make room for a newer one."""
        self._refuse(
            HttpError(
                503,
                "too_many_connections",
                "So many connections have not said who they are that the oldest of them go. Connect again.",
                retry_after_ms=RETRY_AFTER_MS,
                closes=True,
            )
        )

    def _too_slow(self) -> None:
        self._timer = None
        self._refuse(HttpError(408, "timeout", f"No request came within {HEADER_S:.0f} s.", closes=True))

    def _refuse(self, error: HttpError) -> None:
        body = error.encode()
        head = [b"HTTP/1.1 %d \r\n" % error.status]
        head += [b"%s: %s\r\n" % pair for pair in (*error.headers(), (b"content-length", b"%d" % len(body)))]
        if not self.transport.is_closing():
            self.transport.write(b"".join([*head, b"\r\n", body]))
            self.transport.close()


class DoorServer(uvicorn.Server):
    """The server, which ends with the process that started it, if that serves the home."""

    def __init__(self, config: uvicorn.Config, home: Home) -> None:
        super().__init__(config)
        self._home = home
        self._parent = os.getppid()
        self._is_child = False

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if counter % 10 == 0:
            self._look()
        return await super().on_tick(counter)

    def _look(self) -> None:
        if not self._is_child:
            serving = read_serving(self._home)
            self._is_child = serving is not None and serving.pid == self._parent
        elif os.getppid() != self._parent:
            self.should_exit = True


def listen(at: Listen) -> socket.socket:
    """A socket that listens."""
    family = socket.AF_INET6 if ":" in at.host else socket.AF_INET
    found = socket.socket(family, socket.SOCK_STREAM)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        found.bind((at.host, at.port))
        found.listen(_BACKLOG)  # from here on whoever connects waits, and is not refused
    except OSError as error:
        found.close()
        raise ConfigurationError(
            f"{at} cannot be listened at: {error.strerror}. Choose another port, or end what listens there."
        ) from error
    return found


def make_server(home: Home, listening: socket.socket, tls: ssl.SSLContext | None = None) -> DoorServer:
    """The server of a home's door, which ends by a signal or with the serving process."""
    protocol = type("DoorProtocol", (DoorProtocol,), {"limits": ConnectionLimits(home.settings.serve), "_places": {}})
    options: dict[str, Any] = {"ssl_context_factory": lambda *_: tls} if tls is not None else {}
    config = uvicorn.Config(
        HttpDoor(home, port=listening.getsockname()[1]),
        http=protocol,
        ws="websockets-sansio",
        loop="uvloop",
        lifespan="on",
        log_level="warning",
        access_log=False,
        # Whether somebody is on this machine is what the socket says, and not what a header does.
        proxy_headers=False,
        server_header=False,
        date_header=False,
        timeout_keep_alive=int(KEEP_ALIVE_S),
        timeout_graceful_shutdown=_DRAIN_S,
        ws_max_size=LIMITS.payload_bytes + 1024,
        ws_per_message_deflate=False,
        **options,
    )
    return DoorServer(config, home)
