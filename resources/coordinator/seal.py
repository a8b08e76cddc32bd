"""Sealing: a closed log file becomes a Parquet segment, and the manifest names it.

Belongs here: the way from one log file to one segment, which is the same after a crash as in normal life, and gives
the same segment however often it is begun. Order matters: segment on the disk, manifest on the disk, then the log
file may go.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa

from resources.coordinator.control import Control, decode_control
from resources.coordinator.disk import Disk
from resources.coordinator.frames import HEADER_BYTES, Frame, FrameKind, Header, decode_header, find_tail, read_frames
from resources.coordinator.manifest import Entry, Manifest
from resources.coordinator.schema import LOG_SCHEMA
from resources.coordinator.segments import Census, encode_segment
from resources.failpoints import reach


class LogContent(NamedTuple):
    """What is in one log file."""

    header: Header
    frames: list[Frame]
    is_torn: bool

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The groups of writes, in order."""
        for frame in self.frames:
            if frame.kind is FrameKind.WRITES:
                # A copy of its own is aligned, which a place in the middle of a file is not.
                yield pa.ipc.read_record_batch(pa.py_buffer(bytes(frame.payload)), LOG_SCHEMA)

    def controls(self) -> Iterator[Control]:
        """The control messages, in order."""
        for frame in self.frames:
            if frame.kind is FrameKind.CONTROL:
                yield decode_control(frame.payload)


def read_log(disk: Disk, path: Path) -> LogContent | None:
    """All valid frames of a log file; None if it was created and never begun. Damage before the end is refused."""
    data = memoryview(disk.read(path))
    header = decode_header(data, str(path))
    if header is None:
        return None
    frames = list(read_frames(data, header))
    end = frames[-1].end if frames else HEADER_BYTES
    return LogContent(header, frames, find_tail(data, header, end, str(path)).is_torn)


def log_name(number: int) -> str:
    """Name of a log file."""
    return f"{number:010d}.log"


class Sealer:
    """Turns the closed log files of one shard into segments."""

    def __init__(self, disk: Disk, directory: Path, manifest: Manifest) -> None:
        self._disk = disk
        self._directory = directory
        self._manifest = manifest

    def seal(self, content: LogContent, watermarks: dict[str, int], sealed_us: int) -> Entry | None:
        """Seal one log file; None if it holds no write that is not sealed already."""
        table = pa.Table.from_batches(content.batches(), LOG_SCHEMA)
        if not table.num_rows:
            return None
        census = Census(table)
        if census.to_epoch <= self._manifest.to_epoch:
            return None
        number = len(self._manifest.entries) + 1
        path = self._directory / f"{number:08d}-{self._manifest.to_epoch:012d}-{census.to_epoch:012d}.parquet"
        size, digest = self._write(table, path)
        entry = Entry(
            shard=content.header.shard,
            number=number,
            file=path.name,
            from_epoch=self._manifest.to_epoch,
            to_epoch=census.to_epoch,
            lost=census.gaps(self._manifest.to_epoch),
            rows=table.num_rows,
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
            # Day files are read in the order of their names, so their days must not go back when a clock does.
            sealed_us=max([sealed_us, *(entry.sealed_us for entry in self._manifest.entries[-1:])]),
            incarnation=content.header.incarnation,
            previous=self._manifest.head,
        )
        self._manifest.append(entry)
        reach("seal.manifest_appended")
        return entry

    def _write(self, table: pa.Table, path: Path) -> tuple[int, str]:
        self._disk.make_directory(self._directory)
        data = encode_segment(table)
        fresh = path.with_name(path.name + ".sealing")
        self._disk.replace(fresh, data)
        reach("seal.segment_written")
        self._disk.rename(fresh, path)
        reach("seal.segment_named")
        return len(data), hashlib.sha256(data).hexdigest()
