"""A platform with its door, on a thread of the test: real sockets, a real log, no process to wait for.

Belongs here: starting and stopping it, and calling it from a test's own loop.
"""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import uvloop

from tidemark.coordinator.platform import Platform
from tidemark.gateway import places
from tidemark.gateway.access.guard import Guard
from tidemark.gateway.access.tokens import TokenStore
from tidemark.gateway.door import Door
from tidemark.gateway.w1.admitting import Admitting
from tidemark.gateway.w1.subscribing import Subscribers
from tidemark.storage.home import Home
from tidemark.wire.limits import LIMITS, Limits

T = TypeVar("T")
WINDOW = 1024 * 1024


class ServedHome:
    """A running door."""

    def __init__(self, home: Home, platform: Platform, loop: asyncio.AbstractEventLoop) -> None:
        self.home, self.platform, self._loop = home, platform, loop
        self.door: Door
        self.admitting: Admitting
        self.port = 0

    @property
    def url(self) -> str:
        """Over the network."""
        return f"tidemark://127.0.0.1:{self.port}"

    @property
    def local(self) -> str:
        """Over the socket in the home."""
        return f"unix:{places.w1_socket(self.home)}"

    def call(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something on the door's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)


@contextmanager
def served(
    home: Home,
    *,
    window: int = WINDOW,
    limits: Limits = LIMITS,
    now: Callable[[], float] | None = None,
    **options: Any,
) -> Iterator[ServedHome]:
    """A home with its platform open and its door listening on a free port and its socket."""
    loop = uvloop.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    home.create()
    with Platform.open(home, **options) as platform:
        found = ServedHome(home, platform, loop)
        platform.begin_counting()
        found.admitting = Admitting(platform, home.settings, window)

        async def start() -> None:
            places.open_door(home)
            found.door = Door(
                platform,
                guard=Guard(TokenStore(home), home.settings.serve),
                admitting=found.admitting,
                subscribers=Subscribers(platform, home, places.subscribers(home)),
                platform_id=places.platform_id(home),
                server="tidemark test",
                window=window,
                limits=limits,
                **({"now": now} if now else {}),
            )
            found.port = await found.door.listen("127.0.0.1", 0)
            await found.door.listen_unix(places.w1_socket(home))

        found.call(start())
        try:
            yield found
        finally:
            found.call(found.door.drain(100))
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


def home_at(path: Path, settings: str = "") -> Home:
    """A home with these settings."""
    return Home(path).create(settings)
