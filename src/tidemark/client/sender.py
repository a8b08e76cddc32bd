"""Bringing what the outbox has to the server, whatever happens to connections (W5, W6, Q2).

Belongs here: connecting again and when, what to send next, and what an answer means for what comes after it. It runs on
an event loop of its own; the outbox belongs to it and to other threads.
"""

import asyncio
import logging
import ssl as tls
import threading
from contextlib import suppress
from functools import partial
from random import Random

from msgspec.structs import replace

from tidemark.client.batches import Batch, Content
from tidemark.client.connection import Connection
from tidemark.client.errors import (
    ClientError,
    ConnectionLostError,
    FencedError,
    NackedError,
    RefusedError,
    ServerLostDataError,
)
from tidemark.client.in_flight import Written
from tidemark.client.outbox import Outbox
from tidemark.wire.errors import NackReason
from tidemark.wire.messages import Hello, LevelName, Nack

log = logging.getLogger("tidemark.client")

# Nothing is wrong with these, and they may be sent again as they are. All else that is not final ends the client.
_PASSING = frozenset(
    {
        NackReason.SEQUENCE_GAP,
        NackReason.BACKPRESSURE,
        NackReason.RATE,
        NackReason.LAG,
        NackReason.JITTER,
        NackReason.SHED,
        NackReason.STOPPED,
        NackReason.OUTCOME_UNKNOWN,
        NackReason.TIMEOUT,
        NackReason.TOO_MANY_CONNECTIONS,
        NackReason.BAD_CHECKSUM,  # the network has damaged a frame
        NackReason.BAD_MAGIC,
        NackReason.BAD_VERSION,
        NackReason.BAD_TYPE,
        NackReason.BAD_FLAGS,
        NackReason.PAYLOAD_TOO_LARGE,
        NackReason.HELLO_EXPECTED,
        NackReason.UNEXPECTED,
    }
)

FIRST_S = 0.1
MOST_S = 20.0


class Backoff:
    """Waits that grow until something succeeds."""

    def __init__(self, random: Random, first_s: float = FIRST_S, most_s: float = MOST_S) -> None:
        self._random, self._first_s, self._most_s = random, first_s, most_s
        self.failures = 0

    def success(self) -> None:
        """Begin anew."""
        self.failures = 0

    def next_s(self, at_least_s: float = 0.0) -> float:
        """The seconds until the next try. What the server asks for is waited for, and the jitter comes after it."""
        most = min(self._most_s, self._first_s * 2.0 ** min(self.failures, 30))
        self.failures += 1
        return at_least_s + self._random.uniform(0.0, most)


class Sender:
    """The network's side of a client."""

    def __init__(
        self, address: str, hello: Hello, outbox: Outbox, ssl: tls.SSLContext | None, backoff: Backoff
    ) -> None:
        self._address, self._hello, self._outbox, self._ssl = address, hello, outbox, ssl
        self._backoff = backoff
        self._news = asyncio.Event()
        self.connection: Connection | None = None
        self.state = "not connected yet"
        self.connections = 0
        self._instance = hello.instance
        self._next = 1  # the number to send, in the outbox's numbering
        self._again: int | None = None  # a write was given back: nothing is sent before it is sent again
        self._fatal: ClientError | None = None
        self._may_send_at = 0.0
        self._loop = asyncio.get_running_loop()
        self.has_connected = threading.Event()
        outbox.wake = self.wake

    def wake(self) -> None:
        """Say from another thread that there is something to send."""
        with suppress(RuntimeError):  # the loop has ended: the next client sends it
            self._loop.call_soon_threadsafe(self._news.set)

    async def run(self) -> None:
        """Send until cancelled, or until nothing can go on: then the outbox has the error."""
        try:
            while True:
                wait_s = self._backoff.next_s(await self._one_connection())
                self.state += f"; trying again in {wait_s:.1f} s"
                log.info("%s: %s", self._outbox.producer, self.state)
                await asyncio.sleep(wait_s)
        except ClientError as error:
            self.state = str(error)
            self._outbox.fail(error)
            self.has_connected.set()
        finally:
            if self.connection is not None:
                await self.connection.close()

    async def _one_connection(self) -> float:
        """Connect and send; returns, once that has ended, how many seconds the server wants to be left alone."""
        hello = replace(self._hello, instance=self._instance)
        try:
            self.connection = connection = await Connection.open(self._address, hello, ssl=self._ssl)
        except NackedError as error:
            return self._not_connected(error.nack)
        # Name resolution refuses to work while the interpreter ends.
        except (OSError, RuntimeError) as error:
            self.state = f"no connection to {self._address} ({error or type(error).__name__})"
            return 0.0
        self.connections += 1
        connection.on_level = self._on_level
        try:
            self._instance = connection.welcome.instance
            self._next = self._outbox.begin(connection.welcome)
            self._again = None
            self.state = "connected"
            self.has_connected.set()
            await self._send_all(connection)
        except ConnectionLostError as error:
            self.state = f"the connection has ended ({error.why})"
            if error.nack is not None:
                return self._not_connected(error.nack)
        finally:
            await connection.close()
        return 0.0

    def _not_connected(self, nack: Nack) -> float:
        self.state = f"the server says: {nack.message}"
        if nack.reason == NackReason.FENCED:
            raise FencedError(self._outbox.producer, nack.message)
        if nack.reason not in _PASSING:
            raise RefusedError(nack)
        return (nack.retry_after_ms or 0) / 1_000

    def _on_level(self, level: LevelName, sequence: int) -> None:
        if level == LevelName.DURABLE:
            self._outbox.reached_durable(sequence)

    # One connection.

    async def _send_all(self, connection: Connection) -> None:
        """Send what there is and what comes, until the connection ends or the server says goodbye."""
        for end in (connection.closed, connection.goodbye):
            end.add_done_callback(lambda _: self._news.set())
        while not connection.closed.done() and connection.drain_ms is None:
            self._news.clear()
            if self._fatal is not None:
                raise self._fatal
            if self._again is not None:
                await self._go_back(connection)
            elif (found := self._outbox.next(self._next)) is not None:
                await self._send(connection, *found)
            else:
                await self._news.wait()
        if connection.drain_ms is not None and not connection.closed.done():
            await self._drain(connection, connection.drain_ms)
        if connection.closed.done() and (error := connection.closed.result()) is not None:
            raise error

    async def _send(self, connection: Connection, batch: Batch, content: Content) -> None:
        await self._keep_to_rate(connection, batch.rows)
        await connection.room(len(content.payload))
        if self._again is not None or connection.drain_ms is not None:
            return
        if (most := connection.welcome.limits.payload_bytes) < len(content.payload):
            why = f"Write {batch.number} has {len(content.payload):,} bytes, and this server takes {most:,} at most."
            raise RefusedError(Nack(NackReason.PAYLOAD_TOO_LARGE, f"{why} Take it back, and send smaller deltas."))
        sequence = batch.number + (self._outbox.base or 0)
        # Not with WANTS_ACK: acknowledgements come by groups, and a level above them when it is reached anyway.
        answer = connection.write(sequence, content.kind, content.payload, rows=content.rows, flags=content.flags)
        self._next = batch.number + 1
        answer.add_done_callback(partial(self._answered, batch))

    async def _keep_to_rate(self, connection: Connection, rows: int) -> None:
        rate = connection.window.rate
        if not rate:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        if self._may_send_at > now:
            await asyncio.sleep(self._may_send_at - now)
        self._may_send_at = max(now, self._may_send_at) + rows / rate

    async def _go_back(self, connection: Connection) -> None:
        """A write was given back. Everything behind it will be, too: only then is it sent again."""
        while connection.unanswered and not connection.closed.done():
            await self._news.wait()
            self._news.clear()
        await connection.room(0)
        self._next, self._again = self._again or self._next, None

    async def _drain(self, connection: Connection, milliseconds: int) -> None:
        """The server is going: wait for what was sent here, and for nothing else."""
        self.state = "the server has said goodbye"
        deadline = asyncio.get_running_loop().time() + milliseconds / 1_000
        while connection.unanswered and not connection.closed.done():
            self._news.clear()
            try:
                async with asyncio.timeout_at(deadline):
                    await self._news.wait()
            except TimeoutError:
                return

    def _answered(self, batch: Batch, answer: asyncio.Future[Written]) -> None:
        self._news.set()
        error = None if answer.cancelled() else answer.exception()
        if error is None:
            self._backoff.success()
            self._outbox.answer(batch, answer.result())
        elif isinstance(error, NackedError):
            self._refused(batch, error.nack)

    def _refused(self, batch: Batch, nack: Nack) -> None:
        """Final: told, and the next one goes on. Passing: it is sent again. Anything else ends the client."""
        if nack.is_final:
            self._backoff.success()
            log.warning("%s: write %d was refused: %s", self._outbox.producer, batch.number, nack.message)
            self._outbox.answer(batch, None, nack)
            return
        if nack.reason not in _PASSING:
            self._fatal = RefusedError(nack)
            return
        back_to = batch.number
        if nack.reason == NackReason.SEQUENCE_GAP and nack.expected is not None:
            base = self._outbox.base or 0
            back_to = min(back_to, nack.expected - base)
            if back_to <= self._outbox.acknowledged:
                last = base + self._outbox.acknowledged
                self._fatal = ServerLostDataError(self._outbox.producer, last, nack.expected - 1)
                return
        elif not nack.retry_after_ms and self.connection is not None:
            self.connection.window.pause(round(1_000 * self._backoff.next_s()))
        self._again = back_to if self._again is None else min(back_to, self._again)
        self.state = f"the server says: {nack.message}"
