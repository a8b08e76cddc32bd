"""The server in memory, and what a test can make it do.

Belongs here: its thread, its listening socket, and the faults, each of them a call that has had its effect when it
returns.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from tidemark.testing.model import Producer, fenced
from tidemark.testing.session import Session
from tidemark.wire.errors import NackReason
from tidemark.wire.messages import HEARTBEAT_MS, Backpressure, Hello, Nack

T = TypeVar("T")

WINDOW = 4 * 1024 * 1024
_CALL_S = 30.0


class Server:
    """A server that keeps everything in memory. Made by `server`."""

    def __init__(self, tokens: frozenset[str] | None, window: int, heartbeat_ms: int) -> None:
        self.window, self.heartbeat_ms, self.home = window, heartbeat_ms, "testing"
        self.delay_s = 0.0
        self.overruns = 0  # how often a client has sent more than the window
        self.connections = 0  # so far
        self._tokens = tokens
        self._producers: dict[str, Producer] = {}
        self._sessions: set[Session] = set()
        self._refusals: list[Nack] = []
        self._turned_away: list[Nack] = []
        self._answers_to_lose = 0
        self._listening: asyncio.Server | None = None
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="tidemark-testing", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Its address, for `tidemark.connect`."""
        return f"tidemark://127.0.0.1:{self.port}"

    # What it has.

    @property
    def deltas(self) -> list[dict[str, Any]]:
        """Every delta that was taken: producer by producer, in the order of the writes."""
        return self._call(
            lambda: [
                delta for producer in self._producers.values() for write in producer.writes for delta in write.deltas
            ]
        )

    def writes(self, producer: str) -> dict[int, list[dict[str, Any]]]:
        """The writes of a producer that were taken, by number."""
        return self._call(
            lambda: {
                write.sequence: list(write.deltas)
                for write in (self._producers[producer].writes if producer in self._producers else ())
                if write.nack is None
            }
        )

    def mark(self, producer: str) -> int:
        """The last number of a producer that was taken or refused for good."""
        return self._call(lambda: self._producers[producer].mark if producer in self._producers else 0)

    # Faults.

    def cut(self) -> None:
        """End every connection without a word."""
        self._call(self._cut)

    def freeze(self) -> None:
        """Let every connection that there is stay open, and nothing come over it any more."""
        self._call(self._freeze)

    def delay(self, seconds: float) -> None:
        """Acknowledge only after so long, from now on."""
        self._call(lambda: setattr(self, "delay_s", seconds))

    def lose_answers(self, writes: int = 1) -> None:
        """Take the next writes, and cut the connection instead of answering: once for each of them."""
        self._call(lambda: setattr(self, "_answers_to_lose", writes))

    def refuse(
        self,
        reason: NackReason | str = NackReason.BACKPRESSURE,
        *,
        writes: int = 1,
        is_final: bool = False,
        retry_after_ms: int | None = None,
        message: str = "A test wants this.",
    ) -> None:
        """Refuse the next writes. Final: their numbers are used up; otherwise they are taken when they come again."""
        nack = Nack(NackReason(reason), message, is_final=is_final, retry_after_ms=retry_after_ms)
        self._call(lambda: self._refusals.extend([nack] * writes))

    def turn_away(
        self, connections: int = 1, reason: NackReason | str = NackReason.STOPPED, retry_after_ms: int | None = None
    ) -> None:
        """Refuse the next connections."""
        nack = Nack(NackReason(reason), "A test wants this.", retry_after_ms=retry_after_ms, closes=True)
        self._call(lambda: self._turned_away.extend([nack] * connections))

    def fence(self, producer: str) -> None:
        """Another program takes the producer over."""
        self._call(lambda: self._fence(producer))

    def backpressure(self, window: int | None = None, retry_after_ms: int = 0, rate: float | None = None) -> None:
        """Tell every client how much it may send from now on."""
        self._call(lambda: self._press(window, retry_after_ms, rate))

    def goodbye(self, drain_ms: int = 1_000) -> None:
        """Tell every client to go."""
        self._call(lambda: self._go(drain_ms))

    def forget(self, producer: str, writes: int = 1) -> None:
        """Lose the last writes of a producer, as a server that was restored from an older copy; cuts connections."""
        self._call(lambda: self._forget(producer, writes))

    def stop(self) -> None:
        """Be gone: no connection, and none can be made. What was taken is kept."""
        self._await(self._stop)

    def start(self) -> None:
        """Be there again, at the same address."""
        self._await(self._start)

    def restart(self) -> None:
        """Be gone for a moment."""
        self.stop()
        self.start()

    def close(self) -> None:
        """End for good."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _greeted(self) -> list[Session]:
        return [session for session in self._sessions if session.producer is not None]

    def _cut(self) -> None:
        for session in list(self._sessions):
            session.cut()

    def _freeze(self) -> None:
        for session in self._sessions:
            session.is_frozen = True

    def _fence(self, name: str) -> None:
        producer = self._producers.setdefault(name, Producer(name))
        producer.instance += 1
        for session in list(self._sessions):
            if session.producer is producer:
                session.end(fenced(name, producer.instance - 1, producer.instance))

    def _go(self, drain_ms: int) -> None:
        for session in self._greeted():
            session.goodbye(drain_ms)

    def _press(self, window: int | None, retry_after_ms: int, rate: float | None) -> None:
        self.window = self.window if window is None else window
        for session in self._greeted():
            session.press(Backpressure(self.window, "a test wants this", retry_after_ms, rate))

    def _forget(self, name: str, writes: int) -> None:
        self._cut()
        if writes:
            del self._producers[name].writes[-writes:]

    # What sessions ask.

    def greet(self, session: Session, hello: Hello) -> Producer | Nack:
        """Who it is that says hello, or why not."""
        if self._turned_away:
            return self._turned_away.pop(0)
        if self._tokens is not None and hello.token not in self._tokens:
            return Nack(NackReason.UNAUTHENTICATED, "This token is not known.", closes=True)
        name = hello.producer or ""
        producer = self._producers.setdefault(name, Producer(name))
        if (nack := producer.open(hello.instance)) is not None:
            return nack
        for other in list(self._sessions):
            if other is not session and other.producer is producer:
                other.end(fenced(name, hello.instance, producer.instance))
        return producer

    def fault(self, session: Session) -> Nack | None:  # noqa: ARG002 - all sessions have the same faults
        """The refusal for the next write, if a test wants one."""
        return self._refusals.pop(0) if self._refusals else None

    def taken(self, session: Session) -> bool:  # noqa: ARG002 - all sessions have the same faults
        """A write was taken; false if its answer is to be lost."""
        if self._answers_to_lose:
            self._answers_to_lose -= 1
            return False
        return True

    def overrun(self) -> None:
        """A client has sent more than the window."""
        self.overruns += 1

    # The thread.

    def _call(self, what: Callable[[], T]) -> T:
        async def run() -> T:
            return what()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_CALL_S)

    def _await(self, what: Callable[[], Any]) -> None:
        asyncio.run_coroutine_threadsafe(what(), self._loop).result(_CALL_S)

    async def _start(self) -> None:
        if self._listening is None:
            self._listening = await self._loop.create_server(self._session, "127.0.0.1", self.port)
            self.port = self._listening.sockets[0].getsockname()[1]

    async def _stop(self) -> None:
        if self._listening is not None:
            self._listening.close()
            self._listening = None
        self._cut()

    def _session(self) -> Session:
        session = Session(self, self._sessions.discard)
        if self._listening is None:  # it had arrived before the server went
            session.cut()
        self._sessions.add(session)
        self.connections += 1
        return session


@contextmanager
def server(
    *, tokens: frozenset[str] | None = None, window: int = WINDOW, heartbeat_ms: int = HEARTBEAT_MS
) -> Iterator[Server]:
    """A server on a free port of this machine, for as long as the block lasts. Without `tokens` everybody may send."""
    made = Server(tokens, window, heartbeat_ms)
    made.start()
    try:
        yield made
    finally:
        made.close()
