"""Planted bugs beside the coordinator: in the lake, in the daemon's assumptions, and in files that processes share.

Belongs here: patches of the product as in `planted.py`, each with the test of the default tier that must fail under
it. The simulation does not go there, so a test has to find them; that is verified here. A bug is in force in a process
of its own, which ends with that test:

    python -m chaos.planted_beside NAME
"""

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

from chaos import planted_admission

ROOT = Path(__file__).resolve().parent.parent
# The exit code of pytest when a test has failed; any other means that it could not be run.
TESTS_FAILED = 1


class Beside(NamedTuple):
    """One bug, the rule that it breaks, and the test that must fail."""

    name: str
    rule: str
    what: str
    plant: Callable[[], AbstractContextManager[Any]]
    test: str


class Tried(NamedTuple):
    """The result of the test for a bug."""

    name: str
    is_caught: bool
    said: str  # the end of what pytest printed


def _break_not_seen() -> AbstractContextManager[Any]:
    from tidemark.tables import known_table

    return patch.object(known_table, "_find_break", lambda *_: None)


def _generations_from_zero() -> AbstractContextManager[Any]:
    from resources import lake

    return patch.object(lake, "next_floor", lambda *_: 0)


def _code_not_checked() -> AbstractContextManager[Any]:
    from tidemark.arrays import code_files

    return patch.object(code_files, "_checksum", lambda *_: bytes(32))


def _edits_not_asked() -> AbstractContextManager[Any]:
    from assets import trust

    return patch.object(trust, "edited", lambda *_: {})


def _verdicts_not_asked_again() -> AbstractContextManager[Any]:
    from assets import trust

    return patch.object(trust, "failed", lambda *_: set())


def _gateway_not_guarded() -> AbstractContextManager[Any]:
    from resources import spark_internals

    return patch.object(spark_internals, "guard", lambda _: None)


def _home_left_open() -> AbstractContextManager[Any]:
    from tidemark.storage import privacy

    return patch.object(privacy, "tighten", lambda _: None)


def _answers_believed() -> AbstractContextManager[Any]:
    from tidemark.tables import lake_files

    return patch.object(lake_files, "marker", lambda *_: None)


BESIDE = (
    Beside(
        "break_not_seen",
        "C7",
        "a log of a table that cannot be read is not a break of its generation",
        _break_not_seen,
        "tests/unit/test_lives.py::test_c7_a_log_that_cannot_be_read_is_set_aside_and_the_table_begins_anew",
    ),
    Beside(
        "lives_from_zero",
        "C7",
        "a table that is made again begins at version 0, where a late commit of an earlier generation lands",
        _generations_from_zero,
        "tests/unit/test_lives.py::test_c7_a_late_commit_of_an_earlier_life_does_not_get_into_a_table_that_was_made_anew",
    ),
    Beside(
        "code_not_checked",
        "C14",
        "machine code that was cut short is run",
        _code_not_checked,
        "tests/unit/test_code_files.py::test_no_damage_passes_the_check",
    ),
    Beside(
        "edits_not_asked",
        "O4",
        "the daemon sums up an hour that was edited by hand",
        _edits_not_asked,
        "tests/definitions/test_trust.py::test_o4_what_was_edited_by_hand_is_not_summed_up_by_the_daemon",
    ),
    Beside(
        "verdicts_not_asked_again",
        "O4",
        "a run that begins does not ask whether a check of its input has failed meanwhile",
        _verdicts_not_asked_again,
        "tests/definitions/test_trust.py::test_o4_a_run_asks_for_verdicts_when_it_begins",
    ),
    Beside(
        "gateway_not_guarded",
        "O4",
        "after an interrupted call to the JVM every call gets the answer of the one before",
        _gateway_not_guarded,
        "tests/unit/test_gateway.py::test_after_an_interrupted_call_every_call_gets_its_own_answer",
    ),
    Beside(
        "home_left_open",
        "C14",
        "a home stays readable by every user",
        _home_left_open,
        "tests/unit/test_privacy.py::test_a_home_of_before_is_closed_when_it_is_next_opened",
    ),
    Beside(
        "answers_believed",
        "R5",
        "a drop whose answer was lost is reported as failed, without a look at the table",
        _answers_believed,
        "tests/unit/test_lost_answers.py::test_r5_a_drop_whose_answer_is_lost_is_no_failure",
    ),
    Beside(
        "refusal_uncounted",
        "A3",
        "what a shard had no room for is told and not counted",
        planted_admission.refusal_uncounted,
        "tests/unit/test_admission.py::test_a3_what_a_shard_had_no_room_for_has_cost_nothing",
    ),
    Beside(
        "bucket_starts_full",
        "A2",
        "after a restart every stream has its burst again",
        planted_admission.bucket_starts_full,
        "tests/unit/test_admission.py::test_a2_a_start_begins_with_nothing_and_the_first_write_gets_through_at_once",
    ),
    Beside(
        "bucket_without_debt",
        "A2",
        "a write costs no more than there is",
        planted_admission.bucket_without_debt,
        "tests/unit/test_admission.py::test_a2_over_an_hour_the_admitted_rate_is_the_configured_one_within_one_write",
    ),
    Beside(
        "tokens_spent_by_refused",
        "A1",
        "a write that is turned away takes its tokens all the same",
        planted_admission.tokens_spent_by_refused,
        "tests/unit/test_admission.py::test_a2_tokens_are_spent_by_what_was_let_in_and_by_nothing_else",
    ),
    Beside(
        "back_too_early",
        "A2",
        "who comes back when told finds nothing in the bucket yet",
        planted_admission.back_too_early,
        "tests/unit/test_admission.py::test_a2_whoever_comes_back_when_told_is_let_in",
    ),
    Beside(
        "jitter_by_event_time",
        "A2",
        "a stream that was silent once is locked out",
        planted_admission.jitter_by_event_time,
        "tests/unit/test_admission.py::test_a2_jitter_compares_with_the_last_arrival_so_a_pause_locks_nobody_out",
    ),
    Beside(
        "shed_before_agreement",
        "A1",
        "the shedder is asked before what was agreed",
        planted_admission.shed_before_agreement,
        "tests/unit/test_admission.py::test_a1_an_agreement_wins_over_the_shedder_and_lag_over_jitter_over_rate",
    ),
    Beside(
        "critical_is_shed",
        "A3",
        "critical is a priority like any other",
        planted_admission.critical_is_shed,
        "tests/unit/test_admission_load.py::test_a3_one_more_priority_makes_room_with_each_interval_and_critical_never_does",
    ),
    Beside(
        "share_not_given_back",
        "A3",
        "what was flushed still counts in its class",
        planted_admission.share_not_given_back,
        "tests/unit/test_admission.py::test_a3_whatever_happens_received_is_admitted_and_turned_away",
    ),
    Beside(
        "shares_not_guaranteed",
        "A3",
        "whoever comes first has all the room",
        planted_admission.shares_not_guaranteed,
        "tests/unit/test_admission_load.py::test_a3_alone_a_class_gets_everything_and_the_other_still_gets_its_share",
    ),
    Beside(
        "decrease_smoothed",
        "A4",
        "half is only aimed at",
        planted_admission.decrease_smoothed,
        "tests/unit/test_admission_load.py::test_a4_it_halves_above_nine_tenths_and_eases_above_seven_at_once",
    ),
    Beside(
        "loud_gets_more",
        "A4",
        "who ignores its pace is listened to all the same",
        planted_admission.loud_gets_more,
        "tests/unit/test_admission_load.py::test_a4_one_rude_client_costs_nine_polite_ones_at_most_five_per_cent",
    ),
    Beside(
        "counts_not_sealed",
        "A3",
        "a log file without writes takes its counts with it",
        planted_admission.counts_not_sealed,
        "tests/unit/test_turned_away.py::test_a3_a_log_file_without_writes_becomes_no_segment_and_its_counts_stay",
    ),
    Beside(
        "counts_sealed_twice",
        "A3",
        "what is in a line of the manifest is in the next one, too",
        planted_admission.counts_sealed_twice,
        "tests/unit/test_turned_away.py::test_a3_sealing_takes_the_counts_into_the_line_and_the_totals_once",
    ),
    Beside(
        "kill_not_noticed",
        "A3",
        "a start does not look whether a door was counting",
        planted_admission.kill_not_noticed,
        "tests/unit/test_turned_away_account.py::test_a3_after_a_kill_the_account_names_the_time_before_and_after_the_next_start",
    ),
    Beside(
        "notes_never_due",
        "A3",
        "counts wait for the next write, however long that takes",
        planted_admission.notes_never_due,
        "tests/unit/test_turned_away.py::test_a3_counts_are_logged_after_a_minute_at_the_latest",
    ),
)


def try_out(name: str) -> Tried:
    """Plant one bug in a process of its own, and see whether its test fails."""
    command = [sys.executable, "-m", "chaos.planted_beside", name]
    # It is no worker of a test run that this may be part of.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    return Tried(name, done.returncode == TESTS_FAILED, (done.stdout + done.stderr)[-2_000:])


def main(name: str) -> int:
    """Run the test of one bug with the bug in force; return the exit code of pytest."""
    import pytest

    [bug] = [each for each in BESIDE if each.name == name]
    with bug.plant():
        return int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", str(ROOT / bug.test)]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
