"""One connection to the server in memory (W1, W4, W5, W6).

Belongs here: frames in, answers out, and the faults that concern one connection. What a write means is in `model.py`,
what a test asks for in `server.py`.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, cast

from tidemark.testing.model import Answer, Producer, fenced, read_write
from tidemark.wire.errors import FrameError, NackReason, PayloadError
from tidemark.wire.frames import Flag, Frame, FrameReader, FrameType, encode_frame
from tidemark.wire.limits import LIMITS
from tidemark.wire.messages import (
    FIRST_REFUSALS,
    Ack,
    Backpressure,
    Heartbeat,
    Hello,
    LevelName,
    Nack,
    RefusedDelta,
    Role,
    Welcome,
    WriteOutcome,
    decode,
    encode,
)

_SLOTS = 1024


class Behaviour(Protocol):
    """What a test has asked of the server."""

    window: int
    delay_s: float
    heartbeat_ms: int
    home: str

    def greet(self, session: "Session", hello: Hello) -> Producer | Nack:
        """Who it is that says hello, or why not."""

    def fault(self, session: "Session") -> Nack | None:
        """The refusal for the next write, if a test wants one."""

    def taken(self, session: "Session") -> bool:
        """A write was taken; false if its answer is to be lost."""

    def overrun(self) -> None:
        """A client has sent more than the window."""


class Session(asyncio.Protocol):
    """One connection."""

    def __init__(self, behaviour: Behaviour, gone: Callable[["Session"], None]) -> None:
        self._behaviour, self._gone = behaviour, gone
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._instance = 0
        self._levels: tuple[LevelName, ...] = ()
        self.producer: Producer | None = None
        self._is_over = self.is_frozen = False
        # To be acknowledged together.
        self._last = self._accepted = self._refused = 0
        self._outcomes: list[WriteOutcome] = []
        self._refusals: list[RefusedDelta] = []
        self._unanswered = 0  # bytes

    # The socket.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        if self._is_over:
            self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever ended it
        self._is_over = True
        self._gone(self)

    def data_received(self, data: bytes) -> None:
        if self.is_frozen:
            return
        try:
            for frame in self._reader.feed(data):
                if not self._is_over:
                    self._take(frame)
        except FrameError as error:
            self.end(Nack(error.reason, str(error), closes=True))
        self._acknowledge_soon()

    def send(self, kind: FrameType, sequence: int, payload: bytes = b"", flags: Flag = Flag.NONE) -> None:
        """Send a frame, unless the connection is over."""
        if self._transport is not None and not self._is_over and not self.is_frozen:
            self._transport.write(encode_frame(Frame(kind, flags, sequence, payload)))

    def end(self, nack: Nack, sequence: int = 0) -> None:
        """Say why, and close."""
        self.send(FrameType.NACK, sequence, encode(nack))
        self._is_over = True
        if self._transport is not None:
            self._transport.close()

    def cut(self) -> None:
        """End it without a word, as a network does."""
        self._is_over = True
        if self._transport is not None:
            self._transport.abort()

    def press(self, message: Backpressure) -> None:
        """Tell the client to slow down."""
        self.send(FrameType.BACKPRESSURE, 0, encode(message))

    def goodbye(self, milliseconds: int) -> None:
        """Tell the client to go."""
        self.send(FrameType.HEARTBEAT, 1, encode(Heartbeat(milliseconds)))

    # Frames.

    def _take(self, frame: Frame) -> None:
        if self.producer is None:
            self._greet(frame)
        elif frame.type in {FrameType.DELTA, FrameType.BATCH}:
            self._write(self.producer, frame)
        elif frame.type == FrameType.HEARTBEAT:
            self.send(FrameType.HEARTBEAT, frame.sequence or 1, encode(Heartbeat()))
        else:
            why = f"A producer sends writes and heartbeats, and not type {frame.type}."
            self.end(Nack(NackReason.UNEXPECTED, why, closes=True), frame.sequence)

    def _greet(self, frame: Frame) -> None:
        if frame.type != FrameType.HEARTBEAT or frame.sequence != 0:
            self.end(Nack(NackReason.HELLO_EXPECTED, "The first frame is a hello.", closes=True), frame.sequence)
            return
        try:
            hello = decode(frame.payload, Hello)
        except PayloadError as error:
            self.end(Nack(NackReason.BAD_HELLO, str(error), closes=True))
            return
        if hello.role is not Role.PRODUCER:
            self.end(Nack(NackReason.NOT_SUPPORTED, "This server has producers alone.", closes=True))
            return
        found = self._behaviour.greet(self, hello)
        if isinstance(found, Nack):
            self.end(found)
            return
        self.producer, self._instance, self._levels = found, found.instance, hello.levels
        welcome = Welcome(
            found.instance,
            found.mark,
            self._behaviour.window,
            1,
            ((0, _SLOTS),),
            LIMITS,
            self._behaviour.heartbeat_ms,
            home=self._behaviour.home,
            server="tidemark.testing",
        )
        self.send(FrameType.HEARTBEAT, 0, encode(welcome))

    def _write(self, producer: Producer, frame: Frame) -> None:
        if self._instance != producer.instance:
            self.end(fenced(producer.name, self._instance, producer.instance))
            return
        if frame.sequence == producer.mark + 1 and (nack := self._behaviour.fault(self)) is not None:
            self._refuse(producer, frame, nack)
            return
        try:
            write, refusals = read_write(frame.sequence, frame.type, frame.flags, bytes(frame.payload))
        except PayloadError as error:
            self._refuse(producer, frame, Nack(error.reason, str(error), is_final=True))
            return
        answer = producer.take(frame.sequence, write)
        if answer is not None and answer.nack is not None:
            self._say_nack(frame.sequence, answer.nack)
            return
        if answer is None:
            if not self._behaviour.taken(self):
                self.cut()
                return
            accepted, refused = len(write.deltas), len(refusals)
            outcome = WriteOutcome(frame.sequence, accepted, 0, refused) if refused else None
            answer = Answer(None, outcome, accepted, refusals)
        self._note(frame, answer)

    def _refuse(self, producer: Producer, frame: Frame, nack: Nack) -> None:
        if nack.is_final and frame.sequence == producer.mark + 1:
            write = read_write(frame.sequence, FrameType.DELTA, Flag.NONE, b"{}")[0]
            producer.writes.append(write._replace(deltas=(), nack=nack))
        self._say_nack(frame.sequence, nack)

    def _say_nack(self, sequence: int, nack: Nack) -> None:
        if nack.closes:
            self.end(nack, sequence)
            return
        if nack.is_final:
            self._acknowledge()  # in the order of the writes
        self.send(FrameType.NACK, sequence, encode(nack))

    # Acknowledgements.

    def _note(self, frame: Frame, answer: Answer) -> None:
        self._last = max(self._last, frame.sequence)
        self._accepted += answer.accepted
        if answer.outcome is not None:
            self._outcomes.append(answer.outcome)
            self._refused += answer.outcome.refused
        self._refusals += answer.refusals[: FIRST_REFUSALS - len(self._refusals)]
        if self._unanswered and self._unanswered + len(frame.payload) > self._behaviour.window:
            self._behaviour.overrun()
        self._unanswered += len(frame.payload)

    def _acknowledge_soon(self) -> None:
        if not self._last:
            return
        if self._behaviour.delay_s > 0:
            asyncio.get_running_loop().call_later(self._behaviour.delay_s, self._acknowledge)
        else:
            self._acknowledge()

    def _acknowledge(self) -> None:
        if not self._last:
            return
        counts = (self._accepted, 0, self._refused, tuple(self._outcomes), tuple(self._refusals))
        for level in (LevelName.FLUSHED, LevelName.DURABLE):
            if level is LevelName.FLUSHED or level in self._levels:
                self.send(FrameType.ACK, self._last, encode(Ack(level, {0: self._last}, *counts)), Flag.BATCHED)
        self._last = self._accepted = self._refused = self._unanswered = 0
        self._outcomes, self._refusals = [], []
