"""Who gets how much when there is more than a shard can take: shares, shedding, and the pace of producers (A3, A4)."""

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.admission import FLEET, SHOP, SmallShard, state_of, write
from tests.support.live import TEN_O_CLOCK
from tidemark.admission.arriving import Load, Stream, Turned
from tidemark.admission.decide import Decision, State, applied, decide, released
from tidemark.admission.gate import Pace
from tidemark.admission.pacing import Limits, Rates, level, stepped
from tidemark.admission.shedder import Patience, Shedder, looked_at, seen, sheds
from tidemark.model.admission_settings import AdmissionSettings
from tidemark.model.deltas import Priority
from tidemark.model.timegrid import SECOND_US

OTHER: Stream = ("other", "vector")

PLENTY = {"rate": 1e9, "burst": 1_000, "lag_ms": 0}

# Shares.


def shared(limit: int) -> State:
    """Bronze has a share of 0.3 and gold one of 0.7 of this many deltas; a third stream is let through."""
    streams: dict[str, dict[str, Any]] = {
        "shop/signal": {"class": "bronze", **PLENTY},
        "fleet/sample": {"class": "gold", **PLENTY},
        "other/vector": {"policy": "bypass"},
    }
    classes = {"bronze": {"share": 0.3}, "gold": {"share": 0.7}, "silver": {"share": 0.0}, "platinum": {"share": 0.0}}
    state = state_of(streams, classes=classes)
    return state._replace(load=Load(most_deltas=2 * limit))  # half of the room is lent


def let_in(state: State, stream: Stream) -> tuple[State, list[Decision]]:
    """As many single deltas of a stream as are let in now."""
    inside: list[Decision] = []
    while (decision := decide(state, write(1, stream), TEN_O_CLOCK + SECOND_US)).is_admitted:
        state, inside = applied(state, decision), [*inside, decision]
        if len(inside) > 100:
            break
    return state, inside


def test_a3_alone_a_class_gets_everything_and_the_other_still_gets_its_share() -> None:
    state, alone = let_in(shared(10), SHOP)
    assert len(alone) == 10
    state, other = let_in(state, FLEET)
    assert len(other) == 7


def test_a3_when_both_are_full_both_are_turned_away_until_something_leaves() -> None:
    state, _ = let_in(shared(10), SHOP)
    state, gold = let_in(state, FLEET)
    for stream in (SHOP, FLEET):
        decision = decide(state, write(1, stream), TEN_O_CLOCK + SECOND_US)
        assert (decision.reason, decision.is_final) == (Turned.BACKPRESSURE, False)
        assert "nothing to lend" in decision.message
    state = released(state, gold[0])
    assert decide(state, write(1, FLEET), TEN_O_CLOCK + SECOND_US).is_admitted
    assert not decide(state, write(1, SHOP), TEN_O_CLOCK + SECOND_US).is_admitted, "it holds more than its share"


@pytest.mark.parametrize(("limit", "bronze", "gold"), [(10, 3, 7), (20, 6, 14)])
def test_a3_shares_grow_with_the_room(limit: int, bronze: int, gold: int) -> None:
    """Each gets its share when the other has borrowed all the rest."""
    state, _ = let_in(shared(limit), FLEET)
    assert len(let_in(state, SHOP)[1]) == bronze
    state, _ = let_in(shared(limit), SHOP)
    assert len(let_in(state, FLEET)[1]) == gold


def test_a3_a_bypass_never_counts_and_is_never_turned_away() -> None:
    state, through = let_in(shared(10), OTHER)
    assert len(through) == 101
    assert len(let_in(state, SHOP)[1]) == 10
    state, _ = let_in(state, FLEET)
    assert len(let_in(state, OTHER)[1]) == 101


def test_a3_streams_without_a_class_have_what_the_classes_leave() -> None:
    state = state_of({"shop/signal": {"class": "bronze", **PLENTY}})._replace(load=Load(most_deltas=200))
    state, bronze = let_in(state, SHOP)
    assert len(bronze) == 100
    assert len(let_in(state, FLEET)[1]) == 10


@given(st.lists(st.tuples(st.sampled_from([SHOP, FLEET]), st.integers(1, 4)), max_size=60))
def test_c8_whatever_is_borrowed_all_of_it_fits_into_the_shard(wanted: list[tuple[Stream, int]]) -> None:
    """And whoever holds less than its share is let in."""
    state, held = shared(10), {SHOP: 0, FLEET: 0}
    for stream, deltas in wanted:
        decision = decide(state, write(deltas, stream), TEN_O_CLOCK + SECOND_US)
        state = applied(state, decision)
        assert decision.is_admitted or held[stream] >= {SHOP: 3, FLEET: 7}[stream]
        held[stream] += decision.admitted
    assert sum(held.values()) <= 2 * 10 + 4


# The shedder.

PATIENCE = Patience(50_000, 500_000)


def test_a3_one_more_priority_makes_room_with_each_interval_and_critical_never_does() -> None:
    shedder = Shedder()
    for priority in Priority:
        shedder = seen(shedder, PATIENCE, priority, TEN_O_CLOCK)
    shedder = looked_at(shedder, PATIENCE, 50_001, TEN_O_CLOCK)
    shed = {
        after_ms: [each.value for each in Priority if sheds(shedder, PATIENCE, each, TEN_O_CLOCK + after_ms * 1_000)]
        for after_ms in (0, 499, 500, 999, 1_000)
    }
    assert shed == {0: [], 499: [], 500: ["low"], 999: ["low"], 1_000: ["normal", "low"]}
    busy = shedder._replace(seen_us={Priority.CRITICAL: TEN_O_CLOCK + 10 * SECOND_US})
    at_last = [each.value for each in Priority if sheds(busy, PATIENCE, each, TEN_O_CLOCK + 10 * SECOND_US)]
    assert at_last == ["high", "normal", "low"]


def test_a3_a_wait_that_ends_in_time_or_is_within_the_target_sheds_nothing() -> None:
    shedder = seen(Shedder(), PATIENCE, Priority.CRITICAL, TEN_O_CLOCK)
    for step in range(100):  # long, but never for a whole interval
        now_us = TEN_O_CLOCK + step * 100_000
        shedder = seen(shedder, PATIENCE, Priority.CRITICAL, now_us)
        shedder = looked_at(shedder, PATIENCE, 0 if step % 5 == 0 else SECOND_US, now_us)
        assert not sheds(shedder, PATIENCE, Priority.LOW, now_us)
    assert looked_at(Shedder(), PATIENCE, 50_000, TEN_O_CLOCK).above_since_us is None
    assert looked_at(Shedder(), Patience(0, 1), SECOND_US, TEN_O_CLOCK).above_since_us is None, "switched off"


def test_a3_where_there_is_no_choice_nothing_is_shed() -> None:
    shedder = looked_at(seen(Shedder(), PATIENCE, Priority.LOW, TEN_O_CLOCK), PATIENCE, SECOND_US, TEN_O_CLOCK)
    later_us = TEN_O_CLOCK + 900_000
    assert not sheds(shedder, PATIENCE, Priority.LOW, later_us)
    assert sheds(seen(shedder, PATIENCE, Priority.HIGH, later_us), PATIENCE, Priority.LOW, later_us)


# The rate.

LIMITS = Limits(10.0, 1_000.0)


def test_a4_it_halves_above_nine_tenths_and_eases_above_seven_at_once() -> None:
    at = Rates(800.0, 800.0)
    assert stepped(at, 0.91, 800.0, LIMITS) == (400.0, 400.0)
    assert stepped(at, 0.71, 800.0, LIMITS) == (720.0, 720.0)
    assert stepped(at, 0.5, 800.0, LIMITS) == at
    assert stepped(at, 0.9, 800.0, LIMITS) == (720.0, 720.0)
    assert stepped(at, 0.7, 800.0, LIMITS) == at


def test_a4_it_aims_a_tenth_of_the_maximum_higher_below_three_tenths_and_goes_there_smoothed() -> None:
    first = stepped(Rates(400.0, 400.0), 0.29, 400.0, LIMITS)
    assert first == (500.0, 450.0)
    assert stepped(first, 0.5, 400.0, LIMITS) == (500.0, 475.0)
    # A decrease begins at what was given, not at what was aimed at: half is half.
    assert stepped(first, 0.95, 400.0, LIMITS) == (225.0, 225.0)


def test_a4_it_recovers_from_its_minimum_in_a_bounded_number_of_steps() -> None:
    rates = Rates(1_000.0, 1_000.0)
    for _ in range(50):
        rates = stepped(rates, 1.0, 0.0, LIMITS)
    assert rates == (10.0, 10.0)
    given = []
    while rates.given < LIMITS.most:
        rates = stepped(rates, 0.0, 0.0, LIMITS)
        given.append(rates.given)
    assert given == sorted(given)
    assert len(given) <= 20, "two seconds"


@given(
    st.lists(st.tuples(st.floats(0.0, 1.5), st.floats(0.0, 1e7)), max_size=60),
    st.floats(1.0, 1_000.0),
    st.floats(1_000.0, 1e7),
)
def test_a4_it_stays_within_its_limits(history: list[tuple[float, float]], least: float, most: float) -> None:
    rates = Rates(most, most)
    for fullness, observed in history:
        rates = stepped(rates, fullness, observed, Limits(least, most))
        assert least <= rates.given <= most
        assert least <= rates.target <= most


@given(st.floats(0.0, 1e6), st.lists(st.floats(0.0, 1e6) | st.just(float("inf")), min_size=1, max_size=20))
def test_a4_everybody_has_the_same_pace_and_all_of_it_is_given(total: float, wanted: list[float]) -> None:
    pace = level(total, wanted)
    used = sum(min(each, pace) for each in wanted)
    assert used == pytest.approx(min(total, sum(wanted)), rel=1e-6, abs=1e-6)
    assert pace >= total / len(wanted) * (1 - 1e-9)


# A small shard, and clients that obey or do not.


class Client:
    """Sends at its own rate, or at the pace that it was told, if it obeys."""

    def __init__(self, name: str, rate: float, size: int, *, obeys: bool, **more: Any) -> None:
        self.name, self.rate, self.size, self.obeys, self._more = name, rate, size, obeys, more
        self.pace: float | None = None
        self.heard_until_us = 0  # before this nothing is read from it
        self._saved = 0.0

    def told(self, pace: Pace) -> None:
        self.pace = pace.rate

    def send(self, shard: SmallShard, elapsed_us: int) -> None:
        rate = min(self.rate, self.pace) if self.obeys and self.pace is not None else self.rate
        self._saved = min(self._saved + rate * elapsed_us / SECOND_US, 10.0 * self.size)
        while self._saved >= self.size and shard.now_us >= self.heard_until_us:
            self._saved -= self.size
            pause_us = shard.send(write(self.size, producer=self.name, **self._more))
            self.heard_until_us = shard.now_us + pause_us


def run(shard: SmallShard, clients: list[Client], seconds: float, random: Random) -> None:
    for _ in range(round(seconds * 100)):
        for client in random.sample(clients, len(clients)):
            client.send(shard, 10_000)
        for name, pace in shard.work(10_000).items():
            next(client for client in clients if client.name == name).told(pace)


CAPACITY = 10_000.0
SETTINGS = partial(AdmissionSettings, min_rate=100.0, max_rate=40_000.0)


def goodput(load: float, make: Callable[[int, float], Client], seconds: float = 20.0) -> float:
    """Flushed deltas, as a part of what the shard can do."""
    shard = SmallShard(CAPACITY, room=2_000, settings=SETTINGS())
    clients = [make(number, load * CAPACITY / 10) for number in range(10)]
    run(shard, clients, seconds, Random(7))
    return sum(shard.flushed.values()) / (CAPACITY * seconds)


@pytest.mark.parametrize("obeys", [True, False])
@pytest.mark.parametrize("load", [1.0, 2.0, 5.0, 10.0])
def test_a4_goodput_is_flat_from_once_to_ten_times_the_capacity(load: float, obeys: bool) -> None:
    assert goodput(load, lambda number, rate: Client(f"c{number}", rate, 20, obeys=obeys)) >= 0.9


@pytest.mark.parametrize("load", [2.0, 10.0])
def test_a3_with_priorities_goodput_is_flat_and_the_critical_ones_wait_least(load: float) -> None:
    shard = SmallShard(CAPACITY, room=2_000, settings=SETTINGS())
    priorities = list(Priority)
    clients = [Client(f"c{n}", load * CAPACITY / 8, 20, obeys=False, priority=priorities[n % 4]) for n in range(8)]
    run(shard, clients, 20.0, Random(7))
    assert sum(shard.flushed.values()) >= 0.9 * CAPACITY * 20
    totals = shard.gate.totals
    assert totals.received == totals.admitted + totals.turned_away
    assert sum(shard.turned_away.values()) == totals.turned_away
    taken = {
        each: sum(shard.flushed[f"c{n}"] for n in range(8) if n % 4 == place) for place, each in enumerate(Priority)
    }
    assert taken[Priority.CRITICAL] >= taken[Priority.LOW]


def test_a4_one_rude_client_costs_nine_polite_ones_at_most_five_per_cent() -> None:
    def polite(others: list[Client]) -> int:
        shard = SmallShard(CAPACITY, room=2_000, settings=SETTINGS())
        nine = [Client(f"c{number}", CAPACITY / 5, 20, obeys=True) for number in range(9)]
        run(shard, [*nine, *others], 30.0, Random(7))
        return sum(shard.flushed[client.name] for client in nine)

    tenth = polite([Client("tenth", CAPACITY / 5, 20, obeys=True)])
    assert polite([Client("rude", 20 * CAPACITY, 20, obeys=False)]) >= 0.95 * tenth
    assert tenth >= 0.9 * 0.9 * CAPACITY * 30


def test_a4_from_unequal_starts_clients_come_to_equal_rates() -> None:
    """Jain's index of ten clients, the first of which had the shard to itself."""
    shard = SmallShard(CAPACITY, room=2_000, settings=SETTINGS())
    clients = [Client(f"c{number}", CAPACITY * (1 + number), 20, obeys=True) for number in range(10)]
    run(shard, clients[:1], 5.0, Random(7))
    shard.flushed.clear()
    run(shard, clients, 20.0, Random(7))
    rates = [shard.flushed[client.name] for client in clients]
    assert sum(rates) ** 2 / (len(rates) * sum(rate**2 for rate in rates)) >= 0.95


def test_a4_who_keeps_to_the_pace_is_never_paused_and_hears_when_there_is_room_again() -> None:
    shard = SmallShard(CAPACITY, room=2_000, settings=SETTINGS())
    client = Client("web", 3 * CAPACITY, 20, obeys=True)
    run(shard, [client], 5.0, Random(7))
    slowed = client.pace
    assert slowed is not None
    client.rate = 0.1 * CAPACITY
    run(shard, [client], 5.0, Random(7))
    assert (client.pace, shard.gate.rate) == (None, None)
    assert shard.gate.pause_us(write(20), shard.now_us) == 0


def test_a4_a_frame_says_rate_window_and_why() -> None:
    shard = SmallShard(CAPACITY, room=2_000, settings=SETTINGS())
    told: list[Pace] = []
    for _ in range(200):
        for _ in range(20):
            shard.send(write(20))
        told += shard.work(10_000).values()
    slowed = [pace for pace in told if pace.rate is not None]
    assert slowed
    assert all(64 * 1024 <= pace.window <= 1_000_000 for pace in slowed)
    assert all("% full" in pace.reason for pace in slowed)
