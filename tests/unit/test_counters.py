"""The warm tier against a count over raw deltas, exactly (R2, R3, R4)."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.support.counting import WINDOWS, Event, count_of, events_at, first_of, moments, steps, top_of
from tests.support.live import TEN_O_CLOCK, HandClock
from tidemark.counts.errors import CountersError, ForeignHandlesError, FullError, NotYetError, TooFarBackError
from tidemark.counts.warm.counters import Counters
from tidemark.counts.warm.state import FEW
from tidemark.counts.windows import NotOnAMinuteError, Window, velocity
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US

SMALL = 64


def counters_at(now_us: int = TEN_O_CLOCK) -> tuple[Counters, HandClock]:
    clock = HandClock(now_us)
    return Counters(clock, capacity=SMALL), clock


def send(counters: Counters, events: list[Event]) -> None:
    for signal in ("view", "like"):
        chosen = [event for event in events if event.signal == signal]
        counters.increment_many(
            "shop",
            signal,
            [event.entity for event in chosen],
            [event.at_us for event in chosen],
            [event.count for event in chosen],
        )


class Machine(RuleBasedStateMachine):
    """Any order of counting, waiting and asking."""

    @initialize(now_us=moments())
    def begin(self, now_us: int) -> None:
        self.counters, self.clock = counters_at(now_us)
        self.events: list[Event] = []

    @rule(data=st.data(), size=st.integers(0, 8))
    def count(self, data: Any, size: int) -> None:
        events = data.draw(st.lists(events_at(self.clock.now_us), min_size=size, max_size=size))
        send(self.counters, events)
        self.events += events

    @rule(step=steps())
    def wait(self, step: int) -> None:
        self.clock.now_us += step

    @rule(back=st.integers(0, FEW), signal=st.sampled_from(["view", "like"]))
    def ask(self, back: int, signal: str) -> None:
        self.counters.advance()
        as_of_us = (self.clock.now_us // MINUTE_US - back) * MINUTE_US
        entities = ["e0", "nobody", "e1", "e2"]
        handles = self.counters.resolve("shop", signal, entities)
        for window in WINDOWS:
            expected = [count_of(self.events, entity, signal, window, as_of_us) for entity in entities]
            assert self.counters.count_many("shop", signal, entities, window, as_of_us).tolist() == expected
            assert self.counters.count_resolved(handles, window, as_of_us).tolist() == expected
            top = [(each.entity, each.count) for each in self.counters.top("shop", signal, window, 2, as_of_us)]
            assert top == top_of(self.events, signal, window, as_of_us, 2)
            first_us = first_of(self.events, "e0", signal)
            assert self.counters.velocity("shop", "e0", signal, window, as_of_us) == velocity(
                expected[0], window, as_of_us, first_us
            )


Machine.TestCase.settings = settings(max_examples=60, stateful_step_count=16, deadline=None)
TestAnyOrderOfCountingWaitingAndAsking = Machine.TestCase


@settings(max_examples=60, deadline=None)
@given(data=st.data(), now_us=moments())
def test_arrival_order_and_batching_change_nothing(data: Any, now_us: int) -> None:
    events = data.draw(st.lists(events_at(now_us), max_size=20))
    shuffled = data.draw(st.permutations(events))
    together, one_by_one = counters_at(now_us)[0], counters_at(now_us)[0]
    send(together, events)
    for event in shuffled:
        one_by_one.increment("shop", event.entity, event.signal, event.at_us, event.count)
    for window in WINDOWS:
        for entity in ("e0", "e1", "e2"):
            expected = count_of(events, entity, "view", window, now_us // MINUTE_US * MINUTE_US)
            assert together.count("shop", entity, "view", window) == expected
            assert one_by_one.count("shop", entity, "view", window) == expected


@pytest.mark.parametrize("window", [window for window in WINDOWS if window.length_us])
def test_a_window_is_half_open_at_both_ends(window: Window) -> None:
    counters, _ = counters_at()
    length_us = window.length_us or 0
    for number, at_us in enumerate((-length_us - 1, -length_us, -1, 0)):
        counters.increment("shop", "e", "view", TEN_O_CLOCK + at_us, 10**number)
    assert counters.count("shop", "e", "view", window) == 110


def test_a_row_some_minutes_ahead_pushes_out_no_minute_that_the_hour_still_needs() -> None:
    counters, clock = counters_at()
    counters.increment("shop", "e", "view", TEN_O_CLOCK - HOUR_US)
    counters.increment("shop", "e", "view", TEN_O_CLOCK + 5 * MINUTE_US, 100)
    assert counters.count("shop", "e", "view", Window.HOUR) == 1
    clock.advance(6 * 60)
    assert counters.count("shop", "e", "view", Window.HOUR) == 100
    assert counters.count("shop", "e", "view", Window.HOUR, TEN_O_CLOCK + MINUTE_US) == 0


def test_windows_expire_by_as_of_though_nobody_writes() -> None:
    counters, clock = counters_at()
    counters.increment("shop", "e", "view", TEN_O_CLOCK - MINUTE_US, 7)
    for days, expected in ((0, [7, 7, 7, 7, 7]), (6, [0, 0, 7, 7, 7]), (29, [0, 0, 0, 7, 7]), (400, [0, 0, 0, 0, 7])):
        clock.now_us = TEN_O_CLOCK + days * DAY_US
        assert [counters.count("shop", "e", "view", window) for window in WINDOWS] == expected


def test_an_older_as_of_is_referred_to_the_lake() -> None:
    counters, clock = counters_at()
    clock.advance(60 * 60)
    counters.advance()
    with pytest.raises(
        TooFarBackError, match=r"10:55:00Z to 2026-03-02T11:00:00Z, not .*10:54.* Ask the lake: `counts"
    ):
        counters.count("shop", "e", "view", Window.DAY, TEN_O_CLOCK + 54 * MINUTE_US)
    assert counters.count("shop", "e", "view", Window.DAY, TEN_O_CLOCK + 55 * MINUTE_US) == 0


def test_an_as_of_that_has_not_come_or_is_not_on_a_minute_is_refused() -> None:
    counters, _ = counters_at(TEN_O_CLOCK + 1)
    with pytest.raises(NotYetError, match="has not come"):
        counters.count("shop", "e", "view", Window.DAY, TEN_O_CLOCK + MINUTE_US)
    with pytest.raises(NotOnAMinuteError, match=r"09:59:00Z or 2026-03-02T10:00:00Z"):
        counters.count("shop", "e", "view", Window.DAY, TEN_O_CLOCK - 1)


def test_a_clock_that_is_set_back_takes_nothing_back() -> None:
    counters, clock = counters_at()
    counters.increment("shop", "e", "view", TEN_O_CLOCK - 1)
    clock.advance(-600)
    assert counters.count("shop", "e", "view", Window.HOUR) == 1


def test_more_pairs_than_there_is_room_for_are_refused_and_nothing_of_them_is_counted() -> None:
    counters, _ = counters_at()
    counters.increment("shop", "e", "view", TEN_O_CLOCK - 1)
    with pytest.raises(FullError, match=r"room for 64. Open the counters with a larger `capacity`"):
        counters.increment_many("shop", "view", ["e", *(f"n{number}" for number in range(SMALL))], TEN_O_CLOCK - 1)
    assert counters.count("shop", "e", "view", Window.HOUR) == 1
    assert counters.rows == 1


def test_counts_that_could_leave_64_bits_are_refused_before_they_do() -> None:
    counters, _ = counters_at()
    counters.increment("shop", "e", "view", TEN_O_CLOCK - 1, 2**61)
    with pytest.raises(FullError, match="64 bits"):
        counters.increment("shop", "e", "view", TEN_O_CLOCK - 1, 2**61)
    assert counters.count("shop", "e", "view", Window.HOUR) == 2**61


@pytest.mark.parametrize("counts", [[2**62] * 4, [-(2**63)], [-(2**62), 1], [2**61, 2**61]])
def test_counts_whose_own_sum_leaves_64_bits_are_refused_too(counts: list[int]) -> None:
    counters, _ = counters_at()
    with pytest.raises(FullError, match="64 bits"):
        counters.increment_many("shop", "view", ["e"] * len(counts), TEN_O_CLOCK - 1, counts)
    assert counters.count("shop", "e", "view", Window.HOUR) == 0


def test_every_kind_of_array_is_counted_alike() -> None:
    counters, _ = counters_at()
    fixed = np.ones(4, np.int64)
    fixed.flags.writeable = False
    kinds: list[Any] = [[1] * 4, np.ones(8, np.int64)[::2], fixed, np.ones(4, np.int32)]
    for counts in kinds:
        counters.increment_many("shop", "view", ["a", "b", "a", "b"], TEN_O_CLOCK - fixed, counts)
        counters.increment_many("shop", "view", pa.array(["a", "b", "a", "b"]), TEN_O_CLOCK - 1, counts)
    assert counters.count("shop", "a", "view", Window.HOUR) == 16


def test_a_count_too_few_is_refused() -> None:
    counters, _ = counters_at()
    with pytest.raises(CountersError, match="2 entities came with 2 times and 1 counts"):
        counters.increment_many("shop", "view", ["a", "b"], TEN_O_CLOCK, [1])


def test_handles_of_other_counters_are_refused() -> None:
    handles = counters_at()[0].resolve("shop", "view", ["e"])
    with pytest.raises(ForeignHandlesError, match="Resolve them again"):
        counters_at()[0].count_resolved(handles, Window.DAY)


def test_more_loose_counts_than_are_sorted_at_once_are_all_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tidemark.counts.warm.recent_minutes.LOOSE_LIMIT", 50)
    counters, clock = counters_at()
    times = TEN_O_CLOCK - np.arange(200, dtype=np.int64) * HOUR_US
    for _ in range(3):
        counters.increment_many("shop", "view", ["e"] * 200, times)
    clock.advance(3600)
    assert [counters.count("shop", "e", "view", window) for window in WINDOWS] == [3, 72, 504, 600, 600]
