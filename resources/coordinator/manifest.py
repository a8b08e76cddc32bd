"""The manifest: which segments a shard has sealed, in order, and what is in each.

Belongs here: the entry, how it is appended and how the whole is read and proved. One JSON line per segment, in one
file per day; every line carries the checksum of the line before it, so that a missing or changed line is noticed
wherever it stands. The batch plane needs nothing of the live plane but this and the segment files.
"""

import hashlib
import os
from collections.abc import Iterator
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from resources.coordinator.batch_record import BatchRecord
from resources.coordinator.disk import Disk, RealDisk
from resources.coordinator.errors import ManifestDamageError, SegmentDamageError
from resources.timegrid import from_us

NOTHING_BEFORE = "0" * 64
HEAD_FILE = "head.json"
RESTORE = "Restore it from a backup; nothing was changed."


class Head(Struct, frozen=True):
    """What the manifest had come to when it was last appended to, so that a last line that is gone is missed."""

    number: int
    sha256: str


class HourCounts(Struct, frozen=True):
    """Deltas of one hour, by verdict."""

    accepted: int = 0
    duplicate: int = 0
    refused: int = 0


class Entry(Struct, frozen=True):
    """One sealed segment. Epochs are half-open: `from_epoch` is in it, `to_epoch` is not."""

    shard: int
    number: int  # 1, 2, 3, … within the shard
    file: str
    from_epoch: int  # data and lost epochs together are contiguous (C7)
    to_epoch: int
    lost: list[tuple[int, int]]  # epochs that were given out and never written
    rows: int
    bytes: int
    sha256: str
    verdicts: HourCounts
    event_hours: dict[str, HourCounts]  # by hour of the event; deltas without a usable time are under ""
    receipt_hours: dict[str, HourCounts]  # by hour of arrival
    stamp_hours: dict[str, int]  # accepted deltas by hour of the watermark in force; "" while there was none
    producers: dict[str, tuple[int, int]]  # first and last sequence of each producer
    watermarks: dict[str, int]  # "namespace/kind" → event-time watermark after the last write, microseconds
    sealed_us: int
    incarnation: int
    previous: str  # sha256 of the line before
    batches: list[BatchRecord] = []  # closed since the entry before was sealed; deltas may lie in that one (C5)
    received_us: int = 0  # when its last write was received: the clock by which a stream is idle (T3)
    idle_from: dict[str, int] = {}  # "namespace/kind" → when it is idle in this shard, unless heard before
    resets: int = 0  # how many resets of the clock its times know of (C15)


class EventTime(NamedTuple):
    """How far event time had come when a log file ended, as its writes and messages say."""

    watermarks: dict[str, int]
    idle_from: dict[str, int]
    received_us: int
    resets: int = 0


def manifest_name(sealed_us: int) -> str:
    """Name of the day's file."""
    return f"manifest-{from_us(sealed_us):%Y-%m-%d}.jsonl"


def line_of(entry: Entry) -> bytes:
    """The entry as it stands in the file, without the newline."""
    return msgspec.json.encode(entry)


def checksum_of(line: bytes) -> str:
    """What the next line says of this one."""
    return hashlib.sha256(line).hexdigest()


class Manifest:
    """All entries of one shard, proved to be an unbroken row."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.directory = directory
        self._disk = disk or RealDisk()
        self.entries: list[Entry] = []
        self.head = NOTHING_BEFORE
        self._last: tuple[Path, int] | None = None  # the last file, and how many bytes of it are whole lines
        self._is_torn = False
        self._newest = ""  # name of the last file
        self._read()

    @property
    def to_epoch(self) -> int:
        """First epoch that is not sealed."""
        return self.entries[-1].to_epoch if self.entries else 1

    def append(self, entry: Entry) -> None:
        """Add one entry, durably."""
        if self._is_torn:
            self.repair()
        line = line_of(entry)
        # Files are read in the order of their names, so their days must not go back when a clock does (C15).
        self._newest = max(self._newest, manifest_name(entry.sealed_us))
        self._disk.append(self.directory / self._newest, line + b"\n")
        self._accept(entry, line, entry.file)
        self._disk.replace(self.directory / HEAD_FILE, msgspec.json.encode(Head(entry.number, self.head)))

    def open_segment(self, entry: Entry) -> BufferedIOBase:
        """The bytes of a segment, proved to be the ones that were sealed."""
        return self._disk.open(verify_segment(self.directory, entry, self._disk))

    def repair(self) -> None:
        """Put the last file in place again, without the line that a crash tore; only the shard's writer may do this.

        Also if nothing is torn: a process that was killed may have left its last line in the cache, not on the disk,
        and the log file that the line makes superfluous must not go before the line is certain.
        """
        if self._last is not None:
            path, size = self._last
            self._disk.replace(path, self._disk.read(path)[:size])
            self._is_torn = False

    def _read(self) -> None:
        head = None
        if HEAD_FILE in self._disk.list(self.directory):
            head = msgspec.json.decode(self._disk.read(self.directory / HEAD_FILE), type=Head)
        for path, line, end, is_last in self._lines():
            try:
                entry = msgspec.json.decode(line, type=Entry)
            except msgspec.MsgspecError as error:
                if is_last and (head is None or head.number <= len(self.entries)):
                    # The end of a line may reach the disk before its middle. The head comes after the line is synced
                    # and before its log file goes, so what this line was to say can be said again.
                    self._last, self._is_torn = (path, end - len(line) - 1), True
                    break
                raise ManifestDamageError(
                    f"{path} has a line that is no manifest entry ({error}). {RESTORE}"
                ) from error
            self._accept(entry, line, str(path))
            if head is not None and entry.number == head.number and self.head != head.sha256:
                raise ManifestDamageError(f"{path}: the line of segment {entry.number} was changed. {RESTORE}")
        if head is not None and len(self.entries) < head.number:
            raise ManifestDamageError(
                f"The manifest in {self.directory} ends with segment {len(self.entries)}, but segment {head.number} "
                f"was sealed: an entry is missing. {RESTORE}"
            )

    def _lines(self) -> Iterator[tuple[Path, bytes, int, bool]]:
        """Every line that ends in a newline, where in its file it ends, and whether nothing at all comes after it."""
        names = [
            name for name in self._disk.list(self.directory) if name.startswith("manifest-") and name.endswith(".jsonl")
        ]
        for name in names:
            path = self.directory / name
            whole, newline, rest = self._disk.read(path).rpartition(b"\n")
            if rest:
                # A line without its newline was never acknowledged to anybody, if it is the very last one.
                if name != names[-1]:
                    raise ManifestDamageError(f"{path} ends in half a line, but a later file exists. {RESTORE}")
                self._is_torn = True
            size, end = len(whole + newline), 0
            self._last, self._newest = (path, size), name
            for line in whole.split(b"\n") if newline else []:
                end += len(line) + 1
                yield path, line, end, name == names[-1] and end == size and not rest

    def _accept(self, entry: Entry, line: bytes, where: str) -> None:
        expected = (len(self.entries) + 1, self.to_epoch, self.head)
        found = (entry.number, entry.from_epoch, entry.previous)
        if found != expected:
            raise ManifestDamageError(
                f"{where}: found segment {entry.number} from epoch {entry.from_epoch}, but segment {expected[0]} from "
                f"epoch {expected[1]} should follow, behind a line with checksum {expected[2][:8]}…: an entry is "
                f"missing or was changed. {RESTORE}"
            )
        self.entries.append(entry)
        self.head = checksum_of(line)


def verify_segment(directory: Path, entry: Entry, disk: Disk | None = None) -> Path:
    """The segment's path, after its bytes have been proved to be the ones that were sealed."""
    path = directory / entry.file
    try:
        file = (disk or RealDisk()).open(path)
    except FileNotFoundError:
        raise SegmentDamageError(
            f"Segment {path} is missing; the manifest lists it with {entry.rows} deltas. {RESTORE}"
        ) from None
    with file:
        size = file.seek(0, os.SEEK_END)
        if size != entry.bytes:
            raise SegmentDamageError(
                f"Segment {path} has {size} bytes instead of {entry.bytes}: it was truncated or changed. {RESTORE}"
            )
        file.seek(0)
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != entry.sha256:
        raise SegmentDamageError(f"Segment {path} has another checksum than when it was sealed. {RESTORE}")
    return path
