"""What was agreed with a stream is kept to: rate, lag, jitter and policies, in virtual time (A1, A2, A3)."""

import copy
import subprocess
import sys
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.admission import FLEET, SHOP, settings_of, state_of, write
from tests.support.live import TEN_O_CLOCK
from tidemark.admission.arriving import Arriving, Load, Part, Turned
from tidemark.admission.decide import Decision, State, decide, released
from tidemark.admission.decide import applied as only_applied
from tidemark.admission.gate import Gate
from tidemark.admission.shedder import Shedder
from tidemark.admission.sla import StreamState
from tidemark.model.admission_settings import AdmissionSettings, ClassName
from tidemark.model.deltas import Priority, Source
from tidemark.model.timegrid import HOUR_US, SECOND_US
from tidemark.wire.errors import NackReason

RATED = {"shop/signal": {"rate": 100.0, "burst": 200}}
# Writes wait for an hour, and low ones have had to make room for a while.
SHEDDING = Shedder(above_since_us=TEN_O_CLOCK - HOUR_US, seen_us={Priority.CRITICAL: TEN_O_CLOCK})


def applied(state: State, decision: Decision) -> State:
    """The state after a write that is on the disk at once."""
    return released(only_applied(state, decision), decision)


def test_a2_without_configuration_everything_is_let_in() -> None:
    state = state_of()
    for at in (None, 0, TEN_O_CLOCK + HOUR_US):
        for deltas in (1, 100_000):
            decision = decide(state, write(deltas, at=at), TEN_O_CLOCK)
            assert (decision.admitted, decision.turned_away, decision.held) == (deltas, 0, {})
            state = applied(state, decision)


def test_a2_the_classes_have_the_values_of_the_specification() -> None:
    found = {
        name.value: (each.rate, each.burst, each.lag_ms)
        for name in ClassName
        for each in [getattr(AdmissionSettings().classes, name)]
    }
    assert found == {
        "bronze": (1, 5, 5_000),
        "silver": (5, 20, 2_000),
        "gold": (20, 50, 500),
        "platinum": (100, 200, 100),
    }


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("rate", [0.5, 777.7, 5_000.0])
def test_a2_over_an_hour_the_admitted_rate_is_the_configured_one_within_one_write(seed: int, rate: float) -> None:
    """Writes of 1 to 5,000 deltas from somebody who always wants more, and comes when told."""
    random, state, now_us, admitted, largest = (
        Random(seed),
        state_of({"shop/signal": {"rate": rate}}),
        TEN_O_CLOCK,
        0,
        0,
    )
    while now_us <= TEN_O_CLOCK + HOUR_US:
        arriving = write(random.randint(1, 5_000))
        decision = decide(state, arriving, now_us)
        state, admitted = applied(state, decision), admitted + decision.admitted
        if decision.is_admitted:
            largest = max(largest, arriving.deltas)
        now_us += decision.retry_after_us or random.randrange(1_000)
        allowed = rate * (now_us - TEN_O_CLOCK) / SECOND_US
        assert admitted <= allowed + largest
    assert admitted >= rate * 3_600 - 1


def test_a2_after_a_pause_no_more_than_the_burst_is_saved_up() -> None:
    state, admitted = state_of(RATED), 0
    now_us = TEN_O_CLOCK + HOUR_US
    while (decision := decide(state, write(7), now_us)).is_admitted:
        state, admitted = applied(state, decision), admitted + decision.admitted
    assert 200 <= admitted < 207


@given(
    st.lists(st.tuples(st.integers(1, 5_000), st.integers(0, 10 * SECOND_US)), max_size=30),
    st.sampled_from([0.001, 1.0, 33.3, 1_000.0]),
    st.sampled_from([0.5, 1.0, 7.0]),
)
def test_a2_whoever_comes_back_when_told_is_let_in(
    history: list[tuple[int, int]], rate: float, token_cost: float
) -> None:
    """No livelock after any pause, burst or start, however small the rate and however large the write."""
    state, now_us = state_of({"shop/signal": {"rate": rate, "burst": 5, "token_cost": token_cost}}), TEN_O_CLOCK
    for deltas, pause_us in history:
        now_us += pause_us
        decision = decide(state, write(deltas), now_us)
        state = applied(state, decision)
        if not decision.is_admitted:
            assert decision.reason is Turned.RATE
            assert decision.retry_after_us is not None
            assert decision.retry_after_ms is not None
            assert decision.retry_after_ms * 1_000 >= decision.retry_after_us > 0
            assert not decide(state, write(deltas), now_us + decision.retry_after_us - 1).is_admitted
            now_us += decision.retry_after_us
            again = decide(state, write(deltas), now_us)
            assert again.is_admitted
            state = applied(state, again)


def test_a2_a_start_begins_with_nothing_and_the_first_write_gets_through_at_once() -> None:
    state = state_of(RATED)
    first = decide(state, write(5_000), TEN_O_CLOCK)
    assert (first.reason, first.retry_after_us, first.retry_after_ms) == (Turned.RATE, 1, 1)
    assert decide(applied(state, first), write(5_000), TEN_O_CLOCK + 1).is_admitted


def test_a2_restarting_all_the_time_gains_nothing() -> None:
    admitted = 0
    for start in range(60):
        gate = Gate(settings_of(RATED), TEN_O_CLOCK + start * SECOND_US, window=1)
        for step in range(100):
            now_us = TEN_O_CLOCK + start * SECOND_US + step * 10_000
            admitted += gate.admit(write(1), Load(), now_us).admitted
    assert admitted <= 60 * 100


def test_a2_tokens_are_spent_by_what_was_let_in_and_by_nothing_else() -> None:
    state = state_of({"shop/signal": {"rate": 1.0, "burst": 10, "lag_ms": 1_000}})
    now_us = TEN_O_CLOCK + HOUR_US
    for _ in range(50):
        state = applied(state, decide(state, write(5, at=now_us - HOUR_US), now_us))
    assert decide(state, write(5, at=now_us), now_us).is_admitted
    shedder = SHEDDING._replace(seen_us={Priority.CRITICAL: now_us})
    shedding = state._replace(shedder=shedder, load=Load(waited_us=HOUR_US))
    shed = decide(shedding, write(5, at=now_us, priority=Priority.LOW), now_us)
    assert shed.reason is Turned.SHED
    assert applied(shedding, shed).stream(SHOP).tokens == state.stream(SHOP).tokens


@pytest.mark.parametrize(
    ("oldest", "newest", "reason", "retry_after_us"),
    [
        (-500_000, 500_000, None, None),
        (-500_001, 0, Turned.LAG, None),
        (0, 500_003, Turned.LAG, 3),
    ],
)
def test_a2_lag_is_bounded_both_ways(
    oldest: int, newest: int, reason: Turned | None, retry_after_us: int | None
) -> None:
    """What is behind only gets older, so it is turned away for good; what is ahead may come when its time has come."""
    state, now_us = state_of({"shop/signal": {"class": "gold"}}), TEN_O_CLOCK + SECOND_US
    decision = decide(state, write(at=now_us + oldest, newest=now_us + newest), now_us)
    assert (decision.reason, decision.retry_after_us) == (reason, retry_after_us)
    assert decision.is_final == (oldest < -500_000)
    if retry_after_us is not None:
        later_us = now_us + retry_after_us
        assert decide(state, write(at=later_us, newest=now_us + newest), later_us).is_admitted


def test_a2_jitter_compares_with_the_last_arrival_so_a_pause_locks_nobody_out() -> None:
    state, now_us = state_of({"shop/signal": {"jitter_ms": 1_000}}), TEN_O_CLOCK
    answers = []
    # Events are hours old all along, and after the pause they are older still.
    for pause_us in (0, SECOND_US, 5 * SECOND_US, 0, SECOND_US, SECOND_US + 1, 0):
        now_us += pause_us
        decision = decide(state, write(at=TEN_O_CLOCK - HOUR_US), now_us)
        state = applied(state, decision)
        answers.append(decision.reason)
        assert decision.retry_after_us in {None, 0}
    assert answers == [None, None, Turned.JITTER, None, None, Turned.JITTER, None]


@pytest.mark.parametrize("source", Source)
def test_a2_imports_and_replicas_are_exempt_from_lag_and_jitter_and_from_nothing_else(source: Source) -> None:
    settings = {"shop/signal": {"rate": 1.0, "lag_ms": 10, "jitter_ms": 10}}
    state, reasons = state_of(settings), []
    for now_us in (TEN_O_CLOCK + SECOND_US, TEN_O_CLOCK + HOUR_US, TEN_O_CLOCK + HOUR_US):
        decision = decide(state, write(10, at=TEN_O_CLOCK - HOUR_US, source=source), now_us)
        state = applied(state, decision)
        reasons.append(decision.reason)
    is_exempt = source in {Source.IMPORT, Source.REPLICA}
    assert reasons == ([None, None, Turned.RATE] if is_exempt else [Turned.LAG] * 3)


def test_a3_the_policy_says_what_becomes_of_a_write_beyond_the_agreement() -> None:
    answers = {}
    for policy in ("strict", "prefer_throttle", "bypass"):
        state = state_of({"shop/signal": {"rate": 1.0, "policy": policy}})
        decision = decide(state, write(), TEN_O_CLOCK)
        answers[policy] = (decision.reason, decision.is_final, decision.retry_after_us)
    assert answers == {
        "strict": (Turned.RATE, True, None),
        "prefer_throttle": (Turned.RATE, False, 1),
        "bypass": (None, False, None),
    }


def test_a1_an_agreement_wins_over_the_shedder_and_lag_over_jitter_over_rate() -> None:
    """With the shedder forced to shed, and no room at all."""
    full, now_us = Load(waited_us=HOUR_US, deltas=100_000), TEN_O_CLOCK + 2 * SECOND_US
    forced = SHEDDING._replace(seen_us={Priority.CRITICAL: now_us})
    remembered = StreamState(tokens=0, at_us=now_us, arrived_us=TEN_O_CLOCK)
    late = write(at=TEN_O_CLOCK, priority=Priority.LOW)
    found = []
    for terms in (
        {"rate": 1.0, "lag_ms": 1_000, "jitter_ms": 1_000},
        {"rate": 1.0, "jitter_ms": 1_000},
        {"rate": 1.0},
        {"lag_ms": 3_000},
    ):
        state = state_of({"shop/signal": terms})._replace(shedder=forced, load=full, streams={SHOP: remembered})
        found.append(decide(state, late, now_us).reason)
    assert found == [Turned.LAG, Turned.JITTER, Turned.RATE, Turned.SHED]
    assert decide(state_of()._replace(load=full), late, now_us).is_admitted, "and the shard comes last"


STREAMS = st.sampled_from([SHOP, FLEET, ("other", "vector")])
PARTS = st.builds(
    Part,
    deltas=st.integers(0, 300),
    bytes=st.integers(0, 30_000),
    oldest_us=st.none() | st.integers(TEN_O_CLOCK - SECOND_US, TEN_O_CLOCK + SECOND_US),
    newest_us=st.none() | st.integers(TEN_O_CLOCK - SECOND_US, TEN_O_CLOCK + SECOND_US),
)
ARRIVING = st.builds(
    Arriving,
    producer=st.sampled_from(["a", "b"]),
    parts=st.dictionaries(STREAMS, PARTS, max_size=3),
    priority=st.sampled_from(Priority),
    source=st.sampled_from(Source),
)
LOADS = st.builds(
    Load,
    waited_us=st.sampled_from([0, 60_000, HOUR_US]),
    deltas=st.integers(0, 1_100),
    bytes=st.integers(0, 110_000),
    most_deltas=st.just(1_000),
    most_bytes=st.just(100_000),
)
TERMS = st.fixed_dictionaries(
    {"policy": st.sampled_from(["strict", "prefer_throttle", "bypass"])},
    optional={
        "class": st.sampled_from(list(ClassName)),
        "rate": st.sampled_from([0.1, 50.0, 1e6]),
        "lag_ms": st.sampled_from([0, 1, 900]),
        "jitter_ms": st.sampled_from([0, 1]),
    },
)
CONFIGURED = st.dictionaries(st.sampled_from(["shop/signal", "fleet/sample"]), TERMS, max_size=2)


@given(CONFIGURED, st.lists(st.tuples(ARRIVING, LOADS, st.integers(0, 500_000)), max_size=25))
def test_a1_a_decision_changes_nothing_and_counts_every_delta_once(
    configured: dict[str, dict[str, object]], arrivals: list[tuple[Arriving, Load, int]]
) -> None:
    state, now_us = state_of(configured), TEN_O_CLOCK
    for arriving, load, pause_us in arrivals:
        now_us += pause_us
        state = state._replace(load=load)
        before = copy.deepcopy(state)
        decision = decide(state, arriving, now_us)
        assert state == before
        assert decide(state, arriving, now_us) == decision
        assert decision.received == arriving.deltas == decision.admitted + decision.turned_away
        assert not (decision.admitted and decision.turned_away)
        assert decision.is_admitted == (decision.reason is None) == (not decision.message)
        # It says when to come again, or that it is for good; never neither.
        assert decision.is_admitted or decision.is_final == (decision.retry_after_us is None)
        assert not (decision.reason is Turned.SHED and arriving.priority is Priority.CRITICAL)
        state = applied(state, decision)


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("admit"), ARRIVING, LOADS),
        st.tuples(st.just("turn_away"), st.sampled_from(["", "x", "y"]), st.integers(0, 50)),
        st.tuples(st.sampled_from(["done", "give_back"]), st.integers(0, 5), st.none()),
        st.tuples(st.just("take"), st.none(), st.none()),
    ),
    max_size=40,
)


@given(CONFIGURED, ACTIONS)
def test_a3_whatever_happens_received_is_admitted_and_turned_away(
    configured: dict[str, dict[str, object]], actions: list[tuple[str, object, object]]
) -> None:
    """And every delta that was turned away is in exactly one note for the log."""
    gate, now_us, sent, noted = Gate(settings_of(configured), TEN_O_CLOCK, window=1), TEN_O_CLOCK, 0, 0
    inside: list[tuple[Arriving, object]] = []
    end_us = TEN_O_CLOCK
    for name, first, second in [*actions, ("take", None, None)]:
        now_us += 70_000
        if name == "admit":
            assert isinstance(first, Arriving)
            assert isinstance(second, Load)
            decision = gate.admit(first, second, now_us)
            sent += first.deltas
            if decision.is_admitted:
                inside.append((first, decision))
        elif name == "turn_away":
            gate.turn_away(Turned.UNAUTHENTICATED, str(first), int(str(second)))
            sent += int(str(second))
        elif name == "take":
            note = gate.take_turned_away(now_us)
            assert note.from_us == end_us
            noted, end_us = noted + note.tally.deltas, note.to_us
        elif inside:
            arriving, decision = inside.pop(int(str(first)) % len(inside))  # type: ignore[assignment]
            if name == "done":
                gate.done(decision)
            else:
                gate.give_back(arriving, decision)
        totals = gate.totals
        assert totals.received == totals.admitted + totals.turned_away == sent
    assert noted == gate.totals.turned_away
    while inside:
        gate.done(inside.pop()[1])  # type: ignore[arg-type]
    assert all(held == (0, 0) for held in gate.state.held.values())


def test_a3_what_a_shard_had_no_room_for_has_cost_nothing() -> None:
    gate = Gate(settings_of({"shop/signal": {"rate": 10.0, "burst": 40}}), TEN_O_CLOCK, window=1)
    now_us = TEN_O_CLOCK + SECOND_US
    decision = gate.admit(write(500), Load(), now_us)
    assert gate.state.stream(SHOP).tokens < 0
    gate.give_back(write(500, ids=("a", "b")), decision)
    assert gate.state.stream(SHOP).tokens == 10 * 10**12
    note = gate.take_turned_away(now_us)
    assert note.tally.counts == {"backpressure": {"web": 500}}
    assert note.tally.ids == {"backpressure": ["a", "b"]}


def test_c8_whether_there_is_room_is_for_the_shard_to_say() -> None:
    """It waits for room before it gives a write back, and it knows what could never fit."""
    state = state_of()._replace(load=Load(deltas=100_000, bytes=10**9))
    assert all(decide(state, write(100_001, priority=each), TEN_O_CLOCK).is_admitted for each in Priority)


def test_a3_where_a_shard_took_its_part_only_the_rest_counts_as_turned_away() -> None:
    gate = Gate(settings_of({"shop/signal": {"rate": 10.0, "burst": 40}}), TEN_O_CLOCK, window=1)
    arriving = write(500)
    decision = gate.admit(arriving, Load(), TEN_O_CLOCK + SECOND_US)
    gate.give_back(arriving, decision, deltas=200)
    assert gate.totals == (500, 300, 200)
    assert gate.take_turned_away(TEN_O_CLOCK).tally.deltas == 200
    assert gate.state.stream(SHOP).tokens < 0, "what was taken has been paid for"


def test_a3_a_write_leaves_once_however_often_that_is_said() -> None:
    gate = Gate(settings_of({"shop/signal": {"class": "gold", "rate": 1e6}}), TEN_O_CLOCK, window=1)
    now_us = TEN_O_CLOCK + SECOND_US
    first, second = gate.admit(write(5), Load(), now_us), gate.admit(write(7), Load(), now_us)
    gate.done(first)
    gate.done(first)
    assert gate.state.held[ClassName.GOLD].deltas == 7
    gate.give_back(write(7), second)
    gate.done(second)
    assert gate.state.held[ClassName.GOLD].deltas == 0


def test_a_refusal_says_what_was_agreed_and_what_to_do() -> None:
    gold = {"shop/signal": {"class": "gold", "jitter_ms": 2_000}}
    state, now_us = state_of(gold), TEN_O_CLOCK + SECOND_US
    state = applied(state, decide(state, write(1_020, at=now_us), now_us))
    assert decide(state, write(at=now_us), now_us).message == (
        "shop/signal (class gold) takes 20 deltas a second, and more than that have come. Send it again in 50 s."
    )
    assert decide(state, write(at=now_us - SECOND_US), now_us).message == (
        "shop/signal (class gold) takes events within 0.5 s of the clock, and this write has one 1 s behind it: 0.5 s "
        'too far. Send it sooner, check the clock of the producer, or send old data with source "import". '
        "It was turned away for good: go on with the next one."
    )
    later_us = now_us + 3 * SECOND_US
    assert decide(state, write(at=later_us), later_us).message == (
        "shop/signal (class gold) is to be heard of every 2 s, and the last write came 3 s ago. The next one is in "
        "time again. Send it again at once."
    )


def test_the_words_are_those_of_the_wire() -> None:
    assert {each.name: each.value for each in Turned}.items() <= {each.name: each.value for each in NackReason}.items()


def test_it_needs_neither_numpy_nor_arrow() -> None:
    code = """
import sys
sys.modules["numpy"] = sys.modules["pyarrow"] = None
import tidemark.admission.gate
"""
    subprocess.run([sys.executable, "-c", code], check=True)
