"""How fast producers should send: all together, and each of them (A4).

Belongs here: the steps of the rate, which go down at once and come up smoothed, and the pace that follows for each
producer. Those that want more than there is get the same: who shouts loudest gets no more than the others.
"""

from collections.abc import Iterable
from math import inf
from typing import NamedTuple

# By how full the shard is: much above, above, and below which there is room again.
FULL, FILLING, ROOMY = 0.9, 0.7, 0.3
HALVED, EASED, RAISED = 0.5, 0.9, 0.1  # the last as a part of the maximum
# Of the way up to its target the rate goes so much with each step, so that a queue that was empty for a moment does
# not let everybody in at once.
SMOOTHING = 0.5
NEARLY_ALL = 0.99
# Who uses this much of its pace would use more; others are left some room to grow.
HUNGRY, HEADROOM = 0.9, 1.25
# The part of the last step in what a producer is thought to use: about ten steps are remembered.
MEMORY = 0.2
SECOND_US = 1_000_000


class Limits(NamedTuple):
    """Deltas a second, all producers together."""

    least: float
    most: float


class Rates(NamedTuple):
    """What is aimed at, and what is given."""

    target: float
    given: float


def stepped(rates: Rates, fullness: float, observed: float, limits: Limits) -> Rates:
    """The rates after one step. `observed` is what came in a second since the last step.

    Coming down from the maximum, which is more than any shard takes, starts at what really comes.
    """
    if fullness > FILLING:
        start = rates.given if rates.given < limits.most else min(rates.given, max(observed, limits.least))
        given = max(start * (HALVED if fullness > FULL else EASED), limits.least)
        return Rates(given, given)
    target = min(rates.target + RAISED * limits.most, limits.most) if fullness < ROOMY else rates.target
    given = rates.given + SMOOTHING * (target - rates.given)
    return Rates(target, limits.most if given >= NEARLY_ALL * limits.most else given)


def level(total: float, wanted: Iterable[float]) -> float:
    """The pace at which all together send `total`, given what each wants (`inf`: more than it gets).

    It is the same for everybody: who wants less does not reach it, and what is left so is for the others.
    """
    left, highest = total, 0.0
    waiting = sorted(wanted)
    for served, want in enumerate(waiting):
        equal = left / (len(waiting) - served)
        if want > equal:
            return equal
        left, highest = left - want, want
    return highest + left


class Sender(NamedTuple):
    """What is remembered of a producer's pace."""

    at_us: int  # of its last write
    pace: float = inf  # deltas a second
    tokens: float = 0.0  # deltas; below 0 it is ahead of its pace
    sent: int = 0  # deltas since the last step
    used: float = 0.0  # deltas a second, over the last steps
    delta_bytes: float = 0.0  # of its last write


def arrived(sender: Sender, deltas: int, size: int, burst_s: float, now_us: int) -> tuple[Sender, int]:
    """The sender after a write, and for how many microseconds nothing more should be read from it."""
    delta_bytes = size / deltas if deltas else sender.delta_bytes
    sent = sender.sent + deltas
    if sender.pace == inf:
        return sender._replace(at_us=now_us, tokens=0.0, sent=sent, delta_bytes=delta_bytes), 0
    grown = sender.tokens + max(now_us - sender.at_us, 0) / SECOND_US * sender.pace
    tokens = min(grown, burst_s * sender.pace) - deltas
    pause_us = max(0, round(-tokens / sender.pace * SECOND_US))
    return sender._replace(at_us=now_us, tokens=tokens, sent=sent, delta_bytes=delta_bytes), pause_us


def wanted(sender: Sender, elapsed_us: int) -> float:
    """What a producer would send, as far as can be seen."""
    now = sender.sent * SECOND_US / elapsed_us
    is_hungry = sender.pace == inf or now >= HUNGRY * sender.pace or sender.tokens < 0
    return inf if is_hungry else HEADROOM * max(sender.used, now)


def begun(sender: Sender, pace: float, elapsed_us: int) -> Sender:
    """The sender at the beginning of a step, with its new pace."""
    used = sender.used + MEMORY * (sender.sent * SECOND_US / elapsed_us - sender.used)
    return sender._replace(pace=pace, sent=0, used=used)
