"""Writes at a gate, in virtual time, and a small shard that works through what was let in."""

from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from tests.support.live import TEN_O_CLOCK
from tidemark.admission.arriving import Arriving, Load, Part, Stream
from tidemark.admission.decide import Decision, Rules, State
from tidemark.admission.gate import Gate, Pace
from tidemark.model.admission_settings import AdmissionSettings
from tidemark.model.deltas import Priority
from tidemark.model.timegrid import SECOND_US

SHOP: Stream = ("shop", "signal")
FLEET: Stream = ("fleet", "sample")
DELTA_BYTES = 100


def settings_of(streams: Mapping[str, Mapping[str, Any]] | None = None, **more: Any) -> AdmissionSettings:
    """Settings as an operator writes them."""
    return msgspec.convert({"streams": streams or {}, **more}, AdmissionSettings)


def state_of(streams: Mapping[str, Mapping[str, Any]] | None = None, **more: Any) -> State:
    """The state of a gate that has just been made."""
    return State(Rules.of(settings_of(streams, **more)), since_us=TEN_O_CLOCK)


def write(
    deltas: int = 1,
    stream: Stream = SHOP,
    *,
    producer: str = "web",
    at: int | None = None,
    newest: int | None = None,
    **more: Any,
) -> Arriving:
    """A write of one stream, with its events at one time or in between two."""
    part = Part(deltas, deltas * DELTA_BYTES, at, at if newest is None else newest)
    return Arriving(producer, {stream: part}, **more)


class Waiting(NamedTuple):
    """A write in the queue of the small shard."""

    since_us: int
    write: Arriving
    decision: Decision
    left: float  # deltas that are still to be worked through


class SmallShard:
    """A queue, and a disk that takes so many deltas a second; in front of it a gate."""

    def __init__(self, capacity: float, room: int, settings: AdmissionSettings | None = None) -> None:
        self.capacity, self.room = capacity, room
        self.now_us = TEN_O_CLOCK
        self.gate = Gate(settings or AdmissionSettings(), self.now_us, window=1_000_000)
        self.flushed: dict[str, int] = {}
        self.delays_us: dict[Priority, list[int]] = {}
        self.turned_away: dict[str, int] = {}
        self._queue: deque[Waiting] = deque()

    @property
    def load(self) -> Load:
        waited_us = self.now_us - self._queue[0].since_us if self._queue else 0
        deltas = sum(waiting.write.deltas for waiting in self._queue)
        return Load(waited_us, deltas, deltas * DELTA_BYTES, self.room, self.room * DELTA_BYTES)

    def send(self, arriving: Arriving) -> int:
        """Offer a write; return for how long its producer is not listened to."""
        decision = self.gate.admit(arriving, self.load, self.now_us)
        deltas = arriving.deltas
        if decision.is_admitted and self.load.deltas + deltas > self.room:
            self.gate.give_back(arriving, decision)
            self.turned_away["backpressure"] = self.turned_away.get("backpressure", 0) + deltas
        elif decision.is_admitted:
            self._queue.append(Waiting(self.now_us, arriving, decision, arriving.deltas))
        else:
            assert decision.reason is not None
            self.turned_away[decision.reason] = self.turned_away.get(decision.reason, 0) + arriving.deltas
        return self.gate.pause_us(arriving, self.now_us)

    def work(self, elapsed_us: int) -> Mapping[str, Pace]:
        """Let time pass: the disk works, and the gate looks at the load."""
        self.now_us += elapsed_us
        can = self.capacity * elapsed_us / SECOND_US
        while self._queue and can > 0:
            first = self._queue[0]
            if first.left > can:
                self._queue[0] = first._replace(left=first.left - can)
                break
            can -= first.left
            self._queue.popleft()
            self.gate.done(first.decision)
            producer, deltas = first.write.producer, first.write.deltas
            self.flushed[producer] = self.flushed.get(producer, 0) + deltas
            self.delays_us.setdefault(first.write.priority, []).append(self.now_us - first.since_us)
        return self.gate.step(self.load, self.now_us)
