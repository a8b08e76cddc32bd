"""Writes that nobody has numbered: the door numbers them, under producers of its own (W8).

Belongs here: which requests share a write, and what is sent again when a write before it was not taken. A request is
on its own with its retries: the identity of its deltas makes them safe, and the answer says so.

A lane is one producer. Small requests that come while a small write is on its way are sent together as the next one:
under load a write holds many of them, and none waits longer than for the write before.
"""

import asyncio
from collections import deque
from contextlib import suppress
from functools import partial
from operator import attrgetter

from tidemark.client.connection import Connection
from tidemark.client.errors import ConnectionLostError, NackedError
from tidemark.client.in_flight import Written
from tidemark.gateway.http.errors import RETRY_AFTER_MS, HttpError
from tidemark.gateway.http.writes.attempts import Attempt, Opener, PartlyTakenError, open_patiently, refusal
from tidemark.gateway.http.writes.contents import Content
from tidemark.gateway.http.writes.outcomes import Retry, WriteAnswer, part_answer, partial_answer, whole_answer
from tidemark.wire.errors import NackReason
from tidemark.wire.frames import FrameType
from tidemark.wire.messages import FIRST_REFUSALS, Hello, LevelName, Nack

# As many as an acknowledgement names refusals and duplicates of, so that each request learns of its own.
SMALL_ROWS = FIRST_REFUSALS
_SMALL_BYTES = 256 * 1024
_MOST_FLYING = 8
_MOST_WAITING_BYTES = 32 * 1024 * 1024
# When the window is full or paused, it is looked at again after so long.
_LOOK_S = 0.01


class Request:
    """The deltas of one request, and who waits for their outcome."""

    __slots__ = ("attempt", "content", "future")

    def __init__(self, content: Content, attempt: Attempt, future: asyncio.Future[WriteAnswer]) -> None:
        self.content, self.attempt, self.future = content, attempt, future

    @property
    def is_small(self) -> bool:
        """Whether it may share a write."""
        content = self.content
        return content.kind is FrameType.DELTA and content.rows <= SMALL_ROWS and len(content.payload) <= _SMALL_BYTES


class _Write:
    """One write: a large request, or some small ones."""

    __slots__ = ("kind", "number", "payload", "requests", "rows")

    def __init__(self, requests: list[Request]) -> None:
        self.requests = requests
        self.number = 0  # 0: it has none yet
        self.kind = requests[0].content.kind
        contents = [each.content for each in requests]
        self.payload = contents[0].payload if len(contents) == 1 else b"\n".join(each.payload for each in contents)
        self.rows = sum(each.rows for each in contents)

    @property
    def is_small(self) -> bool:
        return self.requests[0].is_small

    def heard(self, written: Written) -> None:
        """It has reached a level."""
        if len(self.requests) == 1:
            self.requests[0].attempt.answer = whole_answer(written, Retry.BY_IDENTITY)
            return
        start = 0
        for request in self.requests:
            rows = request.content.rows
            request.attempt.answer = part_answer(written, start, rows)
            start += rows

    def heard_partly(self, error: PartlyTakenError) -> None:
        """Some shards have taken their parts. Requests whose time is over before the rest is taken are told so."""
        start = 0
        for request in self.requests:
            rows = request.content.rows
            places = [place - start for place in error.not_taken if start <= place < start + rows]
            if places:
                request.attempt.answer = partial_answer(places, Retry.BY_IDENTITY, error.retry_after_ms)
            start += rows

    def tell(self) -> None:
        """It has reached the level that was wanted."""
        for request in self.requests:
            if not request.future.done():
                assert request.attempt.answer is not None  # noqa: S101 - it is heard before
                request.future.set_result(request.attempt.answer)

    def refuse(self, error: Exception) -> None:
        """It was not taken."""
        for request in self.requests:
            if not request.future.done():
                request.future.set_exception(error)
                request.future.exception()  # somebody may have gone without it


class Lane:
    """One producer of the door's, for writes that are wanted at one level."""

    def __init__(self, open_one: Opener, name: str, level: LevelName) -> None:
        self._open_one, self._name, self._level = open_one, name, level
        self._loop = asyncio.get_running_loop()
        self._connection: Connection | None = None
        self._opening: asyncio.Task[None] | None = None
        self._small: deque[Request] = deque()
        self._large: deque[Request] = deque()
        self._waiting_bytes = 0
        self._next_number = 1
        self._flying: list[_Write] = []
        # Of those that are wanted durable: they wait for the lake, and hold up nobody.
        self._flushed: set[_Write] = set()
        # Sent, and to be sent again: those that came back while others were still on their way, and those in line.
        self._came_back: list[_Write] = []
        self._again: deque[_Write] = deque()
        self._is_turning = False  # nothing new is sent until everything on its way has come back
        self._is_planned = self._is_closed = False
        self.used = self._loop.time()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way."""
        return not (self._flying or self._flushed or self._small or self._large or self._again or self._came_back)

    def withdraw(self, future: asyncio.Future[WriteAnswer]) -> None:
        """The time of a request is over that was not sent yet: it never will be."""
        for waiting in (self._small, self._large):
            for request in waiting:
                if request.future is future:
                    waiting.remove(request)
                    self._waiting_bytes -= len(request.content.payload)
                    return

    def submit(self, content: Content, attempt: Attempt) -> asyncio.Future[WriteAnswer]:
        """Take a request's deltas; the result comes at the level of this lane."""
        size = len(content.payload)
        if self._waiting_bytes and self._waiting_bytes + size > _MOST_WAITING_BYTES:
            raise HttpError(
                429,
                str(NackReason.BACKPRESSURE),
                "More is waiting to be sent than may wait. Nothing of this request was taken. Send it again.",
                retry_after_ms=RETRY_AFTER_MS,
            )
        self.used = self._loop.time()
        request = Request(content, attempt, self._loop.create_future())
        (self._small if request.is_small else self._large).append(request)
        self._waiting_bytes += size
        self._plan()
        return request.future

    async def close(self) -> None:
        """Give the connection up. What is still under way goes on at the coordinator."""
        self._is_closed = True
        if self._opening is not None:
            self._opening.cancel()
            with suppress(asyncio.CancelledError):
                await self._opening
        if self._connection is not None:
            await self._connection.close()

    # Sending.

    def _plan(self) -> None:
        # Requests that are read in the same turn of the loop are sent together.
        if not self._is_planned and not self._is_closed:
            self._is_planned = True
            self._loop.call_soon(self._pump)

    def _pump(self) -> None:
        self._is_planned = False
        connection = self._connection
        if connection is None or connection.drain_ms is not None or connection.closed.done():
            if self._opening is None and not self._flying and not self.is_idle:
                self._opening = self._loop.create_task(self._open())
            return
        if self._is_turning:
            return
        while len(self._flying) < _MOST_FLYING and (write := self._next(connection)) is not None:
            self._send(connection, write)

    async def _open(self) -> None:
        try:
            hello = Hello(producer=self._name, levels=(self._level,), client="tidemark http")
            self._connection = await open_patiently(self._open_one, hello, is_sent=bool(self._again))
            self._next_number = self._connection.welcome.mark + 1
        except HttpError as error:
            self._refuse_waiting(error)
        finally:
            self._opening = None
            self._plan()

    def _refuse_waiting(self, error: HttpError) -> None:
        for waiting in (self._small, self._large):
            while waiting:
                _Write([self._taken(waiting)]).refuse(error)

    def _next(self, connection: Connection) -> _Write | None:
        """The next write, if there is one and room for it."""
        is_small_next = bool(self._small) and (len(self._small) >= SMALL_ROWS or not self._is_small_flying())
        if self._again:
            size = len(self._again[0].payload)
        elif is_small_next:
            size = _SMALL_BYTES if len(self._small) > 1 else len(self._small[0].content.payload)
        elif self._large:
            size = len(self._large[0].content.payload)
        else:
            return None
        if not connection.window.has_room(size):
            self._loop.call_later(_LOOK_S, self._plan)
            return None
        if self._again:
            return self._again.popleft()
        return _Write(self._together() if is_small_next else [self._taken(self._large)])

    def _is_small_flying(self) -> bool:
        return any(write.is_small for write in self._flying)

    def _together(self) -> list[Request]:
        """Small requests, as many as fit into one write."""
        chosen = [self._taken(self._small)]
        rows, size = chosen[0].content.rows, len(chosen[0].content.payload)
        while self._small:
            content = self._small[0].content
            rows, size = rows + content.rows, size + len(content.payload)
            if rows > SMALL_ROWS or size > _SMALL_BYTES:
                break
            chosen.append(self._taken(self._small))
        return chosen

    def _taken(self, waiting: deque[Request]) -> Request:
        request = waiting.popleft()
        self._waiting_bytes -= len(request.content.payload)
        return request

    def _send(self, connection: Connection, write: _Write) -> None:
        if not 0 < write.number <= connection.welcome.mark:  # else it was taken, and is answered as a retry
            write.number, self._next_number = self._next_number, self._next_number + 1
        try:
            future = connection.write(
                write.number,
                write.kind,
                write.payload,
                rows=write.rows,
                flags=write.requests[0].content.flags,
                wanted=self._level,
                heard=partial(self._heard, write),
            )
        except ConnectionLostError:
            self._again.appendleft(write)
            return
        for request in write.requests:
            request.attempt.is_sent = True
        self._flying.append(write)
        future.add_done_callback(partial(self._answered, write))

    # What is said of it.

    def _heard(self, write: _Write, written: Written) -> None:
        write.heard(written)
        if self._level is LevelName.DURABLE and written.level is LevelName.FLUSHED and write in self._flying:
            self._flying.remove(write)
            self._flushed.add(write)
            self._plan()

    def _answered(self, write: _Write, future: asyncio.Future[Written]) -> None:
        if write in self._flushed:
            self._flushed.remove(write)
        else:
            self._flying.remove(write)
        error = future.exception()
        if error is None:
            write.tell()
        elif isinstance(error, NackedError):
            self._nacked(write, error.nack)
        else:
            self._came_back.append(write)
            self._is_turning = True
        if self._is_turning and not self._flying:
            self._turn()
        self._plan()

    def _nacked(self, write: _Write, nack: Nack) -> None:
        """It was not taken, and what was sent behind it comes back, too, unless its number is used up."""
        if nack.reason is NackReason.NUMBER_REUSE:
            write.number = 0  # another write has it: this one goes on under a new one
            self._came_back.append(write)
            self._is_turning = True
            return
        if nack.is_final:
            write.refuse(refusal(nack))
            return
        self._next_number = min(self._next_number, write.number)
        self._is_turning = True
        if nack.reason in {NackReason.SEQUENCE_GAP, NackReason.OUTCOME_UNKNOWN}:
            self._came_back.append(write)
            return
        error = refusal(nack)
        if isinstance(error, PartlyTakenError):
            # Its number cannot be given to another one: it is sent until all of it is taken.
            write.heard_partly(error)
            self._came_back.append(write)
        else:
            write.refuse(error)

    def _turn(self) -> None:
        """Everything that was on its way has come back: line it up again, in its order."""
        self._is_turning = False
        connection = self._connection
        self._again = deque(sorted([*self._came_back, *self._again], key=attrgetter("number")))
        self._came_back.clear()
        if connection is not None and (connection.closed.done() or connection.drain_ms is not None):
            self._connection = None
