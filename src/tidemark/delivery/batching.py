"""Batches: flushed deltas are closed into what subscribers and sinks get at a time, each by a named trigger (C5, N3).

Belongs here: pending deltas, when they are due, the content of a batch and its record. Nothing here waits, reads a
clock or starts a thread, and the log knows nothing of it: a group is flushed whether or not a batch is due. How long a
batch may gather is in `adaptive.py`, which subscribers get it in `subscriptions.py`.

A close takes everything that is pending, so it answers every trigger that was due, and the batch names all of them:
one as its trigger, the others beside it. Triggers take turns at being named first, least recently named first, so that
counts by trigger show each of them.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.arrays.columns import Mask
from tidemark.arrays.distinct import count_distinct
from tidemark.delivery.adaptive import AdaptiveLimit, Limits
from tidemark.log.batch_record import BatchRecord, Trigger
from tidemark.log.log_rows import LogRows
from tidemark.model.deltas import Verdict
from tidemark.model.log_schema import TIMESTAMP
from tidemark.model.settings import BatchSettings

# Memory of a group of rows beside its columns' bytes: some 50 Arrow arrays with their buffers. Measured; a group of
# one delta has 400 bytes of columns, so without this the memory of small writes would be off by a factor of ninety.
GROUP_OVERHEAD_BYTES = 36 * 1024


class Pending(NamedTuple):
    """What waits for a batch, as a user's predicate sees it."""

    writes: int
    deltas: int
    bytes: int
    from_epoch: int
    to_epoch: int
    opened_us: int
    age_us: int
    limits: Limits


Predicate = Callable[[Pending], bool]


class Batch:
    """Deltas that are delivered together. May be used from any thread: costly parts are computed once, on first use.

    `bytes` is the memory that it takes, for the tracker.
    """

    def __init__(
        self,
        number: int,
        groups: Sequence[LogRows],
        *,
        writes: int,
        data_bytes: int,
        memory_bytes: int,
        triggers: Sequence[Trigger],
        opened_us: int,
        closed_us: int,
    ) -> None:
        self.number, self.writes, self.bytes = number, writes, memory_bytes
        self.trigger, self.also = triggers[0], tuple(triggers[1:])
        self.opened_us, self.closed_us = opened_us, closed_us
        self.from_epoch, self.to_epoch = _epochs(groups)
        self._groups, self._data_bytes = groups, data_bytes
        self._lock = threading.Lock()
        self._record: BatchRecord | None = None
        self._deltas: pa.RecordBatch | None = None

    @property
    def record(self) -> BatchRecord:
        """Its statistics: about 0.1 µs a delta the first time."""
        with self._lock:
            if self._record is None:
                self._record = self._summarize()
            return self._record

    def deltas(self) -> pa.RecordBatch:
        """The accepted deltas, in the log's schema, sorted by event time, then epoch and place in the write."""
        with self._lock:
            if self._deltas is None:
                if self._record is None:
                    self._record = self._summarize()
                self._deltas = _sorted_accepted(self._groups)
                self._groups = ()  # keep the columns only once
            return self._deltas

    def _summarize(self) -> BatchRecord:
        counted: Counter[str] = Counter()
        events: list[pa.Array] = []
        keys: dict[str, list[pa.Array]] = {}  # by namespace
        for group in self._groups:
            for verdict, mask in group.by_verdict().items():
                counted[verdict] += group.rows if mask is None else int(np.count_nonzero(mask))
                if verdict == Verdict.ACCEPTED:
                    events.append(_chosen(group.column("event_ts"), mask))
                    for namespace, found in _keys(group, mask):
                        keys.setdefault(namespace, []).append(found)
        rows = counted.total()
        span = pc.min_max(pa.chunked_array(events, TIMESTAMP).cast(pa.int64()))
        return BatchRecord(
            number=self.number,
            trigger=self.trigger,
            also=self.also,
            from_epoch=self.from_epoch,
            to_epoch=self.to_epoch,
            writes=self.writes,
            deltas=counted[Verdict.ACCEPTED],
            duplicates=counted[Verdict.DUPLICATE],
            refused=counted[Verdict.REFUSED],
            keys=sum(map(count_distinct, keys.values())),
            bytes=self._data_bytes,
            mean_bytes=self._data_bytes / rows,
            min_event_us=span["min"].as_py(),
            max_event_us=span["max"].as_py(),
            opened_us=self.opened_us,
            closed_us=self.closed_us,
        )


class Batcher:
    """Gathers flushed groups and says when they are due. One thread at a time: the shard calls it under its lock."""

    def __init__(self, settings: BatchSettings, next_number: int = 1, predicate: Predicate | None = None) -> None:
        self._settings, self._predicate = settings, predicate
        self._adaptive = AdaptiveLimit(settings)
        self._number = next_number
        self._last_named = dict.fromkeys(Trigger, 0)  # number of the last batch that had it as its trigger
        # The error of a predicate that raised. The predicate is not called again; everything else goes on.
        self.predicate_error: Exception | None = None
        self._empty()

    def _empty(self) -> None:
        self._groups: list[LogRows] = []
        self._data_bytes = 0
        self._due: list[Trigger] = []  # as of the last look
        self._is_requested = False
        # Refused and duplicate deltas count as well: telling them apart takes time.
        self.pending_writes = self.pending_deltas = 0
        self._opened_us = self._deadline_us = 0
        self._opened_rate = 0.0

    @property
    def pending_bytes(self) -> int:
        """Memory of the pending groups; their batch will report the same as `bytes`."""
        return self._data_bytes + len(self._groups) * GROUP_OVERHEAD_BYTES

    def add(self, rows: LogRows, writes: int, now_us: int) -> int:
        """Take one flushed group, in the log's order, and return its memory."""
        size, deltas = rows.nbytes, rows.rows
        self._adaptive.rate.add(writes, deltas, now_us)
        if not self._groups:
            self._opened_us, self._deadline_us = now_us, now_us + self._settings.max_ms * 1_000
            self._opened_rate = self._adaptive.effective_rate(self._adaptive.rate.rates(now_us))
        self._groups.append(rows)
        self._data_bytes += size
        self.pending_writes += writes
        self.pending_deltas += deltas
        self._shorten(now_us)
        return size + GROUP_OVERHEAD_BYTES

    def request(self) -> int | None:
        """Request a batch of everything pending; return its number, or None if nothing is pending.

        Any trigger that closes that batch answers the request, and the next look does so at the latest.
        """
        if not self._groups:
            return None
        self._is_requested = True
        return self._number

    def due(self, now_us: int, *, is_pressed: bool = False) -> Trigger | None:
        """Why pending deltas should be closed now, if they should: call it after each group and at `next_look_us`.

        The user's predicate is called here, so it should be quick.
        """
        if not self._groups:
            return None
        self._shorten(now_us)
        rate = self._adaptive.effective_rate(self._adaptive.rate.rates(now_us))
        change = max(rate / self._opened_rate, self._opened_rate / rate)
        met = {
            Trigger.EXPLICIT: self._is_requested,
            Trigger.TIME: now_us >= self._deadline_us,
            Trigger.COUNT: self.pending_deltas >= self._settings.count,
            Trigger.SIZE: self._data_bytes >= self._settings.bytes,
            Trigger.RATE_CHANGE: change >= self._settings.rate_change,
            Trigger.MEMORY_PRESSURE: is_pressed,
            Trigger.PREDICATE: self._asks_predicate(now_us),
        }
        self._due = [trigger for trigger, is_met in met.items() if is_met]
        return min(self._due, key=self._last_named.__getitem__, default=None)

    def close(self, trigger: Trigger, now_us: int) -> Batch | None:
        """Close everything pending into a batch; None if nothing is. Quick: the batch computes its own record."""
        if not self._groups:
            return None
        others = [*self._due, *([Trigger.EXPLICIT] if self._is_requested else [])]
        batch = Batch(
            self._number,
            self._groups,
            writes=self.pending_writes,
            data_bytes=self._data_bytes,
            memory_bytes=self.pending_bytes,
            triggers=[trigger, *dict.fromkeys(other for other in others if other is not trigger)],
            opened_us=self._opened_us,
            closed_us=max(now_us, self._opened_us),
        )
        self._last_named[trigger] = self._number
        self._number += 1
        self._empty()
        return batch

    def next_look_us(self) -> int | None:
        """When time alone will make a batch due; None while nothing is pending."""
        return self._deadline_us if self._groups else None

    def limits(self, now_us: int) -> Limits:
        """The limits of the adaptive rule now, with its inputs."""
        return self._adaptive.limits(now_us)

    def delivered(self, batch: Batch, seconds: float) -> None:
        """Note how long a delivery took; the target follows (C12)."""
        self._adaptive.memory.add(batch.writes, seconds, batch.closed_us)

    def _shorten(self, now_us: int) -> None:
        """The limit of an open batch falls with a rising rate and never grows: it was a promise."""
        if now_us < self._opened_us:  # the clock was set back: the time left to wait stays the same
            self._deadline_us -= self._opened_us - now_us
            self._opened_us = now_us
        limit_us = self._adaptive.limits(now_us).limit_us
        self._deadline_us = min(self._deadline_us, self._opened_us + limit_us)

    def _asks_predicate(self, now_us: int) -> bool:
        if self._predicate is None or self.predicate_error is not None:
            return False
        from_epoch, to_epoch = _epochs(self._groups)
        view = Pending(
            writes=self.pending_writes,
            deltas=self.pending_deltas,
            bytes=self._data_bytes,
            from_epoch=from_epoch,
            to_epoch=to_epoch,
            opened_us=self._opened_us,
            age_us=max(now_us - self._opened_us, 0),
            limits=self._adaptive.limits(now_us),
        )
        try:
            return bool(self._predicate(view))
        except Exception as error:  # noqa: BLE001 - it is the user's own code, and the shard must outlive it
            self.predicate_error = error
            return False


def _epochs(groups: Sequence[LogRows]) -> tuple[int, int]:
    """The range of epochs of groups, which come in the order of the log."""
    return groups[0].writes.epochs[0], groups[-1].writes.epochs[-1] + 1


def _keys(group: LogRows, mask: Mask | None) -> Iterator[tuple[str, pa.Array]]:
    """The keys of the chosen rows, by namespace."""
    keys = _chosen(group.column("key"), mask)
    if "namespace" in group.shared:
        yield group.shared["namespace"], keys
    else:
        namespaces = _chosen(group.columns["namespace"], mask)
        for namespace in namespaces.unique().to_pylist():
            yield namespace, keys.filter(pc.equal(namespaces, namespace))


def _chosen(column: pa.Array, mask: Mask | None) -> pa.Array:
    return column if mask is None else column.filter(pa.array(mask))


def _sorted_accepted(groups: Sequence[LogRows]) -> pa.RecordBatch:
    rows = pa.concat_batches([group.batch() for group in groups])
    accepted = np.flatnonzero(np.asarray(pc.equal(rows["verdict"], str(Verdict.ACCEPTED))))
    events = np.asarray(rows["event_ts"].cast(pa.int64()).fill_null(0))[accepted]
    # Rows lie in the order of (epoch, ordinal), and a stable sort by time keeps that.
    order = np.argsort(events, kind="stable")
    return rows.take(pa.array(accepted[order]))
