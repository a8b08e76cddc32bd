"""Writes that their producers have numbered: a connection for each producer, kept while it is used (Q2, W8).

Belongs here: sending a write under its number, and again under the same one when the connection was lost. A new
connection of a producer fences the one before, so requests of a producer share one, and it is given up after idleness.
"""

import asyncio
from collections import OrderedDict
from contextlib import suppress
from functools import partial

from tidemark.client.connection import Connection
from tidemark.client.errors import ConnectionLostError, NackedError
from tidemark.client.in_flight import Written
from tidemark.gateway.http.errors import RETRY_AFTER_MS, HttpError
from tidemark.gateway.http.writes.attempts import ALL_LEVELS, Attempt, Opener, open_patiently, refusal
from tidemark.gateway.http.writes.contents import Content
from tidemark.gateway.http.writes.outcomes import WriteAnswer, whole_answer
from tidemark.wire.errors import NackReason
from tidemark.wire.messages import Hello, LevelName

IDLE_S = 60.0
MOST_PRODUCERS = 1_000
_AGAIN_S = 0.05


class Numbered:
    """All producers that send numbered writes through this door."""

    def __init__(self, open_one: Opener, *, idle_s: float = IDLE_S, most: int = MOST_PRODUCERS) -> None:
        self._open_one, self._idle_s, self._most = open_one, idle_s, most
        # The one that was used longest ago comes first.
        self._producers: OrderedDict[str, _Producer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._producers)

    async def write(
        self, name: str, sequence: int, content: Content, wanted: LevelName, attempt: Attempt, *, is_kept: bool = True
    ) -> WriteAnswer:
        """Send one write; returns when it has reached the level. Producers that send once are not kept."""
        producer = self._producers.get(name)
        if producer is None:
            await self._make_room()
            producer = self._producers.setdefault(name, _Producer(self._open_one, name))
        self._producers.move_to_end(name)
        producer.users += 1
        try:
            return await producer.write(sequence, content, wanted, attempt)
        finally:
            producer.users -= 1
            producer.used = asyncio.get_running_loop().time()
            if not is_kept and not producer.is_busy:
                self._producers.pop(name, None)
                await producer.close()

    async def _make_room(self) -> None:
        if len(self._producers) < self._most:
            return
        name = next((name for name, producer in self._producers.items() if not producer.is_busy), None)
        if name is None:
            raise HttpError(
                503,
                str(NackReason.TOO_MANY_CONNECTIONS),
                f"{self._most:,} producers are sending through this door now. Nothing was taken. Send it again.",
                retry_after_ms=RETRY_AFTER_MS,
            )
        await self._producers.pop(name).close()

    async def forget_idle(self) -> None:
        """Give up the connections of producers that have sent nothing for a while."""
        now = asyncio.get_running_loop().time()
        idle = [name for name, each in self._producers.items() if not each.is_busy and now - each.used > self._idle_s]
        for name in idle:
            await self._producers.pop(name).close()

    async def close(self) -> None:
        """Give up all of them."""
        while self._producers:
            await self._producers.popitem()[1].close()


class _Producer:
    """One producer's connection, and what is on its way there."""

    def __init__(self, open_one: Opener, name: str) -> None:
        self._open_one, self._name = open_one, name
        self._connection: Connection | None = None
        self._flying: dict[int, asyncio.Future[Written]] = {}
        # Writes go out in the order in which their requests came.
        self._order = asyncio.Lock()
        self.users = 0
        self.used = asyncio.get_running_loop().time()

    @property
    def is_busy(self) -> bool:
        """Whether somebody waits for an answer here, or has gone without it."""
        return bool(self.users or self._flying)

    async def write(self, sequence: int, content: Content, wanted: LevelName, attempt: Attempt) -> WriteAnswer:
        while True:
            async with self._order:
                connection = await self._connected(is_sent=attempt.is_sent)
                await self._wait_for_turn(sequence)
                try:
                    await connection.room(len(content.payload))
                    future = connection.write(
                        sequence,
                        content.kind,
                        content.payload,
                        rows=content.rows,
                        flags=content.flags,
                        wanted=wanted,
                        heard=partial(self._heard, sequence, attempt),
                    )
                except ConnectionLostError:
                    continue
                except ValueError:  # it was sent again before, and that retry still waits for its level
                    await asyncio.sleep(_AGAIN_S)
                    continue
                attempt.is_sent = True
                self._flying[sequence] = future
                future.add_done_callback(partial(self._landed, sequence))
            try:
                await asyncio.shield(future)
            except NackedError as error:
                if error.nack.reason is NackReason.OUTCOME_UNKNOWN:
                    continue
                raise refusal(error.nack) from error
            except ConnectionLostError as error:
                if error.nack is not None and error.nack.reason is NackReason.FENCED:
                    raise _taken_over(self._name, sequence) from error
                continue
            assert attempt.answer is not None  # noqa: S101 - it is told before the future is
            return attempt.answer

    async def _connected(self, *, is_sent: bool) -> Connection:
        connection = self._connection
        if connection is None or connection.closed.done() or connection.drain_ms is not None:
            if connection is not None and not connection.closed.done():
                # The server is stopping: what was sent before is still answered.
                with suppress(TimeoutError):
                    async with asyncio.timeout((connection.drain_ms or 0) / 1_000):
                        await self._wait_for_all()
                await connection.close()
            hello = Hello(producer=self._name, levels=ALL_LEVELS, client="tidemark http")
            connection = self._connection = await open_patiently(self._open_one, hello, is_sent=is_sent)
        return connection

    async def _wait_for_turn(self, sequence: int) -> None:
        """A number that is on its way, or below one that is, waits: the answer says what to do with it."""
        while self._flying and sequence <= max(self._flying):
            await asyncio.wait(list(self._flying.values()), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.sleep(0)

    async def _wait_for_all(self) -> None:
        if self._flying:
            await asyncio.wait(list(self._flying.values()))

    def _heard(self, sequence: int, attempt: Attempt, written: Written) -> None:
        attempt.answer = whole_answer(written, attempt.retry)
        if written.level is LevelName.FLUSHED:
            self._flying.pop(sequence, None)  # it is taken; what waits for the lake holds up nobody

    def _landed(self, sequence: int, future: asyncio.Future[Written]) -> None:
        if self._flying.get(sequence) is future:
            del self._flying[sequence]

    async def close(self) -> None:
        """Give the connection up; another one may be opened later."""
        if self._connection is not None:
            await self._connection.close()


def _taken_over(name: str, sequence: int) -> HttpError:
    return HttpError(
        504,
        str(NackReason.OUTCOME_UNKNOWN),
        f"Another program opened producer {name!r} while write {sequence} was on its way: whether it was taken is not "
        "known here. Send it again under the same number, and let one program use the name.",
    )
