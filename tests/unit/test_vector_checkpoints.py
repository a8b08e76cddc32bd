"""When vectors are compacted, and where checkpoints stand (K2, K3)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.checkpoint_rules import Due, checkpoint_positions, checkpoint_rows, choose, is_due, kept_by
from tidemark.model.errors import ConfigurationError
from tidemark.model.settings import CompactionSettings
from tidemark.vectors.checkpoints import CompactionRules, DueReason, Strategy, due_reasons

MINUTE_US = 60_000_000


def _positions(times: list[int], now_us: int, strategy: Strategy, rules: CompactionRules) -> list[int]:
    """K2, word for word."""
    places = range(len(times))
    if strategy is Strategy.FULL_MERGE:
        return list(places)[-1:]
    if strategy is Strategy.TIERED_MERGE:
        return list(places)[: max(0, len(times) - rules.keep_recent)][-1:]
    ends = {time // rules.interval_us: place for place, time in enumerate(times)}
    return [place for interval, place in sorted(ends.items()) if (interval + 1) * rules.interval_us <= now_us]


@settings(max_examples=80)
@given(
    st.lists(st.lists(st.integers(-20, 20), min_size=1, max_size=8).map(sorted), max_size=4),
    st.integers(-20, 25),
    st.integers(0, 4),
    st.sampled_from([Strategy.FULL_MERGE, Strategy.TIERED_MERGE, Strategy.TIME_BOUNDARY]),
)
def test_checkpoints_stand_where_the_strategy_says_for_many_vectors_at_once(
    lines: list[list[int]], now_us: int, keep: int, strategy: Strategy
) -> None:
    rules = CompactionRules(keep_recent=keep, interval_us=7)
    vectors = np.repeat(np.arange(len(lines)), [len(line) for line in lines])
    times = np.array([time for line in lines for time in line], np.int64)
    found = checkpoint_rows(vectors, times, now_us, strategy, rules)
    expected = [_positions(line, now_us, strategy, rules) for line in lines]
    assert [np.flatnonzero(found[vectors == number]).tolist() for number in range(len(lines))] == expected
    assert [checkpoint_positions(np.array(line), now_us, strategy, rules) for line in lines] == expected


def test_adaptive_is_chosen_from_the_rates_of_each_vector() -> None:
    assert choose(writes_per_hour=1, reads_per_hour=100) is Strategy.FULL_MERGE
    assert choose(writes_per_hour=1_000, reads_per_hour=100) is Strategy.TIERED_MERGE
    assert choose(writes_per_hour=1_000, reads_per_hour=100_000) is Strategy.TIERED_MERGE
    assert choose(writes_per_hour=1_000, reads_per_hour=0.1) is Strategy.TIME_BOUNDARY
    assert choose(writes_per_hour=0, reads_per_hour=0) is Strategy.TIME_BOUNDARY
    with pytest.raises(ConfigurationError, match="for each vector"):
        checkpoint_positions(np.array([1]), 0, Strategy.ADAPTIVE)


@pytest.mark.parametrize(
    ("pending", "waited_us", "reason"),
    [
        (0, 100 * MINUTE_US, DueReason.NONE),
        (10, 100 * MINUTE_US, DueReason.NONE),  # all of them are kept single
        (11, MINUTE_US - 1, DueReason.NONE),
        (11, MINUTE_US, DueReason.AGE),
        (99, 0, DueReason.NONE),
        (100, 0, DueReason.THRESHOLD),
        (999, MINUTE_US, DueReason.THRESHOLD),
        (1_000, 0, DueReason.HARD_LIMIT),
    ],
)
def test_a_vector_is_due_by_number_or_by_age_and_forced_at_the_hard_limit(
    pending: int, waited_us: int, reason: DueReason
) -> None:
    now_us = 7 * MINUTE_US
    due = is_due(pending, now_us - waited_us, now_us, keep_recent=10)
    assert due == Due(reason is not DueReason.NONE, reason)
    assert due.is_forced == (reason is DueReason.HARD_LIMIT)


def test_many_vectors_are_judged_at_once() -> None:
    reasons = due_reasons(np.array([5, 50, 500, 5_000]), np.zeros(4, np.int64), MINUTE_US, keep_recent=10)
    assert [tuple(DueReason)[number] for number in reasons] == ["none", "age", "threshold", "hard_limit"]


def test_nothing_is_due_that_could_merge_nothing() -> None:
    rules = CompactionRules(keep_recent=150)
    assert not is_due(150, 0, MINUTE_US, kept_by(Strategy.TIERED_MERGE, rules), rules).is_due
    assert is_due(1, 0, MINUTE_US, kept_by(Strategy.FULL_MERGE, rules), rules).is_due


@pytest.mark.parametrize(
    "wrong", [{"threshold": 0}, {"threshold": 2_000}, {"keep_recent": -1}, {"keep_recent": 1_000}, {"interval_us": 0}]
)
def test_rules_that_contradict_each_other_are_refused(wrong: dict[str, int]) -> None:
    with pytest.raises(ConfigurationError, match="compaction"):
        CompactionRules(**wrong)  # type: ignore[arg-type]


def test_the_settings_defaults_are_those_of_the_rules() -> None:
    assert CompactionRules.from_settings(CompactionSettings()) == CompactionRules()
