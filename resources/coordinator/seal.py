"""Sealing: a closed log file becomes a Parquet segment, and the manifest names it.

Belongs here: the way from one log file to one segment, which is the same after a crash as in normal life, and gives
the same segment however often it is begun. Order matters: segment on the disk, manifest on the disk, then the log
file may go.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from resources.coordinator.batch_record import BatchRecord
from resources.coordinator.disk import Disk
from resources.coordinator.log_content import LogContent
from resources.coordinator.log_rows import LogRows
from resources.coordinator.manifest import Entry, Manifest
from resources.coordinator.segments import Census, encode_segment
from resources.failpoints import reach


class Sealer:
    """Turns the closed log files of one shard into segments."""

    def __init__(self, disk: Disk, directory: Path, manifest: Manifest) -> None:
        self._disk = disk
        self._directory = directory
        self._manifest = manifest

    def seal(
        self, content: LogContent, watermarks: dict[str, int], batches: list[BatchRecord], sealed_us: int
    ) -> Entry | None:
        """Seal one log file; None if it holds no write that is not sealed already.

        `batches` were closed since the last segment, those that this file tells of included.
        """
        rows = [group.rows for group in content.groups() if group.rows is not None]
        if not rows:
            return None
        census = Census(rows)
        if census.to_epoch <= self._manifest.to_epoch:
            return None
        number = len(self._manifest.entries) + 1
        path = self._directory / f"{number:08d}-{self._manifest.to_epoch:012d}-{census.to_epoch:012d}.parquet"
        size, digest = self._write(rows, path)
        entry = Entry(
            shard=content.header.shard,
            number=number,
            file=path.name,
            from_epoch=self._manifest.to_epoch,
            to_epoch=census.to_epoch,
            lost=census.gaps(self._manifest.to_epoch),
            rows=census.rows,
            bytes=size,
            sha256=digest,
            verdicts=census.verdicts(),
            event_hours=census.by_hour("event_ts"),
            receipt_hours=census.by_hour("received_ts"),
            stamp_hours={
                key: counts.accepted for key, counts in census.by_hour("watermark_ts").items() if counts.accepted
            },
            producers=census.sequences(),
            watermarks=watermarks,
            batches=batches,
            # Day files are read in the order of their names, so their days must not go back when a clock does.
            sealed_us=max([sealed_us, *(entry.sealed_us for entry in self._manifest.entries[-1:])]),
            incarnation=content.header.incarnation,
            previous=self._manifest.head,
        )
        self._manifest.append(entry)
        reach("seal.manifest_appended")
        return entry

    def _write(self, rows: Sequence[LogRows], path: Path) -> tuple[int, str]:
        data = encode_segment(rows)
        fresh = path.with_name(path.name + ".sealing")
        self._disk.replace(fresh, data)
        reach("seal.segment_written")
        self._disk.rename(fresh, path)
        reach("seal.segment_named")
        return len(data), hashlib.sha256(data).hexdigest()
