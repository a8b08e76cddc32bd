"""The feed of the live page: one look a second, for all who watch, and none when nobody does.

Belongs here: when to look, and who gets it. What is seen is in `live_view.py`.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from tidemark.gateway.http.live_view import LiveView, Looker

EVERY_S = 1.0


class _Look(NamedTuple):
    view: LiveView
    encoded: bytes  # once for all who watch


class LiveFeed:
    """What those who watch one home are shown. Everything is called on one event loop; a look is made on a thread."""

    def __init__(self, looker: Looker, *, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep) -> None:
        self._looker, self._sleep = looker, sleep
        # Each has room for one look: whoever reads slowly gets the latest, and nothing gathers. None: there is no more.
        self._viewers: set[asyncio.Queue[_Look | None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._latest: _Look | None = None

    @property
    def is_watched(self) -> bool:
        """Whether looks are made."""
        return self._task is not None

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Looks as JSON, from the latest on; the first one has the curve of the last minutes, too."""
        viewer: asyncio.Queue[_Look | None] = asyncio.Queue(1)
        if self._latest is not None:
            viewer.put_nowait(self._latest)
        self._viewers.add(viewer)
        if self._task is None:
            self._task = asyncio.create_task(self._look_again_and_again())
        is_first = True
        try:
            while (look := await viewer.get()) is not None:
                yield self._with_curve(look.view) if is_first else look.encoded
                is_first = False
        finally:
            self._viewers.discard(viewer)
            if not self._viewers and self._task is not None:
                self._task.cancel()
                self._task = self._latest = None

    def _with_curve(self, view: LiveView) -> bytes:
        return msgspec.json.encode(replace(view, curve=tuple(self._looker.curve)))

    async def _look_again_and_again(self) -> None:
        try:
            while True:
                view = await asyncio.to_thread(self._looker.look)
                self._latest = _Look(view, msgspec.json.encode(view))
                self._show(self._latest)
                await self._sleep(EVERY_S)
        finally:
            # If looking itself failed, nobody waits for ever: they come again, and looks begin anew. If nobody watched
            # any more, somebody may have come since, and has a task of their own.
            if self._task is asyncio.current_task():
                self._task = self._latest = None
                self._show(None)

    def _show(self, look: _Look | None) -> None:
        for viewer in self._viewers:
            if viewer.full():
                viewer.get_nowait()
            viewer.put_nowait(look)
