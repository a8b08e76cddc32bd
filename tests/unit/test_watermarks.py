"""The event-time watermark is a promise that only grows, and that the log can prove (T1, T2, T4)."""

from tests.support.live import TEN_O_CLOCK
from tidemark.event_time.watermarks import FORGOTTEN_AFTER, Watermarks
from tidemark.log.control import Cause, WatermarkAdvanced
from tidemark.model.settings import Settings
from tidemark.model.timegrid import HOUR_US, SECOND_US

STREAM = ("shop", "signal")
SETTINGS = Settings(disorder_ms=5_000, idle_timeout_ms=30_000)
DISORDER = 5 * SECOND_US
MS = 1_000


def advanced(watermark_us: int, cause: Cause) -> WatermarkAdvanced:
    return WatermarkAdvanced(*STREAM, watermark_us, cause)


def test_t2_there_is_no_watermark_before_the_first_event() -> None:
    marks = Watermarks(SETTINGS)
    assert marks.stamp(STREAM, TEN_O_CLOCK) is None
    assert (marks.current(), marks.logged(), marks.tick(TEN_O_CLOCK)) == ({}, {}, [])


def test_t4_a_write_is_stamped_with_the_watermark_before_it() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "a", 1, TEN_O_CLOCK, TEN_O_CLOCK)
    assert marks.stamp(STREAM, TEN_O_CLOCK) == TEN_O_CLOCK - DISORDER


def test_t2_after_the_first_write_the_watermark_moves_by_count() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "a", 1, TEN_O_CLOCK, TEN_O_CLOCK)
    for number in range(1, 100):
        marks.observe(STREAM, "a", 1, TEN_O_CLOCK + number, TEN_O_CLOCK + number)
    assert marks.stamp(STREAM, TEN_O_CLOCK + 99) == TEN_O_CLOCK - DISORDER
    marks.observe(STREAM, "a", 1, TEN_O_CLOCK + 100, TEN_O_CLOCK + 100)
    assert marks.stamp(STREAM, TEN_O_CLOCK + 100) == TEN_O_CLOCK + 100 - DISORDER
    marks.observe(STREAM, "a", 250, TEN_O_CLOCK + 101, TEN_O_CLOCK + 101)
    assert marks.stamp(STREAM, TEN_O_CLOCK + 101) == TEN_O_CLOCK + 101 - DISORDER


def test_t2_each_producer_is_counted_by_itself() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "a", 1, TEN_O_CLOCK, TEN_O_CLOCK)
    marks.observe(STREAM, "b", 1, TEN_O_CLOCK + 1, TEN_O_CLOCK + 1)
    marks.observe(STREAM, "a", 99, TEN_O_CLOCK + 2, TEN_O_CLOCK + 2)
    marks.observe(STREAM, "b", 50, TEN_O_CLOCK + 3, TEN_O_CLOCK + 3)
    assert marks.stamp(STREAM, TEN_O_CLOCK + 3) == TEN_O_CLOCK - DISORDER
    marks.observe(STREAM, "a", 1, TEN_O_CLOCK + 4, TEN_O_CLOCK + 4)
    assert marks.stamp(STREAM, TEN_O_CLOCK + 4) == TEN_O_CLOCK + 1 - DISORDER


def test_t2_the_watermark_moves_by_time_at_every_step_of_the_grid() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "a", 1, TEN_O_CLOCK, TEN_O_CLOCK)
    marks.observe(STREAM, "a", 1, TEN_O_CLOCK + 7, TEN_O_CLOCK + 7)
    assert marks.stamp(STREAM, TEN_O_CLOCK + SECOND_US - 1) == TEN_O_CLOCK - DISORDER
    assert marks.stamp(STREAM, TEN_O_CLOCK + SECOND_US) == TEN_O_CLOCK + 7 - DISORDER


def test_t2_the_slowest_active_producer_holds_the_watermark() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "slow", 1, TEN_O_CLOCK - HOUR_US, TEN_O_CLOCK)
    marks.observe(STREAM, "fast", 1_000, TEN_O_CLOCK, TEN_O_CLOCK)
    assert marks.stamp(STREAM, TEN_O_CLOCK + 10 * SECOND_US) == TEN_O_CLOCK - HOUR_US - DISORDER


def test_t2_a_silent_producer_holds_nobody_back_after_the_idle_timeout() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "silent", 1, TEN_O_CLOCK - HOUR_US, TEN_O_CLOCK)
    still_active, idle = TEN_O_CLOCK + 30 * SECOND_US - 1, TEN_O_CLOCK + 30 * SECOND_US
    marks.observe(STREAM, "busy", 1, still_active, still_active)
    assert marks.stamp(STREAM, still_active) == TEN_O_CLOCK - HOUR_US - DISORDER
    assert marks.stamp(STREAM, idle) == still_active - DISORDER


def test_t2_a_producer_that_falls_silent_is_noticed_without_a_write_and_logged() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "silent", 1, TEN_O_CLOCK - HOUR_US, TEN_O_CLOCK)
    marks.observe(STREAM, "busy", 1, TEN_O_CLOCK, TEN_O_CLOCK + SECOND_US)
    assert marks.tick(TEN_O_CLOCK + 29 * SECOND_US) == [advanced(TEN_O_CLOCK - HOUR_US - DISORDER, Cause.COUNT)]
    assert marks.tick(TEN_O_CLOCK + 30 * SECOND_US) == [advanced(TEN_O_CLOCK - DISORDER, Cause.IDLE)]
    assert marks.current() == marks.logged() == {"shop/signal": TEN_O_CLOCK - DISORDER}


def test_t2_a_clock_that_is_ahead_promises_nothing_beyond_now_and_time_catches_up_with_it() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "ahead", 1, TEN_O_CLOCK + 3 * SECOND_US // 2, TEN_O_CLOCK)
    assert marks.stamp(STREAM, TEN_O_CLOCK) == TEN_O_CLOCK - DISORDER
    found = [marks.tick(TEN_O_CLOCK + seconds * SECOND_US) for seconds in range(4)]
    expected = [TEN_O_CLOCK + SECOND_US, TEN_O_CLOCK + 3 * SECOND_US // 2]
    assert found == [[], *([advanced(time - DISORDER, Cause.TIME)] for time in expected), []]


def test_t2_a_tick_gives_at_most_one_message_per_stream_and_step_and_none_when_nothing_rose() -> None:
    marks = Watermarks(SETTINGS)
    for stream in (STREAM, ("fleet", "sample")):
        marks.observe(stream, "a", 1, TEN_O_CLOCK, TEN_O_CLOCK)
    assert {(message.namespace, message.kind) for message in marks.tick(TEN_O_CLOCK + 1)} == {
        STREAM,
        ("fleet", "sample"),
    }
    marks.observe(STREAM, "a", 100, TEN_O_CLOCK + 2, TEN_O_CLOCK + 2)
    assert marks.tick(TEN_O_CLOCK + SECOND_US - 1) == []
    assert marks.tick(TEN_O_CLOCK + SECOND_US) == [advanced(TEN_O_CLOCK + 2 - DISORDER, Cause.COUNT)]
    assert marks.tick(TEN_O_CLOCK + 2 * SECOND_US) == []


def test_t2_a_pause_longer_than_the_idle_timeout_takes_no_promise_back_and_adds_none() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "a", 1, TEN_O_CLOCK, TEN_O_CLOCK)
    assert marks.current() == {"shop/signal": TEN_O_CLOCK - DISORDER}
    assert marks.stamp(STREAM, TEN_O_CLOCK + HOUR_US) == TEN_O_CLOCK - DISORDER


def test_t2_when_all_fall_silent_the_last_of_them_decides_whether_anybody_looked_meanwhile_or_not() -> None:
    def stamp_after(*ticks: int) -> int | None:
        marks = Watermarks(SETTINGS)
        marks.observe(STREAM, "slow", 1, TEN_O_CLOCK - HOUR_US, TEN_O_CLOCK)
        marks.observe(STREAM, "fast", 1, TEN_O_CLOCK, TEN_O_CLOCK + 10 * SECOND_US)
        for seconds in ticks:
            marks.tick(TEN_O_CLOCK + seconds * SECOND_US)
        return marks.stamp(STREAM, TEN_O_CLOCK + HOUR_US)

    assert stamp_after() == stamp_after(35) == stamp_after(600) == stamp_after(*range(100)) == TEN_O_CLOCK - DISORDER


def test_t2_an_idle_timeout_shorter_than_a_step_does_not_stop_the_watermark() -> None:
    marks = Watermarks(Settings(disorder_ms=5_000, idle_timeout_ms=100))
    for second in range(5):
        now = TEN_O_CLOCK + second * SECOND_US + 300 * MS
        before = TEN_O_CLOCK + (second - 1) * SECOND_US + 300 * MS - DISORDER
        assert marks.stamp(STREAM, now) == (before if second else None)
        marks.observe(STREAM, "a", 1, now, now)


def test_t2_a_producer_that_returns_with_old_events_makes_the_watermark_wait_and_not_fall() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "a", 1, TEN_O_CLOCK, TEN_O_CLOCK)
    later = TEN_O_CLOCK + HOUR_US
    marks.observe(STREAM, "b", 1, TEN_O_CLOCK - HOUR_US, later)
    marks.observe(STREAM, "a", 1_000, later, later)
    assert marks.stamp(STREAM, later + 10 * SECOND_US) == TEN_O_CLOCK - DISORDER


def test_t2_a_clock_that_goes_back_or_stands_still_takes_nothing_back() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "a", 1, TEN_O_CLOCK, TEN_O_CLOCK)
    for now in (TEN_O_CLOCK, TEN_O_CLOCK - HOUR_US, TEN_O_CLOCK - HOUR_US, TEN_O_CLOCK):
        assert marks.stamp(STREAM, now) == TEN_O_CLOCK - DISORDER
        marks.observe(STREAM, "a", 100, now, now)
        marks.tick(now)
    assert marks.current() == {"shop/signal": TEN_O_CLOCK - DISORDER}


def test_t2_times_before_1970_are_times_like_others() -> None:
    marks = Watermarks(SETTINGS)
    start = -SECOND_US // 2
    marks.observe(STREAM, "a", 1, start - HOUR_US, start)
    marks.observe(STREAM, "a", 1, start, start)
    assert marks.stamp(STREAM, -1) == start - HOUR_US - DISORDER
    assert marks.stamp(STREAM, 0) == start - DISORDER


def test_t2_hundreds_of_producers_wait_for_the_slowest_of_them() -> None:
    marks = Watermarks(SETTINGS)
    for number in range(500):
        marks.observe(STREAM, f"p{number}", 1, TEN_O_CLOCK + number, TEN_O_CLOCK + number)
    for number in range(500):
        now = TEN_O_CLOCK + 500 + number
        marks.observe(STREAM, f"p{number}", 100, now, now)
        assert marks.stamp(STREAM, now) == TEN_O_CLOCK + number + 1 - DISORDER


def test_t2_producers_that_can_change_nothing_any_more_are_forgotten() -> None:
    marks = Watermarks(SETTINGS)
    for number in range(1_000):
        now = TEN_O_CLOCK + number * SECOND_US
        marks.observe(STREAM, f"once_{number}", 1, now, now)
    assert len(marks.snapshot()["shop/signal"].producers) <= 31


def test_t2_an_idle_producer_ahead_of_the_watermark_is_remembered_by_all_it_has_sent() -> None:
    marks = Watermarks(SETTINGS)
    marks.observe(STREAM, "slow", 1, TEN_O_CLOCK - HOUR_US, TEN_O_CLOCK)
    marks.observe(STREAM, "fast", 1, TEN_O_CLOCK, TEN_O_CLOCK)
    later = TEN_O_CLOCK + 60 * SECOND_US
    marks.observe(STREAM, "slow", 1, TEN_O_CLOCK - HOUR_US, later - 30 * SECOND_US + 1)
    marks.observe(STREAM, "slow", 1, TEN_O_CLOCK - HOUR_US, later)
    marks.observe(STREAM, "fast", 1, TEN_O_CLOCK - HOUR_US, later)
    marks.observe(STREAM, "slow", 100, later, later)
    assert marks.stamp(STREAM, later) == TEN_O_CLOCK - DISORDER


def test_t2_idle_producers_ahead_of_the_watermark_are_forgotten_after_a_long_time() -> None:
    marks = Watermarks(SETTINGS)
    for number in range(2 * FORGOTTEN_AFTER * 3):
        now = TEN_O_CLOCK + number * 10 * SECOND_US
        marks.observe(STREAM, "slow", 1, TEN_O_CLOCK - HOUR_US, now)
        marks.observe(STREAM, f"once_{number}", 1, now, now)
    assert len(marks.snapshot()["shop/signal"].producers) <= FORGOTTEN_AFTER * 3 + 1


def test_t2_a_quiet_shard_adopts_and_a_shard_with_an_active_producer_does_not() -> None:
    marks = Watermarks(SETTINGS)
    assert marks.adopt(STREAM, TEN_O_CLOCK - HOUR_US, TEN_O_CLOCK) == advanced(TEN_O_CLOCK - HOUR_US, Cause.ADOPTED)
    assert marks.adopt(STREAM, TEN_O_CLOCK - HOUR_US, TEN_O_CLOCK) is None
    assert marks.stamp(STREAM, TEN_O_CLOCK) == TEN_O_CLOCK - HOUR_US
    marks.observe(STREAM, "a", 1, TEN_O_CLOCK - 2 * HOUR_US, TEN_O_CLOCK)
    assert marks.active_streams(TEN_O_CLOCK) == {"shop/signal"}
    assert marks.adopt(STREAM, TEN_O_CLOCK - HOUR_US + 1, TEN_O_CLOCK) is None
    idle = TEN_O_CLOCK + 30 * SECOND_US
    assert not marks.active(STREAM, idle)
    assert marks.adopt(STREAM, idle, idle) == advanced(idle - DISORDER, Cause.ADOPTED)
