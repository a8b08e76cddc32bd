"""One request on its way to the coordinator: what was sent of it, and how far it has come.

Belongs here: what both ways of writing share (`numbered.py`, `lanes.py`): the state of an attempt, which decides what
can be said when its time is over, and opening a connection to the coordinator.
"""

import asyncio
from collections.abc import Awaitable, Callable

from tidemark.client.connection import Connection
from tidemark.client.errors import NackedError
from tidemark.gateway.http.errors import RETRY_AFTER_MS, HttpError, of_nack
from tidemark.gateway.http.writes.outcomes import Retry, WriteAnswer
from tidemark.wire.errors import NackReason
from tidemark.wire.messages import Hello, LevelName, Nack

# A coordinator that was stopped is started again within seconds, or it is not there.
_PATIENCE_S = 2.0
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5

Opener = Callable[[Hello], Awaitable[Connection]]
ALL_LEVELS = (LevelName.APPLIED, LevelName.FLUSHED, LevelName.DURABLE)


class Attempt:
    """One request's write."""

    __slots__ = ("answer", "is_sent", "retry")

    def __init__(self, retry: Retry) -> None:
        self.retry = retry
        self.is_sent = False
        self.answer: WriteAnswer | None = None  # at the highest level that was reached so far


class PartlyTakenError(Exception):
    """Some shards took their part of a write, and others had no room."""

    def __init__(self, nack: Nack) -> None:
        super().__init__(nack.message)
        self.not_taken = nack.not_taken or ()
        self.retry_after_ms = nack.retry_after_ms or RETRY_AFTER_MS


def refusal(nack: Nack) -> Exception:
    """What is told of a write that was not taken, or not whole."""
    return of_nack(nack) if nack.not_taken is None else PartlyTakenError(nack)


async def open_patiently(open_one: Opener, hello: Hello, *, is_sent: bool) -> Connection:
    """A connection to the coordinator. Something that was sent already is worth any wait: only its time ends it."""
    loop = asyncio.get_running_loop()
    until, pause_s = loop.time() + _PATIENCE_S, _FIRST_PAUSE_S
    while True:
        try:
            return await open_one(hello)
        except NackedError as error:
            if error.nack.reason not in {NackReason.STOPPED, NackReason.TOO_MANY_CONNECTIONS}:
                raise of_nack(error.nack) from error
            why = str(error.nack.message)
        except (OSError, TimeoutError) as error:
            why = str(error) or "it does not answer"
        if not is_sent and loop.time() >= until:
            raise HttpError(
                503,
                str(NackReason.STOPPED),
                f"The coordinator cannot be reached ({why}). Nothing was taken. Send it again.",
                retry_after_ms=RETRY_AFTER_MS,
            )
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
