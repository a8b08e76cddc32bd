"""Planted bugs beside the coordinator: at the door, in the lake, in the daemon's assumptions, and in shared files.

Belongs here: patches of the product as in `planted.py`, each with the test of the default tier that must fail under
it. The simulation does not go there, so a test has to find them; that is verified here. A bug is in force in a process
of its own, which ends with that test.
"""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from chaos.beside import Beside
from chaos.planted_admission import ADMISSION
from chaos.planted_client import CLIENT
from chaos.planted_door import DOOR
from chaos.planted_wire import WIRE


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


FRAMES = "tests/unit/test_wire_frames.py"
COLUMNS = "tests/unit/test_foreign_columns.py"

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
    *ADMISSION,
    *WIRE,
    *DOOR,
    *CLIENT,
)
