"""Writes that the door numbers (W8): which requests share one, and what is sent again when one was not taken (Q2)."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidemark.client.errors import ConnectionLostError, NackedError
from tidemark.client.in_flight import Written
from tidemark.client.window import Window
from tidemark.gateway.http.errors import HttpError
from tidemark.gateway.http.writes.attempts import Attempt
from tidemark.gateway.http.writes.contents import Content
from tidemark.gateway.http.writes.lanes import Lane
from tidemark.gateway.http.writes.outcomes import Retry, WriteAnswer
from tidemark.wire.errors import NackReason
from tidemark.wire.frames import FrameType
from tidemark.wire.messages import Hello, LevelName, Nack, RefusedDelta, Welcome


class Coordinator:
    """A log that numbers as a shard does, behind connections that are cut when the test says so."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []  # payload of write 1, 2, …
        self.turned_away = 0  # so many of the next writes are not taken for now
        self.partly = 0  # and of so many one shard has taken its part
        self.parts: dict[int, bytes] = {}
        self.cut_before = self.cut_after = 0  # so many of the next ones are lost with their connection
        self.connections: list[Connection] = []

    async def open(self, _hello: Hello) -> Any:
        await asyncio.sleep(0)
        self.connections.append(Connection(self))
        return self.connections[-1]


class Connection:
    """What the lane sees of `client.connection.Connection`."""

    def __init__(self, log: Coordinator) -> None:
        self._log, self._loop = log, asyncio.get_running_loop()
        self.welcome = Welcome(1, len(log.taken), 1 << 20, 1, ((0, 1024),))
        self.window = Window(1 << 20, self._loop)
        self.drain_ms: int | None = None
        self.closed: asyncio.Future[ConnectionLostError | None] = self._loop.create_future()
        self._flying: dict[asyncio.Future[Written], int] = {}
        self._waiting: list[Callable[[], None]] = []

    def write(
        self, sequence: int, _kind: FrameType, payload: bytes, *, rows: int, heard: Callable[[Written], None], **_: Any
    ) -> asyncio.Future[Written]:
        if self.closed.done():
            raise ConnectionLostError("cut")
        future: asyncio.Future[Written] = self._loop.create_future()
        # As the real one has it: new numbers are sent in their order.
        new = [number for number in self._flying.values() if number > self.welcome.mark]
        if sequence > self.welcome.mark and new and sequence <= new[-1]:
            raise ValueError(f"write {sequence} was sent after {new[-1]}")
        self._flying[future] = sequence
        self._waiting.append(partial(self._decide, sequence, payload, rows, heard, future))
        if len(self._waiting) == 1:
            self._loop.call_soon(self._decide_one)
        return future

    def _decide_one(self) -> None:
        """One in a turn of the loop, so that others have their turns between."""
        self._waiting[0]()
        del self._waiting[0]
        if self._waiting:
            self._loop.call_soon(self._loop.call_soon, self._decide_one)

    def _decide(
        self,
        sequence: int,
        payload: bytes,
        rows: int,
        heard: Callable[[Written], None],
        future: asyncio.Future[Written],
    ) -> None:
        log = self._log
        if self.closed.done():
            return
        if log.cut_before:
            log.cut_before -= 1
            self._cut()
        elif sequence <= len(log.taken):
            if log.taken[sequence - 1] != payload:
                self._refuse(future, Nack(NackReason.NUMBER_REUSE, "another write", is_final=True))
            else:
                self._answer(future, heard, Written(LevelName.FLUSHED, {0: sequence}, 0, 0, 0, (), True))
        elif sequence > len(log.taken) + 1:
            self._refuse(future, Nack(NackReason.SEQUENCE_GAP, "a gap", expected=len(log.taken) + 1))
        elif log.parts.get(sequence, payload) != payload:
            raise AssertionError(f"number {sequence} was given to another write, and one shard has the first")
        elif log.partly:
            log.partly -= 1
            log.parts[sequence] = payload
            self._refuse(future, Nack(NackReason.BACKPRESSURE, "full", retry_after_ms=1, not_taken=(0,)))
        elif log.turned_away and sequence not in log.parts:
            log.turned_away -= 1
            self._refuse(future, Nack(NackReason.BACKPRESSURE, "full", retry_after_ms=1))
        else:
            log.taken.append(payload)
            if log.cut_after:
                log.cut_after -= 1
                self._cut()
            else:
                self._answer(future, heard, Written(LevelName.FLUSHED, {0: sequence}, rows, 0, 0, (), False))

    def _answer(self, future: asyncio.Future[Written], heard: Callable[[Written], None], written: Written) -> None:
        del self._flying[future]
        heard(written)
        future.set_result(written)

    def _refuse(self, future: asyncio.Future[Written], nack: Nack) -> None:
        del self._flying[future]
        future.set_exception(NackedError(nack))

    def _cut(self) -> None:
        self.closed.set_result(ConnectionLostError("cut"))
        for future in self._flying:
            future.set_exception(ConnectionLostError("cut"))
        self._flying.clear()

    async def close(self) -> None:
        if not self.closed.done():
            self.closed.set_result(None)


def lane_of(log: Coordinator) -> Lane:
    return Lane(log.open, "http_test", LevelName.FLUSHED)


def submit(lane: Lane, *names: str, is_large: bool = False) -> "asyncio.Future[WriteAnswer]":
    payload = b"\n".join(name.encode() for name in names)
    kind = FrameType.BATCH if is_large else FrameType.DELTA
    return lane.submit(Content(kind, payload, len(names)), Attempt(Retry.BY_IDENTITY))


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(test, 20))


def deltas_in(log: Coordinator) -> list[str]:
    return [line.decode() for payload in log.taken for line in payload.split(b"\n")]


def test_requests_of_one_turn_share_a_write_and_those_that_come_meanwhile_the_next() -> None:
    async def test() -> None:
        log = Coordinator()
        lane = lane_of(log)
        first = [submit(lane, f"a{number}") for number in range(5)]
        await asyncio.gather(*first)
        assert log.taken == [b"a0\na1\na2\na3\na4"]

    run(test())


def test_a_shared_write_has_no_more_deltas_than_outcomes_are_told_of() -> None:
    async def test() -> None:
        log = Coordinator()
        lane = lane_of(log)
        await asyncio.gather(*(submit(lane, *[f"{number}-{each}" for each in range(30)]) for number in range(10)))
        assert max(payload.count(b"\n") + 1 for payload in log.taken) <= 100
        assert len(deltas_in(log)) == 300

    run(test())


def test_what_is_turned_away_is_told_and_what_came_behind_it_takes_its_number() -> None:
    async def test() -> None:
        log = Coordinator()
        lane = lane_of(log)
        await submit(lane, "first")
        log.turned_away = 1
        answers = [submit(lane, f"large{number}", is_large=True) for number in range(4)]
        done = await asyncio.gather(*answers, return_exceptions=True)
        [error] = [each for each in done if isinstance(each, BaseException)]
        assert isinstance(error, HttpError)
        assert error.status == 429
        assert deltas_in(log) == ["first", "large1", "large2", "large3"]

    run(test())


def test_a_write_of_which_one_shard_has_its_part_keeps_its_number_until_all_of_it_is_taken() -> None:
    async def test() -> None:
        log = Coordinator()
        lane = lane_of(log)
        await submit(lane, "first")
        log.partly = 2
        answers = [submit(lane, f"large{number}", is_large=True) for number in range(3)]
        assert [each.accepted for each in await asyncio.gather(*answers)] == [1, 1, 1]
        assert deltas_in(log) == ["first", "large0", "large1", "large2"]

    run(test())


def test_a_write_whose_answer_was_lost_is_not_taken_again_under_another_number() -> None:
    async def test() -> None:
        log = Coordinator()
        lane = lane_of(log)
        await submit(lane, "first")
        log.cut_after = 1
        answer = await submit(lane, "lost")
        assert answer.is_retry
        assert answer.accepted is None
        assert deltas_in(log) == ["first", "lost"]

    run(test())


def test_a_number_that_somebody_else_has_used_is_left_to_them() -> None:
    async def test() -> None:
        log = Coordinator()
        lane = lane_of(log)
        await submit(lane, "first")
        log.taken.append(b"a stranger's")
        answer = await submit(lane, "second")
        assert (answer.accepted, deltas_in(log)) == (1, ["first", "a stranger's", "second"])

    run(test())


def test_a_request_whose_time_is_over_before_it_was_sent_is_never_sent() -> None:
    async def test() -> None:
        log = Coordinator()
        lane = lane_of(log)
        waiting = submit(lane, "too late")
        waiting.cancel()
        lane.withdraw(waiting)
        await submit(lane, "in time")
        assert deltas_in(log) == ["in time"]

    run(test())


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["", "away", "partly", "before", "after"])), max_size=25))
def test_every_request_is_taken_once_or_told_that_it_was_not_whatever_happens(steps: list[tuple[int, str]]) -> None:
    async def test() -> None:
        log = Coordinator()
        lane = lane_of(log)
        sent: dict[str, asyncio.Future[WriteAnswer]] = {}
        for place, (count, trouble) in enumerate(steps):
            log.turned_away += trouble == "away"
            log.partly += trouble == "partly"
            log.cut_before += trouble == "before"
            log.cut_after += trouble == "after"
            for number in range(count):
                name = f"{place}-{number}"
                sent[name] = submit(lane, name, is_large=number % 2 == 1)
            if place % 3 == 0:
                await asyncio.sleep(0)
        done = await asyncio.gather(*sent.values(), return_exceptions=True)
        taken = deltas_in(log)
        assert len(set(taken)) == len(taken)
        told = {name for name, each in zip(sent, done, strict=True) if isinstance(each, WriteAnswer)}
        assert told == set(taken)
        await lane.close()

    run(test())


def test_each_request_is_told_of_its_part_of_a_shared_write() -> None:
    from tidemark.gateway.http.writes.outcomes import part_answer

    written = Written(
        LevelName.FLUSHED, {0: 4}, 3, 2, 1, (RefusedDelta(9, 3, "malformed", "Not JSON."),), False, (0, 4)
    )
    parts = [part_answer(written, start, 2) for start in (0, 2, 4)]
    assert [(each.accepted, each.duplicate, each.refused_count) for each in parts] == [(1, 1, 0), (1, 0, 1), (1, 1, 0)]
    assert [each.at for each in parts[1].refused] == [1]
    # If not every duplicate is named, nobody is told a count that may be wrong.
    assert part_answer(written._replace(duplicate=3), 0, 2).accepted is None
