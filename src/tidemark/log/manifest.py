"""The manifest: which segments a shard has sealed, in order, and what is in each.

Belongs here: the entry, how it is appended, and how entries are found and verified. One JSON line per segment, in one
file per day; every line has the checksum of the line before it, so a missing or changed line is noticed anywhere. A
line also has the totals up to its segment, and `head.json` says where the last line begins. So a start reads the head
and the lines after it, and costs the same however long the manifest is (decision 0038). How the files are read is in
`manifest_files.py`. Of the coordinator's files, batch jobs read only this and the segments.
"""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from io import BufferedIOBase
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec import Struct

from tidemark.log.batch_record import BatchRecord
from tidemark.log.manifest_files import RESTORE, DayFiles, Line, day_file
from tidemark.log.segment_files import verify_segment
from tidemark.model.shard_errors import ManifestDamageError
from tidemark.model.turned_away import Tally
from tidemark.storage.disk import Disk, RealDisk

NOTHING_BEFORE = "0" * 64
HEAD_FILE = "head.json"
_NO_END = 2**63 - 1
PRODUCERS_IN_TOTALS = 20  # of those turned away, by name: every line has the totals


class Head(Struct, frozen=True):
    """The last line when the manifest was last appended to: its checksum, so that its loss is noticed, and its place.

    The place only saves reading. It is used if the line that begins there has this checksum. The totals save adding up
    the lines of an older home, which have none of their own.
    """

    number: int
    sha256: str
    file: str = ""
    start: int = 0
    totals: "Totals | None" = None


class HourCounts(Struct, frozen=True):
    """Deltas of one hour, by verdict."""

    accepted: int = 0
    duplicate: int = 0
    refused: int = 0

    def plus(self, other: "HourCounts") -> "HourCounts":
        """Both together."""
        return HourCounts(
            self.accepted + other.accepted, self.duplicate + other.duplicate, self.refused + other.refused
        )


class SourceHours(Struct, frozen=True):
    """The hours in which accepted deltas of one namespace and kind lie."""

    event: list[str] = []  # of the event
    receipt: list[str] = []  # of arrival
    stamp: list[str] = []  # of the watermark in force


class Totals(Struct, frozen=True):
    """Everything from the first segment up to and including one."""

    rows: int = 0
    bytes: int = 0
    verdicts: HourCounts = HourCounts()
    batch: int = 0  # number of the last batch that was recorded; 0 means none
    batched_to: int = 1  # first epoch that is in none of the recorded batches
    turned_away: Tally = Tally()  # before they were numbered: they are in no segment (A3)

    def plus(self, entry: "Entry", batches: Sequence[BatchRecord]) -> "Totals":
        """The totals with the next segment, and the batches that it records."""
        return Totals(
            rows=self.rows + entry.rows,
            bytes=self.bytes + entry.bytes,
            verdicts=self.verdicts.plus(entry.verdicts),
            batch=max([self.batch, *(batch.number for batch in batches)]),
            batched_to=max([self.batched_to, *(batch.to_epoch for batch in batches)]),
            turned_away=self.turned_away.plus(entry.turned_away, PRODUCERS_IN_TOTALS),
        )


class Entry(Struct, frozen=True):
    """One sealed segment. Epochs are half-open: `from_epoch` is in it, `to_epoch` is not."""

    shard: int
    number: int  # 1, 2, 3, … within the shard
    file: str  # relative to the manifest's directory
    from_epoch: int  # data and lost epochs together are contiguous (C7)
    to_epoch: int
    lost: list[tuple[int, int]]  # epochs that were given out and never written
    rows: int
    bytes: int
    sha256: str
    verdicts: HourCounts
    event_hours: dict[str, HourCounts]  # by hour of the event; deltas without a usable time are under ""
    receipt_hours: dict[str, HourCounts]  # by hour of arrival
    stamp_hours: dict[str, int]  # accepted deltas by hour of the watermark in force; "" if there was none
    producers: dict[str, tuple[int, int]]  # first and last sequence of each producer
    watermarks: dict[str, int]  # "namespace/kind" → event-time watermark after the last write, microseconds
    sealed_us: int
    incarnation: int
    previous: str  # sha256 of the line before
    batches: list[BatchRecord] = []  # only in lines of older homes: now the segment has them
    received_us: int = 0  # when its last write was received: the clock by which a stream is idle (T3)
    idle_from: dict[str, int] = {}  # "namespace/kind" → when it goes idle in this shard without another write
    resets: int = 0  # how many resets of the clock its times include (C15)
    # Batches that were closed since the entry before was sealed, by hour; their deltas may lie in that one (C5).
    batch_hours: dict[str, int] = {}
    batches_sha256: str = ""  # of their records in the segment; empty if it has none
    # "namespace/kind" → the hours of its accepted deltas; None in lines of older homes, which do not say.
    sources: dict[str, SourceHours] | None = None
    turned_away: Tally = Tally()  # noted since the entry before was sealed (A3)
    totals: Totals | None = None  # up to and including this segment; None in lines of older homes


class EventTime(NamedTuple):
    """How far event time had come when a log file ended, as its writes and messages say."""

    watermarks: dict[str, int]
    idle_from: dict[str, int]
    received_us: int
    resets: int = 0


def line_of(entry: Entry) -> bytes:
    """The line of an entry, without the newline."""
    return msgspec.json.encode(entry)


def checksum_of(line: bytes) -> str:
    """The checksum of a line, which the next line states."""
    return hashlib.sha256(line).hexdigest()


class _End(NamedTuple):
    """The last entry, and its line's checksum and place; replaced as a whole, because others read it meanwhile."""

    last: Entry | None = None
    sha256: str = NOTHING_BEFORE
    name: str = ""
    start: int = 0
    line: bytes = b""

    @property
    def number(self) -> int:
        return self.last.number if self.last else 0


class Manifest:
    """The entries of one shard: the last one in memory, the others on demand. Each is verified by later lines."""

    def __init__(self, directory: Path, disk: Disk | None = None) -> None:
        self.directory = directory
        self._disk = disk or RealDisk()
        self._files = DayFiles(directory, self._disk)
        self._end = _End()
        self._known_head: Head | None = None
        self._torn_file = ""  # the file that ends in a torn line
        self._folded: tuple[int, Totals] = (0, Totals())
        self._read()

    @property
    def count(self) -> int:
        """How many segments are sealed."""
        return self._end.number

    @property
    def last(self) -> Entry | None:
        """The entry of the segment that was sealed last."""
        return self._end.last

    @property
    def head(self) -> str:
        """The checksum of the last line."""
        return self._end.sha256

    @property
    def to_epoch(self) -> int:
        """First epoch that is not sealed."""
        return self._end.last.to_epoch if self._end.last else 1

    @property
    def totals(self) -> Totals:
        """The totals of everything that is sealed."""
        return self.totals_of(self._end.last)

    def totals_of(self, entry: Entry | None) -> Totals:
        """The totals up to and including an entry of this manifest; zero for None."""
        if entry is None:
            return Totals()
        if entry.totals is not None:
            return entry.totals
        # A line of an older home: add up once what no line has added up.
        if self._folded[0] != entry.number:
            found = Totals()
            for each in self.numbered(1, entry.number + 1):
                found = each.totals or found.plus(each, each.batches)
            self._folded = (entry.number, found)
        return self._folded[1]

    def append(self, entry: Entry, batches: Sequence[BatchRecord] = ()) -> Entry:
        """Add one entry, durably; return it with its totals. `batches` are those that its segment records."""
        if self._torn_file:
            self.repair()
        entry = msgspec.structs.replace(entry, totals=self.totals.plus(entry, batches))
        # Files are read in the order of their names, so days must not go back when the clock does (C15).
        line, name = line_of(entry), max([day_file(entry.sealed_us), *self._files.names()[-1:]])
        _refuse_unless_after(self._end.last, self._end.sha256, entry, entry.file)
        start = self._files.size(name)
        self._disk.append(self.directory / name, line + b"\n")
        self._end = _End(entry, checksum_of(line), name, start, line)
        self._write_head()
        return entry

    def open_segment(self, entry: Entry) -> BufferedIOBase:
        """The bytes of a segment, verified against its checksum."""
        return self._disk.open(verify_segment(self.directory, entry, self._disk))

    def all(self) -> Iterator[Entry]:
        """Every entry, in order, read one by one; the whole chain of lines is verified from the first on."""
        return self._verified(self._files.lines(), self._end, is_from_start=True)

    def numbered(self, first: int, end: int) -> Iterator[Entry]:
        """The entries from one number up to another, half-open."""
        for entry in self._from(lambda entry: entry.number <= first):
            if entry.number >= end:
                return
            if entry.number >= first:
                yield entry

    def between(self, from_epoch: int, to_epoch: int) -> Iterator[Entry]:
        """The entries with an epoch in a range, half-open, in order."""
        if from_epoch >= min(to_epoch, self.to_epoch):
            return
        for entry in self._from(lambda entry: entry.from_epoch <= from_epoch):
            if entry.from_epoch >= to_epoch:
                return
            if entry.to_epoch > from_epoch:
                yield entry

    def since(self, epoch: int) -> Iterator[Entry]:
        """The entries with this epoch or a later one, in order."""
        return self.between(epoch, _NO_END)

    def up_to(self, epoch: int) -> Entry | None:
        """The last entry that has no epoch after this one."""
        if epoch >= self.to_epoch - 1:
            return self._end.last
        found = next(self.between(epoch + 1, epoch + 2), None)
        return next(self.numbered(found.number - 1, found.number), None) if found and found.number > 1 else None

    def newest(self) -> Iterator[Entry]:
        """Every entry, the last one first, read one by one."""
        end, expected = self._end, self._end.sha256
        if end.last is None:
            return
        number = end.last.number
        for data in self._files.backwards(end.name, end.start + len(end.line) + 1):
            if checksum_of(data) != expected:
                raise ManifestDamageError(
                    f"{self.directory}: the line of segment {number} was changed or is missing. {RESTORE}"
                )
            entry = msgspec.json.decode(data, type=Entry)
            yield entry
            number, expected = number - 1, entry.previous
        if number:
            raise ManifestDamageError(f"{self.directory}: the lines up to segment {number} are missing. {RESTORE}")

    def is_lost(self, epoch: int) -> bool:
        """Whether a sealed epoch was given out and never written."""
        return any(begin <= epoch < end for entry in self.between(epoch, epoch + 1) for begin, end in entry.lost)

    def repair(self) -> None:
        """Write the last file again, without a torn line; only the shard's writer may do this.

        Also if nothing is torn: a process that was killed may have left its last line in the cache, not on the disk,
        and the log file that the line makes superfluous must not go before the line is durable.
        """
        end, torn = self._end, self._torn_file
        if torn and torn != end.name:
            self._disk.replace(self.directory / torn, b"")
        elif end.last is not None:
            path = self.directory / end.name
            self._disk.replace(path, self._disk.read(path)[: end.start + len(end.line) + 1])
        self._torn_file = ""
        if end.last is not None and self._known_head != self._head():
            self._write_head()

    def _head(self) -> Head:
        return Head(self.count, self._end.sha256, self._end.name, self._end.start, self.totals)

    def _write_head(self) -> None:
        self._known_head = self._head()
        self._disk.replace(self.directory / HEAD_FILE, msgspec.json.encode(self._known_head))

    def _read(self) -> None:
        head = self._known_head = self._read_head()
        self._go_to(head)
        for line in self._files.lines(self._end.name, self._end.start + len(self._end.line) + bool(self._end.line)):
            if not line.is_whole:
                # A line without its newline was never acknowledged.
                self._torn_file = line.name
                break
            try:
                entry = msgspec.json.decode(line.data, type=Entry)
            except msgspec.MsgspecError as error:
                if line.is_last and (head is None or head.number <= self.count):
                    # The end of a line may reach the disk before its middle. The head is written after the line is
                    # synced and before its log file goes, so this line can be written again.
                    self._torn_file = line.name
                    break
                raise self._no_entry(line, error) from error
            _refuse_unless_after(self._end.last, self._end.sha256, entry, str(self.directory / line.name))
            self._end = _End(entry, checksum_of(line.data), line.name, line.start, line.data)
            if head is not None and entry.number == head.number and self.head != head.sha256:
                raise ManifestDamageError(
                    f"{self.directory / line.name}: the line of segment {entry.number} was changed. {RESTORE}"
                )
        if head is not None and self.count < head.number:
            raise ManifestDamageError(
                f"The manifest in {self.directory} ends with segment {self.count}, but segment {head.number} "
                f"was sealed: an entry is missing. {RESTORE}"
            )

    def _read_head(self) -> Head | None:
        """Read before the lines: lines that are appended meanwhile come after it."""
        try:
            return msgspec.json.decode(self._disk.read(self.directory / HEAD_FILE), type=Head)
        except (FileNotFoundError, msgspec.MsgspecError):
            return None  # the lines alone tell

    def _go_to(self, head: Head | None) -> None:
        """Begin at the line that the head names, if it is there; else at the first line of all."""
        line = self._files.at(head.file, head.start) if head and head.file else None
        if head is None or line is None or checksum_of(line) != head.sha256:
            return
        entry = msgspec.json.decode(line, type=Entry)
        self._end = _End(entry, head.sha256, head.file, head.start, line)
        if head.totals is not None:
            self._folded = (head.number, head.totals)

    def _from(self, is_before: Callable[[Entry], bool]) -> Iterator[Entry]:
        """The entries from the last file on whose first entry is before the wanted place."""
        end, name = self._end, self._files.last_before(lambda name: self._is_before(name, is_before))
        return self._verified(self._files.lines(name) if name else iter(()), end, is_from_start=False)

    def _is_before(self, name: str, is_before: Callable[[Entry], bool]) -> bool | None:
        """Whether the first entry of a file is before the wanted place; None if the file has no entry."""
        line = self._files.at(name, 0)
        try:
            return None if line is None else is_before(msgspec.json.decode(line, type=Entry))
        except msgspec.MsgspecError as error:
            raise self._no_entry(Line(name, 0, line or b""), error) from error

    def _verified(self, lines: Iterator[Line], end: _End, *, is_from_start: bool) -> Iterator[Entry]:
        """The entries up to and including an end; each is yielded once the line after it has confirmed it."""
        before: Entry | None = None
        sha256, is_first = NOTHING_BEFORE, not is_from_start
        for line in lines if end.last else ():
            try:
                entry = msgspec.json.decode(line.data, type=Entry)
            except msgspec.MsgspecError as error:
                raise self._no_entry(line, error) from error
            if not is_first:
                _refuse_unless_after(before, sha256, entry, str(self.directory / line.name))
            is_first = False
            if before is not None:
                yield before
            before, sha256 = entry, checksum_of(line.data)
            if entry.number >= end.number:
                break
        if (before.number if before else 0, sha256) != (end.number, end.sha256):
            raise ManifestDamageError(
                f"The manifest in {self.directory} does not end with the line that was written for segment "
                f"{end.number}: an entry is missing or was changed. {RESTORE}"
            )
        if before is not None:
            yield before

    def _no_entry(self, line: Line, error: msgspec.MsgspecError) -> ManifestDamageError:
        path = self.directory / line.name
        return ManifestDamageError(f"{path} has a line that is no manifest entry ({error}). {RESTORE}")


def _refuse_unless_after(before: Entry | None, sha256: str, entry: Entry, where: str) -> None:
    number, epoch = (before.number, before.to_epoch) if before else (0, 1)
    if (entry.number, entry.from_epoch, entry.previous) != (number + 1, epoch, sha256):
        raise ManifestDamageError(
            f"{where}: found segment {entry.number} from epoch {entry.from_epoch}, but segment {number + 1} from "
            f"epoch {epoch} should follow, behind a line with checksum {sha256[:8]}…: an entry is missing or was "
            f"changed. {RESTORE}"
        )
