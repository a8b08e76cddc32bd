"""Writes that were sent and not answered, and what the server's acknowledgements and refusals say of each (W4).

Belongs here: from frames to results of writes. An acknowledgement is cumulative and comes from outside: what it says of
numbers that were never sent is an error, and not believed.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from itertools import chain
from typing import NamedTuple

from tidemark.client.errors import NackedError
from tidemark.model.deltas import Level
from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.messages import Ack, LevelName, Nack, RefusedDelta, WriteOutcome

RANK = {name: Level[name.name] for name in LevelName}


class Written(NamedTuple):
    """A write has reached a level, and this is what became of it."""

    level: LevelName
    epochs: dict[int, int]  # shard → an epoch by which it is there
    accepted: int
    duplicate: int
    refused: int
    refusals: tuple[RefusedDelta, ...]  # the first of them
    is_retry: bool  # it was taken earlier, and the counts of that time are not known now: all zero
    duplicates: tuple[int, ...] = ()  # places of the first duplicates


# Told of a write at each level that it reaches.
Heard = Callable[[Written], None]


class _Sent:
    """A write on its way."""

    __slots__ = ("future", "heard", "is_answered", "outcome", "refusals", "rows", "sequence", "size", "wanted")

    def __init__(
        self,
        sequence: int,
        size: int,
        rows: int,
        wanted: LevelName,
        future: asyncio.Future[Written],
        heard: Heard | None,
    ) -> None:
        self.sequence, self.size, self.rows, self.wanted, self.future = sequence, size, rows, wanted, future
        self.heard = heard
        self.is_answered = False  # at any level: it counts for the window no longer
        self.outcome = WriteOutcome(sequence, rows, 0, 0)
        self.refusals: tuple[RefusedDelta, ...] = ()


class InFlight:
    """All writes of one connection that wait for an answer. `answered` is told how many bytes no longer do."""

    def __init__(self, mark: int, answered: Callable[[int], None]) -> None:
        self.mark = mark  # the last number known to be taken
        self._answered = answered
        self._highest = mark  # the last number that was sent
        # In the order of their numbers, until they are answered.
        self._new: deque[_Sent] = deque()
        # Those that were answered and have not reached the level that is wanted of them, by the next one on the way.
        self._later: dict[LevelName, deque[_Sent]] = {}
        # Those that are known to be taken and were sent again: answered by name, and not by what comes after them.
        self._again: dict[int, _Sent] = {}

    @property
    def unanswered(self) -> int:
        """How many have no answer at any level."""
        return len(self._new) + len(self._again)

    def add(
        self,
        sequence: int,
        size: int,
        rows: int,
        wanted: LevelName,
        future: asyncio.Future[Written],
        heard: Heard | None = None,
    ) -> None:
        """A write is sent now."""
        sent = _Sent(sequence, size, rows, wanted, future, heard)
        if sequence <= self.mark:
            if sequence in self._again:
                raise ValueError(f"write {sequence} is on its way already: wait for its answer")
            self._again[sequence] = sent
            return
        if self._new and sequence <= self._new[-1].sequence:
            raise ValueError(f"write {sequence} was sent after {self._new[-1].sequence}: send writes in their order")
        self._highest = max(self._highest, sequence)
        self._new.append(sent)

    def acknowledge(self, sequence: int, is_cumulative: bool, ack: Ack) -> None:
        """Writes have reached a level."""
        if sequence > self._highest:
            raise PayloadError(
                NackReason.BAD_PAYLOAD, f"write {sequence} was acknowledged, and {self._highest} is the last one sent"
            )
        named = {outcome.sequence: outcome for outcome in ack.outcomes}
        for outcome in ack.outcomes:
            if (again := self._again.get(outcome.sequence)) is not None and outcome.is_retry:
                del self._again[outcome.sequence]
                self._reach(again, ack, outcome)
        for sent in (*self._waited_long_enough(sequence, ack.level), *self._acknowledged(sequence, is_cumulative)):
            self._reach(sent, ack, named.get(sent.sequence))
        self.mark = max(self.mark, sequence)

    def _waited_long_enough(self, sequence: int, level: LevelName) -> list[_Sent]:
        """Those that wait for this level, or for a lower one that nobody told of."""
        found: list[_Sent] = []
        for waited, waiting in self._later.items():
            while RANK[waited] <= RANK[level] and waiting and waiting[0].sequence <= sequence:
                found.append(waiting.popleft())
        return found

    def _wait_for_more(self, sent: _Sent, reached: LevelName) -> None:
        """It has reached a level below the one that is wanted. The next one may say more of it."""
        level = next(each for each in LevelName if RANK[each] > RANK[reached])
        waiting = self._later.setdefault(level, deque())
        place = len(waiting)
        while place and waiting[place - 1].sequence > sent.sequence:  # one that was sent again
            place -= 1
        waiting.insert(place, sent)

    def _acknowledged(self, sequence: int, is_cumulative: bool) -> list[_Sent]:
        if not is_cumulative:
            sent = self._taken_out(sequence)
            return [] if sent is None else [sent]
        found = []
        while self._new and self._new[0].sequence <= sequence:
            found.append(self._new.popleft())
        return found

    def _reach(self, sent: _Sent, ack: Ack, outcome: WriteOutcome | None) -> None:
        if not sent.is_answered:
            sent.is_answered = True
            self._answered(sent.size)
        if outcome is not None:
            sent.outcome = outcome
        if ack.refusals and sent.outcome.refused:
            sent.refusals = tuple(each for each in ack.refusals if each.sequence == sent.sequence) or sent.refusals
        is_there = RANK[ack.level] >= RANK[sent.wanted]
        if not is_there:
            self._wait_for_more(sent, ack.level)
        if sent.heard is None and (not is_there or sent.future.done()):
            return
        said = sent.outcome
        written = Written(
            ack.level,
            dict(ack.epochs),
            said.accepted,
            said.duplicate,
            said.refused,
            sent.refusals,
            said.is_retry,
            said.duplicates,
        )
        if sent.heard is not None:
            sent.heard(written)
        if is_there and not sent.future.done():
            sent.future.set_result(written)

    def refuse(self, sequence: int, nack: Nack) -> None:
        """One write was not taken."""
        sent = self._again.pop(sequence, None) or self._taken_out(sequence)
        if nack.is_final:
            self.mark = max(self.mark, sequence)
        if sent is None:
            return
        if not sent.is_answered:
            self._answered(sent.size)
        if not sent.future.done():
            sent.future.set_exception(NackedError(nack))

    def _taken_out(self, sequence: int) -> _Sent | None:
        # Refused ones are at the front, or near it: what follows a gap is refused, too.
        for waiting in (self._new, *self._later.values()):
            for place, sent in enumerate(waiting):
                if sent.sequence == sequence:
                    del waiting[place]
                    return sent
                if sent.sequence > sequence:
                    break
        return None

    def fail(self, error: BaseException) -> None:
        """The connection has ended: nobody will answer."""
        for sent in chain(self._new, self._again.values(), *self._later.values()):
            if not sent.future.done():
                sent.future.set_exception(error)
        self._new.clear()
        self._again.clear()
        self._later.clear()
