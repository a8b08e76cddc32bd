"""One connection to a server: frames out, answers in (W1 to W7).

Belongs here: the socket, the hello, heartbeats, and who is told when the connection ends. It is for one (producer,
shard) or one subscriber, on any asyncio loop. Connecting again, and what to send again, is the caller's.
"""

import asyncio
import ssl as tls
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from tidemark.client.address import Address, parse_address
from tidemark.client.deliveries import Deliveries, Delivery
from tidemark.client.errors import ConnectionLostError, NackedError
from tidemark.client.in_flight import Heard, InFlight, Written
from tidemark.client.window import Window
from tidemark.wire.errors import NackReason, PayloadError, WireError
from tidemark.wire.frames import Flag, Frame, FrameReader, FrameType, encode_frame
from tidemark.wire.limits import LIMITS
from tidemark.wire.messages import (
    Ack,
    Backpressure,
    Heartbeat,
    Hello,
    LevelName,
    Nack,
    Subscribe,
    Subscribed,
    Welcome,
    decode,
    encode,
)
from tidemark.wire.payloads import decompress
from tidemark.wire.unix_path import reachable

# For the connection and the answer to the hello.
HELLO_S = 10.0
# So much may wait for the socket before `room` waits for it.
_CLOGGED_BYTES = 1024 * 1024


class _Socket(asyncio.BufferedProtocol):
    """Finds frames in what arrives, and passes them on. Bytes go from the socket straight into the reader's buffer."""

    def __init__(self, on_frame: Callable[[Frame], None], on_end: Callable[[str], None]) -> None:
        self._reader = FrameReader()
        self._on_frame, self._on_end = on_frame, on_end
        self.on_clog: Callable[[bool], None] | None = None
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(high=_CLOGGED_BYTES)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the reader knows what it needs
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            for frame in self._reader.wrote(nbytes):
                self._on_frame(frame)
        except WireError as error:
            self._on_end(f"what the server sends cannot be read: {error}")

    def eof_received(self) -> bool:
        self._on_end("the server has closed it")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_end(f"the network says: {exc}" if exc else "it was closed")

    def pause_writing(self) -> None:
        if self.on_clog:
            self.on_clog(True)

    def resume_writing(self) -> None:
        if self.on_clog:
            self.on_clog(False)


class Connection:
    """One (producer, shard) or one subscriber, over one socket. Made by `open`."""

    welcome: Welcome

    def __init__(self, hello: Hello) -> None:
        self._hello = hello
        self._loop = asyncio.get_running_loop()
        self._socket = _Socket(self._received, self._end)
        self._greeted: asyncio.Future[Welcome] = self._loop.create_future()
        self._deliveries: Deliveries | None = None
        # Done when a subscription has begun: shard → the epoch after which everything is delivered.
        self.subscribed: asyncio.Future[dict[int, int]] = self._loop.create_future()
        self._heartbeats = 0
        self._heard = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        # Set when a goodbye came: how long the server still answers.
        self.drain_ms: int | None = None
        self.goodbye: asyncio.Future[int] = self._loop.create_future()
        # Done when the connection has ended: with what ended it, or None if it was closed here.
        self.closed: asyncio.Future[ConnectionLostError | None] = self._loop.create_future()
        # Told when everything up to a number has reached a level.
        self.on_level: Callable[[LevelName, int], None] = lambda _level, _sequence: None
        self.window = Window(0, self._loop)
        self._in_flight = InFlight(0, self.window.answered)

    @classmethod
    async def open(
        cls, address: str, hello: Hello, *, ssl: tls.SSLContext | None = None, timeout: float = HELLO_S
    ) -> "Connection":
        """Connect, and say hello. Raises `NackedError` if the server refuses, and `OSError` if there is none."""
        connection = cls(hello)
        try:
            async with asyncio.timeout(timeout):
                await connection._greet(parse_address(address), ssl)
        except BaseException as error:
            connection._end(str(error) or type(error).__name__)
            raise
        return connection

    async def _greet(self, address: Address, ssl: tls.SSLContext | None) -> None:
        if address.path is not None:
            with reachable(Path(address.path)) as name:
                await self._loop.create_unix_connection(lambda: self._socket, name)
        else:
            await self._loop.create_connection(lambda: self._socket, address.host, address.port, ssl=address.tls(ssl))
        self._send(Frame(FrameType.HEARTBEAT, Flag.NONE, 0, encode(self._hello)))
        self.welcome = await self._greeted
        self.window.size = self.welcome.window
        self._socket.on_clog = self.window.clog
        self._in_flight = InFlight(self.welcome.mark, self.window.answered)
        self._beat()

    # Sending.

    def write(
        self,
        sequence: int,
        kind: FrameType,
        payload: bytes,
        *,
        rows: int,
        flags: Flag = Flag.NONE,
        wanted: LevelName = LevelName.FLUSHED,
        heard: Heard | None = None,
    ) -> asyncio.Future[Written]:
        """Send one write of so many deltas. The result comes when it has reached the level that is wanted.

        `heard` is told of each level on the way there, and of that one.

        `NackedError`: it was not taken. `ConnectionLostError`: it may have been taken or not. New numbers are sent in
        their order; one that is known to be taken may be sent again, and is answered as a retry.
        """
        if self.closed.done() or self.drain_ms is not None:
            raise self._error()
        future: asyncio.Future[Written] = self._loop.create_future()
        future.add_done_callback(_look_at)
        self._in_flight.add(sequence, len(payload), rows, wanted, future, heard)
        self.window.sent(len(payload))
        self._send(Frame(kind, flags, sequence, payload))
        return future

    async def room(self, size: int) -> None:
        """Return when so many bytes of payload may be sent; raise if the connection has ended."""
        await self.window.room(size)
        if self.closed.done():
            raise self._error()

    @property
    def unanswered(self) -> int:
        """How many writes wait for their first answer."""
        return self._in_flight.unanswered

    @property
    def fileno(self) -> int:
        """The socket's; -1 if there is none."""
        socket = None if self._socket.transport is None else self._socket.transport.get_extra_info("socket")
        return -1 if socket is None else socket.fileno()

    async def subscribe(self, wants: Subscribe) -> AsyncIterator[Delivery]:
        """Deliveries, until the subscription or the connection ends. Each has to be acknowledged."""
        if self._deliveries is not None:
            raise ValueError("this connection has a subscription: open another one")
        self._deliveries = Deliveries(wants.max_unacked)
        self._send(Frame(FrameType.SUBSCRIBE, Flag.NONE, 1, encode(wants)))
        try:
            async for delivery in self._deliveries:
                yield delivery
        finally:
            if not self.closed.done():
                self._send(Frame(FrameType.UNSUBSCRIBE, Flag.NONE, 1))

    def acknowledge(self, number: int) -> None:
        """Everything up to this delivery has been dealt with."""
        if self._deliveries is None:
            raise ValueError("there is no subscription on this connection")
        self._deliveries.acknowledge(number)
        self._send(Frame(FrameType.ACK, Flag.BATCHED, number))

    async def close(self) -> None:
        """End the connection. What is not acknowledged may have been taken or not."""
        self._end(None)
        await asyncio.sleep(0)

    def _send(self, frame: Frame) -> None:
        transport = self._socket.transport
        if transport is not None and not transport.is_closing():
            transport.write(encode_frame(frame))

    # Receiving.

    def _received(self, frame: Frame) -> None:
        self._heard = self._loop.time()
        if not self._greeted.done():
            self._received_first(frame)
        elif self.closed.done():
            return
        elif frame.type == FrameType.ACK:
            ack = decode(frame.payload, Ack)
            self._in_flight.acknowledge(frame.sequence, bool(frame.flags & Flag.BATCHED), ack)
            if frame.flags & Flag.BATCHED:
                self.on_level(ack.level, frame.sequence)
        elif frame.type == FrameType.NACK:
            self._nacked(frame.sequence, decode(frame.payload, Nack))
        elif frame.type == FrameType.BACKPRESSURE:
            self.window.told(decode(frame.payload, Backpressure))
        elif frame.type == FrameType.SUBSCRIBE and not self.subscribed.done():
            self.subscribed.set_result(decode(frame.payload, Subscribed).cursor)
        elif frame.type == FrameType.HEARTBEAT:
            self._heartbeat(decode(frame.payload, Heartbeat) if frame.payload else Heartbeat())
        elif frame.type in {FrameType.DELTA, FrameType.BATCH} and self._deliveries is not None:
            packed = frame.flags & Flag.COMPRESSED
            payload = decompress(frame.payload, LIMITS) if packed else bytes(frame.payload)
            self._deliveries.arrive(Delivery(frame.sequence, frame.type, payload))
        else:
            raise PayloadError(NackReason.UNEXPECTED, f"a frame of type {frame.type.name} was not asked for")

    def _received_first(self, frame: Frame) -> None:
        if frame.type == FrameType.NACK:
            self._greeted.set_exception(NackedError(decode(frame.payload, Nack)))
        elif frame.type == FrameType.HEARTBEAT and frame.sequence == 0:
            self._greeted.set_result(decode(frame.payload, Welcome))
        else:
            raise PayloadError(NackReason.UNEXPECTED, f"the answer to a hello was a frame of type {frame.type.name}")

    def _nacked(self, sequence: int, nack: Nack) -> None:
        if not nack.closes:
            if self._deliveries is not None:
                self._deliveries.fail(NackedError(nack))
            self._in_flight.refuse(sequence, nack)
            if nack.retry_after_ms:
                self.window.pause(nack.retry_after_ms)
            return
        if sequence and nack.reason != NackReason.FENCED:
            self._in_flight.refuse(sequence, nack)
        self._end(f"the server says: {nack.message}", nack)

    def _heartbeat(self, said: Heartbeat) -> None:
        if said.drain_ms is not None:
            self.drain_ms = said.drain_ms
            if not self.goodbye.done():
                self.goodbye.set_result(said.drain_ms)

    def _beat(self) -> None:
        """Give a sign of life, and look whether the server has given any."""
        every_s = self.welcome.heartbeat_ms / 1_000
        silent_s = self._loop.time() - self._heard
        if silent_s >= 2 * every_s:
            self._end(f"the server has said nothing for {silent_s:.0f} s")
            return
        self._heartbeats += 1
        self._send(Frame(FrameType.HEARTBEAT, Flag.NONE, self._heartbeats, encode(Heartbeat())))
        self._timer = self._loop.call_later(every_s, self._beat)

    # The end.

    def _error(self) -> ConnectionLostError:
        if not self.closed.done():
            return ConnectionLostError("the server has said goodbye")
        return self.closed.result() or ConnectionLostError("it was closed here")

    def _end(self, why: str | None, nack: Nack | None = None) -> None:
        """Nothing more goes over this connection; everybody who waits is told. `why` is None if it is closed here."""
        if self.closed.done():
            return
        if self._timer is not None:
            self._timer.cancel()
        error = None if why is None else ConnectionLostError(why, nack)
        self.closed.set_result(error)
        if not self._greeted.done():
            self._greeted.set_exception(ConnectionResetError(f"There was no answer to the hello: {why}."))
        _look_at(self._greeted)
        self.window.close()
        self._in_flight.fail(self._error())
        if self._deliveries is not None:
            self._deliveries.fail(self._error())
        if self._socket.transport is not None:
            with suppress(RuntimeError):  # the loop is closed
                if why is None:
                    self._socket.transport.close()
                else:
                    self._socket.transport.abort()


def _look_at(future: "asyncio.Future[Any]") -> None:
    """An error that nobody asks for is no reason for a warning: the connection tells of its end by itself."""
    if future.done() and not future.cancelled():
        future.exception()
