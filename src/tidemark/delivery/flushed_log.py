"""The flushed log from a cursor on: rows of segments and log files above an epoch, in order (P1, W7).

Belongs here: reading them piece by piece, also while a coordinator writes and seals. It changes nothing. What comes
live is in `subscriptions.py`; whoever missed something of that reads it here.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from tidemark.log.log_content import read_log
from tidemark.log.manifest import Manifest
from tidemark.log.segments import read_segment
from tidemark.model.log_schema import LOG_SCHEMA
from tidemark.storage.disk import Disk, RealDisk
from tidemark.storage.home import Home

# Without a bound: everything in the log.
EVERYTHING = 2**63 - 1


class Piece(NamedTuple):
    """A part of a shard's log: everything above `after`, and up to and including `last_epoch`.

    Its rows may lie beyond both: choose by epoch.
    """

    shard: int
    after: int
    last_epoch: int
    column: Callable[[str], pa.Array]


def read_flushed(
    home: Home, shard: int, after: int, upto: int = EVERYTHING, columns: Sequence[str] = LOG_SCHEMA.names
) -> Iterator[Piece]:
    """A shard's log above `after` and not above `upto`, in order.

    A log file may be sealed during the read; then it is found among the segments, and nothing that was yielded
    before is yielded again.
    """
    disk, last = RealDisk(), after
    while True:
        try:
            for piece in _pieces(home, shard, last, upto, disk, columns):
                yield piece
                last = piece.last_epoch
        except FileNotFoundError:
            continue
        return


def _pieces(home: Home, shard: int, after: int, upto: int, disk: Disk, columns: Sequence[str]) -> Iterator[Piece]:
    names = [name for name in disk.list(home.log(shard)) if name.endswith(".log")]
    # Listed before the manifest is read: a file sealed in between is in at least one of them.
    manifest = Manifest(home.segments(shard), disk)
    for entry in manifest.between(after + 1, upto + 1):
        with manifest.open_segment(entry) as file:
            table = read_segment(file, columns)
        last = min(entry.to_epoch - 1, upto)
        yield Piece(shard, after, last, lambda name, table=table: table[name].combine_chunks())  # type: ignore[misc]
        after = last
    for name in names:
        content = read_log(disk, home.log(shard) / name)
        for group in content.groups() if content else ():
            rows = group.rows
            if rows is not None and after < rows.writes.epochs[-1] and rows.writes.epochs[0] <= upto:
                last = min(rows.writes.epochs[-1], upto)
                yield Piece(shard, after, last, rows.column)
                after = last
