"""The door: every connection to a platform, in the coordinator's own process (W1 to W7).

Belongs here: listening, who is connected, and what is done for all of them once a second. One conversation is in
`w1/connection.py`; the other doors (HTTP and what is built on it) are processes of their own that speak to this one.
"""

import asyncio
import ssl as tls
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from msgspec import Struct

from tidemark.coordinator.platform import Platform
from tidemark.gateway.access.guard import Guard
from tidemark.gateway.access.tls import certificate_name, is_loopback
from tidemark.gateway.access.tls_listener import TlsListener
from tidemark.gateway.access.tokens import ALL, Grant
from tidemark.gateway.w1.admitting import Admitting
from tidemark.gateway.w1.connection import Connection, Peer, refuse
from tidemark.gateway.w1.handshake import check_hello, instance_number, open_producer, slot_runs
from tidemark.gateway.w1.producing import Numbering, Producing
from tidemark.gateway.w1.sessions import Session
from tidemark.gateway.w1.subscribing import Subscribers, Subscribing
from tidemark.model.errors import TidemarkError
from tidemark.model.shard_errors import CoordinatorError
from tidemark.wire.errors import NackReason, WireError
from tidemark.wire.limits import LIMITS, Limits
from tidemark.wire.messages import Hello, Nack, Role, Welcome
from tidemark.wire.unix_path import reachable

LOOK_S = 1.0
STEP_S = 0.1


class DoorCounts(Struct, frozen=True):
    """Who is here."""

    connections: int
    producers: int
    subscribers: int


class Door:
    """All connections of one platform. Everything is called on the loop that it was made on."""

    def __init__(
        self,
        platform: Platform,
        *,
        guard: Guard,
        admitting: Admitting,
        subscribers: Subscribers,
        platform_id: str,
        server: str,
        window: int,
        limits: Limits = LIMITS,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._platform, self._guard, self._admitting, self._subscribers = platform, guard, admitting, subscribers
        self._platform_id, self._server, self._window, self.limits, self._now = (
            platform_id,
            server,
            window,
            limits,
            now,
        )
        self._connections: set[Connection] = set()
        self._producers: dict[str, set[Connection]] = {}
        self._servers: list[asyncio.Server | TlsListener] = []
        self._paths: list[Path] = []
        # One at a time: an instance is compared and opened in one step.
        self._opener = ThreadPoolExecutor(1, thread_name_prefix="open-producer")
        self._durable: set[Producing] = set()
        loop = asyncio.get_running_loop()
        self._tasks = {loop.create_task(each) for each in (self._look_again_and_again(), self._keep_pace())}
        self._is_draining = False

    # Listening.

    async def listen_unix(self, path: Path) -> None:
        """Take connections of this machine; whoever may open the socket is the home's owner."""
        path.unlink(missing_ok=True)
        loop = asyncio.get_running_loop()
        made = partial(Connection, self, lambda _: Peer("unix", is_local=True, is_loopback=True), self._now)
        with reachable(path) as name:
            self._servers.append(await loop.create_unix_server(made, name))
        path.chmod(0o600)
        self._paths.append(path)

    async def listen(self, host: str, port: int, ssl: tls.SSLContext | None = None) -> int:
        """Take connections over the network; returns the port."""
        loop = asyncio.get_running_loop()
        if ssl is not None:
            listener = TlsListener(
                host,
                port,
                ssl,
                guard=self._guard,
                peer_of=_peer_of,
                make=lambda peer_of: Connection(self, peer_of, self._now),
            )
            self._servers.append(listener)
            return listener.port
        made = partial(Connection, self, _peer_of, self._now)
        server = await loop.create_server(made, host, port, reuse_address=True)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])

    def counts(self) -> DoorCounts:
        """Who is here now."""
        sessions = [connection.session for connection in self._connections]
        return DoorCounts(
            len(self._connections),
            sum(isinstance(session, Producing) for session in sessions),
            sum(isinstance(session, Subscribing) for session in sessions),
        )

    async def drain(self, drain_ms: int) -> None:
        """Take no new connections, say goodbye, answer what was sent, and close (C10)."""
        self._is_draining = True
        for server in self._servers:
            server.close()
        for connection in list(self._connections):
            connection.say_goodbye(drain_ms)
        until = self._now() + drain_ms / 1_000
        while self._now() < until and any(c.session is not None and not c.session.is_idle for c in self._connections):
            await asyncio.sleep(0.02)
        for connection in list(self._connections):
            connection.end()
        for task in self._tasks:
            task.cancel()
        await asyncio.sleep(0)
        with suppress(CoordinatorError):
            self._admitting.note(is_last=True)
        self._opener.shutdown(wait=False)
        for path in self._paths:
            path.unlink(missing_ok=True)

    # What a connection asks.

    def opened(self, connection: Connection) -> WireError | None:
        if self._is_draining:
            return WireError(NackReason.STOPPED, "The server is about to stop. Connect again in a moment.")
        self._connections.add(connection)
        self._guard.opened(connection)
        return None

    def closed(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self._guard.closed(connection)
        session = connection.session
        if isinstance(session, Producing):
            others = self._producers.get(session.producer, set())
            others.discard(connection)
            if not others:
                self._producers.pop(session.producer, None)

    async def greet(self, connection: Connection, hello: Hello) -> tuple[Struct, Session]:
        grant = self._guard.admit(connection, hello)
        check_hello(hello, len(self._platform.shards))
        if hello.role is Role.SUBSCRIBER:
            return self._welcome(0, 0), self._subscribers.session(connection, grant)
        numbering, mark = await self._open(hello, grant)
        self._fence_others(connection, numbering.producer, hello)
        session = Producing(
            connection,
            self._platform,
            numbering,
            levels=hello.levels,
            priority=hello.priority,
            mark=mark,
            window=self._window,
            limits=self.limits,
            may_write=None if grant.may_write(ALL) else grant.may_write,
            admitting=self._admitting,
            on_durable=self._wait_for_durable,
        )
        self._producers.setdefault(numbering.producer, set()).add(connection)
        return self._welcome(instance_number(numbering.instances), mark), session

    async def _open(self, hello: Hello, grant: Grant) -> tuple[Numbering, int]:
        if not (grant.is_admin or grant.scopes.writes):
            raise refuse(NackReason.NOT_ALLOWED, f"{grant.name!r} may write to no namespace.")
        return await asyncio.get_running_loop().run_in_executor(self._opener, open_producer, self._platform, hello)

    def _fence_others(self, connection: Connection, producer: str, hello: Hello) -> None:
        """The shards refuse their writes already; this tells them why, and lets them go."""
        for other in list(self._producers.get(producer, ())):
            session = other.session
            if other is not connection and isinstance(session, Producing) and session.has_shard_of(hello.shard):
                why = f"Producer {producer!r} was opened again by another connection; this one may write no more."
                session.fence(Nack(NackReason.FENCED, why, closes=True))

    def _welcome(self, instance: int, mark: int) -> Welcome:
        return Welcome(
            instance=instance,
            mark=mark,
            window=self._window,
            shards=len(self._platform.shards),
            slots=slot_runs(len(self._platform.shards)),
            limits=self.limits,
            home=self._platform_id,
            server=self._server,
        )

    # Once in a while.

    def _wait_for_durable(self, session: Producing) -> None:
        self._durable.add(session)

    async def _look_again_and_again(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            for connection in list(self._connections):
                connection.look()
                self._guard.look(connection)
            if self._durable:
                with suppress(CoordinatorError, TidemarkError, OSError):
                    await self._look_for_durable()

    async def _keep_pace(self) -> None:
        """Tell producers how fast to send, and the log what was turned away (A3, A4)."""
        while True:
            await asyncio.sleep(STEP_S)
            with suppress(CoordinatorError):  # a shard that has stopped is told of elsewhere
                for producer, pace in self._admitting.step().items():
                    for connection in list(self._producers.get(producer, ())):
                        if isinstance(connection.session, Producing):
                            connection.session.follow(pace)

    async def _look_for_durable(self) -> None:
        if any(session.wants_seal() for session in self._durable):
            await asyncio.to_thread(self._platform.seal)
        epochs = await asyncio.to_thread(
            lambda: {number: shard.durable_epoch for number, shard in self._platform.shards.items()}
        )
        self._durable = {session for session in self._durable if session.durable(epochs)}


def _peer_of(transport: asyncio.BaseTransport) -> Peer:
    address = transport.get_extra_info("peername")
    host = str(address[0]) if address else ""
    name = certificate_name(transport.get_extra_info("peercert"))
    return Peer(host, is_local=False, is_loopback=is_loopback(host), certificate_name=name)
