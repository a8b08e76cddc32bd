"""What was agreed with a stream, and whether a write keeps to it: lag, jitter and rate (A2).

Belongs here: the agreement as numbers, the debt bucket, and the sentence for a write that goes beyond. Everything is in
whole numbers, so that the configured rate is the enforced rate over any time.

The bucket goes into debt: a write is let in while there are tokens at all, then its whole cost is taken. So a write
larger than the burst gets through, and its sender waits until the debt is paid.
"""

from typing import NamedTuple

from msgspec.structs import replace

from tidemark.admission.arriving import Part, Stream, Turned
from tidemark.model.admission_settings import OFF, AdmissionSettings, ClassName, ClassSettings, Policy, StreamSettings
from tidemark.model.deltas import Source

# Tokens are counted in trillionths: a millionth of a token a second is one of these in a microsecond.
TOKEN = 1_000_000_000_000
MILLION = 1_000_000
NOTHING_AGREED = ClassSettings(rate=0.0, burst=OFF, lag_ms=OFF, share=0.0)
# What a stream may have of its own.
TERMS = ("rate", "burst", "lag_ms", "jitter_ms", "token_cost", "policy")
# Their events are of another time, and they come when they come.
EXEMPT = frozenset({Source.IMPORT, Source.REPLICA})


class Sla(NamedTuple):
    """What was agreed with one stream; 0 where nothing was."""

    policy: Policy
    class_name: ClassName | None
    rate: int  # millionths of a token a second
    burst: int  # trillionths of a token
    token_cost: int  # of a delta, in trillionths of a token
    lag_us: int
    jitter_us: int


class StreamState(NamedTuple):
    """What is remembered of a stream."""

    tokens: int  # trillionths; below 0 it is in debt
    at_us: int
    arrived_us: int | None = None  # the last write, let in or not


class Breach(NamedTuple):
    """Why a write goes beyond what was agreed."""

    reason: Turned
    message: str
    retry_after_us: int | None  # None: the same write never fits again


def agreed(settings: AdmissionSettings) -> dict[Stream, Sla]:
    """The agreements that the settings make."""
    found: dict[Stream, Sla] = {}
    for name, stream in settings.streams.items():
        namespace, _, kind = name.partition("/")
        found[namespace, kind] = _agreed(settings, stream)
    return found


def _agreed(settings: AdmissionSettings, stream: StreamSettings) -> Sla:
    """A stream's own values, else those of its class, else none."""
    of_class: ClassSettings = getattr(settings.classes, stream.class_) if stream.class_ else NOTHING_AGREED
    own = {name: value for name in TERMS if (value := getattr(stream, name)) is not None}
    terms = replace(of_class, **own)
    rate = round(terms.rate * MILLION) or 1 if terms.rate else OFF
    return Sla(
        policy=terms.policy,
        class_name=stream.class_,
        rate=rate,
        # Without a burst of its own a second's worth, which no steady sender feels, and at least one delta.
        burst=terms.burst * TOKEN or max(rate * MILLION, TOKEN),
        token_cost=round(terms.token_cost * TOKEN),
        lag_us=terms.lag_ms * 1_000,
        jitter_us=terms.jitter_ms * 1_000,
    )


def refilled(sla: Sla, state: StreamState, now_us: int) -> int:
    """The tokens there are now."""
    return min(state.tokens + max(now_us - state.at_us, 0) * sla.rate, sla.burst)


def breach(sla: Sla, stream: Stream, state: StreamState, part: Part, source: Source, now_us: int) -> Breach | None:
    """Why a part of a write goes beyond what was agreed with its stream; None if it does not."""
    if source not in EXEMPT:
        found = _lag(sla, stream, part, now_us) or _jitter(sla, stream, state, now_us)
        if found is not None:
            return found
    return _rate(sla, stream, state, now_us)


def after(sla: Sla, state: StreamState, part: Part, now_us: int, *, is_admitted: bool) -> StreamState:
    """What is remembered after a write arrived. Tokens are taken only from one that was let in."""
    tokens = state.tokens
    if sla.rate:
        tokens = refilled(sla, state, now_us) - (part.deltas * sla.token_cost if is_admitted else 0)
    return StreamState(tokens, max(now_us, state.at_us), now_us)


def _lag(sla: Sla, stream: Stream, part: Part, now_us: int) -> Breach | None:
    if not sla.lag_us or part.oldest_us is None or part.newest_us is None:
        return None
    behind_us, ahead_us = now_us - part.oldest_us, part.newest_us - now_us
    if behind_us > sla.lag_us:
        # It only gets older, so it can never be let in.
        return Breach(Turned.LAG, _lag_message(sla, stream, behind_us, "behind"), None)
    if ahead_us > sla.lag_us:
        return Breach(Turned.LAG, _lag_message(sla, stream, ahead_us, "ahead of"), ahead_us - sla.lag_us)
    return None


def _lag_message(sla: Sla, stream: Stream, by_us: int, where: str) -> str:
    return (
        f"{_named(sla, stream)} takes events within {in_seconds(sla.lag_us)} of the clock, and this write has one "
        f"{in_seconds(by_us)} {where} it: {in_seconds(by_us - sla.lag_us)} too far. Send it sooner, check the clock of "
        'the producer, or send old data with source "import".'
    )


def _jitter(sla: Sla, stream: Stream, state: StreamState, now_us: int) -> Breach | None:
    if not sla.jitter_us or state.arrived_us is None or now_us - state.arrived_us <= sla.jitter_us:
        return None
    return Breach(
        Turned.JITTER,
        f"{_named(sla, stream)} is to be heard of every {in_seconds(sla.jitter_us)}, and the last write came "
        f"{in_seconds(now_us - state.arrived_us)} ago. The next one is in time again.",
        0,
    )


def _rate(sla: Sla, stream: Stream, state: StreamState, now_us: int) -> Breach | None:
    if not sla.rate or (tokens := refilled(sla, state, now_us)) > 0:
        return None
    retry_after_us = -tokens // sla.rate + 1  # then there is something in it, however little
    return Breach(
        Turned.RATE,
        f"{_named(sla, stream)} takes {sla.rate / sla.token_cost * MILLION:,.6g} deltas a second, and more than that "
        "have come.",
        retry_after_us,
    )


def _named(sla: Sla, stream: Stream) -> str:
    return "/".join(stream) + (f" (class {sla.class_name.value})" if sla.class_name else "")


def in_seconds(duration_us: int) -> str:
    """A duration as people read it."""
    return f"{duration_us / MILLION:,.3f}".rstrip("0").rstrip(".") + " s" if duration_us >= 1_000 else "1 ms"
