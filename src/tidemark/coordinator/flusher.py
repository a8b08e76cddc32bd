"""The platform's buffer and flusher: writes of deltas gather, get their verdicts, and go into the log (C1, C2, C7).

Belongs here: the way from numbered writes to a synced frame, and from a full or old log file to the sealer. A flusher
runs on one thread, the writer's; sealing goes on in the background. It knows only *logged* state: only that may be
saved as the shard's state, whatever the door has promised since.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple, Protocol

import pyarrow as pa

from tidemark.coordinator.bounds import DiskGauge
from tidemark.door.decoded import Deltas
from tidemark.event_time.alignment import ShardView
from tidemark.log.control import (
    BatchClosed,
    Control,
    EarliestRaised,
    NumberUsed,
    TurnedAway,
    VectorsCut,
    WriteRefused,
)
from tidemark.log.frames import PAYLOAD_LIMIT, Header
from tidemark.log.groups import encode_group
from tidemark.log.log_content import read_log
from tidemark.log.log_file import LogFile
from tidemark.log.log_rows import LogRows
from tidemark.log.manifest import Manifest
from tidemark.log.segments import read_segment
from tidemark.model.event_time_rules import Stream
from tidemark.model.log_schema import LOG_SCHEMA
from tidemark.model.settings import Settings
from tidemark.shard_state.recovery import Recovered, ShardFiles
from tidemark.shard_state.seal import ClosedFile, Sealer
from tidemark.shard_state.state import ShardState
from tidemark.storage.disk import Disk
from tidemark.verdicts.arrival import NumberedWrite, VerdictCounts
from tidemark.verdicts.told_rows import ToldRows, refused_reasons, told_rows


class ArrivedWrite(NamedTuple):
    """A write at the door, before it has an epoch."""

    producer: str
    sequence: int
    arrived_us: int
    deltas: Deltas
    most_bytes: int = 0  # the most that it can take in the log


class LogPart(NamedTuple):
    """A frozen buffer."""

    controls: tuple[Control, ...]
    writes: tuple[NumberedWrite, ...]
    adoptions: tuple[tuple[Stream, int], ...]
    wants_seal: bool


class LogBuffer:
    """Writes and messages in the order in which they will be logged."""

    def __init__(self, last_received_us: int) -> None:
        self._last_received_us = last_received_us
        self._behind: dict[tuple[str, int], list[Control]] = {}  # producer and sequence → messages that go with it
        self._begin()

    def _begin(self) -> None:
        self._controls: list[Control] = []
        self._writes: list[NumberedWrite] = []
        self._adoptions: list[tuple[Stream, int]] = []
        self._wants_seal = self._is_urgent = False

    def apply(self, epoch: int, write: ArrivedWrite) -> None:
        # Times of receipt follow the epochs, also when a clock goes back or the queue changed the order.
        self._last_received_us = max(self._last_received_us, write.arrived_us)
        producer, sequence, _, deltas, most_bytes = write
        self._writes.append(NumberedWrite(epoch, producer, sequence, self._last_received_us, deltas, most_bytes))
        if self._behind:
            self._controls += self._behind.pop((write.producer, write.sequence), ())

    def time_is(self, now_us: int) -> None:
        """Watermarks may be logged as of now, so nothing is received earlier from here on, whatever the clock says."""
        self._last_received_us = max(self._last_received_us, now_us)

    @property
    def is_urgent(self) -> bool:
        """Whether anything in it must be logged now; messages that are not urgent wait for the next group."""
        return self._is_urgent

    def note(self, message: Control, *, is_urgent: bool = True, behind: ArrivedWrite | None = None) -> None:
        """Add a message to the next frame, or to the frame of a write that is still queued."""
        if behind is not None:
            self._behind.setdefault((behind.producer, behind.sequence), []).append(message)
            return
        self._controls.append(message)
        self._is_urgent = self._is_urgent or is_urgent

    def adopt(self, stream: Stream, watermark_us: int) -> None:
        """Other shards are ahead: let this one's watermark follow, if it would rise (T2)."""
        self._adoptions.append((stream, watermark_us))
        self._is_urgent = True

    def ask_seal(self) -> None:
        """Ask for the log file to be sealed after this buffer."""
        self._wants_seal = self._is_urgent = True

    def is_empty(self) -> bool:
        return not (self._writes or self._controls or self._adoptions or self._wants_seal)

    def freeze(self) -> LogPart:
        frozen = LogPart(tuple(self._controls), tuple(self._writes), tuple(self._adoptions), self._wants_seal)
        self._begin()
        return frozen


def _frames_of(writes: Sequence[NumberedWrite]) -> Iterator[list[NumberedWrite]]:
    """Split writes into frames that fit, whatever their verdicts; each write fits alone (`ShardCore.submit`)."""
    together: list[NumberedWrite] = []
    size = 0
    for write in writes:
        if together and size + write.most_bytes > PAYLOAD_LIMIT:
            yield together
            together, size = [], 0
        together.append(write)
        size += write.most_bytes
    if together:
        yield together


def _without_numbers(controls: Sequence[Control]) -> tuple[list[Control], list[Control]]:
    """Messages that move no producer's mark, and those that do."""
    found: tuple[list[Control], list[Control]] = ([], [])
    for message in controls:
        found[isinstance(message, NumberUsed | WriteRefused)].append(message)
    return found


class LogSnapshot(NamedTuple):
    """What plain readers see: every write up to and including `epoch`. It never changes, wherever its rows are."""

    epoch: int
    disk: Disk
    files: ShardFiles
    rows: LogRows | None = None  # of the group that brought it here
    outcomes: tuple[VerdictCounts, ...] = ()  # of that group's writes
    digests: tuple[int, ...] = ()  # of the same
    told: Mapping[int, ToldRows] = MappingProxyType({})  # of those that were not accepted whole, by epoch
    reasons: Mapping[str, int] = MappingProxyType({})  # why deltas of that group were refused

    def read(self) -> pa.Table:
        """All rows, from segments and log. If files are sealed meanwhile, they are listed again."""
        while True:
            try:
                return pa.concat_tables([pa.Table.from_batches([], LOG_SCHEMA), *self._tables()])
            except FileNotFoundError:
                continue

    def _tables(self) -> Iterator[pa.Table]:
        # Listed before the manifest is read: a file sealed in between is in at least one of them.
        names = [name for name in self.disk.list(self.files.log) if name.endswith(".log")]
        manifest = Manifest(self.files.segments, self.disk)
        for entry in manifest.between(1, self.epoch + 1):
            with manifest.open_segment(entry) as file:
                yield self._visible(read_segment(file), 1)
        for name in names:
            if content := read_log(self.disk, self.files.log / name):
                batches = [group.rows.batch() for group in content.groups() if group.rows is not None]
                yield self._visible(pa.Table.from_batches(batches, LOG_SCHEMA), manifest.to_epoch)

    def _visible(self, table: pa.Table, from_epoch: int) -> pa.Table:
        epochs = table["epoch"].to_numpy()
        return table.filter(pa.array((epochs >= from_epoch) & (epochs <= self.epoch)))


class Sealing(Protocol):
    """Seals closed log files in the background, one at a time."""

    def submit(self, job: Callable[[], None]) -> None:
        """Start a job. The one before it is done."""

    def wait(self) -> None:
        """Return when the submitted job is done; raise what it raised."""


class LogFlusher:
    """Gives groups their verdicts and logs them; closes log files and has them sealed."""

    def __init__(
        self,
        files: ShardFiles,
        settings: Settings,
        clock: Callable[[], int],
        disk: Disk,
        found: Recovered,
        sealing: Sealing,
    ) -> None:
        self._files, self._settings, self._clock, self._disk = files, settings, clock, disk
        self._sealing = sealing
        self._fence, self._next_file = found.fence, found.next_file
        self._arrivals = found.arrivals
        self._batches = list(found.batches)
        self._books = found.books
        self._last_received_us = found.last_received_us
        self._last_epoch = found.next_epoch - 1
        self._has_active = True
        self.taken_us = clock()  # when the group that is persisted now was taken
        self.gauge = DiskGauge(lambda: disk.free_bytes(files.log), settings.bounds.disk_keep_free_bytes)
        self._sealer = Sealer(disk, files.segments, found.manifest, found.fence, found.ledger, found.sealed_files)
        self._file = self._begin_file(found.opening)
        if found.unsealed:
            # Files that earlier starts left are sealed as if this one had closed them, while it takes new writes.
            unsealed = found.unsealed
            sealing.submit(lambda: self._seal(unsealed))

    def persist(self, frozen: Sequence[LogPart]) -> LogSnapshot:
        """Decide on everything in these parts, log it with one sync, and seal files that are due."""
        self.gauge.look()
        writes = [write for part in frozen for write in part.writes]
        # Time in the log follows the receipt of its writes: how they were cut into groups must not matter.
        now_us = writes[0].received_us if writes else self.taken_us
        # Before any verdict: the state saved with a closed file must not know of the group after it. So a file is full
        # when it has reached its size, and the group that brings it there may go beyond.
        if self.taken_us >= self._due_us() or self._file.end >= self._settings.segment_bytes:
            self._roll()
        watermarks = self._arrivals.watermarks
        controls = [message for part in frozen for message in part.controls]
        for message in controls:
            if isinstance(message, EarliestRaised):
                self._arrivals.raise_earliest(message.earliest_us)
            elif isinstance(message, VectorsCut):
                self._arrivals.cut_vectors(message)
        adopted = [watermarks.adopt(*adoption, now_us) for part in frozen for adoption in part.adoptions]
        controls += [message for message in adopted if message] + watermarks.tick(now_us)
        rows, outcomes, digests = self._log(controls, writes)
        if controls or writes:
            self._fence.check()  # after the sync and before any caller learns of it (C14)
            self._remember(controls, writes)
        # Once more after the last stream has gone idle; then nothing rises by itself any more.
        self._has_active = bool(watermarks.active_streams(self.taken_us))
        if any(part.wants_seal for part in frozen):
            self._roll()
        is_whole = not any(outcome.refused or outcome.duplicate for outcome in outcomes)
        return LogSnapshot(
            self._last_epoch,
            self._disk,
            self._files,
            rows,
            tuple(outcomes),
            tuple(digests),
            {} if rows is None or is_whole else told_rows(rows),
            {} if rows is None or is_whole else refused_reasons(rows),
        )

    def _log(
        self, controls: list[Control], writes: list[NumberedWrite]
    ) -> tuple[LogRows | None, list[VerdictCounts], list[int]]:
        """Decide on writes and log them: in one frame, or in several if one would be too large to read back (C14)."""
        decided: list[LogRows] = []
        outcomes: list[VerdictCounts] = []
        digests: list[int] = []
        frames = list(_frames_of(writes))
        for together in frames:
            rows, found = self._arrivals.decide(together)
            # Should only the first frames reach the disk, no mark may have passed a write of the others (Q2).
            here, controls = (controls, []) if together is frames[-1] else _without_numbers(controls)
            self._file.append((together[0].epoch, together[-1].epoch), encode_group(here, rows))
            decided.append(rows)
            outcomes += found
            digests += rows.writes.digests or []
        if controls:
            self._file.append((0, 0), encode_group(controls, None))
        if len(decided) <= 1:
            return (decided[0] if decided else None), outcomes, digests
        table = pa.Table.from_batches([rows.batch() for rows in decided]).combine_chunks()
        return LogRows.of(table.to_batches()[0]), outcomes, digests

    @property
    def incarnation(self) -> int:
        """The number of this start."""
        return self._fence.incarnation

    @property
    def file_number(self) -> int:
        """The log file that is being written."""
        return self._file.header.number

    @property
    def next_to_seal(self) -> int:
        """Log files below this number are sealed."""
        return self._sealer.next_file

    def snapshot(self) -> LogSnapshot:
        """What is there before anything is written."""
        return LogSnapshot(self._last_epoch, self._disk, self._files)

    @property
    def raised_us(self) -> int | None:
        """The earliest event time allowed, if the log has raised it; on the disk once the last persist is published."""
        return self._arrivals.raised_us

    @property
    def cut(self) -> VectorsCut | None:
        """The cut of vectors that is in force; on the disk once the last persist is published."""
        return self._arrivals.cut

    def event_time(self) -> ShardView:
        """How far event time has come in the log, for the other shards; certain once the last persist is published."""
        watermarks = self._arrivals.watermarks
        return ShardView(self._files.shard, watermarks.logged(), watermarks.active_streams(self.taken_us))

    def next_look_us(self) -> int | None:
        """When time alone makes something due here: a file to be sealed, a watermark to be advanced."""
        step_us = self._arrivals.watermarks.rules.step_us
        looks = [self._due_us()] if self._file.last_epoch else []
        if self._has_active:
            looks.append((self.taken_us // step_us + 1) * step_us)
        return min(looks, default=None)

    def close(self) -> None:
        """Seal everything, and stop."""
        self._close_file()
        self._sealing.wait()

    def _remember(self, controls: Sequence[Control], writes: Sequence[NumberedWrite]) -> None:
        """Add what was just logged to the state that may be saved."""
        for message in controls:
            if isinstance(message, BatchClosed):
                self._batches.append(message.record)
            elif isinstance(message, TurnedAway):
                self._books = self._books.noted(message)
        if writes:
            self._last_received_us, self._last_epoch = writes[-1].received_us, writes[-1].epoch

    def _allowed_age_us(self) -> int:
        settings = self._settings
        is_quiet = self._file.end < settings.quiet_segment_bytes
        return max(settings.segment_age_ms, settings.quiet_segment_age_ms if is_quiet else 0) * 1_000

    def _due_us(self) -> int:
        """When the file is old enough to be sealed."""
        return self._file.header.created_us + self._allowed_age_us()

    def _begin_file(self, opening: Sequence[Control] = ()) -> LogFile:
        header = Header(self._files.shard, self._next_file, self.incarnation, self._last_epoch + 1, self._clock())
        try:
            file = LogFile(self._disk, self._files.log, header, self._settings.segment_bytes)
        except FileExistsError as error:
            # Made by a process that was fenced out after this one had listed the files: no caller was told of anything
            # in it (C14). If it is the other way round, this raises.
            self._fence.check()
            self._disk.remove(Path(error.filename))
            file = LogFile(self._disk, self._files.log, header, self._settings.segment_bytes)
        self._next_file += 1
        if opening:
            file.append((0, 0), encode_group(opening, None))
        return file

    def _roll(self) -> None:
        """Close and seal the current file, and begin the next; a file without writes stays open."""
        if self._file.last_epoch:
            self._close_file()
            self._file = self._begin_file()

    def _close_file(self) -> None:
        self._fence.check()
        closed, has_rows = self._file, bool(self._file.last_epoch)
        closed.close()
        batches, turned_away = self._batches, self._books.tally
        self._books = self._books.carried_over(is_sealed=has_rows)
        state = ShardState(
            next_file=closed.header.number + 1,
            last_received_us=self._last_received_us,
            watermarks=self._arrivals.watermarks.snapshot(),
            batches=[] if has_rows else batches,
            earliest_us=self._arrivals.raised_us,
            vectors_cut=self._arrivals.cut,
            rules=self._arrivals.watermarks.rules,
            books=self._books,
            resets=self._arrivals.watermarks.resets,
        )
        self._batches = list(state.batches)
        event_time = self._arrivals.watermarks.reached(self._last_received_us)
        file = ClosedFile(closed.path, closed.end, state, event_time, batches, turned_away)
        self._sealing.wait()
        self._sealing.submit(lambda: self._seal([file]))

    def _seal(self, files: Sequence[ClosedFile]) -> None:
        for closed in files:
            self._sealer.seal_closed(closed, self._clock())
