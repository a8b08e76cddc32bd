"""Server-sent events, as far as all of them are alike: headers, writing at the reader's pace, and noticing its end.

Belongs here: that. What the events say is said where they are made (`subscribing.py`, `watching.py`).
"""

import asyncio

from tidemark.gateway.http.responses import Receive, Send

# A reader that takes nothing for so long has gone.
STALLED_S = 60.0
_PIECE_BYTES = 64 * 1024
EVENT_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),  # proxies that would gather events pass them on
    (b"connection", b"close"),
]


async def until_gone(receive: Receive) -> None:
    """Return when the reader has ended the connection."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def write_piecemeal(send: Send, data: bytes) -> None:
    """Write in pieces: the socket says after each whether it takes more. Raises `TimeoutError` if it takes none."""
    async with asyncio.timeout(STALLED_S):
        for start in range(0, len(data), _PIECE_BYTES):
            piece = data[start : start + _PIECE_BYTES]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
