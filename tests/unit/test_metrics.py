"""Metrics say what happened by level, trigger and outcome, and never by key (C13)."""

import subprocess
import sys
import threading
from pathlib import Path

from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

from tidemark.log.batch_record import Trigger
from tidemark.model.deltas import Level, Reason
from tidemark.observe.metrics import BOUNDS_SECONDS, BatchOutcome, FlushOutcome, Gauges, Histogram, Metrics, render

GAUGES = Gauges(
    pending_bytes=10,
    in_flight_bytes=20,
    queued_writes=3,
    queued_bytes=30,
    waiters=4,
    applied_epoch=9,
    flushed_epoch=8,
    durable_epoch=5,
    subscribers=2,
    limit_seconds=0.25,
    target_writes=100.0,
)

Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def samples(*shards: Metrics) -> Series:
    """Every sample of the text, as Prometheus reads it."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(render(shards))
        for sample in family.samples
    }


def value(series: Series, name: str, **labels: str) -> float:
    return series[name, frozenset({"shard": "0", **labels}.items())]


def test_c13_writes_and_deltas_are_counted_by_level_with_their_latency() -> None:
    metrics = Metrics(0, lambda: GAUGES)
    metrics.reached(Level.FLUSHED, writes=2, deltas=2_000, latencies=[0.003, 0.004])
    metrics.reached(Level.FLUSHED, writes=1, deltas=10, latencies=[45.0])
    metrics.reached(Level.APPLIED, writes=5, deltas=5_000)
    series = samples(metrics)
    assert value(series, "tidemark_writes_total", level="flushed") == 3
    assert value(series, "tidemark_deltas_total", level="flushed") == 2_010
    assert value(series, "tidemark_deltas_total", level="applied") == 5_000
    assert value(series, "tidemark_writes_total", level="durable") == 0
    assert value(series, "tidemark_latency_seconds_bucket", level="flushed", le="0.002") == 0
    assert value(series, "tidemark_latency_seconds_bucket", level="flushed", le="0.005") == 2
    assert value(series, "tidemark_latency_seconds_bucket", level="flushed", le="+Inf") == 3
    assert value(series, "tidemark_latency_seconds_count", level="flushed") == 3
    assert value(series, "tidemark_latency_seconds_sum", level="flushed") == 45.007


def test_c13_flushes_and_batches_have_durations_and_outcomes_by_trigger() -> None:
    metrics = Metrics(0, lambda: GAUGES)
    metrics.flushed(FlushOutcome.FLUSHED, 0.002, (7, 2, 1))
    metrics.flushed(FlushOutcome.FAILED, 0.5)
    metrics.batched(Trigger.RATE_CHANGE, BatchOutcome.MISSED, 0.3)
    series = samples(metrics)
    assert value(series, "tidemark_flushes_total", outcome="failed") == 1
    assert value(series, "tidemark_flush_seconds_sum") == 0.502
    outcomes = ("accepted", "duplicate", "refused")
    assert [value(series, "tidemark_verdicts_total", outcome=name) for name in outcomes] == [7, 2, 1]
    assert value(series, "tidemark_batches_total", trigger="rate_change", outcome="missed") == 1
    assert value(series, "tidemark_batches_total", trigger="rate_change", outcome="delivered") == 0
    assert value(series, "tidemark_batch_seconds_count", trigger="rate_change") == 1


def test_c13_bytes_depth_waiters_and_the_three_watermarks_are_read_when_somebody_asks() -> None:
    standings = iter([GAUGES, GAUGES._replace(durable_epoch=8, waiters=0)])
    metrics = Metrics(0, lambda: next(standings))
    series = samples(metrics)
    gauges = ("pending_bytes", "in_flight_bytes", "queued_writes", "queued_bytes", "waiters", "limit_seconds")
    assert [value(series, f"tidemark_{name}") for name in gauges] == [10, 20, 3, 30, 4, 0.25]
    levels = ("applied", "flushed", "durable")
    assert [value(series, "tidemark_epoch", level=level) for level in levels] == [9, 8, 5]
    later = samples(metrics)
    assert (value(later, "tidemark_epoch", level="durable"), value(later, "tidemark_waiters")) == (8, 0)


def test_c13_labels_are_shard_level_trigger_outcome_and_reason_and_their_number_is_fixed() -> None:
    metrics = Metrics(0, lambda: GAUGES)
    before = samples(metrics)
    for trigger in Trigger:
        for outcome in BatchOutcome:
            metrics.batched(trigger, outcome, 0.1)
    for level in Level:
        metrics.reached(level, writes=1, deltas=1, latencies=[1e9])
    metrics.flushed(FlushOutcome.FLUSHED, 1e9, (1, 1, 1), {str(reason): 1 for reason in Reason})
    after = samples(metrics)
    assert after.keys() == before.keys()
    assert {name for _, labels in after for name, _ in labels} == {
        "shard",
        "level",
        "trigger",
        "outcome",
        "reason",
        "le",
    }


def test_c13_shards_stand_beside_each_other_in_one_text_and_nothing_is_registered_anywhere() -> None:
    known = set(REGISTRY._names_to_collectors)
    first, second = Metrics(0, lambda: GAUGES), Metrics(1, lambda: GAUGES)
    second.reached(Level.FLUSHED, writes=7, deltas=7)
    text = render([first, second])
    assert text == render([first, second])
    assert 'tidemark_writes_total{level="flushed",shard="1"} 7.0' in text
    assert 'tidemark_writes_total{level="flushed",shard="0"} 0.0' in text
    assert set(REGISTRY._names_to_collectors) == known


def test_c13_a_duration_falls_into_the_first_bound_that_is_not_below_it() -> None:
    for place, bound in enumerate(BOUNDS_SECONDS):
        histogram = Histogram()
        histogram.observe(bound)
        histogram.observe(bound * 1.0001)
        assert (histogram.counts[place], histogram.counts[place + 1]) == (1, 1)


def test_c13_threads_lose_no_count() -> None:
    metrics = Metrics(0, lambda: GAUGES)

    def count() -> None:
        for _ in range(2_000):
            metrics.reached(Level.APPLIED, writes=1, deltas=3, latencies=[0.001])

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    series = samples(metrics)
    assert value(series, "tidemark_deltas_total", level="applied") == 24_000
    assert value(series, "tidemark_latency_seconds_count", level="applied") == 8_000


def test_c13_the_client_library_is_imported_only_when_the_text_is_asked_for() -> None:
    code = "import sys, tidemark.observe.metrics; print('prometheus_client' in sys.modules)"
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
