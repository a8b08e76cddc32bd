"""Starting a shard: from what lies on the disk to a shard that may write (C7).

Belongs here: the order of steps, which is the same after a clean stop, a crash, or a crash during recovery. Whatever
valid frames the log still holds are sealed into segments at once, so that nothing is ever appended behind a torn tail
and what was only in the page cache becomes durable. Damage anywhere but at the very end is refused.

What is read here may be there only in the cache: the process before may have been killed between a write and its sync,
and a power cut can still take it away. So everything is first read and proved, then made certain, and only then does
anything follow from it.
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pyarrow.compute as pc
import pyarrow.parquet as pq

from resources.coordinator.arrival import Arrivals
from resources.coordinator.batch_record import BatchRecord
from resources.coordinator.control import (
    BatchClosed,
    Control,
    EarliestRaised,
    Lost,
    ProducerOpened,
    RulesInForce,
    WatermarkAdvanced,
    WriteRefused,
)
from resources.coordinator.disk import Disk
from resources.coordinator.errors import LogDamageError
from resources.coordinator.event_time import EventTimeRules
from resources.coordinator.groups import decode_group
from resources.coordinator.identities import REMEMBERED_COLUMNS, Identities
from resources.coordinator.log_content import LogContent, read_log
from resources.coordinator.log_rows import LogRows
from resources.coordinator.manifest import Manifest
from resources.coordinator.producers import Producers
from resources.coordinator.schema import LOG_SCHEMA
from resources.coordinator.seal import Sealer
from resources.coordinator.segments import read_segment, whole
from resources.coordinator.state import RESERVATION_FILE, STATE_FILE, Reservation, ShardState, load, save
from resources.coordinator.watermarks import Watermarks
from resources.failpoints import reach
from resources.settings import Settings


class ShardFiles(NamedTuple):
    """Where one shard lies."""

    shard: int
    log: Path
    segments: Path


class Recovered(NamedTuple):
    """A shard's memory as it was, and where it goes on."""

    incarnation: int
    next_epoch: int
    next_file: int
    opening: list[Control]  # what the next log file begins with
    lost: list[tuple[int, int]]  # epochs that were given out and never written, ever
    last_received_us: int
    producers: Producers
    arrivals: Arrivals
    manifest: Manifest
    batches: list[BatchRecord]  # closed since the last segment
    next_batch: int  # number of the next batch
    unbatched: Iterator[LogRows]  # rows that are in no closed batch, part of a segment at a time


def recover(
    disk: Disk,
    files: ShardFiles,
    settings: Settings,
    now_us: int,
    durable_epoch: int,
    rules: EventTimeRules | None = None,
) -> Recovered:
    """Bring a shard to the point where it may take writes. The caller holds the shard's lock.

    `rules` are to be in force from now on (default: what the settings say); the log is read under its own.
    """
    rules = rules or EventTimeRules.of(settings)
    disk.make_directory(files.log)
    disk.make_directory(files.segments)
    reservation = load(disk, files.log / RESERVATION_FILE, Reservation) or Reservation()
    state = load(disk, files.log / STATE_FILE, ShardState) or ShardState()
    manifest = Manifest(files.segments, disk)
    contents = _read_logs(disk, files)
    _make_certain(disk, files, manifest, contents)
    _remove_leftovers(disk, files)

    watermarks = Watermarks(state.rules or rules, state.watermarks)
    arrivals = Arrivals(files.shard, settings, watermarks, Identities(settings.recent_identities))
    arrivals.raise_earliest(state.earliest_us)
    producers = Producers(state.producers)
    last_received_us = state.last_received_us
    remembered_from, in_log = _tail(contents, manifest.to_epoch, settings.recent_identities)
    _remember_segments(arrivals, manifest, settings.recent_identities - in_log)
    sealer = Sealer(disk, files.segments, manifest)
    batches = list(state.batches)
    for path, content in contents:
        if content is not None and content.header.number >= state.next_file:
            with ThreadPoolExecutor(1, "recover") as beside:
                drafting = beside.submit(sealer.draft, content)
                replayed = _replay(content, arrivals, producers, batches, max(manifest.to_epoch, remembered_from))
            last_received_us = max(last_received_us, replayed)
            draft = drafting.result()
            if draft is not None:
                sealer.finish(draft, watermarks.reached(last_received_us), batches, now_us)
            if draft is not None or _is_sealed(content, manifest):
                batches = []
            state = ShardState(
                next_file=content.header.number + 1,
                last_received_us=last_received_us,
                producers=producers.snapshot(),
                watermarks=watermarks.snapshot(),
                batches=batches,
                earliest_us=arrivals.raised_us,
                rules=watermarks.rules,
            )
            save(disk, files.log / STATE_FILE, state)
        disk.remove(path)
        reach("seal.log_removed")

    # A watermark is logged with or without a write, and nothing is received before it was (T2).
    last_received_us = max(last_received_us, watermarks.latest_us())
    watermarks.go_by(rules)
    next_epoch = max(reservation.to_epoch, manifest.to_epoch, durable_epoch + 1)
    incarnation = reservation.incarnation + 1
    save(disk, files.log / RESERVATION_FILE, Reservation(next_epoch, incarnation))
    found_lost = [(manifest.to_epoch, next_epoch)] if next_epoch > manifest.to_epoch else []
    return Recovered(
        incarnation=incarnation,
        next_epoch=next_epoch,
        next_file=state.next_file,
        opening=[*(Lost(*span) for span in found_lost), *([RulesInForce(rules)] if rules != state.rules else [])],
        lost=[span for entry in manifest.entries for span in entry.lost] + found_lost,
        last_received_us=last_received_us,
        producers=producers,
        arrivals=arrivals,
        manifest=manifest,
        batches=batches,
        next_batch=max((batch.number for batch in _recorded(manifest, batches)), default=0) + 1,
        unbatched=_unbatched(manifest, batches),
    )


def _remove_leftovers(disk: Disk, files: ShardFiles) -> None:
    """Files under temporary names were never promised to anybody."""
    for directory in (files.log, files.segments):
        for name in disk.list(directory):
            if name.endswith((".tmp", ".sealing")):
                disk.remove(directory / name)


def _read_logs(disk: Disk, files: ShardFiles) -> list[tuple[Path, LogContent | None]]:
    paths = [files.log / name for name in disk.list(files.log) if name.endswith(".log")]
    contents = [(path, read_log(disk, path, is_at_rest=True)) for path in paths]
    for path, content in contents[:-1]:
        if content is None or content.is_torn:
            raise LogDamageError(
                f"{path} ends in damage, but a later log file exists, so no crash can have torn it. "
                "Restore it from a backup; nothing was changed."
            )
    for path, content in contents:
        if content is not None and content.header.shard != files.shard:
            raise LogDamageError(
                f"{path} belongs to shard {content.header.shard}, not to shard {files.shard}. Move it back."
            )
    for (_, before), (path, after) in pairwise(contents):
        if before is not None and after is not None:
            expected = (before.header.number + 1, before.next_epoch)
            if (after.header.number, after.header.first_epoch) != expected:
                raise LogDamageError(
                    f"{path} is file {after.header.number} of the log, from epoch {after.header.first_epoch}, but file "
                    f"{expected[0]} from epoch {expected[1]} should follow the one before it: a part of the log is "
                    "missing. Restore it from a backup; nothing was changed."
                )
    return contents


def _make_certain(
    disk: Disk, files: ShardFiles, manifest: Manifest, contents: list[tuple[Path, LogContent | None]]
) -> None:
    """See above. Only what was written last can be uncertain, because everything before it was synced first."""
    disk.sync_directory(files.log)
    disk.sync_directory(files.segments)
    manifest.repair()
    for path, content in contents[-1:]:
        if content is not None:
            # Written again, and not only synced: if the sync had failed, the system would think that all is done. The
            # bytes are the same, so that it does not matter which sectors of them a power cut lets through.
            last, begin = content.last_written()
            disk.rewrite(path, bytes(last), begin)


def _tail(contents: list[tuple[Path, LogContent | None]], sealed_to: int, capacity: int) -> tuple[int, int]:
    """The epoch from which the unsealed log is remembered, and how many deltas that are.

    What is further back than the memory reaches need not go through it.
    """
    first_epoch, deltas = sealed_to, 0
    for _, content in reversed(contents):
        for frame in reversed(content.frames if content else []):
            if deltas >= capacity:
                return max(first_epoch, sealed_to), capacity
            if frame.last_epoch >= sealed_to and (rows := decode_group(frame.payload).rows) is not None:
                hashes = rows.column("identity_hash")
                first_epoch, deltas = frame.first_epoch, deltas + len(hashes) - hashes.null_count
    return max(first_epoch, sealed_to), min(deltas, capacity)


def _replay(
    content: LogContent, arrivals: Arrivals, producers: Producers, batches: list[BatchRecord], remembered_from: int
) -> int:
    """Bring the memory to where it was after this file; gives the last time of arrival in it."""
    last_received_us = 0
    for controls, rows in content.groups():
        for message in controls:
            _apply(message, arrivals, producers, batches)
        if rows is None:
            continue
        arrivals.replay(rows)
        writes = rows.writes
        if writes.epochs[-1] >= remembered_from:
            arrivals.remember({name: rows.column(name) for name in (*REMEMBERED_COLUMNS, "verdict")})
        for producer, sequence, epoch in zip(writes.producers, writes.sequences, writes.epochs, strict=True):
            producers.advance(producer, sequence)
            producers.remember(producer, sequence, epoch, epoch + 1)
        last_received_us = max(last_received_us, *writes.received_us)
    return last_received_us


def _apply(message: Control, arrivals: Arrivals, producers: Producers, batches: list[BatchRecord]) -> None:
    """What a message changed when it was logged, it changes again."""
    if isinstance(message, ProducerOpened):
        producers.reopened(message.producer, message.instance)
    elif isinstance(message, WriteRefused):
        producers.refused(message.producer, message.sequence, message.why)
    elif isinstance(message, WatermarkAdvanced | RulesInForce):
        arrivals.watermarks.apply(message)
    elif isinstance(message, EarliestRaised):
        arrivals.raise_earliest(message.earliest_us)
    elif isinstance(message, BatchClosed):
        batches.append(message.record)


def _is_sealed(content: LogContent, manifest: Manifest) -> bool:
    """Whether this file's writes were in a segment before: then its batches are in the manifest too."""
    last = max((frame.last_epoch for frame in content.frames), default=0)
    return 0 < last < manifest.to_epoch


def _recorded(manifest: Manifest, batches: list[BatchRecord]) -> Iterator[BatchRecord]:
    yield from (batch for entry in manifest.entries for batch in entry.batches)
    yield from batches


def _unbatched(manifest: Manifest, batches: list[BatchRecord]) -> Iterator[LogRows]:
    """Rows that no closed batch has told of: a crash came between their flush and the log of their batch."""
    batched_to = max((batch.to_epoch for batch in _recorded(manifest, batches)), default=1)
    for entry in [entry for entry in manifest.entries if entry.to_epoch > batched_to]:
        with manifest.open_segment(entry) as file:
            parts = pq.ParquetFile(file)
            for number in range(parts.num_row_groups):
                if _last_epoch(parts, number) >= batched_to:
                    table = whole(parts.read_row_group(number))
                    table = table.filter(pc.greater_equal(table["epoch"], batched_to)).combine_chunks()
                    yield from (LogRows.of(batch) for batch in table.to_batches() if len(batch))


def _last_epoch(parts: pq.ParquetFile, number: int) -> int:
    last: int = parts.metadata.row_group(number).column(LOG_SCHEMA.get_field_index("epoch")).statistics.max
    return last


def _remember_segments(arrivals: Arrivals, manifest: Manifest, wanted: int) -> None:
    """Fill the memory of identities from the newest segments, oldest of those first."""
    chosen, rows = [], 0
    for entry in reversed(manifest.entries):
        if rows >= wanted:
            break
        chosen.append(entry)
        rows += entry.verdicts.accepted + entry.verdicts.duplicate
    columns = [*REMEMBERED_COLUMNS, "verdict"]
    for entry in reversed(chosen):
        with manifest.open_segment(entry) as file:
            table = read_segment(file, columns).combine_chunks()
        for batch in table.to_batches():
            arrivals.remember(dict(zip(columns, batch.columns, strict=True)))
