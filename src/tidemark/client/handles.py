"""What a caller gets for the deltas that it sent: a way to wait, and what became of them (C1, C2).

Belongs here: the handle and its outcome, for threads and for asyncio.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import suppress
from typing import Any, NamedTuple

from tidemark.client.batches import Batch, Reached
from tidemark.client.errors import ClientError, NotYetError, RefusedError
from tidemark.client.filling import Part
from tidemark.client.outbox import Outbox
from tidemark.model.deltas import Level


class Refusal(NamedTuple):
    """A delta that was refused."""

    at: int  # its place in what was sent
    reason: str
    detail: str


class Outcome(NamedTuple):
    """What became of the deltas of one call, as far as it is known. The counts add up to `deltas`."""

    deltas: int
    waiting: int  # the server has not said anything yet
    accepted: int
    duplicate: int
    refused: int
    taken_earlier: int  # of writes that had been taken before a connection or a program ended; counted then
    not_taken: int  # of writes that were refused as a whole
    # Of writes that these share with other calls, where the server has not named each delta that was not accepted.
    unnamed: int
    refusals: tuple[Refusal, ...] = ()  # the first of them


class Sent:
    """Deltas that were taken in, all of one call."""

    __slots__ = ("_check", "_levels", "_outbox", "_parts", "_state")

    def __init__(
        self,
        parts: Iterable[Part],
        outbox: Outbox,
        levels: frozenset[Reached],
        check: Callable[[], None],
        state: Callable[[], str],
    ) -> None:
        self._parts = tuple(parts)
        self._outbox, self._levels, self._check, self._state = outbox, levels, check, state

    def __len__(self) -> int:
        return sum(part.rows for part in self._parts)

    @property
    def outcome(self) -> Outcome:
        """What is known by now."""
        return _outcome(self._parts)

    @property
    def epochs(self) -> dict[int, int]:
        """Shard → an epoch by which they are there, of those that were taken over this client's connections."""
        found: dict[int, int] = {}
        for part in self._parts:
            for shard, epoch in (part.batch.written.epochs if part.batch.written is not None else {}).items():
                found[shard] = max(epoch, found.get(shard, 0))
        return found

    def wait(self, level: Reached | Level | str = Reached.FLUSHED, timeout: float | None = None) -> Outcome:
        """Return when all of them have reached a level: `spooled`, `flushed` or `durable`.

        Raises `NotYetError` after `timeout` seconds, `RefusedError` if a whole write of them was refused for good, and
        the error that has stopped the client if nothing more will come. A single delta that is refused is in the
        outcome.
        """
        wanted = self._wanted(level)
        news = threading.Event()
        deadline = None if timeout is None else time.monotonic() + timeout
        for batch in self._listen(news.set):
            while not self._has_reached(batch, wanted, news.set):
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    self._unlisten(news.set)
                    raise NotYetError(wanted, timeout or 0.0, self._state())
                news.wait(left)
                news.clear()
        self._unlisten(news.set)
        return self._result()

    async def reached(self, level: Reached | Level | str = Reached.FLUSHED) -> Outcome:
        """The same for asyncio. To give up after a while, use `asyncio.timeout`."""
        wanted = self._wanted(level)
        news, loop = asyncio.Event(), asyncio.get_running_loop()

        def tell() -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it who waited
                loop.call_soon_threadsafe(news.set)

        try:
            for batch in self._listen(tell):
                while not self._has_reached(batch, wanted, tell):
                    await news.wait()
                    news.clear()
        finally:
            self._unlisten(tell)
        return self._result()

    def __await__(self) -> Generator[Any, None, Outcome]:
        return self.reached().__await__()

    def _wanted(self, level: Reached | Level | str) -> Reached:
        self._check()
        name = level.name.lower() if isinstance(level, Level) else level
        try:
            wanted = Reached(name)
        except ValueError:
            words = ", ".join(sorted(self._levels))
            raise ClientError(f"{level!r} is no level. This client knows {words}.") from None
        if wanted not in self._levels:
            raise ClientError(
                f"This client does not hear of {wanted.value!r}. Connect with levels=(..., {wanted.value!r})"
                + (", or with a spool." if wanted is Reached.SPOOLED else ".")
            )
        return wanted

    def _listen(self, tell: Callable[[], None]) -> list[Batch]:
        batches = [part.batch for part in self._parts]
        for batch in batches:
            batch.listeners.append(tell)
        if batches:
            self._outbox.hurry(batches[-1])
        return batches

    def _unlisten(self, tell: Callable[[], None]) -> None:
        for part in self._parts:
            if tell in part.batch.listeners:
                part.batch.listeners.remove(tell)

    def _has_reached(self, batch: Batch, wanted: Reached, tell: Callable[[], None]) -> bool:
        if batch.nack is not None:
            return True
        if wanted is Reached.SPOOLED and batch.is_spooled:
            return True
        if batch.written is not None and (wanted is not Reached.DURABLE or batch.number <= self._outbox.durable):
            return True
        error = batch.error or self._outbox.error
        if error is not None:
            raise error
        if batch.written is not None:
            self._outbox.when_durable(batch.number, tell)
        return False

    def _result(self) -> Outcome:
        for part in self._parts:
            if part.batch.nack is not None:
                raise RefusedError(part.batch.nack)
        return self.outcome


def _outcome(parts: Iterable[Part]) -> Outcome:
    counts = dict.fromkeys(Outcome._fields[1:-1], 0)
    refusals: list[Refusal] = []
    deltas = 0
    for part in parts:
        for name, count in _of_part(part, deltas, refusals).items():
            counts[name] += count
        deltas += part.rows
    return Outcome(deltas, **counts, refusals=tuple(refusals))


def _of_part(part: Part, before: int, refusals: list[Refusal]) -> dict[str, int]:
    batch, rows, written = part.batch, part.rows, part.batch.written
    if written is None:
        return {"waiting": rows} if batch.nack is None else {"not_taken": rows}
    if written.is_retry:
        return {"taken_earlier": rows}
    named = [each for each in written.refusals if part.start <= each.ordinal < part.start + rows]
    refusals += [Refusal(each.ordinal - part.start + before, each.reason, each.detail) for each in named]
    if rows == batch.rows:
        return {"accepted": written.accepted, "duplicate": written.duplicate, "refused": written.refused}
    if len(written.refusals) < written.refused or len(written.duplicates) < written.duplicate:
        return {"unnamed": rows}
    duplicate = sum(part.start <= each < part.start + rows for each in written.duplicates)
    return {"accepted": rows - duplicate - len(named), "duplicate": duplicate, "refused": len(named)}
