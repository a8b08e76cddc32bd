"""Planted bugs of the client: in what it sends again, in what it believes, and in its spool.

Belongs here: the patches. Each has the test that must find it.
"""

import os
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any
from unittest.mock import PropertyMock, patch

from chaos.beside import Beside
from tidemark.client import spool, spool_file
from tidemark.client.connection import Connection
from tidemark.client.in_flight import InFlight
from tidemark.client.outbox import Outbox
from tidemark.client.sender import Sender
from tidemark.client.spool import Spool, SpoolState
from tidemark.client.window import Window


def window_ignored() -> AbstractContextManager[Any]:
    """It sends whatever the server allows."""
    return patch.object(Window, "has_room", lambda *_: True)


def sent_again_too_early() -> AbstractContextManager[Any]:
    """A write that was given back is sent again before what is behind it was given back."""
    return patch.object(Connection, "unanswered", PropertyMock(return_value=0))


def lost_data_unseen() -> AbstractContextManager[Any]:
    """A server with less than it had acknowledged is one like any other."""
    begin = Outbox.begin

    def forgetful(self: Outbox, welcome: Any) -> int:
        self.acknowledged = 0
        return begin(self, welcome)

    return patch.object(Outbox, "begin", forgetful)


def taken_sent_anew() -> AbstractContextManager[Any]:
    """What the server has taken without an answer is numbered anew behind its mark."""
    begin = Outbox.begin

    def renumbering(self: Outbox, welcome: Any) -> int:
        self.base = welcome.mark - self.acknowledged
        return begin(self, welcome)

    return patch.object(Outbox, "begin", renumbering)


def fence_ignored() -> AbstractContextManager[Any]:
    """A client that was fenced tries again."""
    return patch.object(Sender, "_not_connected", lambda *_: 0.0)


def acknowledgement_of_nothing_believed() -> AbstractContextManager[Any]:
    """The server may acknowledge what was never sent."""
    acknowledge = InFlight.acknowledge

    def credulous(self: InFlight, sequence: int, *rest: Any) -> None:
        self._highest = max(self._highest, sequence)
        acknowledge(self, sequence, *rest)

    return patch.object(InFlight, "acknowledge", credulous)


def spool_shared() -> AbstractContextManager[Any]:
    """Two clients may have one spool."""
    return patch.object(spool, "_lock", lambda path: os.open(Path(path) / "lock", os.O_RDWR | os.O_CREAT))


def spool_checksums_ignored() -> AbstractContextManager[Any]:
    """Bytes of the spool are taken as they are."""
    return patch.object(spool_file, "_checksum", lambda *_: 0)


def spool_damage_cut() -> AbstractContextManager[Any]:
    """Damage in the middle of a file is cut off as if a crash had torn it."""
    return patch.object(spool_file, "_has_group_behind", lambda *_: False)


def spool_numbers_again() -> AbstractContextManager[Any]:
    """An empty spool numbers from 1 again."""
    read = Spool._read_state

    def from_one(self: Spool, producer: str) -> SpoolState:
        state = read(self, producer)
        state.next = 1
        return state

    return patch.object(Spool, "_read_state", from_one)


CLIENT = (
    Beside(
        "window_ignored_by_client",
        "W6",
        "a client sends whatever the server allows",
        window_ignored,
        "tests/unit/test_client_faults.py::test_the_window_is_respected_and_may_change",
    ),
    Beside(
        "sent_again_too_early",
        "Q2",
        "a write that was given back is sent again before what is behind it was given back",
        sent_again_too_early,
        "tests/unit/test_client_faults.py::test_writes_that_are_given_back_are_sent_again_in_their_order",
    ),
    Beside(
        "lost_data_unseen",
        "Q2",
        "a server with less than it had acknowledged is one like any other",
        lost_data_unseen,
        "tests/unit/test_client_faults.py::test_a_server_that_lost_what_it_had_acknowledged_is_told_apart",
    ),
    Beside(
        "taken_sent_anew",
        "Q2",
        "what was taken without an answer is numbered anew, and sent twice",
        taken_sent_anew,
        "tests/unit/test_client_faults.py::test_a_lost_answer_repeats_nothing",
    ),
    Beside(
        "fence_ignored",
        "Q2",
        "a client that was fenced tries again",
        fence_ignored,
        "tests/unit/test_client_faults.py::test_another_program_with_the_same_name_stops_this_one_and_says_so",
    ),
    Beside(
        "acknowledgement_of_nothing_believed",
        "W4",
        "the server may acknowledge what was never sent",
        acknowledgement_of_nothing_believed,
        "tests/unit/test_client_connection.py::test_an_acknowledgement_of_what_was_never_sent_is_not_believed",
    ),
    Beside(
        "spool_shared",
        "Q2",
        "two clients may have one spool",
        spool_shared,
        "tests/unit/test_client_spool.py::test_a_spool_has_one_client_at_a_time_and_one_producer",
    ),
    Beside(
        "spool_checksums_ignored",
        "Q2",
        "bytes of the spool are taken as they are",
        spool_checksums_ignored,
        "tests/unit/test_client_spool.py::test_a_flipped_bit_is_found_and_never_read_as_a_delta",
    ),
    Beside(
        "spool_damage_cut",
        "Q2",
        "damage in the middle of the spool is cut off as if a crash had torn it",
        spool_damage_cut,
        "tests/unit/test_client_spool.py::test_a_flipped_bit_is_found_and_never_read_as_a_delta",
    ),
    Beside(
        "spool_numbers_again",
        "Q2",
        "an empty spool numbers from 1 again",
        spool_numbers_again,
        "tests/unit/test_client_spool.py::test_acknowledged_files_are_removed_and_numbers_never_come_again",
    ),
)
