"""One connection of the door: bytes in, frames to its session, frames out (W1, W3, W5, W6).

Belongs here: the order of a conversation (hello, then frames of the role), its timeouts, and the end. What frames of
a role mean is in `producing.py` and `subscribing.py`; who may speak is decided in `handshake.py`.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol, cast

from msgspec import Struct

from tidemark.gateway.w1.sessions import Session
from tidemark.model.errors import TidemarkError
from tidemark.wire.errors import NackReason, WireError
from tidemark.wire.frames import Flag, Frame, FrameReader, FrameType, encode_frame
from tidemark.wire.limits import Limits
from tidemark.wire.messages import HEARTBEAT_MS, SILENCE_MS, Heartbeat, Hello, Nack, decode, encode

# For the first frame, and for one that has begun (W3).
FRAME_MS = 10_000


class Peer(Struct, frozen=True):
    """Where a connection comes from."""

    address: str
    is_local: bool  # over the Unix socket in the home: only its owner can open that
    is_loopback: bool
    certificate_name: str | None = None


class Host(Protocol):
    """What a connection needs of the door."""

    limits: Limits

    def opened(self, connection: "Connection") -> WireError | None:
        """Count a new connection; an error if none is taken any more."""

    def closed(self, connection: "Connection") -> None:
        """Count it no more."""

    def greet(self, connection: "Connection", hello: Hello) -> Awaitable[tuple[Struct, Session]]:
        """The answer to a hello, and the session that begins; raises `NackedError`."""


class NackedError(TidemarkError):
    """What a peer asked for is refused in these words."""

    def __init__(self, nack: Nack) -> None:
        self.nack = nack
        super().__init__(nack.message)


def refuse(reason: NackReason, message: str, **more: object) -> NackedError:
    """A refusal that ends the connection."""
    return NackedError(Nack(reason, message, closes=True, **more))  # type: ignore[arg-type]


class Connection(asyncio.BufferedProtocol):
    """The server's side of one socket."""

    def __init__(self, host: Host, peer_of: Callable[[asyncio.BaseTransport], Peer], now: Callable[[], float]) -> None:
        self._host, self._peer_of, self._now = host, peer_of, now
        # Until it is known who this is, a frame is a hello.
        self._reader = FrameReader(host.limits.message_bytes)
        self._transport: asyncio.Transport | None = None
        self._session: Session | None = None
        self._greeting: asyncio.Task[None] | None = None
        self._is_ending = self._is_write_paused = self._is_reading_paused = self._is_half_closed = False
        self._heard_at = self._said_at = self._frame_begun_at = now()
        self._heartbeats = 0
        self.peer = Peer("", is_local=False, is_loopback=False)
        self.principal = ""  # whose token it is, once that is known

    # The transport.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self.peer = self._peer_of(transport)
        if (error := self._host.opened(self)) is not None:
            self.end(Nack(error.reason, str(error), closes=True))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - the protocol's signature
        self._is_ending = True
        self._transport = None
        if self._greeting is not None:
            self._greeting.cancel()
        if self._session is not None:
            self._session.close()
        self._host.closed(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - the protocol's signature
        return self._reader.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        self._heard_at = self._now()
        if self._reader.is_between_frames:
            self._frame_begun_at = self._heard_at
        self._reader.advance(nbytes)
        self._take_frames()

    def eof_received(self) -> bool:
        # A peer that only closed its own direction still wants its acknowledgements; it is let go when they are out.
        self._is_half_closed = True
        return self._session is not None and not self._session.is_idle

    def pause_writing(self) -> None:
        # Whoever does not read its answers is not read from: nothing grows.
        self._is_write_paused = True

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self.go_on()

    # The conversation.

    @property
    def session(self) -> Session | None:
        """What it is, once the hello is answered."""
        return self._session

    @property
    def is_open(self) -> bool:
        """Whether anything can still be sent."""
        return self._transport is not None and not self._is_ending

    @property
    def can_send(self) -> bool:
        """Whether what is sent now goes out without gathering in memory."""
        return self.is_open and not self._is_write_paused

    def send(self, kind: FrameType, sequence: int, payload: bytes = b"", flags: Flag = Flag.NONE) -> None:
        """Send a frame, unless the connection has ended."""
        if self._transport is not None and not self._is_ending:
            self._said_at = self._now()
            self._transport.write(encode_frame(Frame(kind, flags, sequence, payload)))

    def nack(self, sequence: int, nack: Nack) -> None:
        """Refuse the frame with this sequence."""
        if nack.closes:
            self.end(nack, sequence)
        else:
            self.send(FrameType.NACK, sequence, encode(nack))

    def end(self, nack: Nack | None = None, sequence: int = 0) -> None:
        """Say why, and close once that is out."""
        if nack is not None:
            self.send(FrameType.NACK, sequence, encode(nack))
        self._is_ending = True
        if self._transport is not None:
            self._transport.close()

    def say_goodbye(self, drain_ms: int) -> None:
        """Tell the peer to send nothing more here (W6)."""
        self._heartbeats += 1
        self.send(FrameType.HEARTBEAT, self._heartbeats, encode(Heartbeat(drain_ms)))

    def go_on(self) -> None:
        """Something that kept frames waiting has changed."""
        self._take_frames()

    def look(self) -> None:
        """Called about once a second: end what is silent or slow, and show that this side lives."""
        now = self._now()
        if self._is_half_closed and self._session is not None and self._session.is_idle:
            self.end()
        is_slow = not self._reader.is_between_frames and not self._is_reading_paused
        if is_slow and now - self._frame_begun_at > FRAME_MS / 1_000:
            self.end(Nack(NackReason.TIMEOUT, f"A frame took longer than {FRAME_MS // 1_000} s.", closes=True))
        elif self._session is None and now - self._heard_at > FRAME_MS / 1_000 and self._greeting is None:
            self.end(Nack(NackReason.TIMEOUT, f"No hello came within {FRAME_MS // 1_000} s.", closes=True))
        elif now - self._heard_at > SILENCE_MS / 1_000 and not self._is_reading_paused:
            self.end(Nack(NackReason.TIMEOUT, f"Nothing was heard for {SILENCE_MS // 1_000} s.", closes=True))
        elif self._session is not None and now - self._said_at >= HEARTBEAT_MS / 1_000:
            self._heartbeats += 1
            self.send(FrameType.HEARTBEAT, self._heartbeats, encode(Heartbeat()))

    def _take_frames(self) -> None:
        try:
            while self.is_open and not self._is_waiting():
                frame = self._reader.next()
                if frame is None:
                    break
                self._take(frame)
        except WireError as error:
            self.end(Nack(error.reason, str(error), closes=True))
            return
        if self._session is not None and self.is_open:
            self._session.frames_taken()
        self._pause_reading(self._is_waiting())

    def _is_waiting(self) -> bool:
        is_blocked = self._session is not None and self._session.is_blocked
        is_greeting = self._greeting is not None and self._session is None
        return self._is_write_paused or is_blocked or is_greeting

    def _pause_reading(self, is_wanted: bool) -> None:
        if self._transport is None or is_wanted == self._is_reading_paused:
            return
        self._is_reading_paused = is_wanted
        if is_wanted:
            self._transport.pause_reading()
        else:
            self._heard_at = self._frame_begun_at = self._now()  # it could not be heard meanwhile
            self._transport.resume_reading()

    def _take(self, frame: Frame) -> None:
        if self._session is not None:
            if frame.type is FrameType.HEARTBEAT:
                return
            self._session.take(frame)
            return
        if frame.type is not FrameType.HEARTBEAT or frame.sequence:
            raise WireError(NackReason.HELLO_EXPECTED, "The first frame is a heartbeat with sequence 0: the hello.")
        hello = decode(frame.payload, Hello)
        self._greeting = asyncio.get_running_loop().create_task(self._greet(hello))

    async def _greet(self, hello: Hello) -> None:
        try:
            welcome, session = await self._host.greet(self, hello)
        except NackedError as refused:
            self.end(refused.nack)
            return
        if not self.is_open:
            session.close()
            return
        self._session = session
        self._reader.limit_bytes = self._host.limits.payload_bytes
        self.send(FrameType.HEARTBEAT, 0, encode(welcome))
        self.go_on()
