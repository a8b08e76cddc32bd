"""Admission at this door, and the account of what it turns away (A1 to A4).

Belongs here: asking the gate with what it needs to know, handing its counts to the log, and telling producers their
pace. What is decided, and how, is in `tidemark/admission/`.
"""

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from tidemark.admission.arriving import Arriving, Load, Turned
from tidemark.admission.decide import Decision
from tidemark.admission.gate import Gate, Pace
from tidemark.coordinator.platform import Platform
from tidemark.gateway.w1.arriving import by_stream, ids_of, source_of, whole
from tidemark.gateway.w1.write_frames import Content
from tidemark.model.deltas import Priority, Source
from tidemark.model.settings import Settings
from tidemark.wire.errors import NackReason
from tidemark.wire.messages import Nack

# How often the log is told what was turned away: so much is unknown after a kill.
NOTE_US = 5_000_000
# A group commit takes milliseconds: within less, no shard becomes much busier.
LOAD_US = 2_000


class Asked(NamedTuple):
    """A write that the gate was asked about, and its answer."""

    write: Arriving
    decision: Decision
    # For how long nothing should be read from its producer: it did not keep to the pace that it was told.
    pause_s: float

    @property
    def nack(self) -> Nack | None:
        """Why it may not be taken; None if it may."""
        decision = self.decision
        if decision.reason is None:
            return None
        return Nack(
            NackReason(decision.reason.value),
            decision.message,
            is_final=decision.is_final,
            retry_after_ms=decision.retry_after_ms,
        )


class Admitting:
    """The gate of a platform. Everything is called on the loop of the door."""

    def __init__(self, platform: Platform, settings: Settings, window: int) -> None:
        self._platform = platform
        self._gate = Gate(settings.admission, platform.clock(), window)
        # Nothing is agreed with anybody: then nobody has to look into the writes.
        self._parts = by_stream if settings.admission.streams else whole
        self._has_agreements = bool(settings.admission.streams)
        self._noted_us = platform.clock()
        self._bounds = settings.bounds
        self._looked_us, self._load_then = 0, Load()
        self.counts: Counter[str] = Counter()  # turned-away deltas by reason, since the start

    def ask(self, producer: str, priority: Priority, content: Content, size: int) -> Asked:
        """Whether a write that is new may be taken; what is refused is counted."""
        write = Arriving(producer, self._parts(content, size), priority, Source.LOCAL, ())
        if self._has_agreements:
            write = write._replace(source=source_of(content), ids=ids_of(content))
        now_us = self._platform.clock()
        decision = self._gate.admit(write, self._load(now_us), now_us)
        if decision.reason is not None:
            self.counts[decision.reason.value] += decision.turned_away
        return Asked(write, decision, self._gate.pause_us(write, now_us) / 1_000_000)

    def done(self, asked: Asked) -> None:
        """A write that was let in has been answered."""
        self._gate.done(asked.decision)

    def give_back(self, asked: Asked, deltas: int) -> None:
        """A shard had no room for so many deltas of a write that was let in; others may have taken theirs."""
        self._gate.give_back(asked.write, asked.decision, deltas)
        self.counts[Turned.BACKPRESSURE.value] += deltas

    def turned_away(self, reason: Turned, producer: str, deltas: int) -> None:
        """Count deltas that were turned away before the gate was asked."""
        self._gate.turn_away(reason, producer, deltas)
        self.counts[reason.value] += deltas

    def step(self) -> Mapping[str, Pace]:
        """Which producers are to be told another pace; call it about ten times a second."""
        now_us = self._platform.clock()
        if now_us - self._noted_us >= NOTE_US:
            self.note(is_last=False)
        return self._gate.step(self._load(now_us), now_us)

    def note(self, *, is_last: bool) -> None:
        """Tell the log what was turned away until now. `is_last` when the door closes in good order."""
        self._noted_us = self._platform.clock()
        note = self._gate.take_turned_away(self._noted_us)
        self._platform.turn_away(note.tally, note.from_us, note.to_us, is_last=is_last)

    def _load(self, now_us: int) -> Load:
        """How busy the busiest shard is, or was a moment ago: single deltas come far more often than that changes."""
        if not 0 <= now_us - self._looked_us < LOAD_US:
            self._looked_us = now_us
            loads = [shard.load() for shard in self._platform.shards.values()]
            self._load_then = Load(
                waited_us=max(load.waited_us for load in loads),
                deltas=max(load.deltas for load in loads),
                bytes=max(load.bytes for load in loads),
                most_deltas=self._bounds.deltas,
                most_bytes=self._bounds.bytes,
            )
        return self._load_then
