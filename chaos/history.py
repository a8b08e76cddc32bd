"""The events of a simulation: what clients were told, in order, and the error for a broken rule.

Belongs here: the events, the facts that must hold for ever once a client was told of them, and the error that names a
broken rule. What follows from these facts is in `checker.py`.
"""

import sys
from enum import StrEnum
from typing import NamedTuple

from chaos.traffic import Write
from tidemark.model.event_time_rules import EventTimeRules

# Events shown with a violation: those around it, and all that name its subject.
SHOWN_EVENTS = 25
# Before any event: nothing was raised.
NEVER_US = -(2**62)


class ViolationError(Exception):
    """A rule is broken."""

    def __init__(self, rule: str, what: str, about: str = "") -> None:
        self.rule, self.what, self.about = rule, what, about
        super().__init__(f"{rule}: {what}")


def must(condition: object, rule: str, what: str, about: str = "") -> None:
    """Raise unless the rule is kept."""
    if not condition:
        raise ViolationError(rule, what, about)


class Event(NamedTuple):
    """An observation of a client, a reader or the machine."""

    life: int
    at_us: int
    what: str

    def __str__(self) -> str:
        return f"life {self.life}  {self.at_us / 1e6:.6f}  {self.what}"


class Given(NamedTuple):
    """An epoch that a write got."""

    life: int
    write: Write
    at_us: int  # by a clock that is right


class Acknowledged(NamedTuple):
    """A write that a client was told is flushed."""

    write: Write
    epoch: int


class Limit(StrEnum):
    """What the log refuses when it is older than a time that only rises."""

    EVENTS = "events"  # of every kind (D9, R5)
    VECTORS = "changes to vectors"  # (K4)


class Raised(NamedTuple):
    """A limit was raised, for all writes from an epoch on."""

    limit: Limit
    earliest_us: int
    from_epoch: int


class Reset(NamedTuple):
    """The clock was ahead in the life before, and was reset (C15)."""

    from_life: int
    at_us: int


class History:
    """Everything that clients were told, over all lives."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.life = 0
        self.begun_us = self.now_us = 0
        self.leap_us = 0  # the error of the machine's wall clock
        self.resets: list[Reset] = []
        self.wrong_us = 0  # how far the clock of a life that started ahead has come
        self.given: dict[int, Given] = {}
        self.acknowledged: dict[tuple[str, int], Acknowledged] = {}
        # Final refusals; they bind once a later write was acknowledged.
        self.refused: set[tuple[str, int]] = set()
        # Epochs of writes that were given back as "nothing was written".
        self.given_back: set[int] = set()
        self.flushed: dict[int, int] = {}  # life → the highest flushed epoch seen in it
        self.applied = 0  # the highest epoch ever seen
        self.durable = 0
        self.instances: dict[str, int] = {}  # the newest instance that was certain
        self.raised: list[Raised] = []  # the limits in the log
        self.raising: list[Raised] = []  # the limits in one group, of which it is unknown yet whether it is logged
        self.counts: dict[str, int] = {}
        self.rules: dict[int, EventTimeRules] = {}  # incarnation → the rules of its watermarks

    def earliest_us(self, limit: Limit, epoch: int) -> int:
        """The earliest time that the log allowed when a write came."""
        found = (each.earliest_us for each in self.raised if each.limit is limit and each.from_epoch <= epoch)
        return max(found, default=NEVER_US)

    def fallen_us(self, before: int, life: int) -> int:
        """The bound on times of an earlier life in a later one, by the resets between the two (C15)."""
        return min((each.at_us for each in self.resets if before < each.from_life <= life), default=sys.maxsize)

    def raise_limits(self, *, is_logged: bool) -> None:
        """Note whether the group with the limits was logged."""
        if is_logged:
            for each in self.raising:
                self.note(f"{each.limit} before {each.earliest_us} are refused from epoch {each.from_epoch} on")
                self.count("raised")
            self.raised += self.raising
        self.raising = []

    def note(self, what: str) -> None:
        """Record an event."""
        self.events.append(Event(self.life, self.now_us, what))

    def count(self, what: str) -> None:
        """Count one more of something, for the summary."""
        self.counts[what] = self.counts.get(what, 0) + 1

    def give(self, epoch: int, write: Write) -> None:
        """Note that a write has an epoch."""
        must(epoch not in self.given, "C7", f"epoch {epoch} was given out twice", write.name)
        last = max(self.given, default=0)
        must(epoch > last, "C7", f"epoch {epoch} was given out after epoch {last}", write.name)
        self.given[epoch] = Given(self.life, write, self.now_us)
        self.note(f"epoch {epoch} for {write.name}")

    def acknowledge(self, write: Write, epoch: int) -> None:
        """Note that a client was told that a write is flushed."""
        key = (write.producer, write.sequence)
        before = self.acknowledged.get(key)
        if before is not None:
            what = f"{write.name} was acknowledged as epoch {before.epoch}, and later as epoch {epoch}"
            must(before.epoch == epoch, "Q2", what, write.name)
            return
        self.acknowledged[key] = Acknowledged(write, epoch)
        self.note(f"{write.name} is flushed as epoch {epoch}")

    def give_back(self, write: Write, epoch: int) -> None:
        """Note that a client was told that nothing of a write was written; it may have had an epoch already."""
        if epoch:
            self.given_back.add(epoch)
        self.note(f"{write.name} (epoch {epoch}) is given back: nothing of it was written")

    def around(self, violation: ViolationError) -> list[str]:
        """The last events, and before them those that name the subject of the violation."""
        cut = max(0, len(self.events) - SHOWN_EVENTS)
        words = {word for word in (violation.about, *_names(violation.what)) if word}
        earlier = [event for event in self.events[:cut] if any(word in event.what.split() for word in words)]
        return [str(event) for event in [*earlier[-SHOWN_EVENTS:], *self.events[cut:]]]


def _names(text: str) -> list[str]:
    """Words that name a write."""
    return [word.strip(",.()") for word in text.split() if "#" in word]
