"""Metrics of a shard: events, durations and current values, in Prometheus' text form (C13).

Belongs here: counting, and showing the counts. It counts groups and batches, never single deltas, and the
only labels are shard, level, trigger, outcome and reason: a label by key or producer would grow without bound.
`prometheus_client` is imported when the text is requested, and nothing is registered outside of that call.
"""

import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from tidemark.log.batch_record import Trigger
from tidemark.model.deltas import Level, Reason, Verdict

if TYPE_CHECKING:
    from prometheus_client import Metric

# From a fast disk's sync to a lake's commit; each is about twice the one before.
BOUNDS_SECONDS = (
    *(0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5),
    *(1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0),
)


class FlushOutcome(StrEnum):
    """How a group commit ended."""

    FLUSHED = "flushed"
    FAILED = "failed"


class BatchOutcome(StrEnum):
    """How the delivery of a batch ended."""

    DELIVERED = "delivered"  # in every subscriber's queue
    MISSED = "missed"  # skipped for at least one of them
    UNHEARD = "unheard"  # there is no subscriber
    FAILED = "failed"


class Gauges(NamedTuple):
    """The current values of a shard."""

    pending_bytes: int  # flushed, and not yet in a batch
    in_flight_bytes: int  # being flushed, or in batches that wait for a subscriber
    queued_writes: int
    queued_bytes: int
    waiters: int  # threads and tasks that wait for a level
    applied_epoch: int
    flushed_epoch: int
    durable_epoch: int
    subscribers: int = 0
    limit_seconds: float = 0.0  # how long a batch may gather now (C12)
    target_writes: float = 0.0


class Histogram:
    """Durations, counted by bounds that never change."""

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_SECONDS) + 1)  # the last one: longer than every bound
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one duration."""
        self.counts[bisect_left(BOUNDS_SECONDS, seconds)] += 1
        self.sum += seconds


Labels = tuple[str, ...]


class Metrics:
    """The counters of one shard. Any thread may count; a call is a few microseconds for a whole group."""

    def __init__(self, shard: int, gauges: Callable[[], Gauges]) -> None:
        self.shard = shard
        self._gauges = gauges
        self._lock = threading.Lock()
        self._counters: dict[str, dict[Labels, int]] = {}
        self._histograms: dict[str, dict[Labels, Histogram]] = {}
        # Series with a fixed set of labels exist from the start, at zero: a missing series looks like a broken one.
        for level in Level:
            self._count("writes", (level.name.lower(),), 0)
            self._count("deltas", (level.name.lower(),), 0)
            self._histogram("latency", (level.name.lower(),))
        for verdict in Verdict:
            self._count("verdicts", (str(verdict),), 0)
        for reason in Reason:
            self._count("refused", (str(reason),), 0)
        for flushed in FlushOutcome:
            self._count("flushes", (str(flushed),), 0)
        for trigger in Trigger:
            self._histogram("batch", (str(trigger),))
            for delivered in BatchOutcome:
                self._count("batches", (str(trigger), str(delivered)), 0)
        self._histogram("flush", ())

    def verdicts(self) -> dict[str, int]:
        """How many deltas got each verdict since the start."""
        return self._by_label("verdicts")

    def reasons(self) -> dict[str, int]:
        """How many deltas were refused for each reason since the start."""
        return {reason: count for reason, count in self._by_label("refused").items() if count}

    def _by_label(self, name: str) -> dict[str, int]:
        with self._lock:
            return {labels[0]: count for labels, count in self._counters.get(name, {}).items()}

    def reached(self, level: Level, *, writes: int, deltas: int, latencies: Sequence[float] = ()) -> None:
        """Count writes and deltas at a level; `latencies` in seconds, one per write whose beginning is known."""
        labels = (level.name.lower(),)
        with self._lock:
            self._count("writes", labels, writes)
            self._count("deltas", labels, deltas)
            histogram = self._histogram("latency", labels)
            for seconds in latencies:
                histogram.observe(seconds)

    def flushed(
        self,
        outcome: FlushOutcome,
        seconds: float,
        verdicts: Sequence[int] = (0, 0, 0),
        reasons: Mapping[str, int] | None = None,
    ) -> None:
        """Count a group commit; `verdicts` are the sums over its deltas: accepted, duplicate, refused; and why."""
        with self._lock:
            self._count("flushes", (str(outcome),), 1)
            self._histogram("flush", ()).observe(seconds)
            for verdict, deltas in zip(Verdict, verdicts, strict=True):
                self._count("verdicts", (str(verdict),), deltas)
            for reason, deltas in (reasons or {}).items():
                self._count("refused", (reason,), deltas)

    def batched(self, trigger: Trigger, outcome: BatchOutcome, seconds: float) -> None:
        """Count a batch; `seconds` from its opening until it was delivered."""
        with self._lock:
            self._count("batches", (str(trigger), str(outcome)), 1)
            self._histogram("batch", (str(trigger),)).observe(seconds)

    def collect(self) -> "Iterator[tuple[str, Labels, int | tuple[list[int], float]]]":
        """Everything that was counted, as of one time: name, labels, and a count or a histogram's counts and sum."""
        with self._lock:
            counters = [(name, labels, count) for name, by in self._counters.items() for labels, count in by.items()]
            histograms = [
                (name, labels, (list(found.counts), found.sum))
                for name, by in self._histograms.items()
                for labels, found in by.items()
            ]
        yield from counters
        yield from histograms

    def gauges(self) -> Gauges:
        """The shard's current values."""
        return self._gauges()

    def _count(self, name: str, labels: Labels, by: int) -> None:
        counts = self._counters.setdefault(name, {})
        counts[labels] = counts.get(labels, 0) + by

    def _histogram(self, name: str, labels: Labels) -> Histogram:
        histograms = self._histograms.setdefault(name, {})
        if labels not in histograms:
            histograms[labels] = Histogram()
        return histograms[labels]


# Name in Prometheus, its help text, labels beside the shard.
_COUNTERS: dict[str, tuple[str, str, list[str]]] = {
    "writes": ("tidemark_writes", "Writes that reached a level.", ["level"]),
    "deltas": ("tidemark_deltas", "Deltas of writes that reached a level.", ["level"]),
    "verdicts": ("tidemark_verdicts", "Flushed deltas by what became of them.", ["outcome"]),
    "refused": ("tidemark_refused", "Flushed deltas that were refused, by reason.", ["reason"]),
    "flushes": ("tidemark_flushes", "Group commits.", ["outcome"]),
    "batches": ("tidemark_batches", "Batches that were closed.", ["trigger", "outcome"]),
}
_HISTOGRAMS: dict[str, tuple[str, str, list[str]]] = {
    "latency": ("tidemark_latency_seconds", "From a write's arrival until it reached a level.", ["level"]),
    "flush": ("tidemark_flush_seconds", "Duration of group commits.", []),
    "batch": ("tidemark_batch_seconds", "From a batch's opening until it was delivered.", ["trigger"]),
}
_GAUGES = {
    "pending_bytes": "Bytes flushed and not yet in a batch.",
    "in_flight_bytes": "Bytes being flushed or in batches that wait for a subscriber.",
    "queued_writes": "Writes that wait for the writer.",
    "queued_bytes": "Bytes that wait for the writer.",
    "waiters": "Threads and tasks that wait for a level.",
    "subscribers": "Subscribers.",
    "limit_seconds": "How long a batch may gather now.",
    "target_writes": "How many writes a batch should gather now.",
}


def render(shards: Iterable[Metrics]) -> str:
    """The metrics of some shards in Prometheus' text form."""
    from prometheus_client import CollectorRegistry, generate_latest
    from prometheus_client.registry import Collector

    chosen = list(shards)

    class Shards(Collector):
        def collect(self) -> "Iterable[Metric]":
            return _families(chosen)

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Shards())
    return generate_latest(registry).decode()


def _families(shards: Sequence[Metrics]) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily

    counters = {
        name: CounterMetricFamily(family, text, labels=["shard", *labels])
        for name, (family, text, labels) in _COUNTERS.items()
    }
    histograms = {
        name: HistogramMetricFamily(family, text, labels=["shard", *labels])
        for name, (family, text, labels) in _HISTOGRAMS.items()
    }
    gauges = {name: GaugeMetricFamily(f"tidemark_{name}", text, labels=["shard"]) for name, text in _GAUGES.items()}
    epochs = GaugeMetricFamily("tidemark_epoch", "The last epoch that reached a level.", labels=["shard", "level"])
    for shard in shards:
        number = str(shard.shard)
        for name, labels, value in shard.collect():
            if isinstance(value, int):
                counters[name].add_metric([number, *labels], value)
            else:
                histograms[name].add_metric([number, *labels], *_buckets(*value))
        values = shard.gauges()
        for name, gauge in gauges.items():
            gauge.add_metric([number], getattr(values, name))
        for level in Level:
            epochs.add_metric([number, level.name.lower()], getattr(values, f"{level.name.lower()}_epoch"))
    yield from (*counters.values(), *histograms.values(), *gauges.values(), epochs)


def _buckets(counts: list[int], total: float) -> tuple[list[tuple[str, float]], float]:
    bounds = [*(str(bound) for bound in BOUNDS_SECONDS), "+Inf"]
    return list(zip(bounds, map(float, accumulate(counts)), strict=True)), total
