"""`verify`: every byte that the platform stands on, read again.

Belongs here: going through segments, logs and manifests, and saying what that proved. It repairs nothing.
"""

from collections.abc import Callable
from typing import TypeVar

import click
from msgspec import Struct, to_builtins

from orchestration.cli.app import as_json, command
from orchestration.cli.output import answer_json, in_bytes
from resources.coordinator.disk import RealDisk
from resources.coordinator.manifest import Entry, Manifest, verify_segment
from resources.coordinator.seal import read_log
from resources.coordinator.state import RESERVATION_FILE, STATE_FILE, Reservation, ShardState, load
from resources.errors import DamageError
from resources.home import Home

T = TypeVar("T")


class Proof(Struct):
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


@command
@as_json
def verify(home: Home, as_json: bool) -> None:
    """Read every segment, log file and manifest again and compare each with its checksum. Repairs nothing.

    Ends with 1 if anything is not what was written.
    """
    proof = prove(home)
    if as_json:
        answer_json(to_builtins(proof))
    else:
        _show(proof)
    if proof.damage:
        raise click.exceptions.Exit(1)


def prove(home: Home) -> Proof:
    """Read everything once."""
    proof = Proof(damage=[])
    for shard in range(home.settings.shards):
        proof.shards += 1
        _prove_segments(home, shard, proof)
        _prove_log(home, shard, proof)
    return proof


def _prove_segments(home: Home, shard: int, proof: Proof) -> None:
    manifest = proof.attempt(lambda: Manifest(home.segments(shard)))
    for entry in manifest.entries if manifest else []:
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


def _prove_log(home: Home, shard: int, proof: Proof) -> None:
    disk, directory = RealDisk(), home.log(shard)
    proof.attempt(lambda: load(disk, directory / RESERVATION_FILE, Reservation))
    proof.attempt(lambda: load(disk, directory / STATE_FILE, ShardState))
    for name in disk.list(directory):
        if name.endswith(".log") and (content := proof.attempt(lambda name=name: read_log(disk, directory / name))):  # type: ignore[misc]
            proof.log_files += 1
            proof.log_frames += len(content.frames)
            proof.torn_tails += content.is_torn


def _show(proof: Proof) -> None:
    click.echo(
        f"{proof.segments:,} of {proof.manifest_entries:,} segments ({in_bytes(proof.segment_bytes)}, {proof.deltas:,} "
        f"deltas) of {proof.shards} shard(s) are byte for byte what was sealed, in an unbroken row of manifest entries."
    )
    click.echo(
        f"{proof.log_frames:,} frames in {proof.log_files:,} log files have the checksum they were written with."
    )
    if proof.torn_tails:
        click.echo(
            f"{proof.torn_tails} log file(s) end in an unfinished write that nobody was told of; it will be cut off."
        )
    for damage in proof.damage:
        click.echo(f"DAMAGED: {damage}")
    if not proof.damage:
        click.echo("Nothing is damaged.")
