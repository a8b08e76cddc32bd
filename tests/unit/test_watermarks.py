"""The event-time watermark is a promise that only grows, and that the log can prove (T1, T2, T4)."""

from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from resources.coordinator.arrival import Arrivals, NumberedWrite
from resources.coordinator.control import Cause, WatermarkAdvanced, decode_controls, encode_controls
from resources.coordinator.identities import Identities
from resources.coordinator.watermarks import FORGOTTEN_AFTER, StreamState, Watermarks
from resources.settings import Settings
from resources.timegrid import HOUR_US, SECOND_US
from tests.support.event_time import ModelWatermark
from tests.support.live import TEN_O_CLOCK, sample, signal

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


# What a shard does to its watermarks, at random, with a clock that may jump either way.
TIGHT = Settings(disorder_ms=2_000, idle_timeout_ms=3_000, watermark_events=10, watermark_ms=1_000)
SHORT = Settings(disorder_ms=0, idle_timeout_ms=200, watermark_events=1, watermark_ms=1_000)
pauses = st.one_of(st.integers(0, 900), st.integers(0, 6_000), st.sampled_from([0, 1_000, 3_000, -2_500, 290_000]))


class Write(NamedTuple):
    pause: int
    producer: str
    events: int
    offset: int  # of the event from now, ms


class Tick(NamedTuple):
    pause: int


class Adopt(NamedTuple):
    pause: int
    offset: int


class Cut(NamedTuple):
    pause: int = 0


class Restart(NamedTuple):
    pause: int


Step = Write | Tick | Adopt | Cut | Restart
writes = st.builds(Write, pauses, st.sampled_from("abcd"), st.integers(1, 12), st.integers(-9_000, 3_000))
steps = st.lists(
    st.one_of(
        writes,
        writes,
        st.builds(Tick, pauses),
        st.builds(Adopt, pauses, st.integers(-9_000, 3_000)),
        st.just(Cut()),
        st.builds(Restart, pauses),
    ),
    max_size=30,
)
starts = st.sampled_from([TEN_O_CLOCK, 0, -7_300 * MS])


class Logged(NamedTuple):
    """A write as the log shows it."""

    stamp: int | None
    producer: str
    events: int
    event: int
    now: int


def replay(options: Settings, saved: bytes, log: list[Logged | bytes]) -> Watermarks:
    marks = Watermarks(options, msgspec.json.decode(saved, type=dict[str, StreamState]))
    for entry in log:
        if isinstance(entry, bytes):
            [message] = decode_controls(memoryview(entry))
            assert isinstance(message, WatermarkAdvanced)
            marks.apply(message)
        else:
            marks.restore(STREAM, entry.stamp)
            marks.observe(STREAM, entry.producer, entry.events, entry.event, entry.now)
    return marks


def do(step: Step, marks: Watermarks, model: ModelWatermark, now: int) -> list[Logged | bytes]:
    """One step, against the model; gives what it adds to the log."""
    if isinstance(step, Write):
        event = now + step.offset * MS
        stamp = marks.stamp(STREAM, now)
        marks.observe(STREAM, step.producer, step.events, event, now)
        assert stamp == model.write(step.producer, step.events, event, now)
        return [Logged(stamp, step.producer, step.events, event, now)]
    messages: list[WatermarkAdvanced] = []
    if isinstance(step, Tick):
        messages = marks.tick(now)
        assert [message.watermark_us for message in messages] == [us for us in [model.tick(now)] if us is not None]
    elif isinstance(step, Adopt):
        adopted = marks.adopt(STREAM, now + step.offset * MS, now)
        assert (adopted and adopted.watermark_us) == model.adopt(now + step.offset * MS, now)
        messages = [adopted] if adopted else []
    return [encode_controls([message]) for message in messages]


@settings(max_examples=300)
@given(steps, starts, st.sampled_from([TIGHT, SHORT]))
@example([Write(0, "a", 1, 0), Tick(10_000), Write(-10_000, "a", 1, 500), Tick(11_000)], TEN_O_CLOCK, TIGHT)
def test_t2_after_any_prefix_of_the_log_a_replay_holds_the_live_state_wherever_it_was_cut_or_restarted(
    todo: list[Step], now: int, options: Settings
) -> None:
    marks, model = Watermarks(options), ModelWatermark(options)
    saved, log = msgspec.json.encode(marks.snapshot()), list[Logged | bytes]()
    last: int | None = None
    for step in todo:
        now += step.pause * MS
        if isinstance(step, Cut):
            saved, log = msgspec.json.encode(marks.snapshot()), []
        elif isinstance(step, Restart):
            marks = replay(options, saved, log)
            model.restart()
        else:
            log += do(step, marks, model, now)
        replayed = replay(options, saved, log)
        assert replayed.snapshot() == marks.snapshot()
        assert marks.current().get("shop/signal") == model.watermark
        assert marks.logged().get("shop/signal") == model.logged
        assert last is None or (model.watermark is not None and model.watermark >= last)
        last = model.watermark


@given(st.lists(writes, max_size=40), st.lists(st.integers(1, 20_000), max_size=40))
def test_t2_ticks_change_no_stamp_however_many_come_between_the_writes(sent: list[Write], ticks: list[int]) -> None:
    quiet, ticked = Watermarks(TIGHT), Watermarks(TIGHT)
    now, last = TEN_O_CLOCK, None
    for number, write in enumerate(sent):
        before, now = now, now + abs(write.pause) * MS
        for tick in ticks[number : number + 3]:
            ticked.tick(min(before + tick * MS, now))
        stamp = quiet.stamp(STREAM, now)
        assert ticked.stamp(STREAM, now) == stamp
        assert stamp is None or stamp <= now - TIGHT.disorder_ms * MS
        assert last is None or (stamp is not None and stamp >= last)
        last = stamp
        for marks in (quiet, ticked):
            marks.observe(STREAM, write.producer, write.events, now + write.offset * MS, now)


def test_t2_state_saved_before_marks_and_steps_were_is_taken_over() -> None:
    saved = b'{"shop/signal":{"watermark_us":5,"producers":{"a":{"max_event_us":7000000,"last_received_us":9000000}}}}'
    marks = Watermarks(SETTINGS, msgspec.json.decode(saved, type=dict[str, StreamState]))
    assert marks.active(STREAM, 10 * SECOND_US)
    assert marks.stamp(STREAM, 10 * SECOND_US) == 7 * SECOND_US - DISORDER


def arrivals() -> Arrivals:
    return Arrivals(0, SETTINGS, Watermarks(SETTINGS), Identities(SETTINGS.recent_identities))


def mixed_deltas(number: int, now: int) -> list[dict[str, Any]]:
    """Two streams, a copy of an earlier delta, one row from the future, one without an id; sizes that differ."""
    deltas = [signal(f"s{number}-{at}", at=now - at * SECOND_US) for at in range(number % 4 * 20)]
    deltas += [sample(f"m{number}-{at}", 1.0, at=now - at) for at in range(number % 3)]
    return [*deltas, signal("copy", at=TEN_O_CLOCK), signal("far", event_ts="2099-01-01T00:00:00Z"), signal("", at=now)]


@settings(max_examples=10)
@given(st.sets(st.integers(1, 15)))
def test_t2_recovery_replays_accepted_rows_whatever_groups_they_were_logged_in(cuts: set[int]) -> None:
    sent = []
    for number in range(16):
        now = TEN_O_CLOCK + number * 700 * MS
        sent.append(NumberedWrite(number + 1, "ab"[number % 2], number // 2 + 1, now, mixed_deltas(number, now)))
    one_by_one, grouped, recovered = arrivals(), arrivals(), arrivals()
    rows = [one_by_one.decide([write])[0] for write in sent]
    edges = [0, *sorted(cuts), len(sent)]
    for begin, end in pairwise(edges):
        group, _ = grouped.decide(sent[begin:end])
        recovered.replay(group)
        expected = pa.concat_arrays([each.column("watermark_ts") for each in rows[begin:end]])
        assert group.column("watermark_ts") == expected
        assert recovered.watermarks.snapshot() == grouped.watermarks.snapshot()
    assert one_by_one.watermarks.snapshot() == grouped.watermarks.snapshot()
    assert set(grouped.watermarks.current()) == {"shop/signal", "fleet/sample"}


def test_t2_d9_a_refused_row_from_2099_neither_moves_the_watermark_nor_keeps_its_producer_active() -> None:
    shard = arrivals()
    shard.decide([NumberedWrite(1, "a", 1, TEN_O_CLOCK, [signal("x", at=TEN_O_CLOCK)])])
    before = shard.watermarks.snapshot()
    later = TEN_O_CLOCK + 60 * SECOND_US
    rows, _ = shard.decide([NumberedWrite(2, "a", 2, later, [signal("far", event_ts="2099-01-01T00:00:00Z")])])
    assert rows.column("verdict").to_pylist() == ["refused"]
    assert shard.watermarks.snapshot() == before
    assert not shard.watermarks.active(STREAM, later)
