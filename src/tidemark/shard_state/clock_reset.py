"""Resets of the clock: the way out of a log that was written under a wrong one (C15).

Belongs here: the file of resets, how a reset corrects an older segment, how far the log has come, and
whether the clock can be trusted with steps that cannot be undone. What a reset does to a shard is in `recovery.py` and
`event_time/watermarks.py`; the command is `./tidemark clock`. Decision 0037 says why it works like this.

A process that starts with a clock a year ahead looks like one that starts after a year. Its rows stay as they are, but
their times of receipt and watermarks must not bind for a year. So `log/clock.json` lists the times at which an
operator said: the clock is right, and nothing so far is later than now. Replacing that file is the whole reset. Every
shard logs it as a control message when it is next opened, and every segment says how many resets its times know of.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from tidemark.event_time.clock import boot_clock, shown
from tidemark.log.control import ClockReset, Control, WatermarkAdvanced
from tidemark.log.log_content import read_log
from tidemark.log.manifest import Entry
from tidemark.model.event_time_rules import stream_name
from tidemark.model.shard_errors import CoordinatorError
from tidemark.model.timegrid import DAY_US
from tidemark.shard_state.live import read_live
from tidemark.shard_state.state import STATE_FILE, ShardState, load, save
from tidemark.storage.disk import Disk, RealDisk
from tidemark.storage.home import Home

RESET_FILE = "clock.json"
# A home in use gets a write every day, and a wrong clock is mostly wrong by a month, a year or a decade.
QUIET_US = DAY_US


class ClockDoubtError(CoordinatorError):
    """The clock may be wrong, and the requested step cannot be undone."""


class _Resets(Struct, frozen=True):
    at_us: list[int] = []


class ShardTime(NamedTuple):
    """How far the log of a shard has come."""

    shard: int
    received_us: int  # its last time of receipt; 0 if nothing was written
    watermarks: dict[str, int]  # by `namespace/kind`
    clock_us: int | None = None  # the clock of the process that writes it; None if no process does

    @property
    def latest_us(self) -> int:
        """The latest of these times."""
        return max([self.received_us, *self.watermarks.values()])

    def reset(self, at_us: int) -> "ShardTime":
        """The times after a reset."""
        fallen = {name: min(watermark_us, at_us) for name, watermark_us in self.watermarks.items()}
        return self._replace(received_us=min(self.received_us, at_us), watermarks=fallen)


def read_resets(home: Home, disk: Disk | None = None) -> list[int]:
    """When the clock of a home was reset, oldest first."""
    return (load(disk or RealDisk(), _path(home), _Resets) or _Resets()).at_us


def record_reset(home: Home, at_us: int) -> None:
    """Add one, durably. The caller holds the locks of all shards: a shard that is open would not notice."""
    save(RealDisk(), _path(home), _Resets([*read_resets(home), at_us]))


def ceiling_us(home: Home, now_us: int) -> int | None:
    """The present, if the clock was ever reset: then a recorded watermark that lies above it came from a wrong clock.

    None in a home without a reset: it keeps every watermark that it recorded (T3).
    """
    return now_us if read_resets(home) else None


def corrected(entry: Entry, resets: Sequence[int]) -> Entry:
    """A shard's last segment, with its times corrected by the resets since then."""
    if entry.resets >= len(resets):
        return entry
    at_us = min(resets[entry.resets :])
    # A stream that last sent before the reset goes idle after the same time as it would have.
    latest = {name: at_us + max(idle_us - entry.received_us, 0) for name, idle_us in entry.idle_from.items()}
    return msgspec.structs.replace(
        entry,
        received_us=min(entry.received_us, at_us),
        watermarks={name: min(watermark_us, at_us) for name, watermark_us in entry.watermarks.items()},
        idle_from={name: min(idle_us, latest[name]) for name, idle_us in entry.idle_from.items()},
    )


def read_times(home: Home, boot: Callable[[], int] = boot_clock) -> list[ShardTime]:
    """How far every shard's log has come, without opening it."""
    resets, boot_us = read_resets(home), boot()
    times = []
    for shard in range(home.settings.shards):
        live = read_live(home.log(shard))
        found = _shard_time(home, shard, resets)
        times.append(found._replace(clock_us=live.clock_us(boot_us) if live else None))
    return times


def refuse_doubtful(home: Home, now_us: int, boot: Callable[[], int] = boot_clock) -> None:
    """Raise if the clock may be ahead: of a running writer's, or of the last write by more than a day."""
    bound_us, times = home.settings.clock_leap_ms * 1_000, read_times(home, boot)
    for time in times:
        if time.clock_us is not None and now_us - time.clock_us > bound_us:
            raise ClockDoubtError(
                f"The clock says {shown(now_us)}, but for the process that writes shard {time.shard} it is "
                f"{shown(time.clock_us)}. This cannot be undone, so nothing was changed. Set the clock right; if it is "
                "right, start that process again."
            )
    last_us = max((time.received_us for time in times), default=0)
    if last_us and now_us - last_us > QUIET_US:
        raise ClockDoubtError(
            f"The clock says {shown(now_us)}, and the last write was received at {shown(last_us)}. This cannot be "
            "undone, so nothing was changed. If the clock is right, repeat the command with --clock-is-right."
        )


def _shard_time(home: Home, shard: int, resets: Sequence[int]) -> ShardTime:
    disk, folder = RealDisk(), home.log(shard)
    # Listed first: if files are sealed meanwhile, the state covers them.
    names = [name for name in disk.list(folder) if name.endswith(".log")]
    state = load(disk, folder / STATE_FILE, ShardState) or ShardState()
    watermarks = {name: each.watermark_us for name, each in state.watermarks.items() if each.watermark_us is not None}
    time, known = ShardTime(shard, state.last_received_us, watermarks), state.resets
    for name in names:
        try:
            content = read_log(disk, folder / name)
        except FileNotFoundError:
            continue
        if content is None or content.header.number < state.next_file:
            continue
        for controls, rows in content.groups():
            time = _after(time, controls)
            known = max([known, *(each.number for each in controls if isinstance(each, ClockReset))])
            time = time._replace(received_us=max([time.received_us, *(rows.writes.received_us if rows else ())]))
    return time.reset(min(resets[known:])) if resets[known:] else time


def _after(time: ShardTime, controls: Sequence[Control]) -> ShardTime:
    for message in controls:
        if isinstance(message, ClockReset):
            time = time.reset(message.at_us)
        elif isinstance(message, WatermarkAdvanced):
            name = stream_name((message.namespace, message.kind))
            risen = max(message.watermark_us, time.watermarks.get(name, message.watermark_us))
            time = time._replace(watermarks={**time.watermarks, name: risen})
    return time


def _path(home: Home) -> Path:
    return home.root / "log" / RESET_FILE
