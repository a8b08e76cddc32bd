"""Taking connections that begin with TLS, each counted from its first byte on (W3, W10).

Belongs here: accepting them, and the time until TLS is agreed. A server of asyncio that is given TLS tells nobody of a
connection before its handshake has ended, so that any number could wait in it.
"""

import asyncio
import socket
import ssl as tls
from collections.abc import Callable

from tidemark.gateway.access.guard import Guard
from tidemark.gateway.w1.connection import FRAME_MS, Connection, Peer
from tidemark.model.errors import ConfigurationError
from tidemark.wire.messages import Nack

_BACKLOG = 1_024
# When no descriptor is left for another connection, some end within this time or so.
_PAUSE_S = 0.1
PeerOf = Callable[[asyncio.BaseTransport], Peer]


class _Handshake:
    """A connection that has not agreed on TLS."""

    def __init__(self, found: socket.socket, address: str) -> None:
        self._found = found
        self.peer = Peer(address, is_local=False, is_loopback=False)

    def end(self, nack: Nack | None = None) -> None:  # noqa: ARG002 - there is nothing yet that it could be said in
        """Let its handshake fail."""
        try:
            self._found.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # the peer has gone


class TlsListener:
    """One address, until it is closed. `make` gives the connection that a handshake leads to."""

    def __init__(
        self,
        host: str,
        port: int,
        context: tls.SSLContext,
        *,
        guard: Guard,
        peer_of: PeerOf,
        make: Callable[[PeerOf], Connection],
    ) -> None:
        self._context, self._guard, self._peer_of, self._make = context, guard, peer_of, make
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            self._listener = socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ConfigurationError(
                f"{host}:{port} cannot be listened at: {error.strerror}. Choose another, or end what listens there."
            ) from error
        self._listener.setblocking(False)
        self.port = int(self._listener.getsockname()[1])
        self._handshakes: set[asyncio.Task[None]] = set()
        self._accepting = asyncio.get_running_loop().create_task(self._accept())

    def close(self) -> None:
        """Take no more; those that have agreed on TLS stay."""
        for task in (self._accepting, *self._handshakes):
            task.cancel()
        self._listener.close()

    async def _accept(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                found, address = await loop.sock_accept(self._listener)
            except OSError:
                await asyncio.sleep(_PAUSE_S)
                continue
            task = loop.create_task(self._shake_hands(found, str(address[0])))
            self._handshakes.add(task)
            task.add_done_callback(self._handshakes.discard)

    async def _shake_hands(self, found: socket.socket, address: str) -> None:
        found.setblocking(False)
        handshake = _Handshake(found, address)
        self._guard.opened(handshake)

        def peer_of(transport: asyncio.BaseTransport) -> Peer:
            # The connection that it has become counts itself as soon as it knows its peer.
            self._guard.closed(handshake)
            return self._peer_of(transport)

        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: self._make(peer_of), found, ssl=self._context, ssl_handshake_timeout=FRAME_MS / 1_000
            )
        except OSError:  # no TLS, or another than ours, or pushed out meanwhile
            found.close()
        finally:
            self._guard.closed(handshake)
