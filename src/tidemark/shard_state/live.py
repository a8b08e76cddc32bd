"""Facts that only a running shard knows, shown to other processes: how much waits, its state, its last batch trigger.

Belongs here: a small file beside the log, replaced about once a second. Nothing may rely on it: it is not synced, and a
reader that finds it old or half written shows nothing.
"""

import os
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from msgspec import Struct

from tidemark.storage.privacy import make_private

LIVE_FILE = "live.json"
EVERY_SECONDS = 0.5


class LiveStatus(Struct, frozen=True):
    """A running shard at one time."""

    shard: int
    pid: int
    at_us: int  # by the writer's clock
    state: str
    applied_epoch: int
    flushed_epoch: int
    queued_writes: int
    bytes: dict[str, int]  # by place: queued, buffered, in flight, pending for a batch
    is_disk_low: bool
    last_flush_us: int
    last_batch_trigger: str | None
    last_batch_us: int | None
    batch_limit_ms: float
    boot_us: int | None = None  # by the boot clock, at the same time

    def clock_us(self, boot_us: int) -> int | None:
        """The writer's clock when the boot clock reads `boot_us` (C15); None if that is not known."""
        return None if self.boot_us is None else self.at_us + boot_us - self.boot_us


class LiveFile:
    """The file of one shard that runs here."""

    def __init__(self, folder: Path) -> None:
        self._path, self._shown = folder / LIVE_FILE, 0.0

    def show(self, take: Callable[[], LiveStatus]) -> None:
        """Write the current status, unless that was done just now."""
        if time.monotonic() - self._shown < EVERY_SECONDS:
            return
        self._shown = time.monotonic()
        status = take()
        temporary = self._path.with_suffix(".new")
        try:
            with open(temporary, "wb", opener=make_private) as file:
                file.write(msgspec.json.encode(status))
            temporary.replace(self._path)
        except OSError:
            return  # a full disk is reported elsewhere; showing it must not stop a shard

    def remove(self) -> None:
        """Remove the file: the shard no longer runs."""
        self._path.unlink(missing_ok=True)


def read_live(folder: Path) -> LiveStatus | None:
    """The status of the shard that runs now, in whatever process; None if none does."""
    try:
        status = msgspec.json.decode((folder / LIVE_FILE).read_bytes(), type=LiveStatus)
        os.kill(status.pid, 0)
    except (OSError, msgspec.MsgspecError):
        return None
    return status
