"""What a connection makes of a server's frames: answers, the window, and what is not believed (W4 to W6)."""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.client.connection import Connection
from tidemark.client.errors import ConnectionLostError, NackedError
from tidemark.client.in_flight import InFlight, Written
from tidemark.client.sender import Backoff
from tidemark.client.window import Window
from tidemark.testing import server
from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.frames import Flag, Frame, FrameReader, FrameType, encode_frame
from tidemark.wire.messages import (
    Ack,
    Backpressure,
    Heartbeat,
    Hello,
    LevelName,
    Nack,
    RefusedDelta,
    Subscribe,
    Welcome,
    WriteOutcome,
    encode,
)

FLUSHED, DURABLE = LevelName.FLUSHED, LevelName.DURABLE


class Sends:
    """Writes on their way, without a socket."""

    def __init__(self, mark: int = 0) -> None:
        self.loop = asyncio.new_event_loop()
        self.freed = 0
        self.in_flight = InFlight(mark, self._free)

    def _free(self, size: int) -> None:
        self.freed += size

    def send(self, sequence: int, rows: int = 2, wanted: LevelName = FLUSHED) -> "asyncio.Future[Written]":
        future: asyncio.Future[Written] = self.loop.create_future()
        self.in_flight.add(sequence, 10, rows, wanted, future)
        return future


def test_an_acknowledgement_is_of_everything_up_to_its_number_and_names_what_was_not_accepted_whole() -> None:
    sends = Sends()
    first, second, third = (sends.send(number) for number in (1, 2, 3))
    outcome, refusal = WriteOutcome(2, 1, 0, 1), RefusedDelta(2, 1, "malformed", "It is no JSON.")
    sends.in_flight.acknowledge(2, True, Ack(FLUSHED, {0: 7}, 3, 0, 1, (outcome,), (refusal,)))
    assert first.result() == Written(FLUSHED, {0: 7}, 2, 0, 0, (), is_retry=False)
    assert second.result() == Written(FLUSHED, {0: 7}, 1, 0, 1, (refusal,), is_retry=False)
    assert not third.done()
    assert sends.freed == 20


def test_without_the_flag_it_is_of_one_write_alone() -> None:
    sends = Sends()
    first, second = sends.send(1), sends.send(2)
    sends.in_flight.acknowledge(2, False, Ack(FLUSHED))
    assert (first.done(), second.done()) == (False, True)


def test_a_write_waits_for_its_level_and_takes_no_room_meanwhile() -> None:
    sends = Sends()
    flushed, durable = sends.send(1), sends.send(2, wanted=DURABLE)
    sends.in_flight.acknowledge(2, True, Ack(FLUSHED, outcomes=(WriteOutcome(2, 0, 2, 0),)))
    assert flushed.done()
    assert not durable.done()
    assert (sends.freed, sends.in_flight.unanswered) == (20, 0)
    sends.in_flight.acknowledge(2, True, Ack(DURABLE))
    assert (durable.result().level, durable.result().duplicate) == (DURABLE, 2), "as the first answer said"
    assert sends.freed == 20


def test_a_higher_level_says_the_lower_ones_too() -> None:
    sends = Sends()
    future = sends.send(1)
    sends.in_flight.acknowledge(1, True, Ack(DURABLE))
    assert future.result().level is DURABLE


def test_what_was_taken_before_is_answered_by_name_and_not_by_what_comes_after_it() -> None:
    sends = Sends(mark=5)
    again, new = sends.send(3), sends.send(6)
    sends.in_flight.acknowledge(6, True, Ack(FLUSHED))
    assert (again.done(), new.done()) == (False, True)
    sends.in_flight.acknowledge(6, True, Ack(FLUSHED, outcomes=(WriteOutcome(3, 0, 0, 0, is_retry=True),)))
    assert again.result().is_retry


def test_an_acknowledgement_of_what_was_never_sent_is_not_believed() -> None:
    sends = Sends(mark=5)
    sends.send(6)
    with pytest.raises(PayloadError, match="write 7 was acknowledged, and 6 is the last one sent"):
        sends.in_flight.acknowledge(7, True, Ack(FLUSHED))


def test_a_refusal_is_of_one_write_and_gives_its_room_back() -> None:
    sends = Sends()
    first, second = sends.send(1), sends.send(2)
    sends.in_flight.refuse(2, Nack(NackReason.SEQUENCE_GAP, "A gap.", expected=1))
    assert not first.done()
    assert isinstance(second.exception(), NackedError)
    assert sends.freed == 10
    sends.in_flight.refuse(9, Nack(NackReason.TOO_LARGE, "Of nothing that waits."))
    sends.send(2)
    with pytest.raises(ValueError, match="in their order"):
        sends.send(2)


@given(st.data())
def test_every_write_is_answered_once_in_any_order_of_answers(data: st.DataObject) -> None:
    """Whatever the server says, and however often."""
    sends = Sends()
    futures: dict[int, asyncio.Future[Written]] = {}
    expected: dict[int, str] = {}
    sent = 0
    for _ in range(data.draw(st.integers(1, 20))):
        step = data.draw(st.sampled_from(["send", "ack", "nack"]))
        if step == "send":
            sent += 1
            futures[sent] = sends.send(sent)
        elif sent and step == "ack":
            upto = data.draw(st.integers(1, sent))
            sends.in_flight.acknowledge(upto, True, Ack(FLUSHED))
            for number in range(1, upto + 1):
                expected.setdefault(number, "acknowledged")
        elif sent:
            number = data.draw(st.integers(1, sent))
            sends.in_flight.refuse(number, Nack(NackReason.TOO_LARGE, "No.", is_final=True))
            expected.setdefault(number, "refused")
    lost = ConnectionLostError("the test ends")
    sends.in_flight.fail(lost)
    for number, future in futures.items():
        found = "lost" if future.exception() is lost else "refused" if future.exception() else "acknowledged"
        assert found == expected.get(number, "lost")
    assert sends.freed == 10 * len(expected)


def test_the_window_lets_through_what_fits_and_one_that_never_fits_when_nothing_else_is_there() -> None:
    async def conversation() -> None:
        window = Window(100, asyncio.get_running_loop())
        assert window.has_room(100)
        assert window.has_room(101)
        window.sent(60)
        assert window.has_room(40)
        assert not window.has_room(41)
        waiting = asyncio.create_task(window.room(41))
        await asyncio.sleep(0)
        assert not waiting.done()
        window.answered(60)
        await waiting
        window.told(Backpressure(0))
        assert not window.has_room(1)
        window.told(Backpressure(10))
        assert window.has_room(10)
        window.pause(60_000)
        assert not window.has_room(1)
        waiting = asyncio.create_task(window.room(1))
        await asyncio.sleep(0)
        window.close()
        await waiting

    asyncio.run(conversation())


def test_waits_grow_with_jitter_and_begin_anew_after_a_success() -> None:
    backoff = Backoff(Random(1), 0.1, 2.0)
    for failures in range(12):
        assert 0 <= backoff.next_s() <= min(2.0, 0.1 * 2**failures)
    assert backoff.next_s(5.0) >= 5.0
    backoff.success()
    assert backoff.next_s() <= 0.1


Answer = Callable[[Frame], list[bytes]]
WELCOME = encode_frame(Frame(FrameType.HEARTBEAT, Flag.NONE, 0, encode(Welcome(1, 0, 1_000, 1, ((0, 1024),)))))


def talk(answer: Answer, conversation: Callable[[str], Coroutine[Any, Any, None]]) -> None:
    """A conversation with a server that answers each frame as a test says."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        frames = FrameReader()
        while data := await reader.read(4096):
            for frame in frames.feed(data):
                writer.writelines(answer(frame._replace(payload=bytes(frame.payload))))
        writer.close()

    async def run() -> None:
        async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
            port = listening.sockets[0].getsockname()[1]
            await asyncio.wait_for(conversation(f"tidemark://127.0.0.1:{port}"), 30)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "cannot be read"),
        (encode_frame(Frame(FrameType.ACK, Flag.BATCHED, 5, encode(Ack(FLUSHED)))), "was never|the last one sent"),
        (encode_frame(Frame(FrameType.ACK, Flag.BATCHED, 1, b"{")), "cannot be read as a ack"),
        (encode_frame(Frame(FrameType.DELTA, Flag.NONE, 1, b"{}")), "was not asked for"),
        (
            encode_frame(Frame(FrameType.NACK, Flag.NONE, 0, encode(Nack(NackReason.STOPPED, "Bye.", closes=True)))),
            "Bye",
        ),
    ],
)
def test_a_server_that_says_nonsense_is_left_and_everybody_who_waits_is_told(said: bytes, why: str) -> None:
    async def conversation(url: str) -> None:
        connection = await Connection.open(url, Hello(producer="shop"))
        sent = connection.write(1, FrameType.DELTA, b"{}", rows=1)
        with pytest.raises(ConnectionLostError, match=why):
            await sent
        with pytest.raises(ConnectionLostError):
            connection.write(2, FrameType.DELTA, b"{}", rows=1)
        with pytest.raises(ConnectionLostError):
            await connection.room(1)
        assert isinstance(await connection.closed, ConnectionLostError)

    talk(lambda frame: [WELCOME] if frame.sequence == 0 else [said], conversation)


def test_a_refused_hello_says_why_and_one_without_an_answer_takes_no_longer_than_allowed() -> None:
    async def refused(url: str) -> None:
        with pytest.raises(NackedError, match="Not you"):
            await Connection.open(url, Hello(producer="shop"))

    nack = encode(Nack(NackReason.NOT_ALLOWED, "Not you.", closes=True))
    talk(lambda _: [encode_frame(Frame(FrameType.NACK, Flag.NONE, 0, nack))], refused)

    async def silent(url: str) -> None:
        with pytest.raises(OSError):  # noqa: PT011 - it is a timeout
            await Connection.open(url, Hello(producer="shop"), timeout=0.05)

    talk(lambda _: [], silent)


def test_deliveries_are_counted_and_no_more_than_allowed_come_unacknowledged() -> None:
    async def conversation(url: str) -> None:
        connection = await Connection.open(url, Hello(role="subscriber"))  # type: ignore[arg-type]
        deliveries = connection.subscribe(Subscribe(max_unacked=2))
        for number in (1, 2):
            delivery = await anext(deliveries)
            assert (delivery.number, delivery.head.cursor, delivery.lines()) == (number, {0: 1}, [b"{}"])
        with pytest.raises(ConnectionLostError, match="more than 2 deliveries"):
            await anext(deliveries)

    head = b'{"cursor":{"0":1},"deltas":1}\n{}'
    frames = [encode_frame(Frame(FrameType.DELTA, Flag.BATCHED, number, head)) for number in (1, 2, 3)]
    talk(lambda frame: [WELCOME] if frame.type == FrameType.HEARTBEAT else frames, conversation)


def test_signs_of_life_are_given_and_expected() -> None:
    async def conversation(url: str) -> None:
        connection = await Connection.open(url, Hello(producer="shop"))
        error = await connection.closed
        assert error is not None
        assert "has said nothing for" in str(error)
        assert heard

    heard: list[int] = []
    quick = encode(Welcome(1, 0, 1_000, 1, ((0, 1024),), heartbeat_ms=20))

    def answer(frame: Frame) -> list[bytes]:
        if frame.sequence:
            heard.append(frame.sequence)
            return []
        return [encode_frame(Frame(FrameType.HEARTBEAT, Flag.NONE, 0, quick))]

    talk(answer, conversation)


def test_after_a_goodbye_nothing_more_is_sent_and_answers_still_come() -> None:
    async def conversation(url: str) -> None:
        connection = await Connection.open(url, Hello(producer="shop"))
        sent = connection.write(1, FrameType.DELTA, b"{}", rows=1)
        assert await connection.goodbye == 500
        with pytest.raises(ConnectionLostError, match="goodbye"):
            connection.write(2, FrameType.DELTA, b"{}", rows=1)
        assert (await sent).accepted == 1
        await connection.close()
        assert await connection.closed is None

    goodbye = encode_frame(Frame(FrameType.HEARTBEAT, Flag.NONE, 1, encode(Heartbeat(500))))
    ack = encode_frame(Frame(FrameType.ACK, Flag.BATCHED, 1, encode(Ack(FLUSHED))))
    talk(
        lambda frame: [WELCOME] if not frame.sequence else [goodbye, ack] if frame.type == FrameType.DELTA else [],
        conversation,
    )


def test_the_connection_works_on_uvloop_too() -> None:
    import uvloop

    async def conversation(url: str) -> None:
        connection = await Connection.open(url, Hello(producer="shop"))
        sent = [connection.write(number, FrameType.DELTA, b"{}" * 20_000, rows=1) for number in range(1, 20)]
        await asyncio.gather(*sent, return_exceptions=True)
        await connection.close()

    with server() as found, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(conversation(found.url))
        assert found.mark("shop") == 19
