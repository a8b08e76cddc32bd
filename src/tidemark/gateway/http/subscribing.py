"""`GET /v1/subscribe`: deltas as they are flushed, as server-sent events (W7).

    id: 0:17
    event: deltas
    data: {"cursor": {"0": 17}, "deltas": [{…}, {…}]}

Belongs here: what is asked for, events, and the pace: an event is acknowledged to the coordinator when it has been
written to the caller's socket, so a slow reader holds up its own subscription and nothing else, and at most a few
deliveries are in memory for it. Whoever was cut off goes on behind the last event, by the header that browsers send.
"""

import asyncio
import re
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Struct

from tidemark.client.connection import Connection
from tidemark.client.deliveries import Delivery
from tidemark.client.errors import ClientError, NackedError
from tidemark.gateway.access.tokens import ALL, Grant
from tidemark.gateway.http.access import Access, header
from tidemark.gateway.http.errors import ErrorAnswer, ErrorBody, HttpError, of_nack
from tidemark.gateway.http.event_stream import EVENT_HEADERS, until_gone, write_piecemeal
from tidemark.gateway.http.parameters import read_query
from tidemark.gateway.http.responses import Receive, Send
from tidemark.gateway.http.writes.attempts import Opener, open_patiently
from tidemark.model.deltas import Kind
from tidemark.model.settings import is_name
from tidemark.wire.errors import PayloadError
from tidemark.wire.messages import Hello, Role, Subscribe, Topic

MOST_SUBSCRIBERS = 200
# Deliveries that the coordinator sends ahead: one is written while the next one is on its way.
_UNACKED = 2
HEARTBEAT_S = 15.0
_MOST_TOPICS = 100
_CURSOR = re.compile(r"[0-9]{1,4}:[0-9]{1,19}(,[0-9]{1,4}:[0-9]{1,19})*")


class SubscribeQuery(Struct, frozen=True, forbid_unknown_fields=True):
    """The query of a subscription."""

    # NAMESPACE, NAMESPACE/KIND or NAMESPACE/KIND/KEY, with * for any; several: deltas that have one of them.
    topic: tuple[str, ...] = ()
    # SHARD:EPOCH, with commas between them: what comes after is delivered. Without it: from now.
    cursor: str | None = None
    # Of a subscription that goes on where it stood, whoever asks for it next.
    name: str | None = None


class Subscriptions:
    """All subscribers by HTTP."""

    def __init__(self, open_one: Opener, access: Access) -> None:
        self._open_one, self._access = open_one, access
        self.count = 0

    async def serve(self, scope: Any, receive: Receive, send: Send, grant: Grant) -> None:
        """Answer one subscription for as long as both sides want; raises `HttpError` before anything was sent."""
        query = read_query(scope["query_string"], SubscribeQuery)
        last_id = header(scope["headers"], b"last-event-id")
        wants = _wants(query, None if last_id is None else last_id.decode("latin-1"))
        for namespace in {topic.namespace for topic in wants.topics} or {None}:
            grant.require_read(ALL if namespace is None else namespace)
        if self.count >= MOST_SUBSCRIBERS:
            raise HttpError(
                503,
                "too_many_connections",
                f"{MOST_SUBSCRIBERS} programs are subscribed by HTTP. W1 has room for more.",
                retry_after_ms=10_000,
            )
        self.count += 1
        try:
            hello = Hello(role=Role.SUBSCRIBER, client="tidemark http")
            connection = await open_patiently(self._open_one, hello, is_sent=False)
            try:
                if strangers := sorted(set(wants.cursor or ()) - set(range(connection.welcome.shards))):
                    raise _bad(f"cursor: there is no shard {strangers[0]}.")
                await self._stream(connection, wants, receive, send, grant)
            finally:
                await connection.close()
        finally:
            self.count -= 1

    async def _stream(
        self, connection: Connection, wants: Subscribe, receive: Receive, send: Send, grant: Grant
    ) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": EVENT_HEADERS})
        gone = asyncio.ensure_future(until_gone(receive))
        deliveries = aiter(connection.subscribe(wants))
        coming = asyncio.ensure_future(anext(deliveries))
        try:
            # Browsers try again after so long.
            await write_piecemeal(send, b"retry: 1000\n: what is flushed from now on, or behind the cursor\n\n")
            while True:
                await asyncio.wait({gone, coming}, timeout=HEARTBEAT_S, return_when=asyncio.FIRST_COMPLETED)
                if gone.done():
                    return
                self._access.check_again(grant)
                if not coming.done():
                    await write_piecemeal(send, b": still here\n\n")
                    continue
                delivery = coming.result()
                await write_piecemeal(send, _event(delivery))
                connection.acknowledge(delivery.number)
                coming = asyncio.ensure_future(anext(deliveries))
        except (ClientError, HttpError, PayloadError, StopAsyncIteration) as error:
            with suppress(TimeoutError):
                await write_piecemeal(send, _last_event(error))
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        except TimeoutError:
            return  # it reads nothing any more, so there is nobody to tell
        finally:
            gone.cancel()
            coming.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration, ClientError, PayloadError):
                await coming


def _event(delivery: Delivery) -> bytes:
    cursor = delivery.head.cursor
    at = ",".join(f"{shard}:{epoch}" for shard, epoch in sorted(cursor.items()))
    said = msgspec.json.encode({str(shard): epoch for shard, epoch in sorted(cursor.items())})
    deltas = b",".join(delivery.lines())
    return b'id: %s\nevent: deltas\ndata: {"cursor":%s,"deltas":[%s]}\n\n' % (at.encode(), said, deltas)


def _last_event(error: Exception) -> bytes:
    if isinstance(error, NackedError):
        error = of_nack(error.nack)
    body = error.body if isinstance(error, HttpError) else ErrorBody("stopped", str(error) or "The server is stopping.")
    return b"event: error\ndata: %s\n\n" % msgspec.json.encode(ErrorAnswer(body))


def _wants(query: SubscribeQuery, last_id: str | None) -> Subscribe:
    if query.name is not None and not is_name(query.name):
        raise _bad(f"name: {query.name!r} is no name. Use a lower-case letter, then up to 62 of a-z, 0-9 and _.")
    if len(query.topic) > _MOST_TOPICS:
        raise _bad(f"topic: give at most {_MOST_TOPICS}.")
    # The header says more: it is of the last event, and the URL of a browser's request stays the same.
    cursor = last_id or query.cursor
    topics = tuple(_topic(text) for text in query.topic)
    return Subscribe(topics=topics, cursor=_cursor(cursor), name=query.name, max_unacked=_UNACKED)


def _topic(text: str) -> Topic:
    namespace, _, rest = text.partition("/")
    kind, _, key = rest.partition("/")
    parts = [None if part in ("", "*") else part for part in (namespace, kind, key)]
    if parts[1] is not None and parts[1] not in set(Kind):
        raise _bad(f"topic: {parts[1]!r} is no kind; there are {', '.join(Kind)}, and * for any.")
    return Topic(*parts)


def _cursor(text: str | None) -> dict[int, int] | None:
    if text is None:
        return None
    if not _CURSOR.fullmatch(text):
        raise _bad(f"cursor: {text!r} is none. Write SHARD:EPOCH with commas between them, as the id of an event is.")
    pairs = (pair.split(":") for pair in text.split(","))
    return {int(shard): int(epoch) for shard, epoch in pairs}


def _bad(message: str) -> HttpError:
    return HttpError(400, "bad_parameter", message)
