"""Watermarks across shards: a quiet shard neither blocks nor contradicts the others (T1, T2)."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.live import TEN_O_CLOCK
from tidemark.event_time.alignment import Adoption, ShardView, align, stream_watermarks
from tidemark.event_time.watermarks import Watermarks
from tidemark.model.settings import Settings
from tidemark.model.timegrid import SECOND_US

STREAM, NAME = ("shop", "signal"), "shop/signal"
ACTIVE, QUIET = frozenset([NAME]), frozenset[str]()
SETTINGS = Settings(disorder_ms=2_000, idle_timeout_ms=3_000, watermark_events=10)


def test_t2_a_quiet_shard_adopts_the_least_that_the_active_shards_have_logged() -> None:
    views = [ShardView(0, {NAME: 30}, ACTIVE), ShardView(1, {NAME: 20}, ACTIVE), ShardView(2, {NAME: 10}, QUIET)]
    assert align(views) == [Adoption(2, STREAM, 20)]


def test_t2_a_shard_that_has_never_seen_the_stream_adopts_it_too() -> None:
    assert align([ShardView(0, {NAME: 30}, ACTIVE), ShardView(1, {}, QUIET)]) == [Adoption(1, STREAM, 30)]


def test_t2_a_quiet_shard_that_is_further_keeps_what_it_promised() -> None:
    assert align([ShardView(0, {NAME: 30}, ACTIVE), ShardView(1, {NAME: 40}, QUIET)]) == []


def test_t2_when_all_shards_are_idle_nothing_moves() -> None:
    assert align([ShardView(0, {NAME: 30}, QUIET), ShardView(1, {NAME: 10}, QUIET), ShardView(2, {}, QUIET)]) == []


def test_t2_nothing_is_adopted_while_an_active_shard_has_logged_no_watermark() -> None:
    views = [ShardView(0, {NAME: 30}, ACTIVE), ShardView(1, {}, ACTIVE), ShardView(2, {NAME: 10}, QUIET)]
    assert align(views) == []


def test_t2_an_active_shard_is_never_told_anything() -> None:
    assert align([ShardView(0, {NAME: 30}, ACTIVE), ShardView(1, {NAME: 10}, ACTIVE)]) == []


def test_t2_streams_are_aligned_each_by_itself() -> None:
    other = "fleet/sample"
    views = [ShardView(0, {NAME: 30, other: 5}, ACTIVE), ShardView(1, {other: 9}, frozenset([other]))]
    assert align(views) == [Adoption(0, ("fleet", "sample"), 9), Adoption(1, STREAM, 30)]


def test_t2_a_streams_watermark_is_the_least_logged_and_there_is_none_until_every_shard_has_one() -> None:
    assert stream_watermarks([]) == {}
    assert stream_watermarks([ShardView(0, {NAME: 30}, ACTIVE), ShardView(1, {}, QUIET)]) == {}
    assert stream_watermarks([ShardView(0, {NAME: 30}, ACTIVE), ShardView(1, {NAME: 20}, QUIET)]) == {NAME: 20}


def views_of(shards: list[Watermarks], now: int) -> list[ShardView]:
    return [ShardView(number, marks.logged(), marks.active_streams(now)) for number, marks in enumerate(shards)]


events = st.tuples(st.integers(0, 2), st.sampled_from("ab"), st.integers(-8_000, 1_000), st.integers(0, 4_000))


@given(st.lists(events, max_size=40))
def test_t2_what_a_quiet_shard_adopts_is_above_no_active_shard_and_the_stream_never_falls(
    sent: list[tuple[int, str, int, int]],
) -> None:
    shards, now, last = [Watermarks(SETTINGS) for _ in range(3)], TEN_O_CLOCK, None
    for shard, producer, offset_ms, pause_ms in sent:
        now += pause_ms * 1_000
        for marks in shards:
            marks.tick(now)
        views = views_of(shards, now)
        for adoption in align(views):
            active = [view.logged[NAME] for view in views if NAME in view.active]
            message = shards[adoption.shard].adopt(adoption.stream, adoption.watermark_us, now)
            assert message is not None
            assert message.watermark_us == min(active)
        assert align(views_of(shards, now)) == []
        quiet = [view for view in views_of(shards, now) if NAME not in view.active]
        stream = stream_watermarks(views_of(shards, now)).get(NAME)
        if len(quiet) < 3 and stream is not None:
            # Nobody waits for a quiet shard: the stream is where its least active shard is, or where it already was.
            assert stream >= min(view.logged[NAME] for view in views if NAME in view.active) or stream == last
        assert last is None or (stream is not None and stream >= last)
        last = stream
        shards[shard].stamp(STREAM, now)
        shards[shard].observe(STREAM, producer, 1, now + offset_ms * 1_000, now)


def test_t2_a_write_to_a_quiet_shard_is_stamped_with_what_the_others_had_promised() -> None:
    busy, quiet = Watermarks(SETTINGS), Watermarks(SETTINGS)
    busy.observe(STREAM, "a", 1, TEN_O_CLOCK, TEN_O_CLOCK)
    now = TEN_O_CLOCK + SECOND_US
    busy.tick(now)
    (adoption,) = align(views_of([busy, quiet], now))
    assert (adoption.shard, adoption.stream) == (1, STREAM)
    quiet.adopt(adoption.stream, adoption.watermark_us, now)
    assert quiet.stamp(STREAM, now) == busy.stamp(STREAM, now) == TEN_O_CLOCK - 2 * SECOND_US
