"""What a shard knows of its producers: their marks, and which instance of each may write (Q2).

Belongs here: marks, fencing, and the newest hundred numbers of each producer with their epochs and digests. The ledger
(`log/ledger.py`) has what is logged and sealed; memory has producers that have written since, and a cache of others.
"""

import struct
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct

from tidemark.log.control import Control, NumberUsed, ProducerOpened, WriteRefused
from tidemark.model.shard_errors import (
    LogDamageError,
    NumberingError,
    ProducerFencedError,
    SequenceGapError,
    WriteFormatError,
)

if TYPE_CHECKING:
    from tidemark.log.log_rows import Writes

# Q2: a producer in trouble repeats its last writes. For older ones the mark says that they were taken.
KEPT_WRITES = 100
# Whole writes are refused for good when they could never fit: a mistake that a producer does not make often.
KEPT_REFUSALS = 100
# Producers in memory, before those that the ledger has are dropped.
CACHED = 10_000

_RECORD = struct.Struct("<qqQ")
_NO_DIGEST = 0
# Of a write without deltas for the shard. It has no epoch either, which is kept as 0. Digests of writes are odd.
EMPTY_DIGEST = 2
NO_EPOCH = 0


class Taken(NamedTuple):
    """What is kept of a recent write."""

    epoch: int  # `NO_EPOCH` if no delta of it was for this shard
    digest: int | None  # of its decoded rows; None for a write from before digests were kept


class ProducerState(Struct):
    """What is saved of one producer."""

    instance: int = 0
    mark: int = 0  # last sequence taken or refused for good; 0 means nothing yet
    refused: dict[int, str] = {}  # sequences refused for good, with the reason: the newest of them
    recent: bytes = b""  # the newest writes: sequence, epoch and digest of each
    is_thin: bool = False  # each of its numbers goes to every shard


class _LiveState:
    """The same in memory."""

    __slots__ = ("instance", "is_thin", "logged_in", "mark", "recent", "refused", "unlogged")

    def __init__(self, state: ProducerState) -> None:
        self.instance, self.mark, self.refused = state.instance, state.mark, dict(state.refused)
        self.is_thin = state.is_thin
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
        return ProducerState(self.instance, self.mark, self.refused, recent, self.is_thin)

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
    """A producer's state as the ledger stores it."""
    return _encode(state)


def _no_ledger(_producer: str) -> bytes | None:
    return None


class Producers:
    """All producers of one shard. `stored` reads one from the ledger."""

    def __init__(self, stored: Callable[[str], bytes | None] = _no_ledger) -> None:
        self._stored = stored
        self._states: dict[str, _LiveState] = {}

    # The door.

    def open(self, producer: str, *, is_thin: bool = False, instance: int = 0) -> int:
        """A new instance of `producer`, and every older one is fenced out; the newest one itself goes on as it is.

        A thin one sends each number to every shard, so its numbers mean something else: nobody may mix the two.
        """
        state = self._of(producer)
        if state.mark and state.is_thin != is_thin:
            raise NumberingError(producer, is_thin=state.is_thin)
        if instance != state.instance or not instance:
            state.instance += 1
        state.is_thin = is_thin
        state.unlogged += 1
        return state.instance

    def mark(self, producer: str) -> int:
        """Last sequence taken from `producer`; 0 if none."""
        return self._of(producer).mark

    def is_retry(self, producer: str, instance: int, sequence: int) -> bool:
        """Whether this number was used before; raises if it must not be used at all."""
        state = self._of(producer)
        if instance < state.instance:
            raise ProducerFencedError(producer, instance, state.instance)
        if sequence < 1:
            raise WriteFormatError(f"Producer {producer!r} sent write {sequence}. Number writes from 1.")
        if sequence <= state.mark:
            return True
        if sequence != state.mark + 1:
            raise SequenceGapError(producer, sequence, state.mark + 1)
        return False

    def advance(self, producer: str, sequence: int) -> None:
        """The write was taken; `flushed` says when it is logged."""
        state = self._of(producer)
        state.mark = sequence
        state.unlogged += 1

    def instance(self, producer: str) -> int:
        """The newest instance of `producer`; 0 if it was never opened."""
        return self._of(producer).instance

    def refuse(self, producer: str, sequence: int, why: str) -> None:
        """The write is refused for good: its number is used up, and the next one is expected."""
        state = self._of(producer)
        state.refuse(sequence, why)
        state.unlogged += 1

    def refusal(self, producer: str, sequence: int) -> str | None:
        """Why a write was refused for good; None if it was not, or that is too long ago."""
        return self._of(producer).refused.get(sequence)

    def recent(self, producer: str, sequence: int) -> Taken | None:
        """What is known of a flushed write, if it is one of the newest hundred."""
        state = self._of(producer)
        return state.recent.get(sequence) if sequence > state.mark - KEPT_WRITES else None

    def first_recent(self, producer: str) -> Taken | None:
        """The oldest flushed write that is remembered: all before it have lower epochs."""
        return next((taken for taken in self._of(producer).recent.values() if taken.epoch != NO_EPOCH), None)

    def flushed(self, producer: str, sequence: int, epoch: int, digest: int | None, file: int) -> None:
        """A write that the door took is logged, in this file or one before."""
        state = self._of(producer)
        state.take(sequence, epoch, digest)
        state.unlogged -= 1
        state.logged_in = file

    def noted(self, message: Control, file: int) -> None:
        """A message of the door's is logged, in this file or one before."""
        if isinstance(message, ProducerOpened | NumberUsed | WriteRefused):
            state = self._of(message.producer)
            if isinstance(message, NumberUsed):
                state.take(message.sequence, NO_EPOCH, EMPTY_DIGEST)
            state.unlogged -= 1
            state.logged_in = file

    def forget(self, next_file: int) -> None:
        """Log files below this number are in the ledger: if memory has many producers, drop those that it covers."""
        if len(self._states) > CACHED:
            self._states = {
                name: state for name, state in self._states.items() if state.unlogged or state.logged_in >= next_file
            }

    # The log.

    def replay(self, message: Control, file: int) -> None:
        """Apply a message from the log."""
        if isinstance(message, ProducerOpened):
            state = self._of(message.producer)
            state.instance, state.is_thin, state.logged_in = message.instance, message.is_thin, file
        elif isinstance(message, NumberUsed):
            state = self._of(message.producer)
            state.take(message.sequence, NO_EPOCH, EMPTY_DIGEST)
            state.logged_in = file
        elif isinstance(message, WriteRefused):
            state = self._of(message.producer)
            state.refuse(message.sequence, message.why)
            state.logged_in = file

    def replay_writes(self, writes: "Writes", file: int) -> None:
        """Apply writes from the log. A refusal may come before the writes that it was noted behind."""
        digests: list[int] | list[None] = writes.digests or [None] * len(writes.epochs)
        for name, sequence, epoch, digest in zip(
            writes.producers, writes.sequences, writes.epochs, digests, strict=True
        ):
            state = self._of(name)
            state.take(sequence, epoch, digest)
            state.logged_in = file

    def encoded(self) -> dict[str, bytes]:
        """All producers in memory, as the ledger stores them."""
        return {name: _encode(state.saved()) for name, state in self._states.items()}

    def _of(self, producer: str) -> _LiveState:
        state = self._states.get(producer)
        if state is None:
            found = self._stored(producer)
            state = self._states[producer] = _LiveState(ProducerState() if found is None else _read(producer, found))
        return state


def _read(producer: str, data: bytes) -> ProducerState:
    try:
        return _decode(data)
    except msgspec.MsgspecError as error:
        raise LogDamageError(
            f"What the ledger says of producer {producer!r} cannot be read ({error}). Restore the log directory from a "
            "backup; nothing was changed."
        ) from error
