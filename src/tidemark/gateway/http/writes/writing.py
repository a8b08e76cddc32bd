"""`POST /v1/deltas`: the write route, called before any framework is.

Belongs here: what the headers and the query ask for, and the answer. Reading the body is in `bodies.py`; how a write
gets to the coordinator in `numbered.py` and `lanes.py`.
"""

import asyncio
import hashlib
import re
from typing import Any, NamedTuple

from msgspec import Struct

from tidemark.gateway.access.tokens import Grant
from tidemark.gateway.http.counters import Counters
from tidemark.gateway.http.errors import HttpError
from tidemark.gateway.http.parameters import read_query
from tidemark.gateway.http.responses import Receive
from tidemark.gateway.http.writes.attempts import Attempt, Opener, PartlyTakenError
from tidemark.gateway.http.writes.bodies import Body, Room
from tidemark.gateway.http.writes.contents import Content, content_type, read_content, require_write
from tidemark.gateway.http.writes.lanes import Lane
from tidemark.gateway.http.writes.numbered import IDLE_S, Numbered
from tidemark.gateway.http.writes.outcomes import Retry, WriteAnswer, partial_answer
from tidemark.model.settings import is_name
from tidemark.wire.errors import NackReason
from tidemark.wire.frames import LARGEST_SEQUENCE
from tidemark.wire.messages import LevelName

# Producers of this door's own.
OWN_PREFIX = "http_"
_LONGEST_KEY = 256
_NUMBER = re.compile(rb"[0-9]{1,20}")


class WriteQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a write."""

    # How safe the deltas are when the request is answered.
    level: LevelName = LevelName.FLUSHED
    # How many seconds that may take. What was sent goes on after it.
    timeout: float = 30.0


_USUAL = WriteQuery()
LONGEST_TIMEOUT_S = 600.0


class Identity(NamedTuple):
    """Who numbers a write, and how."""

    retry: Retry
    producer: str = ""
    sequence: int = 0


_UNNUMBERED = Identity(Retry.BY_IDENTITY)


class Writing:
    """All writes that come through this door."""

    def __init__(self, open_one: Opener, room: Room, counters: Counters, *, port: int) -> None:
        self._open_one, self._room, self._counters, self._port = open_one, room, counters, port
        self._numbered = Numbered(open_one)
        self._lanes: dict[tuple[str, LevelName], Lane] = {}
        counters.gauge("producers", "Producers whose connections are kept.", lambda: len(self._numbered))
        counters.gauge("body_bytes", "Bytes that are held for bodies of requests under way.", lambda: room.taken)

    async def answer(self, scope: Any, receive: Receive, grant: Grant) -> WriteAnswer:
        """Take a request's deltas; raises `HttpError` if nothing was taken."""
        query = scope["query_string"]
        wants = read_query(query, WriteQuery) if query else _USUAL
        if not 0 < wants.timeout <= LONGEST_TIMEOUT_S:
            raise HttpError(400, "bad_parameter", f"timeout: give seconds, above 0 and up to {LONGEST_TIMEOUT_S:.0f}.")
        form = key = producer = number = None
        for name, value in scope["headers"]:
            if name == b"content-type":
                form = value
            elif name == b"idempotency-key":
                key = value
            elif name == b"tidemark-producer":
                producer = value
            elif name == b"tidemark-sequence":
                number = value
        identity = _identity(key, producer, number, grant)
        form = content_type(form)
        with Body(scope, receive, self._room) as body:
            data = await body.read()
            self._counters.body_bytes += len(data)
            content = read_content(form, data)
            require_write(grant, content)
            answer = await self._write(identity, content, wants, grant)
        self._counters.answered(answer)
        return answer

    async def _write(self, identity: Identity, content: Content, wants: WriteQuery, grant: Grant) -> WriteAnswer:
        attempt = Attempt(identity.retry)
        try:
            async with asyncio.timeout(wants.timeout):
                if identity.retry is Retry.BY_IDENTITY:
                    return await self._write_unnumbered(content, wants.level, attempt, grant)
                is_kept = identity.retry is Retry.BY_NUMBER
                return await self._numbered.write(
                    identity.producer, identity.sequence, content, wants.level, attempt, is_kept=is_kept
                )
        except PartlyTakenError as error:
            return partial_answer(error.not_taken, identity.retry, error.retry_after_ms)
        except TimeoutError:
            return _too_late(attempt, wants)
        except HttpError as error:
            if identity.retry is Retry.BY_KEY and error.body.reason == NackReason.NUMBER_REUSE:
                raise _key_reused() from error
            raise

    async def _write_unnumbered(
        self, content: Content, level: LevelName, attempt: Attempt, grant: Grant
    ) -> WriteAnswer:
        owner = grant.id or ""
        lane = self._lanes.get((owner, level))
        if lane is None:
            parts = [f"{OWN_PREFIX}{self._port}", owner, "" if level is LevelName.FLUSHED else str(level)]
            name = "_".join(part for part in parts if part)
            lane = self._lanes[owner, level] = Lane(self._open_one, name, level)
        future = lane.submit(content, attempt)
        try:
            return await future
        finally:
            if future.cancelled() and not attempt.is_sent:
                lane.withdraw(future)

    async def forget_idle(self) -> None:
        """Give up connections that nobody has used for a while."""
        await self._numbered.forget_idle()
        now = asyncio.get_running_loop().time()
        for key, lane in list(self._lanes.items()):
            if lane.is_idle and now - lane.used > IDLE_S:
                del self._lanes[key]
                await lane.close()

    async def close(self) -> None:
        """Give up all connections."""
        await self._numbered.close()
        for lane in self._lanes.values():
            await lane.close()


def _identity(key: bytes | None, producer: bytes | None, number: bytes | None, grant: Grant) -> Identity:
    if key is not None:
        if producer is not None or number is not None:
            raise _bad("Give either Idempotency-Key, or Tidemark-Producer and Tidemark-Sequence.")
        if not 0 < len(key) <= _LONGEST_KEY:
            raise _bad(f"Idempotency-Key: give 1 to {_LONGEST_KEY} bytes.")
        # Keys of one token mean nothing to another.
        digest = hashlib.sha256(b"%s\n%s" % ((grant.id or "").encode(), key)).hexdigest()
        return Identity(Retry.BY_KEY, f"{OWN_PREFIX}key_{digest[:40]}", 1)
    if producer is None and number is None:
        return _UNNUMBERED
    if producer is None or number is None:
        raise _bad("Tidemark-Producer and Tidemark-Sequence go together: give both, or neither.")
    name = producer.decode("latin-1")
    if not is_name(name) or name.startswith(OWN_PREFIX):
        raise _bad(
            f"Tidemark-Producer: {name!r} is no name for a producer. Use a lower-case letter, then up to 62 of a-z, "
            f"0-9 and _; names that begin with {OWN_PREFIX} are the door's own."
        )
    if not _NUMBER.fullmatch(number) or not 1 <= int(number) <= LARGEST_SEQUENCE:
        raise _bad(f"Tidemark-Sequence: {number.decode('latin-1')!r} is no number of a write: they are 1, 2, 3 …")
    return Identity(Retry.BY_NUMBER, name, int(number))


def _too_late(attempt: Attempt, wants: WriteQuery) -> WriteAnswer:
    """The level was not reached in time: say what is known."""
    if attempt.answer is not None:
        # It names the level that was reached, which is lower than the one that was asked for.
        return attempt.answer
    if not attempt.is_sent:
        raise HttpError(
            503,
            str(NackReason.TIMEOUT),
            f"There was no room within {wants.timeout:g} s. Nothing was taken. Send it again.",
            retry_after_ms=1_000,
        )
    raise HttpError(
        504,
        str(NackReason.OUTCOME_UNKNOWN),
        f"It did not become {wants.level} within {wants.timeout:g} s, and goes on. Whether it was taken is not known "
        f"yet. Send the same request again: that is safe {attempt.retry}.",
    )


def _key_reused() -> HttpError:
    return HttpError(
        409,
        str(NackReason.NUMBER_REUSE),
        "This Idempotency-Key was sent with other deltas before. Those were taken, and these were not. Give each "
        "request a key of its own.",
    )


def _bad(message: str) -> HttpError:
    return HttpError(400, "bad_header", message, closes=True)
