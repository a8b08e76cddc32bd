"""Sends the day through the platform itself, with a clock that follows the day.

Belongs here: the demo's settings and its producers at work. `generator.py` decides what they send.
"""

import sys
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from orchestration.demo.generator import DAY_START_US, Write
from orchestration.demo.traffic import FLEET, SHOP, SHOP_DIMENSION
from tidemark import Level, Platform, Producer
from tidemark.coordinator.platform import SplitWrite
from tidemark.event_time.clock import SteadyClock
from tidemark.storage.home import Home

# Writes sent and not yet acknowledged: enough for the disk to take several with one sync.
IN_FLIGHT = 32

# A new home gets these; one that exists keeps what it has.
SETTINGS_TEXT = f"""\
# Settings of the demo's home; the comments of a home made by `./tidemark send` show every setting.

shards = 2
# A made-up hour passes in a second of yours: one segment an hour is plenty.
segment_age_ms = 3_600_000
# These producers speak every quarter of an hour; one that is silent for longer than this has gone home.
idle_timeout_ms = 3_600_000
# Few, so that some copies lie beyond the coordinator's memory and are left for the drain to find.
recent_identities = 5_000

[namespaces.{SHOP}]
dimension = {SHOP_DIMENSION}

[namespaces.{FLEET}]
"""


@dataclass
class Fed:
    """The result of sending the day."""

    writes: int = 0  # numbered now
    repeated: int = 0  # answered with the epoch of the first time
    deltas: int = 0  # in the writes that were numbered now


class DayClock:
    """A clock that stands still until it is set, so a write arrives at its time in the day."""

    def __init__(self, now_us: int) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        """Microseconds since the Unix epoch."""
        return self.now_us


def feed(home: Home, writes: Iterable[Write], on_write: Callable[[Write], None]) -> Fed:
    """Send all writes in order, wait until each is flushed, then seal every shard.

    The day is a source that is read from its beginning: writes that were taken before are answered, not taken again.
    """
    clock = DayClock(DAY_START_US)
    fed = Fed()
    producers: dict[str, Producer] = {}
    to_repeat: dict[tuple[str, int], SplitWrite] = {}
    on_the_way: deque[tuple[Write, SplitWrite]] = deque()
    # The day is made up and may be added to a log that is ahead of it; that does not mean that the clock is wrong.
    with Platform.open(home, clock=SteadyClock(clock, None, bound_us=sys.maxsize)) as platform:
        for write in writes:
            # Writes are stamped when they are sent, so the clock may go on before they are flushed.
            clock.now_us = write.arrival_us
            if write.producer not in producers:
                producers[write.producer] = platform.producer(write.producer, from_start=True)
            producer, number = producers[write.producer], (write.producer, write.sequence)
            sent = producer.resend(to_repeat.pop(number)) if write.is_retry else producer.write(write.deltas)
            if write.has_retry:
                to_repeat[number] = sent
            on_the_way.append((write, sent))
            if len(on_the_way) > IN_FLIGHT:
                _acknowledge(fed, on_the_way.popleft(), on_write)
        while on_the_way:
            _acknowledge(fed, on_the_way.popleft(), on_write)
        platform.seal()
    return fed


def _acknowledge(fed: Fed, sent: tuple[Write, SplitWrite], on_write: Callable[[Write], None]) -> None:
    write, split = sent
    receipt = split.wait(Level.FLUSHED)
    fed.writes += not receipt.is_retry
    fed.repeated += receipt.is_retry
    fed.deltas += receipt.accepted + receipt.duplicate + receipt.refused
    on_write(write)
