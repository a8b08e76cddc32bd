from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tidemark.counts.windows import (
    NotOnAMinuteError,
    Pieces,
    Span,
    Window,
    on_a_minute,
    pieces,
    velocity,
    window_pieces,
)
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, WEEK, WEEK_US, to_us
from tidemark.tables.tiers import TRAILING, Tier

BORDERS = [
    to_us(datetime(*date, tzinfo=UTC))
    for date in (
        (1969, 12, 29),  # the Monday before the Unix epoch
        (1970, 1, 1),
        (1900, 3, 1),  # no leap day before it
        (2024, 2, 29),
        (2024, 3, 1),
        (2025, 1, 1),
        (2026, 3, 2),  # a Monday
        (2027, 1, 4),  # the first Monday of a year
    )
]
minutes = st.one_of(
    st.integers(-400 * 366 * 1_440, 300 * 366 * 1_440).map(lambda minute: minute * MINUTE_US),
    st.builds(lambda border, step: border + step * MINUTE_US, st.sampled_from(BORDERS), st.integers(-3, 3)),
    st.builds(lambda border, hour: border + hour * HOUR_US, st.sampled_from(BORDERS), st.integers(-800, 800)),
)
# Five weeks hold every shape that a range can have, and can still be counted minute by minute.
lengths = st.one_of(st.integers(0, 5 * 7 * 1_440), st.sampled_from([0, 1, 59, 60, 61, 1_440, 10_080, 43_200]))


def covered(found: Pieces) -> Counter[int]:
    """Each minute, as often as a bucket holds it: the definition that is too simple to be wrong."""
    return Counter(
        minute
        for tier, span in found.by_tier()
        for bucket in range(span.start_us or 0, span.end_us, tier.width_us)
        for minute in range(bucket, bucket + tier.width_us, MINUTE_US)
    )


def fewest(start_us: int, end_us: int) -> int:
    """How many buckets a range needs at least: from each point on, the widest bucket that fits begins there."""
    count = 0
    while start_us < end_us:
        fitting = [t.width_us for t in TRAILING if t.floor(start_us) == start_us and start_us + t.width_us <= end_us]
        start_us, count = start_us + max(fitting), count + 1
    return count


@given(minutes, lengths)
@example(BORDERS[0], 10_080)
@example(BORDERS[0] - MINUTE_US, 10_082)
@example(BORDERS[1] - 30 * DAY_US, 43_200)
def test_r2_pieces_hold_every_minute_of_the_range_once_and_no_other(start_us: int, length: int) -> None:
    end_us = start_us + length * MINUTE_US
    assert covered(pieces(start_us, end_us)) == Counter(range(start_us, end_us, MINUTE_US))


@given(minutes, lengths)
def test_r2_pieces_are_as_few_as_can_be(start_us: int, length: int) -> None:
    end_us = start_us + length * MINUTE_US
    found = pieces(start_us, end_us)
    buckets = sum((span.end_us - (span.start_us or 0)) // tier.width_us for tier, span in found.by_tier())
    assert buckets == fewest(start_us, end_us)
    assert all(len(spans) <= 2 for spans in found)
    assert len(found.weeks) <= 1


@given(minutes, lengths)
def test_every_bucket_of_a_piece_is_on_the_grid_of_its_tier(start_us: int, length: int) -> None:
    for tier, span in pieces(start_us, start_us + length * MINUTE_US).by_tier():
        assert span.start_us is not None
        assert tier.floor(span.start_us) == span.start_us < span.end_us == tier.floor(span.end_us)


@given(minutes, st.integers(0, 5 * 7 * 1_440))
def test_r2_without_a_start_the_pieces_reach_back_to_the_first_bucket(end_us: int, back: int) -> None:
    start_us = WEEK.floor(end_us - back * MINUTE_US)
    open_ended = pieces(None, end_us)
    assert open_ended.weeks[0].start_us is None
    closed = Pieces((Span(start_us, open_ended.weeks[0].end_us),), *open_ended[1:])
    assert covered(closed) == Counter(range(start_us, end_us, MINUTE_US))
    assert all(not span.holds(end_us) for _, span in open_ended.by_tier())


@given(minutes, st.sampled_from(Window))
def test_r2_a_window_is_exactly_as_long_as_its_name_says(as_of_us: int, window: Window) -> None:
    found = window_pieces(window, as_of_us)
    if window.length_us is None:
        assert found == pieces(None, as_of_us)
    else:
        assert sum(span.end_us - (span.start_us or 0) for _, span in found.by_tier()) == window.length_us
        assert min(span.start_us or 0 for _, span in found.by_tier()) == as_of_us - window.length_us


def test_r2_the_windows_are_named_and_as_long_as_people_expect() -> None:
    assert {str(window): window.length_us for window in Window} == {
        "1h": HOUR_US,
        "24h": 24 * HOUR_US,
        "7d": 7 * DAY_US,
        "30d": 30 * DAY_US,
        "all": None,
    }


def test_a_range_on_whole_weeks_is_one_piece() -> None:
    monday = BORDERS[6]
    assert pieces(monday, monday + 3 * WEEK_US) == Pieces((Span(monday, monday + 3 * WEEK_US),), (), (), ())


def test_a_range_that_ends_where_it_starts_or_before_is_empty() -> None:
    assert pieces(BORDERS[3], BORDERS[3]) == pieces(BORDERS[4], BORDERS[3]) == Pieces((), (), (), ())


@given(minutes, st.integers(1, MINUTE_US - 1))
def test_r2_a_moment_between_minutes_is_refused_with_the_two_nearest(minute_us: int, beyond_us: int) -> None:
    with pytest.raises(NotOnAMinuteError) as refused:
        on_a_minute(minute_us + beyond_us)
    assert (refused.value.before_us, refused.value.after_us) == (minute_us, minute_us + MINUTE_US)
    with pytest.raises(NotOnAMinuteError):
        pieces(None, minute_us + beyond_us)
    assert on_a_minute(minute_us) == minute_us


def test_the_refusal_names_both_minutes_in_words() -> None:
    with pytest.raises(NotOnAMinuteError, match=r"12:00:30Z is not on a minute.*12:00:00Z or 2026-03-02T12:01:00Z"):
        on_a_minute(to_us(datetime(2026, 3, 2, 12, 0, 30, tzinfo=UTC)))


@given(minutes, st.sampled_from(TRAILING))
def test_buckets_hold_their_moments_before_1970_too(time_us: int, tier: Tier) -> None:
    assert tier.floor(time_us) <= time_us < tier.floor(time_us) + tier.width_us
    assert tier.ceil(time_us) - tier.width_us < time_us <= tier.ceil(time_us)
    assert tier.floor(tier.ceil(time_us)) == tier.ceil(time_us)


def test_r4_velocity_counts_per_hour_over_the_window_or_the_age_if_that_is_shorter() -> None:
    as_of = BORDERS[6]
    assert velocity(48, Window.DAY, as_of, as_of - 40 * DAY_US) == 2.0
    assert velocity(48, Window.DAY, as_of, as_of - 12 * HOUR_US) == 4.0
    assert velocity(48, Window.ALL, as_of, as_of - 2 * DAY_US) == 1.0
    assert velocity(6, Window.HOUR, as_of, as_of - MINUTE_US) == 360.0
    assert velocity(-3, Window.HOUR, as_of, as_of - DAY_US) == -3.0


def test_r4_what_has_not_happened_yet_has_no_velocity() -> None:
    assert velocity(0, Window.ALL, BORDERS[6], None) == 0.0
    assert velocity(0, Window.HOUR, BORDERS[6], BORDERS[6]) == 0.0
