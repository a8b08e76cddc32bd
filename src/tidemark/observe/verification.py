"""Every byte that the platform stands on, read again.

Belongs here: going through segments, logs and manifests, and what that proved. It repairs nothing.
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
    """What was read and found to be what was written."""

    shards: int = 0
    manifest_entries: int = 0
    segments: int = 0
    segment_bytes: int = 0
    deltas: int = 0
    log_files: int = 0
    log_frames: int = 0
    torn_tails: int = 0  # the end of a write that nobody was told of; the next start cuts it off
    damage: list[str] = []

    def attempt(self, read: Callable[[], T]) -> T | None:
        """The result, or None after the damage was noted: one damaged file must not hide the next."""
        try:
            return read()
        except DamageError as error:
            self.damage.append(str(error))
            return None


def prove(home: Home) -> Verification:
    """Read everything once."""
    proof = Verification(damage=[])
    for shard in range(home.settings.shards):
        proof.shards += 1
        _prove_segments(home, shard, proof)
        _prove_log(home, shard, proof)
    return proof


def _prove_segments(home: Home, shard: int, proof: Verification) -> None:
    manifest = proof.attempt(lambda: Manifest(home.segments(shard)))
    entries = manifest.all() if manifest else iter(())
    # From the first line on, and not only from where a start begins to read.
    while entry := proof.attempt(lambda: next(entries, None)):
        proof.manifest_entries += 1
        if proof.attempt(lambda entry=entry: _prove_segment(home, shard, entry)):  # type: ignore[misc]
            proof.segments += 1
            proof.segment_bytes += entry.bytes
            proof.deltas += entry.rows


def _prove_segment(home: Home, shard: int, entry: Entry) -> bool:
    import pyarrow.parquet as pq

    path = verify_segment(home.segments(shard), entry)
    rows = pq.read_metadata(path).num_rows
    if rows != entry.rows:
        raise DamageError(
            f"Segment {path} has {rows} deltas; the manifest says {entry.rows}. Restore both from a backup."
        )
    return True


def _prove_log(home: Home, shard: int, proof: Verification) -> None:
    disk, directory = RealDisk(), home.log(shard)
    proof.attempt(lambda: read_reservation(disk, directory))
    proof.attempt(lambda: load(disk, directory / INCARNATION_FILE, Incarnation))
    proof.attempt(lambda: load(disk, directory / STATE_FILE, ShardState))
    for name in disk.list(directory):
        if name.endswith(".log") and (content := proof.attempt(lambda name=name: read_log(disk, directory / name))):  # type: ignore[misc]
            proof.log_files += 1
            proof.log_frames += len(content.frames)
            proof.torn_tails += content.is_torn
