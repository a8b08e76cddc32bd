"""The gate of a platform: owns what is remembered between writes, and counts what it turns away (A1 to A4).

Belongs here: the order of calls. Everything is decided by functions of the other modules; the gate keeps the state that
they return. It has no lock: the one thread of a server calls it. Time is passed in, in microseconds.
"""

from collections.abc import Iterable, Mapping
from math import inf, isclose
from typing import NamedTuple

from tidemark.admission.arriving import Arriving, Load, Turned
from tidemark.admission.counting import Counting
from tidemark.admission.decide import Decision, Rules, State, applied, decide, released, returned
from tidemark.admission.pacing import SECOND_US, Limits, Rates, Sender, arrived, begun, level, stepped, wanted
from tidemark.admission.shedder import looked_at
from tidemark.model.admission_settings import AdmissionSettings
from tidemark.model.turned_away import MOST_PRODUCERS, Tally

# Who has sent nothing for this long no longer has a part of the rate.
SILENT_US = 5_000_000
# A pace is told again when it has changed by more than this.
TOLD_AGAIN = 0.05
# A window is what is sent in so many steps, and never less than a few small frames.
WINDOW_STEPS = 2
LEAST_WINDOW = 64 * 1024


class Pace(NamedTuple):
    """What a producer is told: the content of a backpressure frame."""

    rate: float | None  # deltas a second; None: as fast as it likes
    window: int  # bytes that may be sent and not acknowledged
    retry_after_ms: int
    reason: str


class Totals(NamedTuple):
    """What came to the gate since it was made; received is always the sum of the other two."""

    received: int = 0
    admitted: int = 0
    turned_away: int = 0


class Note(NamedTuple):
    """What the log is to be told: what was turned away from one time up to another."""

    tally: Tally
    from_us: int
    to_us: int


class Gate:
    """Lets writes in, or turns them away and counts them."""

    def __init__(self, settings: AdmissionSettings, now_us: int, window: int) -> None:
        """`window` is what a producer may send unacknowledged while nothing slows it down."""
        self._settings, self._window = settings, window
        self._limits = Limits(settings.min_rate, settings.max_rate)
        self._rates = Rates(settings.max_rate, settings.max_rate)
        self._senders: dict[str, Sender] = {}
        self._told: dict[str, float] = {}
        self._stepped_us = self._noted_us = now_us
        self._counting = Counting()
        self._inside: dict[int, Decision] = {}  # let in, and counted in a share until they are done
        self.state = State(Rules.of(settings), since_us=now_us)
        self.totals = Totals()

    @property
    def rate(self) -> float | None:
        """What all producers together may send, in deltas a second; None: as much as they like."""
        return None if self._rates.given >= self._limits.most else self._rates.given

    def admit(self, write: Arriving, load: Load, now_us: int) -> Decision:
        """Decide on a write that is new: no retry, and the next number of its producer.

        One that was let in is to be passed to `done` when it is on the disk or lost, or to `give_back` if the shard had
        no room for it after all.
        """
        decision = decide(self.state._replace(load=load), write, now_us)
        self.state = applied(self.state, decision)
        if decision.held:
            self._inside[id(decision)] = decision
        if decision.reason is not None:
            self._counting.add(decision.reason, write.producer, decision.turned_away, write.ids)
        received, admitted, turned_away = self.totals
        self.totals = Totals(
            received + decision.received, admitted + decision.admitted, turned_away + decision.turned_away
        )
        return decision

    def pause_us(self, write: Arriving, now_us: int) -> int:
        """For how long nothing more should be read from this producer, which has sent this.

        Call it once for every write, let in or not. 0 for whoever keeps to its pace: only those who ignore what they
        were told are not listened to for a while.
        """
        step_s = self._settings.step_ms / 1_000
        before = self._senders.get(write.producer, Sender(at_us=now_us))
        self._senders[write.producer], pause_us = arrived(before, write.deltas, write.bytes, step_s, now_us)
        return pause_us

    def done(self, decision: Decision) -> None:
        """A write that was let in is on the disk, or was lost with its shard. To say so again changes nothing."""
        if self._inside.pop(id(decision), None) is not None:
            self.state = released(self.state, decision)

    def give_back(self, write: Arriving, decision: Decision, deltas: int | None = None) -> None:
        """A shard had no room for a write that was let in: it counts as turned away, and has cost nothing.

        Where some shards have taken their part, `deltas` is how many were given back by the others; those that were
        taken have been paid for.
        """
        back = decision.admitted if deltas is None else deltas
        if back < decision.admitted:
            self.done(decision)
        else:
            self._inside.pop(id(decision), None)
            self.state = returned(self.state, write, decision)
        self._counting.add(Turned.BACKPRESSURE, write.producer, back, write.ids)
        received, admitted, turned_away = self.totals
        self.totals = Totals(received, admitted - back, turned_away + back)

    def turn_away(self, reason: Turned, producer: str, deltas: int, ids: Iterable[str] = ()) -> None:
        """Count deltas that a door has turned away before asking the gate: of senders that may not send them."""
        self._counting.add(reason, producer, deltas, ids)
        received, admitted, turned_away = self.totals
        self.totals = Totals(received + deltas, admitted, turned_away + deltas)

    def step(self, load: Load, now_us: int) -> Mapping[str, Pace]:
        """Follow the load, and say which producers are to be told another pace. Call it about every `step_ms`."""
        elapsed_us = now_us - self._stepped_us
        if elapsed_us < self._settings.step_ms * 1_000:
            return {}
        self._stepped_us = now_us
        state = self.state
        self.state = state._replace(shedder=looked_at(state.shedder, state.rules.patience, load.waited_us, now_us))
        observed = sum(each.sent for each in self._senders.values()) * SECOND_US / elapsed_us
        self._rates = stepped(self._rates, load.fullness, observed, self._limits)
        self._share_out(elapsed_us, now_us)
        return self._changed(load)

    def take_turned_away(self, now_us: int) -> Note:
        """What was turned away since this was last called, for the log. Also if it is nothing: then that is known."""
        note = Note(self._counting.take(MOST_PRODUCERS), self._noted_us, max(now_us, self._noted_us))
        self._noted_us = note.to_us
        return note

    def _share_out(self, elapsed_us: int, now_us: int) -> None:
        """Give each producer its pace, and begin a new step."""
        silent_us = now_us - SILENT_US
        senders = {name: sender for name, sender in self._senders.items() if sender.at_us >= silent_us}
        pace = inf if self.rate is None else level(self.rate, [wanted(each, elapsed_us) for each in senders.values()])
        self._senders = {name: begun(sender, pace, elapsed_us) for name, sender in senders.items()}

    def _changed(self, load: Load) -> dict[str, Pace]:
        paces: dict[str, Pace] = {}
        told: dict[str, float] = {}
        for name, sender in self._senders.items():
            before = told[name] = self._told.get(name, inf)
            if not isclose(sender.pace, before, rel_tol=TOLD_AGAIN):
                paces[name], told[name] = self._pace(sender, load), sender.pace
        self._told = told
        return paces

    def _pace(self, sender: Sender, load: Load) -> Pace:
        if sender.pace == inf:
            return Pace(None, self._window, 0, "there is room again")
        window = WINDOW_STEPS * self._settings.step_ms / 1_000 * sender.pace * sender.delta_bytes
        return Pace(
            rate=sender.pace,
            window=min(self._window, max(LEAST_WINDOW, round(window))),
            retry_after_ms=max(0, round(-sender.tokens / sender.pace * 1_000)),
            reason=f"the shard is {load.fullness:.0%} full",
        )
