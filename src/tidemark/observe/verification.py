"""Verification: every byte that the platform stands on, read again.

Belongs here: reading segments, logs and manifests, and the result. It repairs nothing.
"""

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from tidemark.log.log_content import read_log
from tidemark.log.manifest import Entry, Manifest
from tidemark.log.segment_files import verify_segment
from tidemark.model.errors import DamageError
from tidemark.shard_state.fence import INCARNATION_FILE, Incarnation
from tidemark.shard_state.state import STATE_FILE, ShardState, load, read_reservation
from tidemark.storage.disk import RealDisk
from tidemark.storage.home import Home

T = TypeVar("T")


class Verification(Struct):
    """How much was read and found as written."""

    shards: int = 0
    manifest_entries: int = 0
    segments: int = 0
    segment_bytes: int = 0
    deltas: int = 0
    log_files: int = 0
    log_frames: int = 0
    torn_tails: int = 0  # the end of a write that was never acknowledged; the next start cuts it off
    damage: list[str] = []

    def attempt(self, read: Callable[[], T]) -> T | None:
        """The result of a read, or None after noting its damage: one damaged file must not hide the next."""
        try:
            return read()
        except DamageError as error:
            self.damage.append(str(error))
            return None


def prove(home: Home) -> Verification:
    """Read everything once."""
    found = Verification(damage=[])
    for shard in range(home.settings.shards):
        found.shards += 1
        _verify_segments(home, shard, found)
        _verify_log(home, shard, found)
    return found


def _verify_segments(home: Home, shard: int, found: Verification) -> None:
    manifest = found.attempt(lambda: Manifest(home.segments(shard)))
    entries = manifest.all() if manifest else iter(())
    # From the first line on, and not only from where a start begins to read.
    while entry := found.attempt(lambda: next(entries, None)):
        found.manifest_entries += 1
        if found.attempt(lambda entry=entry: _verify_segment(home, shard, entry)):  # type: ignore[misc]
            found.segments += 1
            found.segment_bytes += entry.bytes
            found.deltas += entry.rows


def _verify_segment(home: Home, shard: int, entry: Entry) -> bool:
    import pyarrow.parquet as pq

    path = verify_segment(home.segments(shard), entry)
    rows = pq.read_metadata(path).num_rows
    if rows != entry.rows:
        raise DamageError(
            f"Segment {path} has {rows} deltas; the manifest says {entry.rows}. Restore both from a backup."
        )
    return True


def _verify_log(home: Home, shard: int, found: Verification) -> None:
    disk, directory = RealDisk(), home.log(shard)
    found.attempt(lambda: read_reservation(disk, directory))
    found.attempt(lambda: load(disk, directory / INCARNATION_FILE, Incarnation))
    found.attempt(lambda: load(disk, directory / STATE_FILE, ShardState))
    for name in disk.list(directory):
        if name.endswith(".log") and (content := found.attempt(lambda name=name: read_log(disk, directory / name))):  # type: ignore[misc]
            found.log_files += 1
            found.log_frames += len(content.frames)
            found.torn_tails += content.is_torn
