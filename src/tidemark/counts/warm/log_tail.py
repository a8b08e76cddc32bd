"""The tail of the log: signals accepted after the epochs that the tables cover, from segments and log files.

Belongs here: the signals of what `delivery/flushed_log.py` reads.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tidemark.counts.warm.arrivals import LOG_COLUMNS, Arrivals, accepted_signals
from tidemark.delivery.flushed_log import EVERYTHING, read_flushed
from tidemark.storage.home import Home


class Piece(NamedTuple):
    """A part of a shard's log: everything above the piece before it, up to and including `last_epoch`."""

    shard: int
    last_epoch: int
    arrivals: Arrivals


def read_tail(home: Home, shard: int, after: int, upto: int = EVERYTHING) -> Iterator[Piece]:
    """The signals in a shard's log above `after` and not above `upto`, in order."""
    for piece in read_flushed(home, shard, after, upto, LOG_COLUMNS):
        yield Piece(shard, piece.last_epoch, accepted_signals(piece.column, piece.after, piece.last_epoch))


def last_epochs(home: Home) -> Mapping[int, int]:
    """Shard → last epoch that its log has on the disk."""
    from tidemark.observe.status import read_status

    return {status.shard: status.flushed_epoch for status in read_status(home)}
