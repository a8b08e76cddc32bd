"""What the log has for each hour, added up, and kept between processes: so that nobody reads it from its beginning.

Belongs here: the sums over the manifests' lines up to some epochs, and the file in which a drain leaves them. The file
saves reading and proves nothing: it names the last segment of each shard that it covers, by checksum, and a manifest
that does not have this segment in that place is read anew. `./tidemark verify` reads every line. Does not belong here:
the lines themselves (`tidemark/log/manifest.py`), what they mean for a table (`assets`).
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from threading import Lock

import msgspec
from msgspec import Struct

from tidemark.log.batch_record import batch_hours
from tidemark.log.manifest import Entry, HourCounts
from tidemark.model.timegrid import hour_start
from tidemark.observe.sealed_log import Log
from tidemark.storage.disk import RealDisk
from tidemark.storage.home import Home

FILE = "log_index"
CHECKSUM_BYTES = 32
# The ways in which a segment belongs to an hour.
EVENT, RECEIPT, STAMP, BATCH = "event", "receipt", "stamp", "batch"
# Stands for all namespaces and kinds, where the log does not tell them apart.
ANY_SOURCE = ""

# Hour in microseconds, shard, and "namespace/kind" → the last epoch of a segment with deltas for the hour.
LastEpochs = dict[tuple[int, int, str], int]


class Covered(Struct):
    """The segments of one shard that are added up."""

    to_epoch: int = 1
    number: int = 0  # of the last one
    sha256: str = ""
    rows: int = 0
    verdicts: HourCounts = HourCounts()
    turned_away: int = 0  # deltas that their lines count, and that are in no segment (A3)
    # Segments that do not begin where the one before ends: number → its first epoch, and the expected one.
    holes: dict[int, tuple[int, int]] = {}


class _Stored(Struct):
    shards: dict[int, Covered]
    event: dict[str, HourCounts]
    receipt: dict[str, HourCounts]
    lost: list[tuple[int, int, int]]
    last: dict[str, list[tuple[int, int, str, int]]]


class LogIndex:
    """The sums up to some epochs. It grows with the hours, and not with the segments."""

    def __init__(self) -> None:
        self.shards: dict[int, Covered] = {}
        self.event: dict[str, HourCounts] = {}  # key of the hour → deltas by verdict
        self.receipt: dict[str, HourCounts] = {}
        self.lost: list[tuple[int, int, int]] = []  # shard, first epoch, and the one after the last
        self.last: dict[str, LastEpochs] = {way: {} for way in (RECEIPT, STAMP, BATCH)}

    @property
    def upto(self) -> dict[int, int]:
        """Shard → the first epoch that is not covered."""
        return {shard: covered.to_epoch for shard, covered in self.shards.items()}

    def continues(self, log: Log, upto: Mapping[int, int]) -> bool:
        """Whether these are the sums of this log, and of nothing beyond `upto`."""
        return all(
            covered.to_epoch <= upto.get(shard, 1)
            and log.segment_before(shard, covered.to_epoch) == (covered.number, covered.sha256)
            for shard, covered in self.shards.items()
        )

    def add(self, entry: Entry) -> None:
        """Take in the next segment of a shard."""
        covered = self.shards.setdefault(entry.shard, Covered())
        if entry.from_epoch != covered.to_epoch:
            covered.holes[entry.number] = (entry.from_epoch, covered.to_epoch)
        covered.to_epoch, covered.number, covered.sha256 = entry.to_epoch, entry.number, entry.sha256
        covered.rows += entry.rows
        covered.verdicts = covered.verdicts.plus(entry.verdicts)
        covered.turned_away += entry.turned_away.deltas
        self.lost += [(entry.shard, first, end) for first, end in entry.lost]
        for counted, hours in ((self.event, entry.event_hours), (self.receipt, entry.receipt_hours)):
            for key, counts in hours.items():
                counted[key] = counted.get(key, HourCounts()).plus(counts)
        for way, last in self.last.items():
            for source, starts in hours_by_source(entry, way).items():
                last.update({(hour, entry.shard, source): entry.to_epoch - 1 for hour in starts})

    def copy(self) -> "LogIndex":
        """The same sums, to be added to."""
        copied = LogIndex()
        for shard, covered in self.shards.items():
            copied.shards[shard] = msgspec.structs.replace(covered, holes=dict(covered.holes))
        copied.event, copied.receipt, copied.lost = dict(self.event), dict(self.receipt), list(self.lost)
        copied.last = {way: dict(last) for way, last in self.last.items()}
        return copied


# By home, for the life of this process: a sensor looks again and again, and old segments never change.
_kept: dict[Path, LogIndex] = {}
_extending = Lock()


def index_of(home: Home, log: Log, upto: Mapping[int, int]) -> LogIndex:
    """The sums over all segments before `upto`; only lines that are not covered yet are read.

    Nothing is added to what was returned once: other threads may still look at it.
    """
    with _extending:
        known = _kept.get(home.root) or _load(home) or LogIndex()
        index = known = known if known.continues(log, upto) else LogIndex()
        for entry in log.below(dict(upto), after=known.upto):
            if index is known:
                index = known.copy()
            index.add(entry)
        _kept[home.root] = index
        return index


def save_index(home: Home, index: LogIndex) -> None:
    """Leave the sums for the next process."""
    last = {way: [(*place, epoch) for place, epoch in found.items()] for way, found in index.last.items()}
    stored = msgspec.msgpack.encode(_Stored(index.shards, index.event, index.receipt, index.lost, last))
    RealDisk().replace(home.plans / FILE, hashlib.sha256(stored).digest() + stored)


def _load(home: Home) -> LogIndex | None:
    """What was left, if it is whole and of this version; otherwise everything is read again."""
    try:
        found = (home.plans / FILE).read_bytes()
        if hashlib.sha256(found[CHECKSUM_BYTES:]).digest() != found[:CHECKSUM_BYTES]:
            return None
        stored = msgspec.msgpack.decode(found[CHECKSUM_BYTES:], type=_Stored)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None
    index = LogIndex()
    index.shards, index.event, index.receipt, index.lost = stored.shards, stored.event, stored.receipt, stored.lost
    for way, rows in stored.last.items():
        index.last[way] = {(hour, shard, source): epoch for hour, shard, source, epoch in rows}
    return index


def hours_of(entry: Entry, way: str) -> list[int]:
    """Hours, in microseconds, that a segment has accepted deltas for; by batch, hours in which its batches closed."""
    if way == BATCH:
        return [hour_start(key) for key in entry.batch_hours or batch_hours(entry.batches)]
    if way == RECEIPT:
        return [hour_start(key) for key, counts in entry.receipt_hours.items() if key and counts.accepted]
    if way == STAMP:
        return [hour_start(key) for key, rows in entry.stamp_hours.items() if key and rows]
    return [hour_start(key) for key, counts in entry.event_hours.items() if key and counts.accepted]


def hours_by_source(entry: Entry, way: str) -> dict[str, list[int]]:
    """The same for each namespace and kind, where the log tells them apart."""
    if way == BATCH or entry.sources is None:
        return {ANY_SOURCE: hours_of(entry, way)}
    keys = {
        source: {RECEIPT: hours.receipt, STAMP: hours.stamp}.get(way, hours.event)
        for source, hours in entry.sources.items()
    }
    return {source: [hour_start(key) for key in each] for source, each in keys.items()}
