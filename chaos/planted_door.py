"""Planted bugs of the network door: acknowledgements, numbers, the window, who may speak, and subscriptions.

Belongs here: the patches. The list of all bugs that a test has to find, with those tests, is in `planted_beside.py`.
"""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from tidemark.coordinator.core import ShardCore
from tidemark.coordinator.handles import Sending, WriteHandle
from tidemark.gateway.acknowledging import Answers, Pending
from tidemark.gateway.connection import Connection
from tidemark.gateway.door import Door
from tidemark.gateway.guard import Guard
from tidemark.gateway.producing import Producing
from tidemark.gateway.subscribing import Subscribers, Subscribing
from tidemark.gateway.tokens import Grant
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
