"""The clock of a platform: the machine's wall clock, checked against one that cannot be set (C15).

Belongs here: telling a leap of the wall clock from time that has passed, and the time meanwhile. What is refused during
a leap is decided where it is met (`coordinator/core.py`). Decision 0037 says why it works like this.

Every reading compares the wall clock with the boot clock, which counts suspension and cannot be set. Their difference
is constant but for corrections of the wall clock. A correction within the bound is taken, and time never falls. Beyond
the bound the reading is the last accepted time plus what the boot clock has counted since: batches, seals, watermarks
and idleness go on, and nothing carries the wrong time. `leap` says so until the wall clock is right again.
"""

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from tidemark.model.shard_errors import ClockLeapError
from tidemark.model.timegrid import from_us

Clock = Callable[[], int]

# Corrections within the bound add up to a leap unless they are this slow: one part in a thousand, twice the rate at
# which NTP slews. A clock that runs fast, or is set forward a little every minute, is noticed like one that leaps.
SLEW_SHARE = 1_000
# An operator sets a clock right, or NTP does within a minute or so.
RETRY_AFTER_S = 1.0


def system_clock() -> int:
    """Microseconds since 1970, from the machine's clock."""
    return time.time_ns() // 1_000


# Counts while the machine is suspended, unlike `time.monotonic`; outside Linux the monotonic clock is used.
_BOOT = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def boot_clock() -> int:
    """Microseconds since the machine was started, suspension included."""
    return time.clock_gettime_ns(_BOOT) // 1_000


class Leap(NamedTuple):
    """The wall clock is wrong by more than the bound."""

    wall_us: int
    expected_us: int  # the right time; at a start: the least that it can be
    is_start: bool  # it has been behind the log since this process started


class SteadyClock:
    """Callable as any clock; shared by all threads and all shards of a platform.

    Without a boot clock there is nothing to compare with, and readings are the wall clock's. Then only a clock
    that is behind its earlier reading, or behind the log, is a leap.
    """

    def __init__(self, wall: Clock, boot: Clock | None, bound_us: int) -> None:
        self._wall, self._boot, self._bound_us = wall, boot, bound_us
        self._lock = threading.Lock()
        self._boot_us = boot() if boot else 0
        self._last_us = wall()  # the latest reading: none is below it
        self._offset_us = self._slow_us = self._last_us - self._boot_us
        self._is_behind = False  # since the start
        self.leap: Leap | None = None  # as of the latest reading

    def __call__(self) -> int:
        """Microseconds since 1970; never falls and never leaps, where there is a boot clock."""
        with self._lock:
            return self._read(self._wall(), self._boot) if self._boot else self._pass_on(self._wall())

    def expect(self, received_us: int) -> None:
        """The log of a shard ends at this time, so it cannot be earlier now.

        A clock that is behind it by more than the bound was never right in this process: there is no right reading to
        go on from. So time stands at the end of the log until the wall clock has come there, by itself or in one leap.
        """
        with self._lock:
            if self._boot and self._last_us < received_us - self._bound_us:
                self._is_behind = True
            self._last_us = max(self._last_us, received_us)

    def check(self, write: object) -> None:
        """Raise if the wall clock was wrong at the latest reading, and give the write back."""
        if (leap := self.leap) is not None:
            raise ClockLeapError(_sentence(leap), RETRY_AFTER_S, write)

    def _read(self, wall_us: int, boot: Clock) -> int:
        boot_us = boot()
        elapsed_us, self._boot_us = max(boot_us - self._boot_us, 0), boot_us
        if self._is_behind:
            if wall_us < self._last_us - self._bound_us:
                self.leap = Leap(wall_us, self._last_us, is_start=True)
                return self._last_us
            self._is_behind = False
            self._accept(wall_us)
        most_us = elapsed_us // SLEW_SHARE
        self._slow_us += min(max(self._offset_us - self._slow_us, -most_us), most_us)
        offset_us = wall_us - boot_us
        if abs(offset_us - self._slow_us) <= self._bound_us:
            self._offset_us, self.leap = offset_us, None
        self._last_us = max(self._last_us, boot_us + self._offset_us)
        if self._offset_us != offset_us:
            self.leap = Leap(wall_us, self._last_us, is_start=False)
        return self._last_us

    def _pass_on(self, wall_us: int) -> int:
        self._last_us = max(self._last_us, wall_us)
        is_behind = wall_us < self._last_us - self._bound_us
        self.leap = Leap(wall_us, self._last_us, is_start=True) if is_behind else None
        return wall_us

    def _accept(self, wall_us: int) -> None:
        self._boot_us = self._boot() if self._boot else 0
        self._offset_us = self._slow_us = wall_us - self._boot_us


def steady(clock: Clock, bound_us: int, boot: Clock | None = None) -> SteadyClock:
    """A checked clock: against the machine's boot clock, if it is the machine's clock."""
    if isinstance(clock, SteadyClock):
        return clock
    return SteadyClock(clock, boot or (boot_clock if clock is system_clock else None), bound_us)


def _sentence(leap: Leap) -> str:
    wall, expected = shown(leap.wall_us), shown(leap.expected_us)
    if leap.is_start:
        return (
            f"The clock says {wall}, but the log was written until {expected}. Set the clock right. If it is right, "
            "the log was written under a wrong clock: stop all writers and run ./tidemark clock."
        )
    return (
        f"The clock leapt: it says {wall}, and by the time that has passed it should say {expected}. Set it right. If "
        "it is right now (a virtual machine was paused, or it was wrong before), start this process again."
    )


def shown(time_us: int) -> str:
    """A time as messages show it, also one that no calendar has."""
    try:
        return f"{from_us(time_us):%Y-%m-%dT%H:%M:%SZ}"
    except OverflowError:
        return f"{time_us} µs since 1970"
