"""The body of a request, read within its limits (W3).

Belongs here: from the bytes on the socket to the bytes that were meant, unpacked if they were packed. Sizes are
checked before memory is taken: that of one body, and that of all bodies which are here at a time.
"""

import asyncio
import zlib
from typing import Any

from msgspec.structs import replace

from tidemark.gateway.http.access import header
from tidemark.gateway.http.errors import RETRY_AFTER_MS, HttpError
from tidemark.gateway.http.responses import Receive
from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.limits import LIMITS
from tidemark.wire.payloads import decompress

# How long a sender may take for the next piece, and for everything.
PIECE_S = 10.0
BODY_S = 60.0
# All bodies that are here at a time, packed and unpacked.
MOST_BYTES = 128 * 1024 * 1024
# Unpacking more than this would hold up everybody else.
_QUICK_BYTES = 64 * 1024
# Of this size or less, whatever it unpacks to is allowed by the limit on the content alone.
_SMALL_BYTES = 4_096


class DisconnectedError(Exception):
    """The sender went away before its request was complete: nobody waits for an answer."""


class Room:
    """The memory for bodies. Each takes what it may need, and gives it back at its end."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self._most = most
        self.taken = 0

    def take(self, size: int) -> None:
        """Take room; raises if there is none."""
        if self.taken + size > self._most:
            raise HttpError(
                503,
                str(NackReason.BACKPRESSURE),
                "So many requests are under way that there is no room for this one. Nothing was taken. Send it again.",
                retry_after_ms=RETRY_AFTER_MS,
                closes=True,
            )
        self.taken += size

    def give_back(self, size: int) -> None:
        """The body is no longer needed."""
        self.taken -= size


class Body:
    """One body, and the room that it has. Use it with `with`."""

    def __init__(self, scope: Any, receive: Receive, room: Room) -> None:
        self._scope, self._receive, self._room = scope, receive, room
        self._taken = 0

    def __enter__(self) -> "Body":
        return self

    def __exit__(self, *_: object) -> None:
        self._room.give_back(self._taken)

    async def read(self) -> bytes:
        """Everything that was sent, unpacked."""
        encoding = (header(self._scope["headers"], b"content-encoding") or b"identity").strip().lower()
        if encoding not in {b"identity", b"gzip", b"zstd"}:
            raise HttpError(
                415,
                "bad_encoding",
                f"The content encoding {encoding.decode('latin-1')!r} is not known here. Use zstd, gzip or none.",
                closes=True,
            )
        stated = header(self._scope["headers"], b"content-length")
        if stated is not None:  # the parser has seen to it that it is a number
            self._take(int(stated))
        try:
            async with asyncio.timeout(BODY_S):
                packed = await self._read_all(is_stated=stated is not None)
        except TimeoutError:
            raise HttpError(
                408,
                str(NackReason.TIMEOUT),
                f"The body did not come within {BODY_S:.0f} s, {PIECE_S:.0f} s for each piece. Nothing was taken.",
                closes=True,
            ) from None
        if encoding == b"identity":
            return packed
        unpack = _gunzip if encoding == b"gzip" else _unzstd
        most = LIMITS.payload_bytes if len(packed) <= _SMALL_BYTES else LIMITS.ratio * len(packed)
        most = min(most, LIMITS.payload_bytes)
        self._take(most)
        if len(packed) <= _QUICK_BYTES and most <= 16 * _QUICK_BYTES:
            return unpack(packed, most)
        return await asyncio.to_thread(unpack, packed, most)

    def _take(self, size: int) -> None:
        if size > LIMITS.payload_bytes:
            raise too_large(size)
        self._room.take(size)
        self._taken += size

    async def _read_all(self, *, is_stated: bool) -> bytes:
        pieces: list[bytes] = []
        size = 0
        while True:
            async with asyncio.timeout(PIECE_S):
                message = await self._receive()
            if message["type"] == "http.disconnect":
                raise DisconnectedError
            if piece := message["body"]:
                size += len(piece)
                if size > LIMITS.payload_bytes:
                    raise too_large(size)
                if not is_stated:
                    self._take(len(piece))
                pieces.append(piece)
            if not message["more_body"]:
                return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def too_large(size: int) -> HttpError:
    """The answer for more than fits into one write."""
    return HttpError(
        413,
        str(NackReason.PAYLOAD_TOO_LARGE),
        f"The body has {size:,} bytes or more; {LIMITS.payload_bytes:,} may be in one request. Send several.",
        closes=True,
    )


def _gunzip(packed: bytes, most: int) -> bytes:
    content, rest = bytearray(), packed
    try:
        while rest:  # a file may have several members
            member = zlib.decompressobj(wbits=31)
            content += member.decompress(rest, most + 1 - len(content))
            if len(content) > most:
                raise _bomb(most)
            if not member.eof:
                raise HttpError(400, str(NackReason.BAD_COMPRESSION), "The gzip body ends in the middle.")
            rest = member.unused_data
    except zlib.error as error:
        raise HttpError(400, str(NackReason.BAD_COMPRESSION), f"The body is not gzip: {error}.") from error
    return bytes(content)


def _unzstd(packed: bytes, most: int) -> bytes:
    try:
        return decompress(packed, replace(LIMITS, unpacked_bytes=most))
    except PayloadError as error:
        raise HttpError(400, str(error.reason), str(error)) from error


def _bomb(most: int) -> HttpError:
    return HttpError(
        413,
        str(NackReason.TOO_LARGE),
        f"The body unpacks to more than {most:,} bytes: {LIMITS.payload_bytes:,} may be in one request, and "
        f"{LIMITS.ratio} times what was sent. Send smaller writes.",
    )
