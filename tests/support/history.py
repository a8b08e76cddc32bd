"""What the world was told over many lives of a home, held against what lies in its manifests and segments."""

from collections.abc import Iterable, Iterator
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, TypeAlias

from tests.support.live import sealed_batches
from tests.support.mortal import DELTAS_PER_WRITE, PRODUCERS, Said, Stream, deltas_of, entities_of, is_with_copy
from tidemark.log.batch_record import BatchRecord
from tidemark.log.log_content import read_log
from tidemark.log.manifest import Entry, Manifest
from tidemark.log.segment_files import verify_segment
from tidemark.log.segments import read_segment
from tidemark.shard_state.state import STATE_FILE, ShardState, load
from tidemark.storage.disk import RealDisk
from tidemark.storage.home import Home

COLUMNS = ["epoch", "producer", "sequence", "ordinal", "delta_id", "verdict"]

WriteName: TypeAlias = tuple[Stream, int]  # and its number


class History:
    """Grows with each life. Segments are read once, and once more all of them when somebody begins anew."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._shards = range(home.settings.shards)
        self._entities = entities_of(len(self._shards))
        self._is_copy_known = home.settings.recent_identities > 0  # at arrival; else only the drain finds it
        self.flushed: dict[WriteName, int] = {}  # its epoch, as it was told first
        self._given: dict[tuple[int, int], WriteName] = {}  # shard and epoch → who was told to have it
        self._last_given = dict.fromkeys(self._shards, 0)
        self.durable: set[WriteName] = set()  # as told
        self.begin_reading()

    def begin_reading(self) -> None:
        """Forget what was read, so that the next check reads everything."""
        self._read = dict.fromkeys(self._shards, 0)  # segments
        self._sealed_to = {(shard, producer): 0 for shard in self._shards for producer in PRODUCERS}
        self.sealed: dict[tuple[int, int], WriteName] = {}  # by shard and epoch
        self._epochs: dict[WriteName, int] = {}

    @property
    def segments(self) -> int:
        """How many were read."""
        return sum(self._read.values())

    def acknowledged(self) -> dict[str, dict[int, int]]:
        """Producer → shard → last write that was told to be flushed."""
        last = {producer: dict.fromkeys(self._shards, 0) for producer in PRODUCERS}
        for (shard, producer), sequence in self.flushed:
            last[producer][shard] = max(last[producer][shard], sequence)
        return last

    def hear(self, said: Iterable[Said]) -> None:
        """What one life has said."""
        before, last_given = self.acknowledged(), dict(self._last_given)
        marks: dict[Stream, int] = {}
        for what, shard, producer, sequence, epoch in said:
            stream = (shard, producer)
            write = (stream, sequence)
            if what == "mark":
                assert sequence >= before[producer][shard], f"{stream} was acknowledged {before[producer][shard]}"
                marks[stream] = sequence
            if what in {"applied", "flushed"}:
                assert self._given.setdefault((shard, epoch), write) == write, f"epoch {epoch} was given out twice"
                is_new = sequence > marks[stream]
                assert not is_new or epoch > last_given[shard], f"{write} got {epoch}, but epochs had come further"
                self._last_given[shard] = max(self._last_given[shard], epoch)
            if what == "flushed":
                told = self.flushed.setdefault(write, epoch)
                assert told == epoch, f"{write} was told epoch {told}, then {epoch}"
            if what == "durable":
                assert self.flushed[write] == epoch, f"{write} was told another epoch than {epoch}"
                self.durable.add(write)

    def check_sealed(self) -> None:
        """Read what was sealed since the last check. What was flushed must be in it, or in a log file that is left."""
        for shard in self._shards:
            manifest = Manifest(self._home.segments(shard))
            for entry in manifest.numbered(self._read[shard] + 1, manifest.count + 1):
                self._check_segment(manifest, entry)
            self._read[shard] = manifest.count
            check_records(sealed_batches(self._home, shard))
        self._check_told(self.flushed, self._epochs_in_logs() | self._epochs)

    def check_all(self) -> None:
        """After a clean end: everything is sealed and recorded."""
        self.begin_reading()
        self.check_sealed()
        self._check_told(self.flushed, self._epochs)
        for shard in self._shards:
            state = load(RealDisk(), self._home.log(shard) / STATE_FILE, ShardState)
            assert state is not None
            records = sealed_batches(self._home, shard) + state.batches
            check_records(records)
            self._check_cover(shard, records)

    def deltas_up_to(self, durable: dict[int, int]) -> list[str]:
        """Each delta of the writes that are in the lake, once, whatever copies of it were sent."""
        writes = [write for (shard, epoch), write in self.sealed.items() if epoch <= durable.get(shard, 0)]
        return sorted({delta["delta_id"] for write in writes for delta in self._deltas_of(write)})

    def last_epochs(self) -> dict[int, int]:
        """Shard → last epoch in a segment."""
        return {shard: max(epoch for where, epoch in self.sealed if where == shard) for shard in self._shards}

    def _deltas_of(self, write: WriteName) -> list[dict[str, Any]]:
        stream, sequence = write
        return deltas_of(stream, sequence, self._entities[stream[0]])

    def _check_segment(self, manifest: Manifest, entry: Entry) -> None:
        path = verify_segment(manifest.directory, entry)
        rows = read_segment(path, COLUMNS).to_pylist()
        seen: list[int] = []
        for epoch, write in groupby(rows, itemgetter("epoch")):
            seen.append(epoch)
            self._check_write(entry.shard, epoch, list(write))
        lost = [epoch for begin, end in entry.lost for epoch in range(begin, end)]
        assert sorted(seen + lost) == list(range(entry.from_epoch, entry.to_epoch)), f"epochs of {entry.file}"
        assert seen == sorted(seen), f"order of epochs in {entry.file}"

    def _check_write(self, shard: int, epoch: int, rows: list[dict[str, Any]]) -> None:
        stream, sequence = (shard, rows[0]["producer"]), rows[0]["sequence"]
        write = (stream, sequence)
        assert sequence == self._sealed_to[stream] + 1, f"{write} comes after {self._sealed_to[stream]}"
        self._sealed_to[stream] = sequence
        assert rows == list(self._rows_of(stream, sequence, epoch)), f"{write} is not what was sent"
        assert self._given.get((shard, epoch), write) == write, f"epoch {epoch} was told to another than {write}"
        self.sealed[shard, epoch] = write
        self._epochs[write] = epoch

    def _rows_of(self, stream: Stream, sequence: int, epoch: int) -> Iterator[dict[str, Any]]:
        for place, delta in enumerate(self._deltas_of((stream, sequence))):
            is_known = self._is_copy_known and place == 0 and is_with_copy(sequence)
            yield {
                "epoch": epoch,
                "producer": stream[1],
                "sequence": sequence,
                "ordinal": place,
                "delta_id": delta["delta_id"],
                "verdict": "duplicate" if is_known else "accepted",
            }

    def _epochs_in_logs(self) -> dict[WriteName, int]:
        """What is in log files: some may be in a segment, too, if nobody came to remove the file."""
        found: dict[WriteName, int] = {}
        for shard in self._shards:
            for path in sorted(self._home.log(shard).glob("*.log")):
                content = read_log(RealDisk(), path)
                for group in content.groups() if content else ():
                    writes = group.rows.writes if group.rows else None
                    for name in zip(writes.producers, writes.sequences, writes.epochs, strict=True) if writes else ():
                        producer, sequence, epoch = name
                        found[(shard, producer), sequence] = epoch
        return found

    def _check_told(self, flushed: dict[WriteName, int], epochs: dict[WriteName, int]) -> None:
        for write, told in flushed.items():
            assert epochs.get(write) == told, f"{write} was told epoch {told} and lies at {epochs.get(write)}"

    def _check_cover(self, shard: int, records: list[BatchRecord]) -> None:
        """Records are ordered and disjoint: if each has as much as lies in its range, and all of it, they cover."""
        mine = sorted(epoch for where, epoch in self.sealed if where == shard)
        at = 0
        for record in records:
            end = at
            while end < len(mine) and mine[end] < record.to_epoch:
                end += 1
            inside = mine[at:end]
            assert inside, f"batch {record.number} is empty"
            assert inside[0] == record.from_epoch, f"batch {record.number} begins late"
            assert record.writes == len(inside), f"writes of batch {record.number}"
            assert record.deltas + record.duplicates == len(inside) * DELTAS_PER_WRITE, f"batch {record.number}"
            at = end
        assert at == len(mine), f"epochs from {mine[at : at + 1]} on are in no batch"


def check_records(records: list[BatchRecord]) -> None:
    """Numbered without a gap, none over another."""
    assert [record.number for record in records] == list(range(1, len(records) + 1))
    for before, after in pairwise(records):
        assert before.from_epoch < before.to_epoch <= after.from_epoch, f"batches {before.number}, {after.number}"
