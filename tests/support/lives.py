"""A shard without threads, for one life: what `Shard` does to the disk, in one order, so that every run is the same.

Belongs here: sending a fixed row of writes, what must be true after any crash, and going through all crashes. Frames
are put together in `append_group` and nowhere else.
"""

import copy
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from chaos.disks import Moment, SimulatedDisk, Survival
from tests.support.live import TEN_O_CLOCK, signal
from tidemark.log.control import Control, ProducerOpened
from tidemark.log.frames import Header
from tidemark.log.groups import encode_group
from tidemark.log.log_file import LogFile
from tidemark.log.log_rows import LogRows
from tidemark.log.manifest import Manifest
from tidemark.log.segment_files import folder_of
from tidemark.log.segments import read_segment
from tidemark.model.settings import Settings
from tidemark.shard_state.recovery import LEDGER, Recovered, ShardFiles, recover
from tidemark.shard_state.seal import ClosedFile, Sealer
from tidemark.shard_state.state import ShardState
from tidemark.storage.disk import Disk
from tidemark.verdicts.arrival import NumberedWrite

FILES = ShardFiles(0, Path("/home/log"), Path("/home/segments"))
# A frame of two deltas has about 1,100 bytes, so a file of three grows beyond what was set aside for it.
SETTINGS = Settings(segment_bytes=3_000, recent_identities=100)
PRODUCER = "web"
RESERVED_AHEAD = 5


def append_group(file: LogFile, controls: list[Control], epoch: int, rows: LogRows | None) -> None:
    """One group, flushed together."""
    file.append((epoch, epoch), encode_group(controls, rows))


def deltas_of(sequence: int) -> list[dict[str, Any]]:
    """Two deltas a write, so that half of one would be seen."""
    return [signal(f"{sequence}-{place}", at=TEN_O_CLOCK + sequence * 1_000_000) for place in range(2)]


class History:
    """What the world outside has seen over all lives."""

    def __init__(self) -> None:
        self.given: dict[int, int] = {}  # epoch → sequence
        self.acknowledged = 0  # last sequence of which somebody was told that it is flushed
        self.instances: list[int] = []
        self.watermark = 0  # the highest that somebody was told

    def copy(self) -> "History":
        """As it is now."""
        return copy.deepcopy(self)


class Life:
    """One life of the shard, from recovery on."""

    def __init__(self, disk: Disk, history: History, *, seals_at_once: bool = False) -> None:
        self._disk, self._history = disk, history
        self._now_us = TEN_O_CLOCK
        found = start(disk)
        self._found = found
        self._next_file = found.next_file
        self._next_epoch = self._reserved_to = found.next_epoch
        self._received_us = found.last_received_us
        assert found.next_epoch > max(history.given, default=0), "an epoch would be given out twice"
        self._file = self._begin_file()
        instance = found.producers.open(PRODUCER)
        append_group(self._file, [*found.opening, ProducerOpened(PRODUCER, instance)], 0, None)
        assert instance not in history.instances, "an instance that is fenced out could write again"
        history.instances.append(instance)
        if seals_at_once:
            seal_found(disk, found)

    def send(self, sequence: int) -> None:
        """One write, flushed; a retry is answered."""
        found = self._found
        if sequence > found.producers.mark(PRODUCER):
            epoch = self._take_epoch()
            self._history.given[epoch] = sequence
            self._received_us = max(self._received_us, self._now_us + sequence * 1_000_000)
            write = NumberedWrite(epoch, PRODUCER, sequence, self._received_us, deltas_of(sequence))
            rows, _ = found.arrivals.decide([write])
            append_group(self._file, [], epoch, rows)
            found.producers.advance(PRODUCER, sequence)
        self._history.acknowledged = max(self._history.acknowledged, sequence)
        self._history.watermark = max(self._history.watermark, *found.arrivals.watermarks.current().values())

    def seal(self) -> None:
        """Seal what is flushed, and begin the next file; a file without writes just goes on."""
        if self._file.last_epoch:
            self.close()
            self._file = self._begin_file()

    def close(self) -> None:
        """Seal what is flushed."""
        found, closed = self._found, self._file
        closed.close()
        state = ShardState(
            closed.header.number + 1,
            self._received_us,
            watermarks=found.arrivals.watermarks.snapshot(),
            rules=found.arrivals.watermarks.rules,
        )
        event_time = found.arrivals.watermarks.reached(self._received_us)
        seal_found(self._disk, found)
        _sealer(self._disk, found).seal_closed(ClosedFile(closed.path, closed.end, state, event_time, []), self._now_us)

    def _take_epoch(self) -> int:
        if self._next_epoch >= self._reserved_to:
            self._reserved_to = self._next_epoch + RESERVED_AHEAD
            self._found.fence.reserve(self._reserved_to)
        self._next_epoch += 1
        return self._next_epoch - 1

    def _begin_file(self) -> LogFile:
        header = Header(0, self._next_file, self._found.fence.incarnation, self._next_epoch, self._now_us)
        self._next_file += 1
        return LogFile(self._disk, FILES.log, header, SETTINGS.segment_bytes)


def paths_of(disk: Disk) -> list[Path]:
    """Everything that a shard has on a disk."""
    folders = (FILES.log, FILES.log / LEDGER, FILES.segments, FILES.segments / folder_of(1))
    return [folder / name for folder in folders for name in disk.list(folder) if folder / name not in folders]


def start(disk: Disk) -> Recovered:
    """Recovery, as every life begins."""
    return recover(disk, FILES, SETTINGS, durable_epoch=0)


def start_and_seal(disk: Disk) -> Recovered:
    """The same, and what was found is sealed, as it is behind every start."""
    found = start(disk)
    seal_found(disk, found)
    return found


def seal_found(disk: Disk, found: Recovered) -> None:
    """Seal what the lives before have left, unless that is done."""
    while found.unsealed:
        _sealer(disk, found).seal_closed(found.unsealed[0], TEN_O_CLOCK)
        del found.unsealed[0]


def _sealer(disk: Disk, found: Recovered) -> Sealer:
    return Sealer(disk, FILES.segments, found.manifest, found.fence, found.ledger, found.sealed_files)


def live(disk: Disk, history: History, writes: int) -> None:
    """A life that sends writes 1, 2, 3, … from the start, and seals after every third."""
    life = Life(disk, history)
    for sequence in range(1, writes + 1):
        life.send(sequence)
        if sequence % 3 == 0:
            life.seal()
    life.close()


class Row(NamedTuple):
    """What is checked of a row."""

    sequence: int
    ordinal: int
    epoch: int
    delta_id: str
    verdict: str


def sealed_rows(disk: Disk) -> list[Row]:
    """Every row of every segment, in order, after proving each."""
    manifest = Manifest(FILES.segments, disk)
    rows: list[Row] = []
    for entry in manifest.all():
        with manifest.open_segment(entry) as file:
            table = read_segment(file, Row._fields)
        rows += [Row(**row) for row in table.to_pylist()]
    return rows


def check(disk: Disk, history: History) -> int:
    """Start once more and compare with what the world was told; gives the last write that is there."""
    found = start_and_seal(disk)
    rows = sealed_rows(disk)
    last = max((row.sequence for row in rows), default=0)
    assert [(row.sequence, row.ordinal) for row in rows] == [
        (sequence, place) for sequence in range(1, last + 1) for place in range(2)
    ], "writes are there whole, once and in order"
    assert history.acknowledged <= last, "an acknowledged write is lost"
    assert found.producers.mark(PRODUCER) == last, "the mark is not that of the last write"
    assert all(history.given[row.epoch] == row.sequence for row in rows), "a write has another epoch than it was given"
    assert [row.epoch for row in rows] == sorted(row.epoch for row in rows), "epochs go back"
    assert all(row.delta_id == f"{row.sequence}-{row.ordinal}" for row in rows), "a wrong row"
    assert {row.verdict for row in rows} <= {"accepted"}, "a verdict has changed"
    assert found.next_epoch > max(history.given, default=0), "an epoch would be given out twice"
    assert max([0, *found.arrivals.watermarks.current().values()]) >= history.watermark, "the watermark fell"
    return last


class Checker:
    """Checks what crashes may leave; the same thing under the same history only once."""

    def __init__(self, seeds: int) -> None:
        self.outcomes = 0
        self._seeds = seeds
        self._seen: set[int] = set()

    def check_all(self, disk: SimulatedDisk, history: History, where: str) -> None:
        """The power goes now, or the process dies: whatever is left must be right."""
        for mode in Survival:
            has_choice = mode in {Survival.PREFIX, Survival.SUFFIX, Survival.RANDOM}
            for seed in range(self._seeds if has_choice else 1):
                left = disk.after(mode, Random(seed))
                files = [(path.name, left.read(path)) for path in paths_of(left)]
                seen = hash((tuple(files), tuple(history.given.items()), history.acknowledged, history.watermark))
                if seen not in self._seen:
                    self._seen.add(seen)
                    self.outcomes += 1
                    try:
                        check(left, history)
                    except Exception as error:
                        raise AssertionError(f"{where}: {mode}, seed {seed}: {error}") from error


def watched(disk: SimulatedDisk, history: History) -> list[tuple[str, SimulatedDisk, History]]:
    """A list that will hold every moment of the coming life: the disk (as it is then, in the cache) and the history."""
    moments: list[tuple[str, SimulatedDisk, History]] = []

    def look(call: object, moment: Moment, then: SimulatedDisk) -> None:
        where = f"{moment.value} call {len(disk.trace) + 1}, {call}"
        moments.append((where, then.after(Survival.CACHE, Random(0)), history.copy()))

    disk.watch(look)
    return moments
