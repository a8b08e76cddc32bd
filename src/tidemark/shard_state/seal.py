"""Sealing: a closed log file becomes a Parquet segment, and the manifest names it.

Belongs here: the way from one log file to one segment, which is the same after a crash as in normal operation, and
gives the same segment however often it is begun. Order matters: segment on the disk, manifest on the disk, then the log
file may go.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from msgspec.structs import replace

from tidemark.log.batch_record import BatchRecord, batch_hours, encode_batches
from tidemark.log.control import NumberUsed, ProducerOpened, WriteRefused
from tidemark.log.frames import Header
from tidemark.log.groups import Group
from tidemark.log.ledger import Ledger
from tidemark.log.log_content import read_log
from tidemark.log.manifest import Entry, EventTime, Manifest
from tidemark.log.segment_files import folder_of
from tidemark.log.segments import Census, encode_segment
from tidemark.model.shard_errors import LogDamageError
from tidemark.model.turned_away import Tally
from tidemark.shard_state.fence import Fence
from tidemark.shard_state.producers import Producers
from tidemark.shard_state.state import STATE_FILE, ShardState, save
from tidemark.storage.disk import Disk
from tidemark.storage.failpoints import failpoint


class ClosedFile(NamedTuple):
    """A log file that no process writes any more, all of it on the disk, and what is known at its end."""

    path: Path
    end: int
    state: ShardState  # to be saved when it is sealed, with the producers: nothing later than this file may be in it
    event_time: EventTime
    batches: list[BatchRecord]  # closed since the last segment, including those that this file logs
    turned_away: Tally = Tally()  # counted since then, as the batches


class Sealer:
    """Turns the closed log files of one shard into segments, one at a time and in their order."""

    def __init__(
        self, disk: Disk, directory: Path, manifest: Manifest, fence: Fence, ledger: Ledger, next_file: int
    ) -> None:
        self._disk, self._fence, self._ledger = disk, fence, ledger
        self._directory = directory
        self._manifest = manifest
        self.next_file = next_file  # log files below this number are sealed, and the ledger covers them
        self._folder: Path | None = None  # created or found by this process

    def seal_closed(self, closed: ClosedFile, sealed_us: int) -> None:
        """Seal one log file, save the shard's state as of its end, and remove it."""
        content = read_log(self._disk, closed.path, is_at_rest=True)
        if content is None or content.is_torn or content.end != closed.end:
            raise LogDamageError(
                f"{closed.path} differs from what was written: acknowledged data is damaged. Restore it from a "
                "backup; nothing was changed."
            )
        groups = list(content.groups())  # decoded once, for the segment and for the ledger
        self._seal(content.header, groups, closed, sealed_us)
        runs = self._ledger.write(_producer_states(self._ledger, groups, content.header.number))
        failpoint("seal.ledger_written")
        self._fence.check()
        books = replace(closed.state.books, after_segment=self._manifest.count)
        save(self._disk, closed.path.parent / STATE_FILE, replace(closed.state, ledger=runs, books=books))
        self._ledger.adopt(runs)
        self.next_file = closed.state.next_file
        self._disk.remove(closed.path)
        failpoint("seal.log_removed")
        self._fence.check()  # the next process reads runs that this one no longer needs
        self._ledger.remove_unlisted()

    def _seal(self, header: Header, groups: Sequence[Group], closed: ClosedFile, sealed_us: int) -> None:
        """Write the segment of one log file, unless all its writes are sealed already."""
        rows = [group.rows for group in groups if group.rows is not None]
        if not rows:
            return
        census = Census(rows)
        if census.to_epoch <= self._manifest.to_epoch:
            return
        event_time, batches = closed.event_time, closed.batches
        records = encode_batches(batches)
        data = encode_segment(rows, records)
        number = self._manifest.count + 1
        folder = self._directory / folder_of(number)
        if folder != self._folder:
            self._disk.make_directory(folder)
            self._folder = folder
        path = folder / f"{number:08d}-{self._manifest.to_epoch:012d}-{census.to_epoch:012d}.parquet"
        self._write(data, path)
        entry = Entry(
            shard=header.shard,
            number=number,
            file=f"{folder.name}/{path.name}",
            from_epoch=self._manifest.to_epoch,
            to_epoch=census.to_epoch,
            lost=census.gaps(self._manifest.to_epoch),
            rows=census.rows,
            bytes=len(data),
            sha256=hashlib.sha256(data).hexdigest(),
            verdicts=census.verdicts(),
            event_hours=census.by_hour("event_ts"),
            receipt_hours=census.by_hour("received_ts"),
            stamp_hours={
                key: counts.accepted for key, counts in census.by_hour("watermark_ts").items() if counts.accepted
            },
            sources=census.by_source(),
            producers=census.sequences(),
            watermarks=event_time.watermarks,
            batch_hours=batch_hours(batches),
            batches_sha256=hashlib.sha256(records).hexdigest() if records else "",
            received_us=event_time.received_us,
            idle_from=event_time.idle_from,
            resets=event_time.resets,
            turned_away=closed.turned_away,
            sealed_us=sealed_us,
            incarnation=header.incarnation,
            previous=self._manifest.head,
        )
        self._fence.check()  # a process that was fenced out must not add its line after another's
        entry = self._manifest.append(entry, batches)
        failpoint("seal.manifest_appended")

    def _write(self, data: memoryview, path: Path) -> None:
        temporary = path.with_name(path.name + ".sealing")
        self._disk.replace(temporary, data)
        failpoint("seal.segment_written")
        self._disk.rename(temporary, path)
        failpoint("seal.segment_named")


def _producer_states(ledger: Ledger, groups: Sequence[Group], file: int) -> dict[str, bytes]:
    """The state, at the end of a log file, of the producers in it."""
    names = {name for _, rows in groups if rows is not None for name in rows.writes.producers}
    names.update(
        message.producer
        for controls, _ in groups
        for message in controls
        if isinstance(message, ProducerOpened | NumberUsed | WriteRefused)
    )
    producers = Producers(ledger.get_many(names).get)  # in one call, which reads neighbours together
    for controls, rows in groups:
        for message in controls:
            producers.replay(message, file)
        if rows is not None:
            producers.replay_writes(rows.writes, file)
    return producers.encoded()
