"""How much may be on its way: the window, and pauses that the server asks for (W6).

Belongs here: counting and waiting. Time is the event loop's.
"""

import asyncio

from tidemark.wire.messages import Backpressure


class Window:
    """Bytes that were sent and not answered, against what the server allows."""

    def __init__(self, size: int, loop: asyncio.AbstractEventLoop) -> None:
        self.size = size
        self.in_flight = 0
        self.rate: float | None = None  # deltas a second
        self._loop = loop
        self._paused_until = 0.0
        self._is_clogged = False  # the socket takes no more for now
        self._changed = asyncio.Event()
        self._is_closed = False

    def sent(self, size: int) -> None:
        """So many bytes are on their way."""
        self.in_flight += size

    def answered(self, size: int) -> None:
        """So many are no longer."""
        self.in_flight -= size
        self._changed.set()

    def told(self, message: Backpressure) -> None:
        """The server changes what may be sent."""
        self.size, self.rate = message.window, message.rate
        self.pause(message.retry_after_ms)

    def pause(self, milliseconds: int) -> None:
        """Nothing is sent for so long."""
        self._paused_until = max(self._paused_until, self._loop.time() + milliseconds / 1_000)
        self._changed.set()

    def clog(self, is_clogged: bool) -> None:
        """The socket takes nothing more, or does again."""
        self._is_clogged = is_clogged
        self._changed.set()

    def close(self) -> None:
        """Let everybody who waits go."""
        self._is_closed = True
        self._changed.set()

    def has_room(self, size: int) -> bool:
        """Whether so many bytes may be sent now. What is larger than the whole window goes when nothing else is."""
        fits = self.in_flight + size <= self.size or (self.size > 0 and self.in_flight == 0)
        return fits and not self._is_clogged and self._loop.time() >= self._paused_until

    async def room(self, size: int) -> None:
        """Return when there is room for so many bytes, or when the connection has ended."""
        while not self._is_closed and not self.has_room(size):
            self._changed.clear()
            pause = self._paused_until - self._loop.time()
            timer = self._loop.call_later(pause, self._changed.set) if pause > 0 else None
            try:
                await self._changed.wait()
            finally:
                if timer is not None:
                    timer.cancel()
