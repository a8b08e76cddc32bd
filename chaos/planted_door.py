"""Planted bugs of the network door: acknowledgements, numbers, the window, who may speak, and subscriptions.

Belongs here: the patches. Each has the test that must find it.
"""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from chaos.beside import Beside
from tidemark.coordinator.core import ShardCore
from tidemark.coordinator.handles import Sending, WriteHandle
from tidemark.gateway.access.guard import Guard
from tidemark.gateway.access.tokens import Grant
from tidemark.gateway.door import Door
from tidemark.gateway.w1.acknowledging import Answers, Pending
from tidemark.gateway.w1.connection import Connection
from tidemark.gateway.w1.producing import Producing
from tidemark.gateway.w1.subscribing import Subscribers, Subscribing
from tidemark.shard_state.producers import Producers


def acked_before_flush() -> AbstractContextManager[Any]:
    """A write is acknowledged when it is taken, and not when it is on the disk."""
    return patch.object(Pending, "is_waiting", property(lambda self: not all(h.is_applied for h in self.handles)))


def mark_not_checked() -> AbstractContextManager[Any]:
    """Whatever number a write has, it is taken."""
    return patch.object(Producers, "is_retry", lambda *_: False)


def window_ignored() -> AbstractContextManager[Any]:
    """Whoever sends more than its window is read from all the same."""
    return patch.object(Producing, "is_blocked", property(lambda self: self._blocked is not None))


def durable_believed() -> AbstractContextManager[Any]:
    """What is flushed is acknowledged as durable."""
    durable = Answers.durable

    def all_of_it(self: Answers, _: Any) -> None:
        durable(self, dict.fromkeys(range(1_024), 2**62))

    return patch.object(Answers, "durable", all_of_it)


def number_not_used_up() -> AbstractContextManager[Any]:
    """A write that nothing can be made of leaves its number free."""

    def nothing(self: ShardCore, producer: str, instance: int, sequence: int, why: str) -> Sending:  # noqa: ARG001 - as the method has it
        return Sending(sequence, True, None)

    return patch.object(ShardCore, "refuse", nothing)


def empty_part_not_logged() -> AbstractContextManager[Any]:
    """A shard without deltas of a write does not hear of its number."""

    def nothing(self: ShardCore, producer: str, instance: int, sequence: int) -> Sending:  # noqa: ARG001 - as the method has it
        self._producers.advance(producer, sequence)
        return Sending(sequence, False, None)

    return patch.object(ShardCore, "skip", nothing)


def refusals_not_told() -> AbstractContextManager[Any]:
    """An acknowledgement counts refused deltas, and does not say which."""
    from tidemark.verdicts.told_rows import NOTHING_TOLD

    return patch.object(WriteHandle, "told", property(lambda _: NOTHING_TOLD))


def older_not_fenced() -> AbstractContextManager[Any]:
    """An older connection of a producer is not told that it was replaced."""
    return patch.object(Door, "_fence_others", lambda *_: None)


def scope_not_asked() -> AbstractContextManager[Any]:
    """A token writes to every namespace."""
    return patch.object(Grant, "may_write", lambda *_: True)


def revoked_stays() -> AbstractContextManager[Any]:
    """A connection stays when its token is revoked."""
    return patch.object(Guard, "look", lambda *_: None)


def goodbye_without_answers() -> AbstractContextManager[Any]:
    """A stopping door closes its connections at once."""
    say = Connection.say_goodbye

    def say_and_close(self: Connection, drain_ms: int) -> None:
        say(self, drain_ms)
        self.end()

    return patch.object(Connection, "say_goodbye", say_and_close)


def slow_not_let_go() -> AbstractContextManager[Any]:
    """A frame that has begun may take for ever."""
    return patch.object(Connection, "look", lambda _: None)


def cursor_saved_when_sent() -> AbstractContextManager[Any]:
    """A durable name goes on behind what was sent, and not behind what was acknowledged."""
    save = Subscribers.save

    def ahead(self: Subscribers, name: str, cursor: Any) -> None:
        save(self, name, dict.fromkeys(cursor, 2**40))

    return patch.object(Subscribers, "save", ahead)


def unacknowledged_without_bound() -> AbstractContextManager[Any]:
    """A subscriber gets everything at once, whatever it has acknowledged."""

    async def at_once(*_: object) -> None:
        return None

    return patch.object(Subscribing, "_wait_for_room", at_once)


DOOR = (
    Beside(
        "acked_before_flush",
        "C2",
        "a write is acknowledged as flushed when it was only taken",
        acked_before_flush,
        "tests/unit/test_w1_producers.py::test_nothing_is_acknowledged_before_it_is_on_the_disk_c2",
    ),
    Beside(
        "mark_not_checked",
        "Q2",
        "a number that was used is taken again",
        mark_not_checked,
        "tests/unit/test_w1_producers.py::test_a_retry_is_answered_a_gap_is_refused_and_another_write_under_a_used_number_too_q2",
    ),
    Beside(
        "window_ignored",
        "W6",
        "whoever sends more than its window is read from all the same",
        window_ignored,
        "tests/unit/test_w1_producers.py::test_no_more_than_the_window_is_taken_in_before_it_is_answered_w6",
    ),
    Beside(
        "durable_believed",
        "C2",
        "what is flushed is acknowledged as durable",
        durable_believed,
        "tests/unit/test_w1_producers.py::test_each_level_that_is_wanted_is_acknowledged_when_it_is_reached_w4",
    ),
    Beside(
        "number_not_used_up",
        "Q2",
        "a write that nothing can be made of leaves its number free",
        number_not_used_up,
        "tests/unit/test_w1_producers.py::test_what_nothing_can_be_made_of_uses_its_number_up_also_after_a_restart_q2",
    ),
    Beside(
        "empty_part_not_logged",
        "W5",
        "a shard without deltas of a write does not log its number",
        empty_part_not_logged,
        "tests/unit/test_w1_producers.py::test_a_number_of_a_thin_producer_goes_to_every_shard_w5",
    ),
    Beside(
        "refusals_not_told",
        "W4",
        "an acknowledgement does not say which deltas were refused",
        refusals_not_told,
        "tests/unit/test_w1_producers.py::test_a_write_is_acknowledged_when_it_is_flushed_with_what_became_of_each_delta_w4",
    ),
    Beside(
        "older_not_fenced",
        "Q2",
        "an older connection of a producer is not told that it was replaced",
        older_not_fenced,
        "tests/unit/test_w1_producers.py::test_an_older_instance_is_told_that_it_is_fenced_and_may_not_come_back_q2",
    ),
    Beside(
        "goodbye_without_answers",
        "C10",
        "a stopping door closes its connections at once",
        goodbye_without_answers,
        "tests/unit/test_w1_producers.py::test_a_stopping_door_says_goodbye_and_answers_what_was_sent_c10",
    ),
    Beside(
        "slow_not_let_go",
        "W3",
        "a frame that has begun may take for ever",
        slow_not_let_go,
        "tests/unit/test_w1_producers.py::test_the_silent_and_the_slow_are_let_go_w3",
    ),
    Beside(
        "scope_not_asked",
        "W10",
        "a token writes to every namespace",
        scope_not_asked,
        "tests/unit/test_w1_access.py::test_a_token_writes_to_its_namespaces_and_to_no_other_w10",
    ),
    Beside(
        "revoked_stays",
        "W10",
        "a connection stays when its token is revoked",
        revoked_stays,
        "tests/unit/test_w1_access.py::test_a_revoked_token_ends_its_connections_w10",
    ),
    Beside(
        "cursor_saved_when_sent",
        "W7",
        "a durable name goes on behind what it has not acknowledged",
        cursor_saved_when_sent,
        "tests/unit/test_w1_subscribers.py::test_a_durable_name_goes_on_behind_what_it_acknowledged_also_after_a_restart_w7",
    ),
    Beside(
        "unacknowledged_without_bound",
        "W7",
        "a subscriber gets everything at once",
        unacknowledged_without_bound,
        "tests/unit/test_w1_subscribers.py::test_no_more_is_sent_than_may_be_unacknowledged_w7",
    ),
)
