"""`/v1/frames`: W1 in a WebSocket, for programs that can open nothing else.

Belongs here: passing bytes between a WebSocket and the coordinator's socket. Only the first frame is read here, the
hello: it has to bring a token where one is needed, and the coordinator, who trusts this process, then holds its sender
to it.
"""

import asyncio
from typing import Any

from msgspec.structs import replace

from tidemark.gateway.access.tokens import OPEN, AccessError
from tidemark.gateway.http.access import PLACE, Access, Place
from tidemark.gateway.http.errors import HttpError
from tidemark.gateway.http.responses import Receive, Send
from tidemark.wire.errors import NackReason, WireError
from tidemark.wire.frames import Flag, Frame, FrameReader, FrameType, encode_frame
from tidemark.wire.limits import LIMITS
from tidemark.wire.messages import Hello, Nack, decode, encode

HELLO_S = 10.0
MOST_FRAMES = 200
_PIECE_BYTES = 64 * 1024
# RFC 6455: the other side broke the rules; something is missing here.
_POLICY, _TRY_LATER, _DONE = 1008, 1013, 1000


class Framing:
    """All WebSockets with frames."""

    def __init__(self, path: str, access: Access) -> None:
        self._path, self._access = path, access
        self.count = 0

    async def serve(self, scope: Any, receive: Receive, send: Send) -> None:
        """Serve one WebSocket to its end."""
        place: Place = scope["state"][PLACE]
        token, is_loopback = self._access.token(scope)
        await receive()  # its wish to connect
        await send({"type": "websocket.accept"})
        if self.count >= MOST_FRAMES:
            await send({"type": "websocket.close", "code": _TRY_LATER, "reason": "too many connections"})
            return
        self.count += 1
        try:
            await self._serve(place, token, is_loopback, receive, send)
        finally:
            self.count -= 1
            place.leave()

    async def _serve(self, place: Place, token: str | None, is_loopback: bool, receive: Receive, send: Send) -> None:
        try:
            async with asyncio.timeout(HELLO_S):
                first = await self._hello(place, token, is_loopback, receive)
        except (HttpError, AccessError, WireError, TimeoutError) as error:
            nack = _nack(error)
            data = encode_frame(Frame(FrameType.NACK, Flag.NONE, 0, encode(nack)))
            await send({"type": "websocket.send", "bytes": data})
            await send({"type": "websocket.close", "code": _POLICY, "reason": str(nack.reason)})
            return
        if first is None:
            return
        try:
            reader, writer = await asyncio.open_unix_connection(self._path, limit=_PIECE_BYTES)
        except OSError:
            await send({"type": "websocket.close", "code": _TRY_LATER, "reason": "the coordinator is not there"})
            return
        writer.write(first)
        up = asyncio.ensure_future(_pass_up(receive, writer))
        down = asyncio.ensure_future(_pass_down(reader, send))
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            if down.done() and down.exception() is None:
                await send({"type": "websocket.close", "code": _DONE})
        finally:
            for task in (up, down):
                task.cancel()
            await asyncio.gather(up, down, return_exceptions=True)
            writer.close()

    async def _hello(self, place: Place, token: str | None, is_loopback: bool, receive: Receive) -> bytes | None:
        """The first bytes for the coordinator: the hello with its token, and what came behind it."""
        came = b""
        frames = FrameReader(LIMITS.message_bytes)
        while True:
            message = await receive()
            if message["type"] == "websocket.disconnect":
                return None
            data: bytes | None = message.get("bytes")
            if data is None:
                raise HttpError(400, str(NackReason.BAD_PAYLOAD), "W1 is sent in binary messages, and this is text.")
            came += data
            if first := next(frames.feed(data), None):
                break
        if first.type != FrameType.HEARTBEAT or first.sequence:
            raise WireError(NackReason.HELLO_EXPECTED, "The first frame is a hello: a heartbeat with sequence 0.")
        hello = decode(first.payload, Hello)
        end = len(encode_frame(first))
        token = hello.token or token
        grant = self._access.check(token, is_loopback=is_loopback)
        if token is None and grant is not OPEN:
            raise HttpError(401, str(NackReason.UNAUTHENTICATED), "A token is needed in the hello.")
        place.greet(grant)
        said = encode(replace(hello, token=token))
        return encode_frame(Frame(FrameType.HEARTBEAT, Flag.NONE, 0, said)) + came[end:]


def _nack(error: Exception) -> Nack:
    if isinstance(error, HttpError):
        return Nack(NackReason(error.body.reason), error.body.message, closes=True)
    if isinstance(error, WireError | AccessError):
        return Nack(error.reason, str(error), closes=True)
    return Nack(NackReason.TIMEOUT, f"The hello did not come within {HELLO_S:.0f} s.", closes=True)


async def _pass_up(receive: Receive, writer: asyncio.StreamWriter) -> None:
    while (message := await receive())["type"] == "websocket.receive":
        data = message.get("bytes")
        if data is None:
            return
        writer.write(data)
        await writer.drain()


async def _pass_down(reader: asyncio.StreamReader, send: Send) -> None:
    while data := await reader.read(_PIECE_BYTES):
        await send({"type": "websocket.send", "bytes": data})
