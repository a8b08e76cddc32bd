"""Planted bugs of the clock (C15): see `planted.py`.

Belongs here: bugs that believe a leap of the wall clock, or do half of a reset.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from tidemark.coordinator.flusher import LogFlusher
from tidemark.event_time.clock import Clock, SteadyClock
from tidemark.event_time.watermarks import _Live
from tidemark.log.control import ClockReset, Control
from tidemark.log.log_file import LogFile


def leap_not_noticed() -> AbstractContextManager[Any]:
    """The wall clock is believed whatever it says."""
    read = SteadyClock._read

    def believe(self: SteadyClock, wall_us: int, boot: Clock) -> int:
        self._accept(wall_us)
        return read(self, wall_us, boot)

    return patch.object(SteadyClock, "_read", believe)


def leap_not_bridged() -> AbstractContextManager[Any]:
    """Writes are refused during a leap, but everything else goes by the wall clock."""
    read = SteadyClock._read

    def wall(self: SteadyClock, wall_us: int, boot: Clock) -> int:
        return max(read(self, wall_us, boot), wall_us)

    return patch.object(SteadyClock, "_read", wall)


def leap_not_refused() -> AbstractContextManager[Any]:
    """Time is carried on from before the leap, and writes are taken although that time may be the wrong one."""
    return patch.object(SteadyClock, "check", lambda *_: None)


def reset_by_half() -> AbstractContextManager[Any]:
    """After a reset writes are received by the right clock, but watermarks stay where the wrong one brought them."""
    return patch.object(_Live, "start_again", lambda *_: None)


def reset_not_logged() -> AbstractContextManager[Any]:
    """A reset is in force until the process ends, and the log does not have it."""
    begin_file = LogFlusher._begin_file

    def silent(self: LogFlusher, opening: Sequence[Control] = ()) -> LogFile:
        return begin_file(self, [message for message in opening if not isinstance(message, ClockReset)])

    return patch.object(LogFlusher, "_begin_file", silent)
