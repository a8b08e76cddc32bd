"""The tail of the log: signals accepted after the epochs that the tables cover, from segments and log files.

Belongs here: reading it in order, also while a coordinator writes and seals it. It changes nothing.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidemark.counts.warm.arrivals import LOG_COLUMNS, Arrivals, accepted_signals, of_table
from tidemark.log.log_content import read_log
from tidemark.log.manifest import Manifest
from tidemark.log.segments import read_segment
from tidemark.storage.disk import Disk, RealDisk
from tidemark.storage.home import Home

# Without a bound: everything in the log.
EVERYTHING = 2**63 - 1


class Piece(NamedTuple):
    """A part of a shard's log: everything above the piece before it, up to and including `last_epoch`."""

    shard: int
    last_epoch: int
    arrivals: Arrivals


def read_tail(home: Home, shard: int, after: int, upto: int = EVERYTHING) -> Iterator[Piece]:
    """The signals in a shard's log above `after` and not above `upto`, in order.

    A log file may be sealed during the read; then it is found among the segments, and nothing that was yielded
    before is yielded again.
    """
    disk, last = RealDisk(), after
    while True:
        try:
            for piece in _pieces(home, shard, last, upto, disk):
                yield piece
                last = piece.last_epoch
        except FileNotFoundError:
            continue
        return


def last_epochs(home: Home) -> Mapping[int, int]:
    """Shard → last epoch that its log has on the disk."""
    from tidemark.observe.status import read_status

    return {status.shard: status.flushed_epoch for status in read_status(home)}


def _pieces(home: Home, shard: int, after: int, upto: int, disk: Disk) -> Iterator[Piece]:
    names = [name for name in disk.list(home.log(shard)) if name.endswith(".log")]
    # Listed before the manifest is read: a file sealed in between is in at least one of them.
    manifest = Manifest(home.segments(shard), disk)
    for entry in manifest.between(after + 1, upto + 1):
        with manifest.open_segment(entry) as file:
            table = read_segment(file, LOG_COLUMNS)
        last = min(entry.to_epoch - 1, upto)
        yield Piece(shard, last, accepted_signals(of_table(table), after, last))
        after = last
    for name in names:
        content = read_log(disk, home.log(shard) / name)
        for group in content.groups() if content else ():
            rows = group.rows
            if rows is not None and after < rows.writes.epochs[-1] and rows.writes.epochs[0] <= upto:
                last = min(rows.writes.epochs[-1], upto)
                yield Piece(shard, last, accepted_signals(rows.column, after, last))
                after = last
