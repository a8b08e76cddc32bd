"""Sealing: a closed log file becomes a Parquet segment, and the manifest names it.

Belongs here: the way from one log file to one segment, which is the same after a crash as in normal life, and gives
the same segment however often it is begun. Order matters: segment on the disk, manifest on the disk, then the log
file may go.
"""

import hashlib
from pathlib import Path
from typing import NamedTuple

from resources.coordinator.batch_record import BatchRecord
from resources.coordinator.disk import Disk
from resources.coordinator.frames import Header
from resources.coordinator.log_content import LogContent
from resources.coordinator.manifest import Entry, EventTime, Manifest
from resources.coordinator.segments import Census, encode_segment
from resources.failpoints import reach


class Draft(NamedTuple):
    """A segment that has no name yet."""

    header: Header
    census: Census
    data: memoryview


class Sealer:
    """Turns the closed log files of one shard into segments."""

    def __init__(self, disk: Disk, directory: Path, manifest: Manifest) -> None:
        self._disk = disk
        self._directory = directory
        self._manifest = manifest

    def seal(
        self, content: LogContent, event_time: EventTime, batches: list[BatchRecord], sealed_us: int
    ) -> Entry | None:
        """Seal one log file; None if it holds no write that is not sealed already.

        `batches` were closed since the last segment, those that this file tells of included.
        """
        draft = self.draft(content)
        return draft and self.finish(draft, event_time, batches, sealed_us)

    def draft(self, content: LogContent) -> Draft | None:
        """What takes long about sealing, and needs nothing but the file; None if there is nothing to be sealed."""
        groups = [group.rows for group in content.groups() if group.rows is not None]
        if not groups:
            return None
        census = Census(groups)
        if census.to_epoch <= self._manifest.to_epoch:
            return None
        return Draft(content.header, census, encode_segment(groups))

    def finish(self, draft: Draft, event_time: EventTime, batches: list[BatchRecord], sealed_us: int) -> Entry:
        """Put a segment in its place and name it. Nothing else was sealed since it was drafted."""
        census = draft.census
        number = len(self._manifest.entries) + 1
        path = self._directory / f"{number:08d}-{self._manifest.to_epoch:012d}-{census.to_epoch:012d}.parquet"
        self._write(draft.data, path)
        entry = Entry(
            shard=draft.header.shard,
            number=number,
            file=path.name,
            from_epoch=self._manifest.to_epoch,
            to_epoch=census.to_epoch,
            lost=census.gaps(self._manifest.to_epoch),
            rows=census.rows,
            bytes=len(draft.data),
            sha256=hashlib.sha256(draft.data).hexdigest(),
            verdicts=census.verdicts(),
            event_hours=census.by_hour("event_ts"),
            receipt_hours=census.by_hour("received_ts"),
            stamp_hours={
                key: counts.accepted for key, counts in census.by_hour("watermark_ts").items() if counts.accepted
            },
            producers=census.sequences(),
            watermarks=event_time.watermarks,
            batches=batches,
            received_us=event_time.received_us,
            idle_from=event_time.idle_from,
            # Day files are read in the order of their names, so their days must not go back when a clock does.
            sealed_us=max([sealed_us, *(entry.sealed_us for entry in self._manifest.entries[-1:])]),
            incarnation=draft.header.incarnation,
            previous=self._manifest.head,
        )
        self._manifest.append(entry)
        reach("seal.manifest_appended")
        return entry

    def _write(self, data: memoryview, path: Path) -> None:
        fresh = path.with_name(path.name + ".sealing")
        self._disk.replace(fresh, data)
        reach("seal.segment_written")
        self._disk.rename(fresh, path)
        reach("seal.segment_named")
