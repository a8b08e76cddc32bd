"""Starting a shard: from its files on the disk to a shard that may write (C7).

Belongs here: the order of steps, which is the same after a clean stop, a crash, or a crash during recovery. Only one
start writes a log file: what a crash tore off its end is cut, and the next start begins a file of its own after it. The
content of the files is brought back into memory; they then count as closed files, and the shard that starts seals them
in their order while it takes new writes. Damage anywhere but at the very end is refused.

What is read here may be only in the system's cache: the process before may have been killed between a write and its
sync, and a power cut can still lose it. So everything is first read and verified, then made durable, and only then
used.
"""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tidemark.event_time.watermarks import Watermarks
from tidemark.log.batch_record import BatchRecord
from tidemark.log.control import (
    BatchClosed,
    ClockReset,
    Control,
    EarliestRaised,
    Lost,
    RulesInForce,
    TurnedAway,
    VectorsCut,
    WatermarkAdvanced,
)
from tidemark.log.groups import decode_group
from tidemark.log.ledger import Ledger
from tidemark.log.log_content import LogContent, read_log
from tidemark.log.log_rows import LogRows
from tidemark.log.manifest import Manifest
from tidemark.log.segment_files import folder_of
from tidemark.log.segments import read_segment
from tidemark.model.event_time_rules import EventTimeRules
from tidemark.model.settings import Settings
from tidemark.model.shard_errors import LogDamageError
from tidemark.shard_state.books import Books
from tidemark.shard_state.fence import Fence
from tidemark.shard_state.producers import Producers, encode_state
from tidemark.shard_state.seal import ClosedFile
from tidemark.shard_state.state import STATE_FILE, ShardState, load, read_reservation, save
from tidemark.shard_state.unbatched import Logs, unbatched
from tidemark.storage.disk import Disk
from tidemark.storage.failpoints import failpoint
from tidemark.verdicts.arrival import Arrivals
from tidemark.verdicts.identities import REMEMBERED_COLUMNS, Identities

# The ledger of producers, in a directory of its own.
LEDGER = "producers"


class ShardFiles(NamedTuple):
    """Where the files of one shard are."""

    shard: int
    log: Path
    segments: Path


class Recovered(NamedTuple):
    """A shard's memory as it was, and where it goes on."""

    fence: Fence
    next_epoch: int
    logged_epoch: int  # the last that was written, to the log or a segment; those behind it are lost
    next_file: int
    opening: list[Control]  # the first messages of the next log file
    lost: list[tuple[int, int]]  # epochs that were given out and never written; the manifest knows those it covers
    last_received_us: int
    producers: Producers
    ledger: Ledger
    sealed_files: int  # log files below this number are sealed, and the ledger covers them
    arrivals: Arrivals
    manifest: Manifest
    unsealed: list[ClosedFile]  # to be sealed in this order, and before any later file
    batches: list[BatchRecord]  # closed since the last segment, also when all of these are sealed
    next_batch: int  # number of the next batch
    books: Books  # of deltas that were turned away
    unbatched: Iterator[LogRows]  # rows that are in no closed batch, a part of a file at a time


def recover(
    disk: Disk,
    files: ShardFiles,
    settings: Settings,
    durable_epoch: int,
    rules: EventTimeRules | None = None,
    token: str = "",
    resets: Sequence[int] = (),
) -> Recovered:
    """Bring a shard to the point where it may take writes. The caller holds the shard's lock.

    `rules` are to be in force from now on (default: those of the settings); the log is read under its own. `token`
    names this start (C14). `resets` are all times at which the home's clock was reset (C15).
    """
    rules = rules or EventTimeRules.of(settings)
    disk.make_directory(files.log)
    disk.make_directory(files.segments)
    # Before anything of the log is read: a write that an earlier process syncs after this is never acknowledged.
    fence = Fence.take_over(disk, files.shard, files.log, token)
    reservation = read_reservation(disk, files.log)
    state = load(disk, files.log / STATE_FILE, ShardState) or ShardState()
    manifest = Manifest(files.segments, disk)
    found = _read_logs(disk, files)
    _make_certain(disk, files, manifest, found)
    _remove_leftovers(disk, files, manifest.count + 1)
    ledger = _open_ledger(disk, files, fence, state)
    logs = _remove_superfluous(disk, found, state.next_file)

    watermarks = Watermarks(state.rules or rules, state.watermarks, state.resets)
    arrivals = Arrivals(files.shard, settings, watermarks, Identities(settings.recent_identities))
    arrivals.raise_earliest(state.earliest_us)
    arrivals.cut_vectors(state.vectors_cut)
    remembered_from, in_log = _tail(logs, manifest.to_epoch, settings.recent_identities)
    _remember_segments(arrivals, manifest, settings.recent_identities - in_log)
    replay = _Replay(arrivals, Producers(ledger.get), state, manifest.to_epoch, remembered_from)
    unsealed = [replay.file(path, content) for path, content in logs]

    # A watermark is logged with or without a write, and nothing is received before it was (T2).
    last_received_us = max(replay.last_received_us, watermarks.latest_us())
    logged_rules = watermarks.rules if logs else state.rules
    watermarks.go_by(rules)
    opening: list[Control] = [RulesInForce(rules)] if rules != logged_rules else []
    if (reset := _unknown_reset(resets, watermarks.resets)) is not None:
        watermarks.apply(reset)
        last_received_us = min(last_received_us, reset.at_us)
        opening.append(reset)
    next_epoch = max(reservation.to_epoch, replay.logged_to, durable_epoch + 1)
    fence.reserve(next_epoch)
    fence.forget_others()
    found_lost = [(replay.logged_to, next_epoch)] if next_epoch > replay.logged_to else []
    recorded = [*(batch for closed in unsealed for batch in closed.batches), *replay.batches]
    sealed = manifest.totals
    return Recovered(
        fence=fence,
        next_epoch=next_epoch,
        logged_epoch=replay.logged_to - 1,
        next_file=max([state.next_file, *(content.header.number + 1 for _, content in logs)]),
        opening=[*(Lost(*span) for span in found_lost), *opening],
        lost=replay.lost + found_lost,
        last_received_us=last_received_us,
        producers=replay.producers,
        ledger=ledger,
        sealed_files=state.next_file,
        arrivals=arrivals,
        manifest=manifest,
        unsealed=unsealed,
        batches=replay.batches,
        books=replay.books,
        next_batch=max([sealed.batch, *(batch.number for batch in recorded)]) + 1,
        unbatched=unbatched(manifest, logs, max([sealed.batched_to, *(batch.to_epoch for batch in recorded)])),
    )


def _unknown_reset(resets: Sequence[int], known: int) -> ClockReset | None:
    """All resets of the clock that a log does not know of, as one; none if it knows them all."""
    return ClockReset(len(resets), min(resets[known:])) if len(resets) > known else None


def _open_ledger(disk: Disk, files: ShardFiles, fence: Fence, state: ShardState) -> Ledger:
    """The ledger that the state names; producers in the state of an older home are moved into it first."""
    ledger = Ledger(disk, files.log / LEDGER, state.ledger, incarnation=fence.incarnation)
    if state.producers:
        runs = ledger.write({name: encode_state(producer) for name, producer in state.producers.items()})
        save(disk, files.log / STATE_FILE, replace(state, producers={}, ledger=runs))
        ledger.adopt(runs)
    ledger.remove_unlisted()
    return ledger


def _remove_leftovers(disk: Disk, files: ShardFiles, next_segment: int) -> None:
    """Remove files under temporary names: nothing in them was ever acknowledged."""
    for directory in (files.log, files.segments, files.segments / folder_of(next_segment)):
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
        if before is not None and after is not None and not _follows(after, before):
            raise LogDamageError(
                f"{path} is file {after.header.number} of the log, behind epoch {_first_epoch(after) - 1}, but the "
                f"file before it is file {before.header.number}, up to epoch {before.next_epoch - 1}: a part of the "
                "log is missing. Restore it from a backup; nothing was changed."
            )
    return contents


def _follows(after: LogContent, before: LogContent) -> bool:
    """Whether nothing is missing between two log files."""
    if after.header.number != before.header.number + 1 or after.header.incarnation < before.header.incarnation:
        return False
    if after.header.incarnation == before.header.incarnation:
        return after.header.first_epoch == before.next_epoch
    if not after.frames:
        return True  # it ended before it could log what it found
    # A file without writes may follow lost epochs, and those found before it are found again.
    first = _first_epoch(after)
    return first == before.next_epoch if before.last_epoch else first <= before.next_epoch


def _first_epoch(content: LogContent) -> int:
    """First epoch that is not in the files before: a start first logs which epochs were lost before it."""
    messages = decode_group(content.frames[0].payload).controls if content.frames else []
    return next((message.from_epoch for message in messages if isinstance(message, Lost)), content.header.first_epoch)


def _make_certain(
    disk: Disk, files: ShardFiles, manifest: Manifest, contents: list[tuple[Path, LogContent | None]]
) -> None:
    """See above. Only the last file can be uncertain, because everything before it was synced first."""
    disk.sync_directory(files.log)
    disk.sync_directory(files.segments)
    manifest.repair()
    for path, content in contents[-1:]:
        if content is not None:
            _copy(disk, path, content)


def _copy(disk: Disk, path: Path, content: LogContent) -> None:
    """Replace the file with a copy of its valid frames.

    It is written again, and not only synced: if the sync had failed, the system would believe it done. Bytes after the
    frames are cut: another file is about to follow, and then no crash could have torn this one. And it is a new file: a
    process that was fenced out, and has not noticed yet, writes into one that no longer has a name (C14).
    """
    disk.replace(path, content.data[: content.end])


def _remove_superfluous(disk: Disk, contents: Sequence[tuple[Path, LogContent | None]], next_file: int) -> Logs:
    """Remove log files that are in a segment, and those at the end without frames; return the others."""
    left = list(contents)
    while left and (left[-1][1] is None or not left[-1][1].frames):
        disk.remove(left.pop()[0])
    logs = [(path, content) for path, content in left if content is not None]
    while logs and logs[0][1].header.number < next_file:
        disk.remove(logs.pop(0)[0])
        failpoint("seal.log_removed")
    return logs


def _tail(logs: Logs, sealed_to: int, capacity: int) -> tuple[int, int]:
    """The epoch from which the unsealed log is remembered, and how many deltas that are.

    Deltas further back than the memory reaches need not go through it.
    """
    first_epoch, deltas = sealed_to, 0
    for _, content in reversed(logs):
        for frame in reversed(content.frames):
            if deltas >= capacity:
                return max(first_epoch, sealed_to), capacity
            if frame.last_epoch >= sealed_to and (rows := decode_group(frame.payload).rows) is not None:
                hashes = rows.column("identity_hash")
                first_epoch, deltas = frame.first_epoch, deltas + len(hashes) - hashes.null_count
    return max(first_epoch, sealed_to), min(deltas, capacity)


class _Replay:
    """A shard's memory on its way through the log, from its state when the last file was sealed."""

    def __init__(
        self, arrivals: Arrivals, producers: Producers, state: ShardState, sealed_to: int, remembered_from: int
    ) -> None:
        self._arrivals, self.producers = arrivals, producers
        self._remembered_from = remembered_from
        self.last_received_us = state.last_received_us
        self.batches = list(state.batches)
        self.books = state.books
        self.logged_to = sealed_to  # first epoch that is neither in a segment nor in the log so far
        self.lost: list[tuple[int, int]] = []  # earlier epochs that are in neither

    def file(self, path: Path, content: LogContent) -> ClosedFile:
        """Bring the memory to the end of this file; return what the sealer needs to know."""
        for controls, rows in content.groups():
            for message in controls:
                _apply(message, self._arrivals, self.batches)
                self.producers.replay(message, content.header.number)
                if isinstance(message, TurnedAway):
                    self.books = self.books.noted(message)
                if isinstance(message, ClockReset):
                    self.last_received_us = min(self.last_received_us, message.at_us)
            if rows is not None:
                self._group(rows, content.header.number)
        batches, turned_away = self.batches, self.books.tally
        # They go with the segment; a file without writes becomes none.
        self.batches = [] if content.last_epoch else list(batches)
        self.books = self.books.carried_over(is_sealed=bool(content.last_epoch))
        watermarks = self._arrivals.watermarks
        state = ShardState(
            next_file=content.header.number + 1,
            last_received_us=self.last_received_us,
            watermarks=watermarks.snapshot(),
            batches=list(self.batches),
            earliest_us=self._arrivals.raised_us,
            vectors_cut=self._arrivals.cut,
            rules=watermarks.rules,
            books=self.books,
            resets=watermarks.resets,
        )
        return ClosedFile(path, content.end, state, watermarks.reached(self.last_received_us), batches, turned_away)

    def _group(self, rows: LogRows, file: int) -> None:
        self._arrivals.replay(rows)
        writes = rows.writes
        if writes.epochs[-1] >= self._remembered_from:
            self._arrivals.remember({name: rows.column(name) for name in (*REMEMBERED_COLUMNS, "verdict")})
        self.producers.replay_writes(writes, file)
        for epoch in writes.epochs:
            if epoch > self.logged_to:
                self.lost.append((self.logged_to, epoch))
            self.logged_to = max(self.logged_to, epoch + 1)
        self.last_received_us = max(self.last_received_us, *writes.received_us)


def _apply(message: Control, arrivals: Arrivals, batches: list[BatchRecord]) -> None:
    """Apply a message again, as when it was logged."""
    if isinstance(message, WatermarkAdvanced | RulesInForce | ClockReset):
        arrivals.watermarks.apply(message)
    elif isinstance(message, EarliestRaised):
        arrivals.raise_earliest(message.earliest_us)
    elif isinstance(message, VectorsCut):
        arrivals.cut_vectors(message)
    elif isinstance(message, BatchClosed):
        batches.append(message.record)


def _remember_segments(arrivals: Arrivals, manifest: Manifest, wanted: int) -> None:
    """Fill the memory of identities from the newest segments, oldest of those first."""
    chosen, rows = [], 0
    for entry in manifest.newest() if wanted > 0 else ():
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
