"""A served platform: the coordinator with its doors, in one process and its children (W8, C10).

Belongs here: what starts, in which order it stops, and what the control socket answers. The command is in
`cli/serve.py`.
"""

import asyncio
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from importlib.metadata import version
from typing import Any

import msgspec

from tidemark.coordinator.platform import Platform
from tidemark.gateway import places
from tidemark.gateway.access.guard import Guard
from tidemark.gateway.access.tls import check_exposure, parse_listen, server_context
from tidemark.gateway.access.tokens import TokenStore
from tidemark.gateway.control import Asked, ControlError, ControlServer
from tidemark.gateway.door import Door
from tidemark.gateway.rehearsal import rehearse
from tidemark.gateway.w1.admitting import Admitting
from tidemark.gateway.w1.subscribing import Subscribers
from tidemark.model.errors import TidemarkError
from tidemark.shard_state.live import read_live
from tidemark.storage.home import Home

# How long a stopping door waits for what its clients have sent (W6).
DRAIN_MS = 2_000
# A door of its own process that ends is started again after so long, and twice that, up to a minute.
RESTART_S = 1.0
_LONGEST_RESTART_S = 60.0
_LOOK_S = 0.5


class ServedError(TidemarkError):
    """The platform cannot be served any longer."""


class Served:
    """One run of `serve`."""

    def __init__(self, home: Home, w1: str, http: str, say: Callable[[str], None]) -> None:
        """Addresses as `host:port`; empty ones are not listened at."""
        self._home, self._w1, self._http, self._say = home, w1, http, say
        self._tokens = TokenStore(home)
        self._tls = server_context(home)
        self._stopping = asyncio.Event()
        self._children: list[asyncio.Task[None]] = []
        self._platform: Platform | None = None
        self._door: Door | None = None
        self._admitting: Admitting | None = None

    async def run(self) -> None:
        """Serve until a signal or the end of the platform; then drain and stop."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        async with AsyncExitStack() as stack:
            for note in self._checked_exposure():
                self._say(note)
            rehearsal = loop.run_in_executor(None, rehearse)  # beside the recovery of the log
            platform = self._platform = await asyncio.to_thread(Platform.open, self._home)
            stack.push_async_callback(asyncio.to_thread, platform.shutdown)
            places.open_door(self._home)
            stack.callback(places.note_serving, self._home, None)
            await asyncio.to_thread(platform.begin_counting)
            await rehearsal
            door = self._door = self._made(platform)
            control = ControlServer(self._answer)
            await control.listen(places.control_socket(self._home))
            stack.callback(control.close)
            await door.listen_unix(places.w1_socket(self._home))
            stack.push_async_callback(door.drain, DRAIN_MS)
            serving = await self._listen(door)
            stack.push_async_callback(self._end_children)
            places.note_serving(self._home, serving)
            self._announce(serving)
            await self._until_stopped(platform)
            self._say("Stopping: clients are told, and what they sent is answered.")
        self._say("Stopped. Everything that was acknowledged is kept.")

    def stop(self) -> None:
        """Drain and stop, as after a signal."""
        self._stopping.set()

    def _checked_exposure(self) -> list[str]:
        addresses = {"[serve] listen": self._w1, "[serve] http_listen": self._http}
        return check_exposure(self._home.settings.serve, addresses, has_tokens=bool(self._tokens.tokens()))

    def _made(self, platform: Platform) -> Door:
        home = self._home
        self._admitting = Admitting(platform, home.settings, home.settings.serve.window_bytes)
        return Door(
            platform,
            guard=Guard(self._tokens, home.settings.serve),
            admitting=self._admitting,
            subscribers=Subscribers(platform, home, places.subscribers(home)),
            platform_id=places.platform_id(home),
            server=f"tidemark {version('tidemark')}",
            window=home.settings.serve.window_bytes,
        )

    async def _listen(self, door: Door) -> places.Serving:
        w1: list[str] = []
        http: list[str] = []
        secure = "s" if self._tls is not None else ""
        if self._w1:
            wanted = parse_listen(self._w1)
            taken = wanted._replace(port=await door.listen(wanted.host, wanted.port, self._tls))
            w1.append(f"tidemark{secure}://{taken}")
        if self._http:
            self._children.append(asyncio.create_task(self._keep_running("tidemark.gateway.http", self._http)))
            http.append(f"http{secure}://{self._http}")
        now_us = self._platform.clock() if self._platform is not None else 0
        return places.Serving(os.getpid(), now_us, w1, http)

    def _announce(self, serving: places.Serving) -> None:
        self._say(f"Serving {self._home.root}")
        for name, addresses in (("W1", serving.w1), ("HTTP", serving.http)):
            for address in addresses:
                self._say(f"  {name:<5} {address}")
        self._say("Ctrl-C stops it.")

    async def _until_stopped(self, platform: Platform) -> None:
        while not self._stopping.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), _LOOK_S)
            for shard in platform.shards.values():
                if (failure := shard.failure) is not None:
                    raise ServedError(f"Shard {shard.number} has stopped: {failure}. Start again to recover.")

    # The other doors.

    async def _keep_running(self, module: str, listen: str) -> None:
        """A door in a process of its own, started again when it ends."""
        pause_s = RESTART_S
        while not self._stopping.is_set():
            command = [sys.executable, "-P", "-m", module, "--home", str(self._home.root), "--listen", listen]
            child = await asyncio.create_subprocess_exec(*command)
            started = asyncio.get_running_loop().time()
            try:
                code = await child.wait()
            except asyncio.CancelledError:
                await _end(child)
                raise
            if asyncio.get_running_loop().time() - started > _LONGEST_RESTART_S:
                pause_s = RESTART_S
            self._say(f"The door {module} ended with {code}; it is started again in {pause_s:g} s.")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_RESTART_S)

    async def _end_children(self) -> None:
        for task in self._children:
            task.cancel()
        await asyncio.gather(*self._children, return_exceptions=True)

    # The control socket.

    async def _answer(self, asked: Asked) -> Any:
        platform = self._platform
        if platform is None or self._door is None:
            raise ControlError("The platform is not open yet. Ask again in a moment.")
        orders: dict[str, Callable[[], Any]] = {
            "raise_earliest": lambda: platform.raise_earliest(asked.us),
            "cut_vectors": lambda: platform.cut_vectors(asked.us),
            "seal": platform.seal,
            "metrics": platform.metrics,
            "watermarks": platform.watermarks,
            "status": self._status,
        }
        if asked.ask not in orders:
            raise ControlError(f"{asked.ask!r} cannot be asked; there are {', '.join(orders)}.")
        return await asyncio.to_thread(orders[asked.ask])

    def _status(self) -> dict[str, Any]:
        assert self._platform is not None and self._door is not None  # noqa: S101, PT018 - asked only then
        live = [read_live(self._home.log(number)) for number in self._platform.shards]
        who = self._door.counts()
        verdicts = {"accepted": 0, "duplicate": 0, "refused": 0}
        for shard in self._platform.shards.values():
            for name, count in shard.metrics.verdicts().items():
                verdicts[name] += count
        turned_away = dict(self._admitting.counts) if self._admitting is not None else {}
        refused = Counter[str]()
        for shard in self._platform.shards.values():
            refused.update(shard.metrics.reasons())
        return {
            "shards": [msgspec.to_builtins(status) for status in live if status is not None],
            **msgspec.to_builtins(who),
            "counts": {**verdicts, "turned_away": sum(turned_away.values())},
            "by_reason": {"refused": dict(refused), "turned_away": turned_away},
            "watermarks": self._platform.watermarks(),
        }


async def _end(child: asyncio.subprocess.Process) -> None:
    """End a child: by asking first."""
    with suppress(ProcessLookupError):
        child.terminate()
    try:
        await asyncio.wait_for(child.wait(), 5.0)
    except TimeoutError:
        with suppress(ProcessLookupError):
            child.kill()
        await child.wait()


def serve(home: Home, w1: str, http: str, say: Callable[[str], None]) -> None:
    """Serve a home until a signal comes. Addresses are `host:port`; empty ones are not listened at."""
    import uvloop

    async def run() -> None:
        await Served(home, w1, http, say).run()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
