"""Planted bugs of the clock (C15): see `planted.py`.

Belongs here: what goes wrong when the wall clock leaps and somebody believes it.
"""

from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from resources.coordinator.clock import Clock, SteadyClock


def leap_not_noticed() -> AbstractContextManager[Any]:
    """Whatever the wall clock says is the time."""
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
    """Time is carried on from before the leap, and writes are taken although it may be that which is wrong."""
    return patch.object(SteadyClock, "check", lambda *_: None)
