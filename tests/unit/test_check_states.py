"""Passed, failed, not checked: one rule over the last materialization and the last result of its check (O4)."""

import pytest

from assets.check_states import FAILED, PASSED, CheckState, state_of

PLANNED = "PLANNED"


@pytest.mark.parametrize(
    ("status", "event", "target", "made", "state"),
    [
        (PASSED, 8, 7, 7, CheckState.PASSED),
        (FAILED, 8, 7, 7, CheckState.FAILED),
        # Written anew since.
        (PASSED, 8, 7, 9, CheckState.UNCHECKED),
        (FAILED, 8, 7, 9, CheckState.FAILED_BEFORE),
        # A check that is under way says nothing yet.
        (PLANNED, 8, None, 7, CheckState.UNCHECKED),
        (PLANNED, 8, None, None, CheckState.NOT_MADE),
        # A refusal is about nothing in particular, and holds until something is written.
        (FAILED, 8, None, None, CheckState.FAILED),
        (FAILED, 8, None, 7, CheckState.FAILED),
        (FAILED, 8, None, 9, CheckState.FAILED_BEFORE),
        # A result about nothing in particular proves nothing.
        (PASSED, 8, None, 7, CheckState.UNCHECKED),
        # What was wiped while it was checked: only a bad result is remembered.
        (PASSED, 8, 7, None, CheckState.NOT_MADE),
        (FAILED, 8, 7, None, CheckState.FAILED_BEFORE),
    ],
)
def test_a_result_counts_for_the_rows_that_it_is_about(
    status: str, event: int, target: int | None, made: int | None, state: CheckState
) -> None:
    assert state_of(status, event, target, made) is state


def test_nothing_is_built_on_what_failed_or_has_no_result_on_its_rows() -> None:
    assert {state for state in CheckState if state.has_failed} == {CheckState.FAILED, CheckState.FAILED_BEFORE}
    assert {state for state in CheckState if state.is_open} == {CheckState.FAILED_BEFORE, CheckState.UNCHECKED}
