"""How long a batch may gather: the observed rate, the measured cost of delivering, and the limit from both (C12).

Belongs here: arithmetic over counts and a clock that is passed in; the same calls give the same answers.
Does not belong here: what a batch contains and what else closes one (`batching.py`).

The rule. A batch gathers until its time limit, `target ÷ rate`, within [min, max]. The target is the configured number
of writes, changed by what deliveries cost. A delivery of `w` writes takes about `fixed + w · per_write` seconds, fitted
to the last deliveries:

- deliveries come at most so often that the fixed part takes a tenth of the time (the target rises), and
- no batch is so large that delivering it takes longer than the maximum limit (the target falls).

Every part of it falls or stays as the rate rises, so the limit does too.
"""

from collections import deque
from typing import NamedTuple

from tidemark.model.settings import BatchSettings
from tidemark.model.timegrid import SECOND_US

# As long as the longest batch gathers by default: a burst is seen at once, and a gap between two bursts does not count
# as the end of them.
RATE_WINDOW_US = 5 * SECOND_US
# The rate ages in steps of a fiftieth: finer than any decision that depends on it.
RATE_STEPS = 50
RATE_STEP_US = RATE_WINDOW_US // RATE_STEPS
# Enough deliveries to tell the fixed part from the rest, few enough to follow a subscriber that became slow.
COST_DELIVERIES = 32
# A subscriber that left a minute ago says nothing about those that remain.
COST_AGE_US = 60 * SECOND_US
# The share of the time that the fixed part of deliveries may take.
FIXED_SHARE = 0.1


class Rates(NamedTuple):
    """Arrivals per second."""

    writes: float
    deltas: float


class Cost(NamedTuple):
    """The time of a delivery: a fixed part, and a part for each write in it."""

    fixed_seconds: float
    seconds_per_write: float


class Limits(NamedTuple):
    """The result of the adaptive rule at one time, with all its inputs."""

    writes_per_second: float
    deltas_per_second: float
    fixed_seconds: float
    seconds_per_write: float
    target_writes: float
    limit_us: int


class RateMonitor:
    """Arrivals over the last few seconds. It ages by the clock: silence lowers the rate without any arrival.

    Memory is one entry for each step of the window. When the clock is set back, no time has passed, and time goes on
    from there: nothing waits until the clock is where it was.
    """

    def __init__(self) -> None:
        self._counts: deque[list[int]] = deque()  # [step, writes, deltas], oldest first, at most one for each step
        self._writes = self._deltas = 0
        self._now_us = 0

    def add(self, writes: int, deltas: int, now_us: int) -> None:
        """Count arrivals at this time."""
        step = self._age(now_us)
        if not self._counts or self._counts[-1][0] != step:
            self._counts.append([step, 0, 0])
        last = self._counts[-1]
        last[1] += writes
        last[2] += deltas
        self._writes += writes
        self._deltas += deltas

    def rates(self, now_us: int) -> Rates:
        """Arrivals per second within the window before now."""
        self._age(now_us)
        seconds = RATE_WINDOW_US / SECOND_US
        return Rates(self._writes / seconds, self._deltas / seconds)

    def _age(self, now_us: int) -> int:
        step = now_us // RATE_STEP_US
        if now_us < self._now_us:
            back = self._now_us // RATE_STEP_US - step
            for counts in self._counts:
                counts[0] -= back
        self._now_us = now_us
        while self._counts and self._counts[0][0] <= step - RATE_STEPS:
            _, writes, deltas = self._counts.popleft()
            self._writes -= writes
            self._deltas -= deltas
        return step


class CostMemory:
    """How long the last deliveries took, by their size."""

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int, float]] = deque(maxlen=COST_DELIVERIES)  # when, writes, seconds
        self._oldest_us = 0
        self._cost: Cost | None = None  # of the remembered deliveries; None when they have changed

    def add(self, writes: int, seconds: float, at_us: int) -> None:
        """Remember how long a batch of so many writes, closed at that time, took to deliver."""
        self._seen.append((at_us, writes, max(seconds, 0.0)))
        self._cost = None

    def cost(self, now_us: int) -> Cost:
        """The line through the remembered deliveries (least squares), with neither part below zero.

        Deliveries of one size do not tell the parts apart. Then all of it counts as fixed: batches grow, and the
        larger ones tell.
        """
        if self._cost is None or self._oldest_us < now_us - COST_AGE_US:
            recent = [entry for entry in self._seen if entry[0] >= now_us - COST_AGE_US]
            self._seen = deque(recent, maxlen=self._seen.maxlen)
            self._oldest_us = min((at_us for at_us, _, _ in recent), default=now_us)
            self._cost = self._fit()
        return self._cost

    def _fit(self) -> Cost:
        seen = [(writes, seconds) for _, writes, seconds in self._seen]
        if not seen:
            return Cost(0.0, 0.0)
        least = min(seconds for _, seconds in seen)
        mean_writes = sum(writes for writes, _ in seen) / len(seen)
        mean_seconds = sum(seconds for _, seconds in seen) / len(seen)
        spread = sum((writes - mean_writes) ** 2 for writes, _ in seen)
        if not spread:
            return Cost(least, 0.0)
        together = sum((writes - mean_writes) * (seconds - mean_seconds) for writes, seconds in seen)
        per_write = max(together / spread, 0.0)
        return Cost(min(max(mean_seconds - per_write * mean_writes, 0.0), least), per_write)


class AdaptiveLimit:
    """The time limit of a batch, from rate and cost, within the configured bounds."""

    def __init__(self, settings: BatchSettings) -> None:
        self._settings = settings
        self._min_us, self._max_us = settings.min_ms * 1_000, settings.max_ms * 1_000
        self.rate = RateMonitor()
        self.memory = CostMemory()

    def limits(self, now_us: int) -> Limits:
        """The limits that hold now."""
        return self.rule(self.rate.rates(now_us), self.memory.cost(now_us))

    def rule(self, rates: Rates, cost: Cost) -> Limits:
        """The limit that follows from these rates and this cost."""
        # In times and not in writes ÷ rate: so no rounding can make the limit of a higher rate the longer one.
        longest = self._max_us / SECOND_US
        target, seconds = float(self._settings.target_writes), longest
        if rates.writes:
            apart = cost.fixed_seconds / FIXED_SHARE
            target, seconds = max(target, rates.writes * apart), max(target / rates.writes, apart)
        if cost.seconds_per_write:
            most = max((longest - cost.fixed_seconds) / cost.seconds_per_write, 1.0)
            target, seconds = min(target, most), min(seconds, most / rates.writes if rates.writes else longest)
        limit_us = round(min(max(seconds * SECOND_US, self._min_us), self._max_us))
        return Limits(*rates, *cost, target, limit_us)

    def effective_rate(self, rates: Rates) -> float:
        """The rate, bounded to where it makes a difference: beyond that, the limit is at one of its ends."""
        target = self._settings.target_writes * SECOND_US
        return min(max(rates.writes, target / self._max_us), target / self._min_us)
