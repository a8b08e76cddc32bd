"""Small builders for tests of the live plane: a home, a clock that is set by hand, deltas, a disk that fails."""

import errno
import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tidemark import Platform
from tidemark.coordinator.shard import Shard
from tidemark.log.batch_record import BatchRecord
from tidemark.log.manifest import Manifest
from tidemark.log.segment_files import verify_segment
from tidemark.log.segments import read_batches, read_segment
from tidemark.model.timegrid import HOUR_US, SECOND_US
from tidemark.storage.disk import RealDisk
from tidemark.storage.home import Home

# Monday, 2 March 2026, 10:00 UTC.
TEN_O_CLOCK = 1_772_445_600 * SECOND_US


class HandClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now_us: int = TEN_O_CLOCK) -> None:
        self.now_us = now_us

    def __call__(self) -> int:
        return self.now_us

    def advance(self, seconds: float) -> None:
        self.now_us += round(seconds * SECOND_US)


class FailingDisk(RealDisk):
    """A real disk whose n-th sync of a log file fails, and every one after it."""

    def __init__(self, fail_at: int) -> None:
        self.syncs = 0
        self._fail_at = fail_at

    def sync(self, fd: int) -> None:
        self.syncs += 1
        if self.syncs >= self._fail_at:
            raise OSError(errno.EIO, "Input/output error")
        super().sync(fd)


class HeldDisk(RealDisk):
    """A real disk on which one sync can be held up until it is let go."""

    def __init__(self) -> None:
        self.is_held, self.let_go = threading.Event(), threading.Event()
        self._holds_next = False

    def hold_next_sync(self) -> None:
        self._holds_next = True

    def sync(self, fd: int) -> None:
        if self._holds_next:
            self._holds_next = False
            self.is_held.set()
            self.let_go.wait()
        super().sync(fd)


def new_home(path: Path, settings: str = "") -> Home:
    return Home(path).create(settings)


def open_platform(home: Home, clock: Callable[[], int] | None = None, **options: Any) -> Platform:
    options.setdefault("durable_epochs", dict)
    return Platform.open(home, clock=clock or HandClock(), **options)


def look(shard: Shard) -> None:
    """Make the writer of a shard read the clock now."""
    with shard._changed:
        shard._changed.notify_all()


def crashed_copy(home: Home, path: Path) -> Home:
    """The home as a crash of the process would leave it now: what is on the disk, and nothing else."""
    shutil.copytree(home.root, path)
    return Home(path)


def signal(
    delta_id: str, *, at: int = TEN_O_CLOCK, entity: str = "item-1", count: int = 1, **more: Any
) -> dict[str, Any]:
    payload = {"entity_id": entity, "signal": "view", "count": count}
    return {"namespace": "shop", "kind": "signal", "delta_id": delta_id, "event_ts": at, "signal": payload, **more}


def vector(delta_id: str, op: str, *, at: int = TEN_O_CLOCK, vector_id: str = "v1", **payload: Any) -> dict[str, Any]:
    body = {"vector_id": vector_id, "op": op, **payload}
    return {"namespace": "shop", "kind": "vector", "delta_id": delta_id, "event_ts": at, "vector": body}


def sample(delta_id: str, value: float, *, at: int = TEN_O_CLOCK, **labels: str) -> dict[str, Any]:
    body = {"labels": labels or {"host": "a"}, "value": value}
    return {"namespace": "fleet", "kind": "sample", "delta_id": delta_id, "event_ts": at, "sample": body}


def sealed_rows(home: Home, shard: int = 0) -> list[dict[str, Any]]:
    """Every row of every sealed segment, in order, after proving the manifest and each checksum."""
    manifest = Manifest(home.segments(shard))
    tables = [read_segment(verify_segment(manifest.directory, entry)) for entry in manifest.all()]
    rows: list[dict[str, Any]] = pa.concat_tables(tables).to_pylist() if tables else []
    return rows


def reasons(home: Home) -> dict[str, str | None]:
    """Each delta in the segments, and why it was refused, if it was."""
    return {row["delta_id"]: row["reason"] for row in sealed_rows(home)}


def sealed_batches(home: Home, shard: int = 0) -> list[BatchRecord]:
    """The batches that the segments of a shard record, in order."""
    manifest = Manifest(home.segments(shard))
    return [batch for entry in manifest.all() for batch in read_batches(manifest.directory, entry)]


def hour_of(hours: int) -> int:
    """Ten o'clock plus some hours."""
    return TEN_O_CLOCK + hours * HOUR_US
