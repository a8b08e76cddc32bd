"""What the live page shows of a home, at one time.

Belongs here: asking the serving process, reading a few small files, and putting both together. How often, and for whom,
is in `live.py`; how it looks is in `page/index.html`, which reads these fields by their names.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from tidemark.event_time.clock import Clock, system_clock
from tidemark.gateway.control import Asked, ask
from tidemark.gateway.places import read_serving, subscribers
from tidemark.log.manifest import Manifest
from tidemark.model.errors import TidemarkError
from tidemark.model.timegrid import SECOND_US
from tidemark.observe.lake_status import read_tables
from tidemark.shard_state.live import LiveStatus
from tidemark.storage.home import Home
from tidemark.tables.check_notes import read_note
from tidemark.tables.plans import durable_epochs
from tidemark.tables.table_watermarks import read_table_watermarks

# The process that serves answers in milliseconds; a page that waits longer says that it does not answer.
ASK_S = 3.0
# Tables change by a drain, not by a write; each look lists their logs.
TABLES_US = 5 * SECOND_US
# After a longer pause, when nobody watched, the mean since then would look like a rate.
LONGEST_STEP_US = 5 * SECOND_US
# Five minutes for the curve of somebody who opens the page now.
CURVE_POINTS = 300


class ShardView(Struct, frozen=True):
    """How far one shard is."""

    shard: int
    state: str
    applied: int
    flushed: int
    durable: int
    queued_writes: int
    bytes: dict[str, int]
    is_disk_low: bool
    last_batch_trigger: str | None
    batch_limit_ms: float


class StreamView(Struct, frozen=True):
    """The event time of one namespace and kind."""

    name: str
    watermark_us: int


class TableView(Struct, frozen=True):
    """One table of the lake."""

    name: str
    rows: int
    version: int
    watermark_us: int | None = None
    made_us: int | None = None
    checked_us: int | None = None  # None: no check of it is known here
    failed: int = 0  # partitions whose last check found something wrong
    why: str | None = None  # what, of the first of them
    error: str | None = None


class SubscriberView(Struct, frozen=True):
    """A durable name, connected or not, and how many epochs it is behind."""

    name: str
    behind: int


class Waiting(Struct, frozen=True):
    """Segments that the next drain brings into the tables."""

    segments: int = 0
    rows: int = 0
    bytes: int = 0
    oldest_us: int | None = None


class Lake(Struct, frozen=True):
    """What is read less often."""

    tables: tuple[TableView, ...] = ()
    waiting: Waiting = Waiting()
    durable: dict[int, int] = {}


class Said(Struct, frozen=True):
    """What the serving process says of itself."""

    shards: tuple[LiveStatus, ...] = ()
    producers: int = 0
    connections: int = 0
    subscribers: int = 0
    counts: dict[str, int] = {}  # by outcome
    by_reason: dict[str, dict[str, int]] = {}  # of what was refused, and of what was turned away
    watermarks: dict[str, int] = {}


class LiveView(Struct, frozen=True):
    """Everything on the page."""

    at_us: int
    home: str
    since_us: int | None = None  # when the serving process started
    addresses: tuple[str, ...] = ()
    shards: tuple[ShardView, ...] = ()
    producers: int = 0
    connections: int = 0
    subscribers: int = 0
    durable_names: tuple[SubscriberView, ...] = ()
    outcomes: dict[str, int] = {}  # since the serving process started
    by_reason: dict[str, dict[str, int]] = {}  # of what was refused, and of what was turned away
    per_second: float | None = None  # deltas with an outcome; None until there are two looks
    streams: tuple[StreamView, ...] = ()
    tables: tuple[TableView, ...] = ()
    waiting: Waiting = Waiting()
    troubles: tuple[str, ...] = ()  # what could not be read, and why
    curve: tuple[tuple[int, float], ...] = ()  # time and rate, for those who have just come


class Looker:
    """Looks at one home again and again; several threads look one after another."""

    def __init__(
        self, home: Home, *, clock: Clock = system_clock, ask_status: Callable[[Home], Any] | None = None
    ) -> None:
        self._home, self._clock = home, clock
        self._ask_status = ask_status or (lambda home: ask(home, Asked("status"), ASK_S))
        self._lake, self._lake_us = Lake(), 0
        self._lake_troubles: list[str] = []
        self._before: tuple[int, int] | None = None  # when, and how many deltas had an outcome
        self._lock = threading.Lock()
        self.curve: deque[tuple[int, float]] = deque(maxlen=CURVE_POINTS)

    def look(self) -> LiveView:
        """The home as it is now; what cannot be read is told, and the rest is shown."""
        with self._lock:
            return self._look()

    def _look(self) -> LiveView:
        now_us, troubles, said = self._clock(), list[str](), Said()
        with _told(troubles):
            said = msgspec.convert(self._ask_status(self._home), Said)
        if now_us - self._lake_us >= TABLES_US:
            self._read_lake(now_us)
        serving = read_serving(self._home)
        view = LiveView(
            at_us=now_us,
            home=str(self._home.root),
            since_us=serving.started_us if serving else None,
            addresses=(*serving.w1, *serving.http) if serving else (),
            shards=tuple(self._shard(each) for each in said.shards),
            producers=said.producers,
            connections=said.connections,
            subscribers=said.subscribers,
            outcomes=said.counts,
            by_reason=said.by_reason,
            per_second=None if troubles else self._rate(now_us, sum(said.counts.values())),
            streams=tuple(StreamView(name, time_us) for name, time_us in sorted(said.watermarks.items())),
            tables=self._lake.tables,
            waiting=self._lake.waiting,
        )
        with _told(troubles):
            view = replace(view, durable_names=self._durable_names(view.shards))
        return replace(view, troubles=(*troubles, *self._lake_troubles))

    def _shard(self, live: LiveStatus) -> ShardView:
        return ShardView(
            shard=live.shard,
            state=live.state,
            applied=live.applied_epoch,
            flushed=live.flushed_epoch,
            # The tables were read up to some seconds ago.
            durable=min(self._lake.durable.get(live.shard, 0), live.flushed_epoch),
            queued_writes=live.queued_writes,
            bytes=live.bytes,
            is_disk_low=live.is_disk_low,
            last_batch_trigger=live.last_batch_trigger,
            batch_limit_ms=live.batch_limit_ms,
        )

    def _rate(self, now_us: int, deltas: int) -> float | None:
        """Deltas a second since the last look; unknown after a pause, and after a restart, which counts from zero."""
        before, self._before = self._before, (now_us, deltas)
        if before is None or not 0 < now_us - before[0] <= LONGEST_STEP_US or deltas < before[1]:
            return None
        rate = (deltas - before[1]) * SECOND_US / (now_us - before[0])
        self.curve.append((now_us, round(rate, 1)))
        return rate

    def _read_lake(self, now_us: int) -> None:
        self._lake_us, self._lake_troubles = now_us, []
        with _told(self._lake_troubles):
            durable = durable_epochs(self._home)
            self._lake = Lake(_tables(self._home), _waiting(self._home, durable), durable)

    def _durable_names(self, shards: tuple[ShardView, ...]) -> tuple[SubscriberView, ...]:
        flushed = {each.shard: each.flushed for each in shards}
        found = []
        for path in sorted(subscribers(self._home).glob("*.json")):
            try:
                cursor = msgspec.json.decode(path.read_bytes(), type=_Cursor).cursor
            except (OSError, msgspec.MsgspecError):
                continue  # it is being replaced, or damaged, which the server tells its subscriber
            behind = sum(max(epoch - cursor.get(shard, 0), 0) for shard, epoch in flushed.items())
            found.append(SubscriberView(path.stem, behind))
        return tuple(found)


class _Cursor(Struct, frozen=True):
    cursor: dict[int, int]


@contextmanager
def _told(troubles: list[str]) -> Iterator[None]:
    """What goes wrong in here is shown on the page, and stops nothing."""
    try:
        yield
    except (TidemarkError, OSError, msgspec.MsgspecError) as error:
        troubles.append(str(error))


def _tables(home: Home) -> tuple[TableView, ...]:
    tables = read_tables(home)
    watermarks = read_table_watermarks(home.plans, tables)
    found = []
    for name, table in tables.items():
        watermark, note = watermarks.get(name), read_note(home, name)
        found.append(
            TableView(
                name=name,
                rows=table.rows,
                version=table.version,
                watermark_us=watermark.watermark_us if watermark else None,
                made_us=watermark.recorded_us if watermark else None,
                checked_us=note.checked_us if note else None,
                failed=len(note.failed) if note else 0,
                why=next(iter(note.failed.values()), None) if note else None,
                error=table.error,
            )
        )
    return tuple(found)


def _waiting(home: Home, durable: dict[int, int]) -> Waiting:
    entries = [
        entry
        for shard in range(home.settings.shards)
        for entry in Manifest(home.segments(shard)).since(durable.get(shard, 0) + 1)
    ]
    return Waiting(
        segments=len(entries),
        rows=sum(entry.rows for entry in entries),
        bytes=sum(entry.bytes for entry in entries),
        oldest_us=min((entry.sealed_us for entry in entries), default=None),
    )
