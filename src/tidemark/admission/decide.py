"""Whether a write is let in: one function of state, write and time (A1).

Belongs here: the order of questions (what was agreed with the stream, then who makes room, then whether its class has
its share already), and the answer with everything that follows from it. A decision counts each delta of the write once,
as admitted or as turned away, so the account holds by construction. It changes nothing: `applied` gives the state that
follows. Whether the shard itself has room is asked afterwards, by the shard (C8): what it gives back is `returned`.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tidemark.admission.arriving import Arriving, Load, Stream, Turned
from tidemark.admission.shares import ClassKey, Held, exceeded, guaranteed
from tidemark.admission.shedder import Patience, Shedder, looked_at, seen, sheds
from tidemark.admission.sla import Breach, Sla, StreamState, after, agreed, breach, in_seconds
from tidemark.model.admission_settings import AdmissionSettings, Policy

# Whoever has its share may come again when the next group is on the disk.
ROOM_RETRY_US = 50_000
NOTHING: Mapping[Any, Any] = {}
# Why a write is turned away, if several things speak against it.
_FIRST = {reason: place for place, reason in enumerate((Turned.LAG, Turned.JITTER, Turned.RATE))}


class Rules(NamedTuple):
    """What the settings say."""

    agreed: Mapping[Stream, Sla]
    shares: Mapping[ClassKey, float]
    patience: Patience

    @classmethod
    def of(cls, settings: AdmissionSettings) -> "Rules":
        """The rules of these settings."""
        patience = Patience(settings.queue_target_ms * 1_000, settings.queue_interval_ms * 1_000)
        return cls(agreed(settings), guaranteed(settings), patience)


class State(NamedTuple):
    """Everything that a decision depends on besides the write and the time.

    A stream that has not sent yet began with nothing when the gate did: after a restart nobody has anything saved up.
    """

    rules: Rules
    since_us: int
    load: Load = Load()
    streams: Mapping[Stream, StreamState] = {}
    held: Mapping[ClassKey, Held] = {}
    shedder: Shedder = Shedder()

    def stream(self, stream: Stream) -> StreamState:
        """What is remembered of a stream."""
        return self.streams.get(stream) or StreamState(tokens=0, at_us=self.since_us)


class Decision(NamedTuple):
    """The answer to a write."""

    admitted: int  # deltas; either these or the turned-away ones are all deltas of the write
    turned_away: int
    streams: Mapping[Stream, StreamState]  # those that have changed
    held: Mapping[ClassKey, Held]  # what the write takes of each class's share until it is flushed
    shedder: Shedder
    reason: Turned | None = None  # None: it was let in
    message: str = ""
    retry_after_us: int | None = None
    is_final: bool = False  # the same write must not come again

    @property
    def is_admitted(self) -> bool:
        """Whether the write was let in."""
        return self.reason is None

    @property
    def received(self) -> int:
        """All deltas of the write."""
        return self.admitted + self.turned_away

    @property
    def retry_after_ms(self) -> int | None:
        """When it may come again, so that it is not a moment too early."""
        return None if self.retry_after_us is None else -(-self.retry_after_us // 1_000)


def decide(state: State, write: Arriving, now_us: int) -> Decision:
    """Whether a write is let in at this time."""
    rules, deltas = state.rules, write.deltas
    shedder = seen(state.shedder, rules.patience, write.priority, now_us)
    shedder = looked_at(shedder, rules.patience, state.load.waited_us, now_us)
    if not rules.agreed and shedder.above_since_us is None:  # as in most homes, most of the time
        return Decision(deltas, 0, NOTHING, NOTHING, shedder)
    limited = _limited(rules, write)
    refusal = (
        (limited and _breach(state, write, limited, now_us))
        or _shed(rules, shedder, write, limited, now_us)
        or _has_its_share(state, write)
    )
    streams = {
        stream: after(sla, state.stream(stream), write.parts[stream], now_us, is_admitted=not refusal)
        for stream, sla in limited.items()
    }
    if not refusal:
        return Decision(deltas, 0, streams, _held(rules, write), shedder)
    found, is_final = refusal
    return Decision(
        admitted=0,
        turned_away=deltas,
        streams=streams,
        held={},
        shedder=shedder,
        reason=found.reason,
        message=f"{found.message} {_advice(found.retry_after_us, is_final)}",
        retry_after_us=None if is_final else found.retry_after_us,
        is_final=is_final,
    )


def applied(state: State, decision: Decision) -> State:
    """The state after a decision."""
    streams, held = state.streams, state.held
    if not decision.streams and not decision.held and decision.shedder is state.shedder:
        return state
    if decision.streams:
        streams = {**streams, **decision.streams}
    if decision.held:
        held = {**held, **{name: held.get(name, Held()).plus(more) for name, more in decision.held.items()}}
    return state._replace(streams=streams, held=held, shedder=decision.shedder)


def released(state: State, decision: Decision) -> State:
    """The state after a write that was let in has left: it is on the disk, or its shard has given it back."""
    held = dict(state.held)
    for name, less in decision.held.items():
        held[name] = held[name].minus(less)
    return state._replace(held=held)


def returned(state: State, write: Arriving, decision: Decision) -> State:
    """The state after a shard had no room for a write that was let in: it has taken no tokens and no room."""
    streams = dict(state.streams)
    for stream in decision.streams:
        sla, before = state.rules.agreed[stream], state.stream(stream)
        tokens = min(before.tokens + write.parts[stream].deltas * sla.token_cost, sla.burst) if sla.rate else 0
        streams[stream] = before._replace(tokens=tokens)
    return released(state, decision)._replace(streams=streams)


def _limited(rules: Rules, write: Arriving) -> dict[Stream, Sla]:
    """The streams of a write with which something was agreed."""
    if not rules.agreed:
        return {}
    return {
        stream: sla for stream in write.parts if (sla := rules.agreed.get(stream)) and sla.policy is not Policy.BYPASS
    }


def _breach(state: State, write: Arriving, limited: Mapping[Stream, Sla], now_us: int) -> tuple[Breach, bool] | None:
    """What speaks most against the write in the agreements with its streams, and whether that is final."""
    found = [
        (each, sla.policy)
        for stream, sla in limited.items()
        if (each := breach(sla, stream, state.stream(stream), write.parts[stream], write.source, now_us)) is not None
    ]
    if not found:
        return None
    worst, _ = min(found, key=lambda item: _FIRST[item[0].reason])
    retries = [each.retry_after_us for each, _ in found]
    is_final = None in retries or any(policy is Policy.STRICT for _, policy in found)
    return worst._replace(retry_after_us=max((each for each in retries if each is not None), default=None)), is_final


def _shed(
    rules: Rules, shedder: Shedder, write: Arriving, limited: Mapping[Stream, Sla], now_us: int
) -> tuple[Breach, bool] | None:
    if not sheds(shedder, rules.patience, write.priority, now_us) or _is_bypassed(rules, write):
        return None
    is_strict = bool(limited) and all(sla.policy is Policy.STRICT for sla in limited.values())
    message = (
        f"Writes wait for the disk for longer than {in_seconds(rules.patience.target_us)}, so those of priority "
        f"{write.priority.value} make room for higher ones."
    )
    return Breach(Turned.SHED, message, rules.patience.interval_us), is_strict


def _has_its_share(state: State, write: Arriving) -> tuple[Breach, bool] | None:
    """Whether a class has its share and there is nothing to lend. It is never so for long, so it is never final."""
    rules = state.rules
    wanted = _held(rules, write)
    for name in exceeded(rules.shares, state.held, wanted, state.load) if wanted else ():
        who = f"class {name}" if name is not None else "streams without a class"
        what = f"There is nothing to lend, and {who} has its share of {rules.shares[name]:.0%} of the room already."
        return Breach(Turned.BACKPRESSURE, what, ROOM_RETRY_US), False
    return None


def _held(rules: Rules, write: Arriving) -> dict[ClassKey, Held]:
    """What a write takes of each class's share; nothing is counted where nothing was agreed, or for a bypass."""
    held: dict[ClassKey, Held] = {}
    if not rules.agreed:
        return held
    for stream, part in write.parts.items():
        sla = rules.agreed.get(stream)
        if sla is None or sla.policy is not Policy.BYPASS:
            name = sla.class_name if sla else None
            held[name] = held.get(name, Held()).plus(Held(part.deltas, part.bytes))
    return held


def _is_bypassed(rules: Rules, write: Arriving) -> bool:
    return bool(write.parts) and all(
        (sla := rules.agreed.get(stream)) is not None and sla.policy is Policy.BYPASS for stream in write.parts
    )


def _advice(retry_after_us: int | None, is_final: bool) -> str:
    if is_final or retry_after_us is None:
        return "It was turned away for good: go on with the next one."
    return f"Send it again in {in_seconds(retry_after_us)}." if retry_after_us else "Send it again at once."
