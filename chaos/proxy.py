"""A network that fails, by seed: a TCP proxy in the test's process.

Belongs here: what becomes of the bytes between a client and a server. A fault is drawn for each piece that arrives: the
connection is cut, one direction of it ends, the piece waits, arrives twice, or arrives in part before a cut. Of the two
sides it knows nothing.
"""

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import StrEnum
from random import Random

_PIECE_BYTES = 16 * 1024
_CALL_S = 30.0


class Fault(StrEnum):
    """What a network does."""

    CUT = "cut"
    HALF_CLOSE = "half-close"
    DELAY = "delay"
    TWICE = "twice"
    IN_PART = "in part"


# Of a hundred faults. After a half-close one side waits for the other to be dead, so it is rarer.
_WEIGHTS = {Fault.CUT: 40, Fault.HALF_CLOSE: 5, Fault.DELAY: 25, Fault.TWICE: 15, Fault.IN_PART: 15}
_ENDING = frozenset({Fault.CUT, Fault.HALF_CLOSE, Fault.IN_PART})


class Proxy:
    """Connections to a server, through a network with faults. Made by `proxy`."""

    def __init__(self, target: Callable[[], tuple[str, int]], seed: int, rate: float) -> None:
        self._target, self._random = target, Random(seed)
        self.rate = rate  # of faults by piece
        self.faults: Counter[Fault] = Counter()
        self.port = 0
        self._pairs: set[asyncio.Task[None]] = set()
        self._listening: asyncio.Server | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(_CALL_S)

    @property
    def url(self) -> str:
        """Where clients connect."""
        return f"tidemark://127.0.0.1:{self.port}"

    @property
    def cuts(self) -> int:
        """How many connections a fault has ended."""
        return sum(count for fault, count in self.faults.items() if fault in _ENDING)

    def close(self) -> None:
        """End every connection, and be gone."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result(_CALL_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> None:
        self._listening = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        self.port = self._listening.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._listening is not None:
            self._listening.close()
        for task in list(self._pairs):
            task.cancel()
        await asyncio.gather(*self._pairs, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - streams call this in a task
        self._pairs.add(task)
        writers = [writer]
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target())
            writers.append(far_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(self._carry(reader, far_writer, writers))
                group.create_task(self._carry(far_reader, writer, writers))
        except (OSError, ExceptionGroup):
            pass  # one of the two sides has gone, and so does the other
        finally:
            _cut(writers)
            self._pairs.discard(task)

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, both: list[asyncio.StreamWriter]
    ) -> None:
        while piece := await reader.read(self._random.randint(1, _PIECE_BYTES)):
            fault = self._draw()
            if fault is Fault.DELAY:
                await asyncio.sleep(self._random.random() / 100)
            if fault is Fault.IN_PART:
                piece = piece[: self._random.randrange(len(piece))]
            if fault is not Fault.CUT:
                writer.write(piece * 2 if fault is Fault.TWICE else piece)
                await writer.drain()
            if fault is Fault.HALF_CLOSE:
                break
            if fault is Fault.CUT or fault is Fault.IN_PART:
                _cut(both)
                return
        with suppress(OSError):
            writer.write_eof()

    def _draw(self) -> Fault | None:
        if self._random.random() >= self.rate:
            return None
        [fault] = self._random.choices(list(_WEIGHTS), list(_WEIGHTS.values()))
        self.faults[fault] += 1
        return fault


def _cut(writers: list[asyncio.StreamWriter]) -> None:
    for writer in writers:
        transport = writer.transport
        if transport is not None:
            transport.abort()


@contextmanager
def proxy(target: Callable[[], tuple[str, int]], *, seed: int, rate: float) -> Iterator[Proxy]:
    """A network with so many faults by piece, in front of whatever `target` names at the time of a connection."""
    made = Proxy(target, seed, rate)
    try:
        yield made
    finally:
        made.close()
