"""The watermark at random: replayed, cut and restarted anywhere, it is what the log says (T1, T2)."""

from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.event_time import ModelWatermark
from tests.support.live import TEN_O_CLOCK, sample, signal
from tidemark.event_time.watermarks import StreamState, Watermarks
from tidemark.log.control import WatermarkAdvanced, decode_controls, encode_controls
from tidemark.model.settings import Settings
from tidemark.model.timegrid import SECOND_US
from tidemark.verdicts.arrival import Arrivals, NumberedWrite
from tidemark.verdicts.identities import Identities

STREAM = ("shop", "signal")
SETTINGS = Settings(disorder_ms=5_000, idle_timeout_ms=30_000)
DISORDER = 5 * SECOND_US
MS = 1_000

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


class Sent(NamedTuple):
    producer: str
    after: int  # the time since the last write
    behind: int  # the latest event of its producer


@given(
    st.lists(st.builds(Sent, st.sampled_from("ab"), st.integers(0, 200 * MS), st.integers(0, DISORDER)), max_size=60)
)
@example([Sent("a", 0, DISORDER)])
def test_t1_what_comes_within_the_disorder_is_never_below_its_stamp_and_what_is_equal_to_it_is_on_time(
    sent: list[Sent],
) -> None:
    marks, now = Watermarks(SETTINGS), TEN_O_CLOCK
    latest = dict.fromkeys("ab", now)
    for producer in latest:
        marks.observe(STREAM, producer, 1, now, now)
    for producer, after, behind in sent:
        now += after
        event = latest[producer] - behind if behind else now
        stamp = marks.stamp(STREAM, now)
        assert stamp is not None
        assert event >= stamp
        latest[producer] = max(latest[producer], event)
        marks.observe(STREAM, producer, SETTINGS.watermark_events, event, now)
    # The bound is tight: the oldest event that is still within it may be exactly as old as the watermark.
    assert marks.stamp(STREAM, now) == min(latest.values()) - DISORDER
