"""What a shard knows of its producers: how far each has numbered its writes, and which instance may write (Q2).

Belongs here: marks, fencing, and the newest hundred numbers of each producer with their epochs and digests. What is
logged and sealed lies in the ledger (`ledger.py`); in memory are those who have written since, and a cache of others.
"""

import struct
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from tidemark.log.control import Control, ProducerOpened, WriteRefused
from tidemark.model.shard_errors import LogDamageError, ProducerFencedError, SequenceGapError, WriteFormatError

if TYPE_CHECKING:
    from tidemark.log.log_rows import Writes

# Q2: a producer in trouble repeats its last writes. Of older ones the mark says that they were taken.
KEPT_WRITES = 100
# Whole writes are refused for good when they could never fit: a mistake that a producer does not make often.
KEPT_REFUSALS = 100
# Standings in memory, before those are let go that the ledger has.
CACHED = 10_000

_RECORD = struct.Struct("<qqQ")
_NO_DIGEST = 0


class Taken(NamedTuple):
    """What is kept of a recent write."""

    epoch: int
    digest: int | None  # of its decoded rows; none of a write from before digests were kept


class ProducerState(Struct):
    """One producer's standing, as it is saved."""

    instance: int = 0
    mark: int = 0  # last sequence taken or refused for good; 0 means nothing yet
    refused: dict[int, str] = {}  # sequences refused for good, with the reason: the newest of them
    recent: bytes = b""  # the newest writes: sequence, epoch and digest of each


class _Standing:
    """The same in memory."""

    __slots__ = ("instance", "logged_in", "mark", "recent", "refused", "unlogged")

    def __init__(self, state: ProducerState) -> None:
        self.instance, self.mark, self.refused = state.instance, state.mark, dict(state.refused)
        self.recent: dict[int, Taken] = {
            sequence: Taken(epoch, None if digest == _NO_DIGEST else digest)
            for sequence, epoch, digest in _RECORD.iter_unpack(state.recent)
        }
        self.unlogged = 0  # changes that the door has made and the log has not confirmed
        self.logged_in = 0  # number of the log file that has its last change

    def saved(self) -> ProducerState:
        newest = islice(self.recent.items(), max(0, len(self.recent) - KEPT_WRITES), None)
        recent = b"".join(
            _RECORD.pack(sequence, epoch, _NO_DIGEST if digest is None else digest)
            for sequence, (epoch, digest) in newest
        )
        return ProducerState(self.instance, self.mark, self.refused, recent)

    def take(self, sequence: int, epoch: int, digest: int | None) -> None:
        self.mark = max(self.mark, sequence)
        recent = self.recent
        recent[sequence] = Taken(epoch, digest)
        if len(recent) >= 2 * KEPT_WRITES:  # now and then, and not with every write
            for old in list(islice(recent, len(recent) - KEPT_WRITES)):
                del recent[old]

    def refuse(self, sequence: int, why: str) -> None:
        self.mark = max(self.mark, sequence)
        self.refused[sequence] = why
        while len(self.refused) > KEPT_REFUSALS:
            del self.refused[min(self.refused)]


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(ProducerState).decode


def encode_state(state: ProducerState) -> bytes:
    """A standing as the ledger holds it."""
    return _encode(state)


def _no_ledger(_producer: str) -> bytes | None:
    return None


class Producers:
    """All producers of one shard. `stored` gives what the ledger has of one."""

    def __init__(self, stored: Callable[[str], bytes | None] = _no_ledger) -> None:
        self._stored = stored
        self._standings: dict[str, _Standing] = {}

    # The door.

    def open(self, producer: str) -> int:
        """A new instance of `producer`; every older one is fenced out."""
        standing = self._of(producer)
        standing.instance += 1
        standing.unlogged += 1
        return standing.instance

    def mark(self, producer: str) -> int:
        """Last sequence taken from `producer`; 0 if none."""
        return self._of(producer).mark

    def is_retry(self, producer: str, instance: int, sequence: int) -> bool:
        """Whether this number was used before; raises if it must not be used at all."""
        standing = self._of(producer)
        if instance < standing.instance:
            raise ProducerFencedError(producer, instance, standing.instance)
        if sequence < 1:
            raise WriteFormatError(f"Producer {producer!r} sent write {sequence}. Number writes from 1.")
        if sequence <= standing.mark:
            return True
        if sequence != standing.mark + 1:
            raise SequenceGapError(producer, sequence, standing.mark + 1)
        return False

    def advance(self, producer: str, sequence: int) -> None:
        """The write was taken; `flushed` says when it is logged."""
        standing = self._of(producer)
        standing.mark = sequence
        standing.unlogged += 1

    def refuse(self, producer: str, sequence: int, why: str) -> None:
        """The write is refused for good: its number is used up, and the next one is expected."""
        standing = self._of(producer)
        standing.refuse(sequence, why)
        standing.unlogged += 1

    def refusal(self, producer: str, sequence: int) -> str | None:
        """Why a write was refused for good, if it was and that is remembered."""
        return self._of(producer).refused.get(sequence)

    def recent(self, producer: str, sequence: int) -> Taken | None:
        """What is known of a flushed write, if it is one of the newest hundred."""
        standing = self._of(producer)
        return standing.recent.get(sequence) if sequence > standing.mark - KEPT_WRITES else None

    def first_recent(self, producer: str) -> Taken | None:
        """The oldest flushed write that is remembered: all before it have lower epochs."""
        return next(iter(self._of(producer).recent.values()), None)

    def flushed(self, producer: str, sequence: int, epoch: int, digest: int | None, file: int) -> None:
        """A write that the door took is logged, in this file or one before."""
        standing = self._of(producer)
        standing.take(sequence, epoch, digest)
        standing.unlogged -= 1
        standing.logged_in = file

    def noted(self, message: Control, file: int) -> None:
        """A message of the door's is logged, in this file or one before."""
        if isinstance(message, ProducerOpened | WriteRefused):
            standing = self._of(message.producer)
            standing.unlogged -= 1
            standing.logged_in = file

    def forget(self, next_file: int) -> None:
        """Log files below this number are in the ledger: where many are remembered, let go of what it has."""
        if len(self._standings) > CACHED:
            self._standings = {
                name: standing
                for name, standing in self._standings.items()
                if standing.unlogged or standing.logged_in >= next_file
            }

    # The log.

    def replay(self, message: Control, file: int) -> None:
        """A message that stands in the log."""
        if isinstance(message, ProducerOpened):
            standing = self._of(message.producer)
            standing.instance, standing.logged_in = message.instance, file
        elif isinstance(message, WriteRefused):
            standing = self._of(message.producer)
            standing.refuse(message.sequence, message.why)
            standing.logged_in = file

    def replay_writes(self, writes: "Writes", file: int) -> None:
        """Writes that stand in the log. A refusal may stand before those that it came behind."""
        digests: list[int] | list[None] = writes.digests or [None] * len(writes.epochs)
        for name, sequence, epoch, digest in zip(
            writes.producers, writes.sequences, writes.epochs, digests, strict=True
        ):
            standing = self._of(name)
            standing.take(sequence, epoch, digest)
            standing.logged_in = file

    def encoded(self) -> dict[str, bytes]:
        """All standings in memory, as the ledger holds them."""
        return {name: _encode(standing.saved()) for name, standing in self._standings.items()}

    def _of(self, producer: str) -> _Standing:
        standing = self._standings.get(producer)
        if standing is None:
            found = self._stored(producer)
            standing = self._standings[producer] = _Standing(
                ProducerState() if found is None else _read(producer, found)
            )
        return standing


def _read(producer: str, data: bytes) -> ProducerState:
    try:
        return _decode(data)
    except msgspec.MsgspecError as error:
        raise LogDamageError(
            f"What the ledger says of producer {producer!r} cannot be read ({error}). Restore the log directory from a "
            "backup; nothing was changed."
        ) from error
