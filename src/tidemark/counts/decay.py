"""Exponential decay of counts, in whole numbers (R4).

Belongs here: the exact value of a decayed score, as arithmetic on integers; used by the lake's transformation and by
its tests. Does not belong here: any table, any engine.

A score is a sum over buckets: the bucket's count times a weight that depends only on the bucket's age. Ages are
counted in whole steps of the grid (minutes, hours or days, by the half-life); the running step has age 0. Weights are
whole numbers of 2^-32, cut down, not rounded: so the sum is of integers, the same for every order, engine and number
of tasks, and buckets older than 32 half-lives weigh exactly nothing, not almost nothing. Only the last step makes a
float of it.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Context, Decimal
from functools import cache

from tidemark.counts.windows import Span, on_a_minute, pieces
from tidemark.model.errors import ConfigurationError
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US
from tidemark.tables.tiers import Tier

# A weight of 1 is 2^32: nine digits, which is more than any use of a score, and 2^63 times it fits a decimal of 38.
ONE_BITS = 32
ONE = 1 << ONE_BITS
# Ages are counted in steps of at most a 24th of the half-life: no weight is more than 3 % above that of the exact age.
STEPS_PER_HALF_LIFE = 24

_UNITS_US = {"m": MINUTE_US, "h": HOUR_US, "d": DAY_US}
# Far more digits than needed to tell 2^(32 - r/n) from a whole number, for any number of steps.
_EXACT = Context(prec=80)


@dataclass(frozen=True)
class HalfLife:
    """A half-life as configured (`1h`, `7d`), and the grid on which ages are counted for it."""

    name: str
    length_us: int
    step: Tier

    @property
    def steps(self) -> int:
        """The number of steps in a half-life."""
        return self.length_us // self.step.width_us

    def age(self, bucket_us: int, as_of_us: int) -> int:
        """Whole steps from the step of the bucket to the step of the last time before `as_of`."""
        return (self.end_us(as_of_us) - 1 - bucket_us) // self.step.width_us

    def end_us(self, as_of_us: int) -> int:
        """End of the running step: the one with the last time before `as_of`."""
        return self.step.ceil(as_of_us)

    def weight(self, age: int) -> int:
        """The weight of a bucket of that age, in 2^-32: `floor(2^(32 - age / steps))`."""
        halvings, rest = divmod(age, self.steps)
        return fractions(self.steps)[rest] >> halvings

    def spans(self, as_of_us: int) -> Iterable[tuple[Tier, Span]]:
        """The buckets with a weight as of a time: whole steps, and finer ones at the edge of the running step."""
        on_a_minute(as_of_us)
        whole_until_us = self.step.floor(as_of_us)
        start_us = self.end_us(as_of_us) - (ONE_BITS * self.steps + 1) * self.step.width_us
        yield self.step, Span(start_us, whole_until_us)
        yield from pieces(whole_until_us, as_of_us).by_tier()


@cache
def fractions(steps: int) -> tuple[int, ...]:
    """The weights of the first half-life, age by age; every older one is one of them, halved."""
    two = Decimal(2)
    return tuple(
        int(_EXACT.multiply(Decimal(ONE), _EXACT.power(two, _EXACT.divide(Decimal(-age), Decimal(steps)))))
        if age
        else ONE
        for age in range(steps)
    )


def half_life(name: str) -> HalfLife:
    """A half-life by its name: a number and a unit, `m`, `h` or `d`."""
    number, unit_us = name[:-1], _UNITS_US.get(name[-1:])
    if unit_us is None or not number.isdecimal() or int(number) == 0:
        raise ConfigurationError(f"{name!r} is no half-life. Write a number and a unit, m, h or d: '90m', '1h', '7d'.")
    length_us = int(number) * unit_us
    fitting = (tier for tier in (Tier.DAY, Tier.HOUR) if length_us >= STEPS_PER_HALF_LIFE * tier.width_us)
    step = next(fitting, Tier.MINUTE)
    if length_us % step.width_us:
        raise ConfigurationError(f"The half-life {name!r} is not made of whole {step}s. Write it in {step}s.")
    return HalfLife(name, length_us, step)
