"""Decayed scores (R4): weights are whole numbers that depend on nothing but the age."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.counts.decay import ONE, ONE_BITS, fractions, half_life
from tidemark.model.errors import ConfigurationError
from tidemark.model.timegrid import HOUR_US, MINUTE_US
from tidemark.tables.tiers import Tier

NAMES = ("1m", "90m", "1h", "1d", "36h", "7d", "30d", "365d")
MINUTES = st.integers(-(10**8), 10**8).map(lambda minute: minute * MINUTE_US)


@pytest.mark.parametrize(
    ("name", "step"), [("1h", Tier.MINUTE), ("1d", Tier.HOUR), ("7d", Tier.HOUR), ("24d", Tier.DAY)]
)
def test_ages_are_counted_on_the_coarsest_grid_that_cuts_a_half_life_into_24(name: str, step: Tier) -> None:
    assert half_life(name).step is step
    assert half_life(name).steps >= 24


@pytest.mark.parametrize("name", NAMES)
def test_a_weight_is_the_power_of_two_cut_down_and_halves_exactly(name: str) -> None:
    each = half_life(name)
    for age, weight in enumerate(fractions(each.steps)):
        # floor(x) is the only whole number with w <= x < w + 1; both powers are exact.
        power = 1 << (ONE_BITS * each.steps - age)
        assert weight**each.steps <= power < (weight + 1) ** each.steps
        assert each.weight(age + each.steps) == weight >> 1
        if age > 20:
            break
    assert each.weight(0) == ONE
    assert each.weight(ONE_BITS * each.steps) == 1
    assert each.weight(ONE_BITS * each.steps + 1) == 0


@given(as_of=MINUTES, back=st.integers(1, 10**7), name=st.sampled_from(NAMES))
def test_every_minute_that_weighs_anything_lies_in_exactly_one_bucket_that_is_read(
    as_of: int, back: int, name: str
) -> None:
    """Times before 1970 too."""
    each, minute = half_life(name), as_of - back * MINUTE_US
    spans = list(each.spans(as_of))
    holding = [(tier, tier.floor(minute)) for tier, span in spans if span.holds(tier.floor(minute))]
    is_heavy = each.weight(each.age(minute, as_of)) > 0
    assert len(holding) == is_heavy
    for _, bucket in holding:
        assert each.age(bucket, as_of) == each.age(minute, as_of), "a bucket has one age"


@given(as_of=MINUTES)
def test_the_running_step_has_age_zero_and_nothing_is_younger(as_of: int) -> None:
    for name in NAMES:
        each = half_life(name)
        assert each.age(as_of - MINUTE_US, as_of) == 0
        assert each.age(as_of - MINUTE_US - each.step.width_us, as_of) == 1


def test_a_weight_is_near_the_real_one() -> None:
    day = half_life("1d")
    for hours in (0, 1, 7, 24, 100):
        exact = math.exp2(-hours / 24)
        assert abs(day.weight(day.age(-hours * HOUR_US - MINUTE_US, 0)) / ONE - exact) < 1e-9


@pytest.mark.parametrize(
    ("name", "advice"),
    [("1w", "'90m', '1h', '7d'"), ("0h", "is no half-life"), ("", "is no half-life"), ("1501m", "hours")],
)
def test_what_is_no_half_life_is_refused(name: str, advice: str) -> None:
    with pytest.raises(ConfigurationError, match=advice):
        half_life(name)
