"""What a producer gets for a write: the epoch, and a way to wait until the write is as safe as it wants (C1, C2).

Belongs here: the handle and its receipt. `shard.py` does the waiting.
"""

from typing import NamedTuple, Protocol, cast

from tidemark.coordinator.aio import Listener
from tidemark.coordinator.engine import Ticket
from tidemark.coordinator.flusher import ArrivedWrite
from tidemark.model.deltas import Level
from tidemark.model.shard_errors import CoordinatorError
from tidemark.verdicts.arrival import VerdictCounts
from tidemark.verdicts.told_rows import NOTHING_TOLD, ToldRows

NOTHING_DECIDED = VerdictCounts(0, 0, 0)


class Receipt(NamedTuple):
    """What is known of a write once it has reached the requested level."""

    shard: int
    epoch: int | None  # None for a retry of a write older than the producer's newest hundred
    level: Level
    is_retry: bool  # it was taken earlier, under this epoch; nothing was taken twice (Q2)
    outcome: VerdictCounts  # of its deltas; all zero for a retry, and before it is flushed


class Sending(NamedTuple):
    """A write that was taken, now or earlier. It has a `ticket` until it is flushed; then `epoch` names the first."""

    sequence: int
    is_retry: bool
    ticket: Ticket[ArrivedWrite] | None
    epoch: int | None = None  # also None if it is too long ago
    reached: int = 0  # its epoch or a later one
    digest: int | None = None  # of the write that was taken, if it is known


class Waits(Protocol):
    """What a handle needs of its shard in order to wait."""

    number: int

    def wait_applied(self, ticket: Ticket[ArrivedWrite], timeout: float | None) -> int:
        """Return a write's epoch when it has one."""

    def listen(self, ticket: Ticket[ArrivedWrite], listener: Listener) -> bool:
        """Notify a listener when a write is flushed; false if it is flushed already."""

    def flush(self, epoch: int, level: Level, timeout: float | None) -> None:
        """Return when the epoch has reached the level."""


class WriteHandle:
    """A write that was taken."""

    __slots__ = ("_keeper", "_sending")

    def __init__(self, keeper: Waits, sending: Sending) -> None:
        self._keeper, self._sending = keeper, sending

    @property
    def shard(self) -> int:
        """The shard that took it."""
        return self._keeper.number

    @property
    def sequence(self) -> int:
        """The producer's number for it."""
        return self._sending.sequence

    @property
    def is_retry(self) -> bool:
        """Whether it was taken earlier."""
        return self._sending.is_retry

    @property
    def epoch(self) -> int | None:
        """Its epoch. Known at once unless the shard is so busy that the write is queued; then this waits.

        None for a retry of a write older than the producer's newest hundred.
        """
        return self._sending.epoch if self._sending.ticket is None else self._applied(None)

    def wait(self, level: Level = Level.FLUSHED, timeout: float | None = None) -> Receipt:
        """Return when the write has reached `level`; raise if it never will, or not in time."""
        epoch = self._applied(timeout)
        ticket = self._sending.ticket
        if ticket is not None and ticket.error is not None:
            raise ticket.error
        self._keeper.flush(epoch, level, timeout)
        return self.receipt(level)

    def listen(self, listener: Listener) -> bool:
        """Notify a listener when it is flushed; false if it is flushed already; raises if it never will be."""
        return self._sending.ticket is not None and self._keeper.listen(self._sending.ticket, listener)

    @property
    def error(self) -> CoordinatorError | None:
        """Why it will never be flushed by this process; None if it was, or still may be."""
        return None if self._sending.ticket is None else self._sending.ticket.error

    @property
    def is_applied(self) -> bool:
        """Whether it has its epoch, or needs none."""
        ticket = self._sending.ticket
        return ticket is None or bool(ticket.epoch) or ticket.result is not None

    @property
    def is_flushed(self) -> bool:
        """Whether it is flushed."""
        ticket = self._sending.ticket
        return ticket is None or (ticket.error is None and ticket.result is not None)

    @property
    def told(self) -> ToldRows:
        """The first deltas that were not accepted, once it is flushed; none for a retry."""
        ticket = self._sending.ticket
        is_known = ticket is not None and not self.is_retry and isinstance(ticket.details, ToldRows)
        return cast("ToldRows", ticket.details) if ticket is not None and is_known else NOTHING_TOLD

    def receipt(self, level: Level) -> Receipt:
        """What is known of it at a level that it has reached."""
        is_retry, ticket, epoch = self._sending.is_retry, self._sending.ticket, self._sending.epoch
        outcome = NOTHING_DECIDED
        if ticket is not None:
            # A number that was used up without a write has none.
            epoch = ticket.epoch or (self._applied(None) if ticket.result is None else None)
            if not is_retry and isinstance(ticket.result, VerdictCounts):
                outcome = ticket.result
        return Receipt(self._keeper.number, epoch, level, is_retry, outcome)

    def _applied(self, timeout: float | None) -> int:
        ticket = self._sending.ticket
        if ticket is None:
            return self._sending.reached
        return ticket.epoch or self._keeper.wait_applied(ticket, timeout)
