"""What may be dropped of the rollups, and what can then no longer be asked (R5)."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.counts.decay import HalfLife, half_life
from tidemark.counts.retention import (
    CUT_AT,
    LONGEST_US,
    GoneError,
    RetentionError,
    decide_cuts,
    dropped_before,
    gone_before,
    latest_cuts,
    refuse_gone,
    remember,
    settled_before,
)
from tidemark.counts.windows import Span, Window, window_pieces
from tidemark.model.errors import DamageError
from tidemark.model.timegrid import DAY_US, HOUR_US, MINUTE_US, WEEK_US, to_us
from tidemark.storage.home import Home
from tidemark.tables.tiers import Tier

NOW = to_us(datetime(2026, 3, 18, 10, 37, tzinfo=UTC))
MONDAY = to_us(datetime(2026, 1, 5, tzinfo=UTC))

moments = st.integers(0, 400 * 1_440).map(lambda minute: NOW - minute * MINUTE_US)
cut_times = st.dictionaries(st.sampled_from(list(CUT_AT)), moments).map(
    lambda wanted: {tier: CUT_AT[tier].floor(before_us) for tier, before_us in wanted.items()}
)
half_lives = st.lists(st.sampled_from(["1h", "1d", "7d", "30d"]), unique=True).map(
    lambda names: [half_life(name) for name in names]
)


def kept(tier: Tier, span: Span, cuts: dict[Tier, int]) -> bool:
    return span.start_us is None or tier not in cuts or span.start_us >= cuts[tier]


@given(cut_times, cut_times, half_lives)
def test_r5_what_is_dropped_is_decided_so_that_every_question_from_now_on_has_its_buckets(
    earlier: dict[Tier, int], wanted: dict[Tier, int], scores: list[HalfLife]
) -> None:
    try:
        gone = decide_cuts(earlier, {}, NOW, scores)
        cuts = decide_cuts(wanted, gone, NOW, scores)
    except RetentionError:
        return
    for as_of_us in (NOW, NOW - 30 * MINUTE_US, NOW + 45 * DAY_US):
        for window in Window:
            refuse_gone(window, as_of_us, cuts)
            assert all(kept(tier, span, cuts) for tier, span in window_pieces(window, as_of_us).by_tier())
        for each in scores:
            assert all(kept(tier, span, cuts) for tier, span in each.spans(as_of_us))


@given(cut_times, cut_times)
def test_r5_cuts_lie_on_borders_finer_ones_reach_further_and_none_goes_back(
    earlier: dict[Tier, int], wanted: dict[Tier, int]
) -> None:
    try:
        gone = decide_cuts(earlier, {}, NOW)
        cuts = decide_cuts(wanted, gone, NOW)
    except RetentionError:
        return
    for tier, cut_us in cuts.items():
        assert CUT_AT[tier].floor(cut_us) == cut_us
        assert cut_us >= max(gone.get(tier, cut_us), wanted.get(tier, cut_us))
    assert sorted(cuts.values(), reverse=True) == [cuts[tier] for tier in CUT_AT if tier in cuts]
    assert decide_cuts(wanted, cuts, NOW) == cuts, "done again it is the same"


@given(moments, st.sampled_from(Window), cut_times)
def test_r5_a_question_is_refused_exactly_when_it_needs_what_is_gone(
    as_of_us: int, window: Window, cuts: dict[Tier, int]
) -> None:
    as_of_us = as_of_us // MINUTE_US * MINUTE_US
    needed = list(window_pieces(window, as_of_us).by_tier())
    if all(kept(tier, span, cuts) for tier, span in needed):
        refuse_gone(window, as_of_us, cuts)
    else:
        with pytest.raises(GoneError, match="were dropped"):
            refuse_gone(window, as_of_us, cuts)
        assert as_of_us < max(cuts.values()) + LONGEST_US


def test_r5_all_can_be_asked_as_of_any_minute_after_the_cut() -> None:
    cuts = decide_cuts({Tier.MINUTE: MONDAY}, {}, NOW)
    for minutes in (0, 1, 59, 61, 3_000):
        refuse_gone(Window.ALL, MONDAY + minutes * MINUTE_US, cuts)
    refuse_gone(Window.ALL, MONDAY - HOUR_US, cuts)  # on an hour, and hours are kept
    with pytest.raises(GoneError, match=r"needs minutes from .* Every window can be asked as of 2026-02-04T00:00:00Z"):
        refuse_gone(Window.ALL, MONDAY - MINUTE_US, cuts)


def test_r5_a_cut_off_the_grid_is_refused_with_the_two_nearest() -> None:
    with pytest.raises(RetentionError, match="before 2026-01-05T00:00:00Z or 2026-01-05T01:00:00Z"):
        decide_cuts({Tier.MINUTE: MONDAY + MINUTE_US}, {}, NOW)
    with pytest.raises(RetentionError, match="before 2026-01-05T00:00:00Z or 2026-01-06T00:00:00Z"):
        decide_cuts({Tier.HOUR: MONDAY + HOUR_US}, {}, NOW)
    with pytest.raises(RetentionError, match="before 2026-01-05T00:00:00Z or 2026-01-12T00:00:00Z"):
        decide_cuts({Tier.DAY: MONDAY + DAY_US}, {}, NOW)


def test_r5_weeks_are_kept_for_ever() -> None:
    with pytest.raises(RetentionError, match="Weeks are never dropped"):
        decide_cuts({Tier.WEEK: MONDAY}, {}, NOW)


def test_r5_what_the_longest_window_needs_as_of_now_is_refused() -> None:
    latest = latest_cuts(NOW)
    assert latest[Tier.MINUTE] == (NOW - 30 * DAY_US - HOUR_US) // HOUR_US * HOUR_US
    decide_cuts({Tier.MINUTE: latest[Tier.MINUTE]}, {}, NOW)
    with pytest.raises(RetentionError, match="still needs minutes before 2026-02-16T10:00:00Z, also as of now"):
        decide_cuts({Tier.MINUTE: latest[Tier.MINUTE] + HOUR_US}, {}, NOW)


def test_r5_what_a_configured_half_life_needs_is_refused() -> None:
    week = [half_life("7d")]
    latest = latest_cuts(NOW, week)
    assert latest[Tier.MINUTE] == latest_cuts(NOW)[Tier.MINUTE]
    assert NOW - latest[Tier.HOUR] > 32 * 7 * DAY_US
    with pytest.raises(RetentionError, match="still needs hours"):
        decide_cuts({Tier.HOUR: latest[Tier.HOUR] + DAY_US}, {}, NOW, week)
    with pytest.raises(RetentionError, match="still needs hours"):
        decide_cuts({Tier.DAY: MONDAY}, {}, NOW, week)
    assert latest[Tier.DAY] <= latest[Tier.HOUR]


def test_what_is_decided_is_remembered_and_says_what_is_settled(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    assert gone_before(home) == {}
    assert settled_before(home, "hourly_counts") is None
    cuts = decide_cuts({Tier.MINUTE: MONDAY + WEEK_US, Tier.HOUR: MONDAY}, {}, NOW)
    remember(home, cuts)
    assert gone_before(home) == cuts
    assert settled_before(home, "minute_counts") == settled_before(home, "hourly_counts") == MONDAY + WEEK_US
    assert settled_before(home, "daily_counts") == MONDAY
    assert settled_before(home, "weekly_counts") is None
    assert settled_before(home, "monthly_counts") is None
    assert settled_before(home, "deltas") is None


FEBRUARY = to_us(datetime(2025, 2, 1, tzinfo=UTC))
MARCH = to_us(datetime(2025, 3, 1, tzinfo=UTC))


def test_r5_days_stay_on_the_disk_until_the_month_that_holds_them_is_settled(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    monday = FEBRUARY + 9 * DAY_US  # the tenth
    cuts = decide_cuts({Tier.DAY: monday}, {}, NOW)
    remember(home, cuts)
    assert gone_before(home) == cuts == {Tier.MINUTE: monday, Tier.HOUR: monday, Tier.DAY: monday}
    assert dropped_before(home) == {Tier.MINUTE: monday, Tier.HOUR: monday, Tier.DAY: FEBRUARY}
    assert settled_before(home, "weekly_counts") == monday
    assert settled_before(home, "monthly_counts") == FEBRUARY, "days of February can still change it"
    remember(home, decide_cuts({Tier.DAY: MARCH + 2 * DAY_US}, cuts, NOW))
    assert dropped_before(home)[Tier.DAY] == settled_before(home, "monthly_counts") == MARCH


def test_r5_what_an_earlier_version_dropped_is_not_taken_for_kept(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    monday = FEBRUARY + 9 * DAY_US
    (home.plans / "retention.json").write_text(f'{{"gone_before_us": {{"day": {monday}}}}}')
    assert dropped_before(home) == gone_before(home) == {Tier.DAY: monday}
    assert settled_before(home, "monthly_counts") == monday, "February lacks days: it is not computed"
    remember(home, decide_cuts({Tier.DAY: monday + WEEK_US}, gone_before(home), NOW))
    assert dropped_before(home)[Tier.DAY] == monday


def test_a_damaged_memory_of_what_is_gone_is_refused(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    (home.plans / "retention.json").write_text('{"gone_before_us": {"fortnight": 1}}')
    with pytest.raises(DamageError, match="is damaged"):
        gone_before(home)
