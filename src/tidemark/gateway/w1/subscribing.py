"""The subscriber's side of a connection: deliveries from a cursor on, at its own pace (W7, P1, P2, C9).

Belongs here: what is delivered when, acknowledgements, and the cursors of durable names. How rows become a payload is
in `delivered.py`. A subscriber that is behind reads the log from the disk, and nobody waits for it.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyarrow as pa
from msgspec import Struct

from tidemark.coordinator.platform import Platform
from tidemark.coordinator.shard import Shard
from tidemark.delivery.batching import Batch
from tidemark.delivery.flushed_log import read_flushed
from tidemark.delivery.queues import Missed
from tidemark.gateway.access.tokens import ALL, Grant
from tidemark.gateway.w1.connection import Connection
from tidemark.gateway.w1.delivered import LOG_COLUMNS, chosen, payload, pieces
from tidemark.model.errors import TidemarkError
from tidemark.model.settings import is_name
from tidemark.model.shard_errors import CoordinatorError, SubscriptionEndedError
from tidemark.storage.home import Home
from tidemark.storage.json_files import read_json, write_json
from tidemark.wire.errors import NackReason, PayloadError
from tidemark.wire.frames import Flag, Frame, FrameType
from tidemark.wire.messages import Nack, Subscribe, Subscribed, decode, encode

# How often the cursor of a durable name is written at most; what is delivered twice after a crash is of this time.
SAVE_S = 1.0
MOST_UNACKED = 1_000
_RETRY_S = 0.02


class StoredCursor(Struct):
    """How far a durable subscriber has come: shard → the last epoch that it has acknowledged."""

    cursor: dict[int, int]


class Subscribers:
    """All subscribers of a platform; a durable name is for one of them at a time."""

    def __init__(self, platform: Platform, home: Home, folder: Path) -> None:
        self.platform, self.home, self._folder = platform, home, folder
        self._named: dict[str, Subscribing] = {}

    def session(self, connection: Connection, grant: Grant) -> "Subscribing":
        """A new subscriber."""
        return Subscribing(self, connection, grant)

    def take_name(self, name: str, session: "Subscribing") -> None:
        """From now on the name is this connection's; one that has it is told, and ended."""
        before = self._named.get(name)
        if before is not None and before is not session:
            before.fence(f"The subscription {name!r} was taken over by another connection.")
        self._named[name] = session

    def leave_name(self, name: str, session: "Subscribing") -> None:
        """The connection has ended."""
        if self._named.get(name) is session:
            del self._named[name]

    def load(self, name: str) -> dict[int, int] | None:
        """Where a name stands; None if it was never acknowledged anything."""
        way_out = "Delete it: the subscriber then begins from now, or from the cursor that it names."
        found = read_json(self._file(name), StoredCursor, way_out=way_out)
        return None if found is None else found.cursor

    def save(self, name: str, cursor: Mapping[int, int]) -> None:
        """Remember where a name stands."""
        write_json(self._file(name), StoredCursor(dict(cursor)))

    def _file(self, name: str) -> Path:
        return self._folder / f"{name}.json"


class Subscribing:
    """One subscriber, on one connection."""

    def __init__(self, subscribers: Subscribers, connection: Connection, grant: Grant) -> None:
        self._all, self._connection, self._grant = subscribers, connection, grant
        self._wants: Subscribe | None = None
        self._cursor: dict[int, int] = {}  # how far what was sent reaches
        self._acknowledged: dict[int, int] = {}
        self._sent = self._acked = 0  # deliveries
        self._unacked: dict[int, dict[int, int]] = {}  # delivery → the cursor that it stands for
        self._room = asyncio.Event()
        self._one_at_a_time = asyncio.Lock()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_saved = True

    # The connection.

    @property
    def is_blocked(self) -> bool:
        return False

    @property
    def is_idle(self) -> bool:
        return True  # what is not acknowledged comes again, wherever it goes on

    def take(self, frame: Frame) -> None:
        if frame.type is FrameType.SUBSCRIBE:
            self._subscribe(frame)
        elif frame.type is FrameType.ACK:
            self._acknowledge(frame.sequence)
        elif frame.type is FrameType.UNSUBSCRIBE:
            self._stop()
        else:
            what = f"A subscriber sends types 2, 5, 6 and 7, and not type {frame.type}."
            self._connection.end(Nack(NackReason.UNEXPECTED, what, closes=True), frame.sequence)

    def frames_taken(self) -> None:
        self._room.set()

    def close(self) -> None:
        self._stop()

    def fence(self, why: str) -> None:
        """Another connection has the name now."""
        self._connection.end(Nack(NackReason.FENCED, why, closes=True))

    # What it wants.

    def _subscribe(self, frame: Frame) -> None:
        try:
            wants = decode(frame.payload, Subscribe)
            self._check(wants)
        except (PayloadError, TidemarkError) as error:
            reason = error.reason if isinstance(error, PayloadError) else NackReason.BAD_PAYLOAD
            self._connection.nack(frame.sequence, Nack(reason, str(error)))
            return
        self._wants = wants
        if wants.name is not None:
            self._all.take_name(wants.name, self)
        loop = asyncio.get_running_loop()
        self._tasks.append(loop.create_task(self._begin(wants, frame.sequence)))

    def _check(self, wants: Subscribe) -> None:
        if self._wants is not None:
            raise PayloadError(NackReason.UNEXPECTED, "This connection has a subscription; unsubscribe first.")
        for what in ("causal", "merged"):
            if getattr(wants, what):
                raise PayloadError(NackReason.NOT_SUPPORTED, f"`{what}` is not supported by this version.")
        if wants.name is not None and not is_name(wants.name):
            raise PayloadError(
                NackReason.BAD_PAYLOAD,
                f"{wants.name!r} is no name. Use a lower-case letter, then up to 62 of a-z, 0-9 and _.",
            )
        if not 1 <= wants.max_unacked <= MOST_UNACKED:
            raise PayloadError(NackReason.BAD_PAYLOAD, f"`max_unacked` is from 1 to {MOST_UNACKED:,}.")
        if strangers := sorted(set(wants.cursor or ()) - set(self._all.platform.shards)):
            raise PayloadError(NackReason.BAD_PAYLOAD, f"The cursor names shard {strangers[0]}, which is not there.")
        namespaces = {topic.namespace for topic in wants.topics} or {None}
        for namespace in namespaces:
            if not self._grant.may_read(ALL if namespace is None else namespace):
                raise PayloadError(
                    NackReason.NOT_ALLOWED,
                    f"This token may not read {'all namespaces' if namespace is None else repr(namespace)}. "
                    "Name topics with namespaces that it may read.",
                )

    async def _begin(self, wants: Subscribe, sequence: int) -> None:
        shards = self._all.platform.shards
        try:
            stored = await asyncio.to_thread(self._all.load, wants.name) if wants.name is not None else None
        except (TidemarkError, OSError) as error:
            self._connection.nack(sequence, Nack(NackReason.STOPPED, str(error), closes=True))
            return
        start = wants.cursor if wants.cursor is not None else stored
        # A shard that the cursor does not name is read from its beginning: nothing may be left out.
        self._cursor = {
            number: shard.flushed_epoch if start is None else start.get(number, 0) for number, shard in shards.items()
        }
        self._acknowledged = dict(self._cursor)
        if wants.name is not None:
            # Remembered before anything comes, so that a name that has begun never begins anew.
            await asyncio.to_thread(self._all.save, wants.name, self._acknowledged)
            self._tasks.append(asyncio.create_task(self._save_again_and_again(wants.name)))
        self._connection.send(FrameType.SUBSCRIBE, sequence, encode(Subscribed(dict(self._cursor))))
        self._tasks += [asyncio.create_task(self._follow(shard, wants)) for shard in shards.values()]

    def _acknowledge(self, delivery: int) -> None:
        if delivery > self._sent:
            why = f"Delivery {delivery} was not sent yet; the last one is {self._sent}."
            self._connection.end(Nack(NackReason.BAD_PAYLOAD, why, closes=True), delivery)
            return
        for number in range(self._acked + 1, delivery + 1):
            self._acknowledged = self._unacked.pop(number)
        if delivery > self._acked:
            self._acked, self._is_saved = delivery, False
            self._room.set()

    def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()
        if self._wants is not None and self._wants.name is not None:
            if not self._is_saved:
                self._is_saved = True
                self._all.save(self._wants.name, self._acknowledged)
            self._all.leave_name(self._wants.name, self)
        self._wants = None

    async def _save_again_and_again(self, name: str) -> None:
        while True:
            await asyncio.sleep(SAVE_S)
            if not self._is_saved:
                self._is_saved = True
                with suppress(OSError):  # a full disk: what was acknowledged since would come once more
                    await asyncio.to_thread(self._all.save, name, dict(self._acknowledged))

    # What it gets.

    async def _follow(self, shard: Shard, wants: Subscribe) -> None:
        """Everything of one shard above the cursor: from the disk until it has caught up, then as it comes."""
        try:
            with shard.subscribe() as live:
                await self._catch_up(shard, wants, shard.flushed_epoch)
                while True:
                    item = await live.get_async()
                    if item is not None:
                        await self._take_live(shard, wants, item)
        except SubscriptionEndedError:
            return  # the platform is shutting down, and has said goodbye
        except (CoordinatorError, TidemarkError, OSError) as error:
            self._connection.end(Nack(NackReason.STOPPED, f"The log cannot be read on: {error}", closes=True))

    async def _take_live(self, shard: Shard, wants: Subscribe, item: Batch | Missed) -> None:
        last = item.to_epoch - 1
        if isinstance(item, Missed) or item.from_epoch > self._cursor[shard.number] + 1:
            await self._catch_up(shard, wants, last)
        elif last > self._cursor[shard.number]:
            deltas = await asyncio.to_thread(item.deltas)
            rows = chosen(deltas.__getitem__, self._cursor[shard.number], last, wants.topics, is_accepted=True)
            await self._deliver(shard.number, wants, rows, last)

    async def _catch_up(self, shard: Shard, wants: Subscribe, upto: int) -> None:
        pieces_left = read_flushed(self._all.home, shard.number, self._cursor[shard.number], upto, LOG_COLUMNS)
        while (piece := await asyncio.to_thread(next, pieces_left, None)) is not None:
            rows = await asyncio.to_thread(chosen, piece.column, piece.after, piece.last_epoch, wants.topics)
            await self._deliver(shard.number, wants, rows, piece.last_epoch)
        self._cursor[shard.number] = max(self._cursor[shard.number], upto)

    async def _deliver(self, shard: int, wants: Subscribe, rows: pa.RecordBatch, last: int) -> None:
        cut = list(pieces(rows))
        for place, piece in enumerate(cut):
            async with self._one_at_a_time:
                await self._wait_for_room(wants.max_unacked)
                # Rows of one range are sorted by time: the cursor moves with the last of them.
                is_last = place == len(cut) - 1
                cursor = self._cursor | ({shard: last} if is_last else {})
                kind, data = await asyncio.to_thread(payload, piece, wants.form, cursor)
                self._sent += 1
                self._unacked[self._sent] = cursor
                self._cursor = cursor
                self._connection.send(kind, self._sent, data, Flag.BATCHED)
        self._cursor[shard] = max(self._cursor[shard], last)

    async def _wait_for_room(self, most: int) -> None:
        while self._sent - self._acked >= most:
            self._room.clear()
            await self._room.wait()
        while not self._connection.can_send:
            await asyncio.sleep(_RETRY_S)
