"""The time limit of a batch follows the rate by the clock and the measured cost of delivering (C12)."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.live import TEN_O_CLOCK
from tidemark.delivery.adaptive import RATE_STEPS, AdaptiveLimit, Cost, CostMemory, RateMonitor, Rates
from tidemark.model.settings import BatchSettings
from tidemark.model.timegrid import SECOND_US

SETTINGS = BatchSettings()

rates = st.floats(0, 1e9)
costs = st.builds(Cost, st.floats(0, 100), st.floats(0, 10))
bounds = st.builds(
    lambda low, more, target: BatchSettings(min_ms=low, max_ms=low + more, target_writes=target),
    st.integers(1, 1_000),
    st.integers(0, 10_000),
    st.integers(1, 10_000),
)
arrivals = st.lists(st.tuples(st.integers(0, 3_000_000), st.integers(0, 500), st.integers(0, 5_000)), max_size=30)
deliveries = st.lists(st.tuples(st.integers(1, 5_000), st.floats(0, 20)), max_size=40)


@given(bounds, arrivals, deliveries)
def test_c12_the_limit_is_always_within_its_bounds(
    settings: BatchSettings, seen: list[tuple[int, int, int]], delivered: list[tuple[int, float]]
) -> None:
    adaptive, now = AdaptiveLimit(settings), TEN_O_CLOCK
    for writes, seconds in delivered:
        adaptive.memory.add(writes, seconds, now)
    for pause, writes, deltas in seen:
        now += pause
        adaptive.rate.add(writes, deltas, now)
        assert settings.min_ms * 1_000 <= adaptive.limits(now).limit_us <= settings.max_ms * 1_000


@given(bounds, costs, st.lists(rates, min_size=2, max_size=20))
def test_c12_a_higher_rate_never_has_a_longer_limit(settings: BatchSettings, cost: Cost, seen: list[float]) -> None:
    adaptive = AdaptiveLimit(settings)
    limits = [adaptive.rule(Rates(rate, rate), cost).limit_us for rate in sorted(seen)]
    assert all(slower >= faster for slower, faster in pairwise(limits))


@given(arrivals)
def test_c12_a_silent_minute_ages_the_rate_to_zero_without_any_arrival(seen: list[tuple[int, int, int]]) -> None:
    monitor, now = RateMonitor(), TEN_O_CLOCK
    for pause, writes, deltas in seen:
        now += pause
        monitor.add(writes, deltas, now)
    assert monitor.rates(now + 60 * SECOND_US) == Rates(0.0, 0.0)


@given(arrivals, deliveries)
def test_c12_the_same_inputs_give_the_same_limits(
    seen: list[tuple[int, int, int]], delivered: list[tuple[int, float]]
) -> None:
    def run() -> list[object]:
        adaptive, now, said = AdaptiveLimit(SETTINGS), TEN_O_CLOCK, []
        for pause, writes, deltas in seen:
            now += pause
            adaptive.rate.add(writes, deltas, now)
            for size, seconds in delivered[:3]:
                adaptive.memory.add(size, seconds, now)
            said.append(adaptive.limits(now))
        return list(said)

    assert run() == run()


@given(arrivals, st.integers(0, 10_000_000))
def test_c12_the_rate_is_what_arrived_within_the_window_whoever_looks_how_often(
    seen: list[tuple[int, int, int]], later: int
) -> None:
    watched, unwatched, now, log = RateMonitor(), RateMonitor(), TEN_O_CLOCK, []
    for pause, writes, deltas in seen:
        now += pause
        for monitor in (watched, unwatched):
            monitor.add(writes, deltas, now)
        log.append((now, writes, deltas))
        watched.rates(now)
    now += later
    oldest_step = now // 100_000 - RATE_STEPS
    inside = [(writes, deltas) for at, writes, deltas in log if at // 100_000 > oldest_step]
    expected = Rates(sum(writes for writes, _ in inside) / 5, sum(deltas for _, deltas in inside) / 5)
    assert watched.rates(now) == unwatched.rates(now) == expected


def test_c12_a_steady_rate_is_read_within_one_step_of_the_window() -> None:
    monitor = RateMonitor()
    for millisecond in range(20_000):
        monitor.add(1, 10, TEN_O_CLOCK + millisecond * 1_000)
    seen = monitor.rates(TEN_O_CLOCK + 20 * SECOND_US - 1_000)
    assert seen.writes == pytest.approx(1_000, rel=1 / RATE_STEPS)
    assert seen.deltas == pytest.approx(10_000, rel=1 / RATE_STEPS)


def test_c12_the_monitors_memory_is_bounded_whatever_arrives() -> None:
    monitor = RateMonitor()
    for millisecond in range(0, 60_000, 7):
        monitor.add(1, 1, TEN_O_CLOCK + millisecond * 1_000)
        assert len(monitor._counts) <= RATE_STEPS


def test_c12_a_clock_that_is_set_back_loses_and_invents_nothing_and_the_rate_goes_on_ageing() -> None:
    monitor = RateMonitor()
    monitor.add(10, 10, TEN_O_CLOCK)
    monitor.add(10, 10, TEN_O_CLOCK - 60 * SECOND_US)
    earlier = TEN_O_CLOCK - 3_600 * SECOND_US
    assert monitor.rates(earlier) == monitor.rates(earlier + 4 * SECOND_US) == Rates(4.0, 4.0)
    assert monitor.rates(earlier + 6 * SECOND_US) == Rates(0.0, 0.0)


@pytest.mark.parametrize(
    ("writes_per_second", "limit_ms"), [(0, 5_000), (1, 5_000), (20, 5_000), (100, 1_000), (10_000, 10), (10**6, 10)]
)
def test_c12_by_default_a_batch_gathers_a_hundred_writes(writes_per_second: float, limit_ms: int) -> None:
    limits = AdaptiveLimit(SETTINGS).rule(Rates(writes_per_second, 0.0), Cost(0.0, 0.0))
    assert (limits.target_writes, limits.limit_us) == (100.0, limit_ms * 1_000)


def test_c12_dear_deliveries_become_fewer_and_cheap_ones_change_nothing() -> None:
    adaptive, fast = AdaptiveLimit(SETTINGS), Rates(10_000.0, 10_000.0)
    assert adaptive.rule(fast, Cost(0.0005, 0.0)).limit_us == 10_000
    # A delivery that costs 20 ms whatever is in it may take a tenth of the time, so there is one every 200 ms.
    dear = adaptive.rule(fast, Cost(0.02, 0.0))
    assert dear.limit_us == 200_000
    assert dear.target_writes == pytest.approx(2_000.0)
    # Where batches are that far apart anyway, it changes nothing.
    assert adaptive.rule(Rates(100.0, 100.0), Cost(0.02, 0.0)).target_writes == 100.0


def test_c12_a_batch_is_never_so_large_that_delivering_it_takes_longer_than_the_maximum() -> None:
    limits = AdaptiveLimit(SETTINGS).rule(Rates(100.0, 100.0), Cost(0.0, 0.1))
    assert limits.target_writes == pytest.approx(50.0)
    assert limits.limit_us == 500_000


@given(st.floats(0, 0.1), st.floats(0, 0.01), st.lists(st.integers(1, 1_000), min_size=2, max_size=32, unique=True))
def test_c12_the_memory_tells_the_fixed_part_from_the_part_for_each_write(
    fixed: float, per_write: float, sizes: list[int]
) -> None:
    memory = CostMemory()
    for size in sizes:
        memory.add(size, fixed + per_write * size, TEN_O_CLOCK)
    cost = memory.cost(TEN_O_CLOCK)
    assert cost.fixed_seconds == pytest.approx(fixed, abs=1e-6)
    assert cost.seconds_per_write == pytest.approx(per_write, abs=1e-6)


@given(deliveries)
def test_c12_no_part_of_a_cost_is_negative_or_above_what_was_seen(delivered: list[tuple[int, float]]) -> None:
    memory = CostMemory()
    for writes, seconds in delivered:
        memory.add(writes, seconds, TEN_O_CLOCK)
    cost = memory.cost(TEN_O_CLOCK)
    assert 0 <= cost.fixed_seconds <= min((seconds for _, seconds in delivered[-32:]), default=0.0)
    assert cost.seconds_per_write >= 0


def test_c12_the_memory_of_costs_is_short() -> None:
    memory = CostMemory()
    memory.add(10, 3.0, TEN_O_CLOCK)
    assert memory.cost(TEN_O_CLOCK + 60 * SECOND_US).fixed_seconds == 3.0
    assert memory.cost(TEN_O_CLOCK + 60 * SECOND_US + 1) == Cost(0.0, 0.0)
    # A batch that was held for an hour tells nothing about now, whenever it is reported.
    memory.add(10, 3_600.0, TEN_O_CLOCK - 3_600 * SECOND_US)
    assert memory.cost(TEN_O_CLOCK) == Cost(0.0, 0.0)
    for _ in range(32):
        memory.add(10, 0.001, TEN_O_CLOCK)
    assert memory.cost(TEN_O_CLOCK).fixed_seconds == 0.001


@pytest.mark.parametrize(("fixed", "per_write"), [(0.05, 0.0), (0.0, 0.00005), (0.02, 0.00002)])
def test_c12_under_steady_traffic_the_limit_settles_and_delivery_keeps_up(fixed: float, per_write: float) -> None:
    # given a subscriber with this cost, and 5,000 writes a second (each millisecond brings 5, give or take 2)
    adaptive, now, opened, gathered, shares = AdaptiveLimit(SETTINGS), TEN_O_CLOCK, TEN_O_CLOCK, 0, []
    for millisecond in range(10_000):
        now += 1_000
        writes = 5 + (millisecond * 7 % 5) - 2
        adaptive.rate.add(writes, writes, now)
        gathered += writes
        if now - opened >= adaptive.limits(now).limit_us:
            seconds = fixed + per_write * gathered
            shares.append(seconds / ((now - opened) / SECOND_US))
            adaptive.memory.add(gathered, seconds, now)
            opened, gathered = now, 0
    # then once it has seen some, deliveries never take longer than the time between them
    assert max(shares[-10:]) < 0.5
