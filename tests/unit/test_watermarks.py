"""The event-time watermark is a promise that only grows (T1, T2, T4)."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from resources.coordinator.watermarks import StreamState, Watermarks
from resources.settings import Settings
from resources.timegrid import HOUR_US, SECOND_US
from tests.support.live import TEN_O_CLOCK

STREAM = ("shop", "signal")
SETTINGS = Settings(disorder_ms=5_000, idle_timeout_ms=30_000)


def test_there_is_no_watermark_before_the_first_event() -> None:
    assert Watermarks(SETTINGS).stamp(STREAM, TEN_O_CLOCK) is None


def test_a_write_is_stamped_with_the_watermark_before_it() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "a", TEN_O_CLOCK, TEN_O_CLOCK)
    assert marks.stamp(STREAM, TEN_O_CLOCK) == TEN_O_CLOCK - 5 * SECOND_US


def test_the_slowest_active_producer_holds_the_watermark() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "slow", TEN_O_CLOCK - HOUR_US, TEN_O_CLOCK)
    marks.observe(STREAM, "fast", TEN_O_CLOCK, TEN_O_CLOCK)
    assert marks.stamp(STREAM, TEN_O_CLOCK) == TEN_O_CLOCK - HOUR_US - 5 * SECOND_US


def test_a_silent_producer_holds_nobody_back_after_the_idle_timeout() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "silent", TEN_O_CLOCK - HOUR_US, TEN_O_CLOCK)
    still_active, idle = TEN_O_CLOCK + 30 * SECOND_US - 1, TEN_O_CLOCK + 30 * SECOND_US
    marks.observe(STREAM, "busy", still_active, still_active)
    assert marks.stamp(STREAM, still_active) == TEN_O_CLOCK - HOUR_US - 5 * SECOND_US
    assert marks.stamp(STREAM, idle) == still_active - 5 * SECOND_US


def test_a_clock_that_is_ahead_promises_nothing_beyond_now() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "ahead", TEN_O_CLOCK + 4 * 60 * SECOND_US, TEN_O_CLOCK)
    assert marks.stamp(STREAM, TEN_O_CLOCK) == TEN_O_CLOCK - 5 * SECOND_US


events = st.lists(st.tuples(st.sampled_from("abc"), st.integers(-3_600, 300), st.integers(0, 40)), max_size=40)


def test_a_pause_longer_than_the_idle_timeout_takes_no_promise_back_and_adds_none() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "a", TEN_O_CLOCK, TEN_O_CLOCK)
    assert marks.current() == {"shop/signal": TEN_O_CLOCK - 5 * SECOND_US}
    assert marks.stamp(STREAM, TEN_O_CLOCK + HOUR_US) == TEN_O_CLOCK - 5 * SECOND_US


@given(events, st.integers(0, 40))
def test_the_watermark_never_falls_whoever_joins_leaves_or_restarts(
    seen: list[tuple[str, int, int]], restart_at: int
) -> None:
    marks, now, last = Watermarks(SETTINGS), TEN_O_CLOCK, None
    for number, (producer, offset, pause) in enumerate(seen):
        now += pause * SECOND_US
        stamp = marks.stamp(STREAM, now)
        assert last is None or (stamp is not None and stamp >= last)
        assert stamp is None or stamp <= now - 5 * SECOND_US
        last = stamp
        marks.observe(STREAM, producer, now + offset * SECOND_US, now)
        if number == restart_at:
            saved = msgspec.json.encode(marks.snapshot())
            marks = Watermarks(SETTINGS, msgspec.json.decode(saved, type=dict[str, StreamState]))


@given(events)
def test_a_restart_changes_no_stamp(seen: list[tuple[str, int, int]]) -> None:
    straight, restarted, now = Watermarks(SETTINGS), Watermarks(SETTINGS), TEN_O_CLOCK
    for producer, offset, pause in seen:
        now += pause * SECOND_US
        restarted = Watermarks(SETTINGS, restarted.snapshot())
        assert straight.stamp(STREAM, now) == restarted.stamp(STREAM, now)
        for marks in (straight, restarted):
            marks.observe(STREAM, producer, now + offset * SECOND_US, now)
