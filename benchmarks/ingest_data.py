"""A seeded day of deltas as sealed segments: what `bench ingest` drains.

Belongs here: the shape of the data. Mostly signals, some samples and vectors; 24 hours of events, arriving in order of
time with a tail of late ones; some deltas that the log refused or knew as duplicates; and a few duplicates that only
the drain can find, because the memory of recent identities would have lost them.
"""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks.segments import seal
from tidemark.model.log_schema import LOG_SCHEMA, SAMPLE, SIGNAL, TIMESTAMP, VECTOR
from tidemark.model.timegrid import HOUR_US, MINUTE_US, SECOND_US, to_us

DAY_START_US = to_us(datetime(2026, 3, 2, tzinfo=UTC))
HOURS = 24
WRITE_ROWS = 1_000
ENTITIES = 100_000
SIGNALS = np.array(["view", "click", "cart", "purchase", "return"])
PRODUCERS = np.array(["checkout", "search", "mobile", "backoffice"])
VECTOR_DIMENSION = 16

SAMPLE_SHARE, VECTOR_SHARE = 0.06, 0.01
REFUSED_SHARE, DUPLICATE_SHARE = 0.001, 0.005
COPY_SHARE, REUSE_SHARE = 0.000_2, 0.000_02
LATE_SHARE = 0.01


def write_log(directory: Path, *, rows: int, seed: int) -> None:
    """Write about a segment an hour, `rows` deltas in all, into the shard's directory."""
    for number, table in enumerate(_segments(rows, seed)):
        hour_end = DAY_START_US + (number + 1) * HOUR_US
        seal(directory, table, sealed_us=hour_end, watermarks={"shop/signal": hour_end - 5 * SECOND_US})


def _segments(rows: int, seed: int) -> Iterator[pa.Table]:
    random = np.random.default_rng(seed)
    bounds = np.linspace(0, rows, HOURS + 1).astype(np.int64)
    epoch = 1
    earlier: pa.Table | None = None
    for hour in range(HOURS):
        table = _hour_of_rows(random, hour, int(bounds[hour]), int(bounds[hour + 1]), epoch)
        if earlier is not None:
            table = _with_copies(random, table, earlier)
        epoch += -(-len(table) // WRITE_ROWS)
        earlier = table
        yield table


def _hour_of_rows(random: np.random.Generator, hour: int, first: int, last: int, epoch: int) -> pa.Table:
    count = last - first
    place = np.arange(count)
    writes = place // WRITE_ROWS
    number_of_writes = int(writes[-1]) + 1
    start = DAY_START_US + hour * HOUR_US
    received = start + (writes + 1) * HOUR_US // (number_of_writes + 1)
    delay = random.exponential(10 * SECOND_US, count)
    delay = np.where(random.random(count) < LATE_SHARE, random.exponential(40 * MINUTE_US, count), delay)
    event = np.maximum(received - delay.astype(np.int64), DAY_START_US)
    entity = np.minimum(random.zipf(1.3, count), ENTITIES).astype(np.int64)
    entity = np.where(entity == ENTITIES, random.integers(1, ENTITIES, count), entity)
    keys = pa.array([f"entity-{n:06d}" for n in range(ENTITIES + 1)])
    dice = random.random(count)
    kind = np.where(dice < VECTOR_SHARE, "vector", np.where(dice < VECTOR_SHARE + SAMPLE_SHARE, "sample", "signal"))
    key = keys.take(pa.array(entity))
    verdict, refusal = _verdicts(random, count)
    columns = {
        "shard": pa.array(np.zeros(count, dtype=np.int32)),
        "epoch": pa.array(epoch + writes),
        "ordinal": pa.array((place % WRITE_ROWS).astype(np.int32)),
        "producer": pa.array(PRODUCERS[(epoch + writes) % len(PRODUCERS)]),
        "sequence": pa.array((epoch + writes) // len(PRODUCERS) + 1),
        "received_ts": pa.array(received, TIMESTAMP),
        "watermark_ts": pa.array(received - 15 * SECOND_US, TIMESTAMP),
        "key": key,
        "identity_hash": pa.array(_mix(np.arange(first, last, dtype=np.uint64))),
        "content_hash": pa.array(_mix(np.arange(first, last, dtype=np.uint64) + np.uint64(1 << 40))),
        "verdict": verdict,
        **refusal,
        "namespace": pa.array(np.full(count, "shop")),
        "kind": pa.array(kind),
        "delta_id": _delta_ids(first, last),
        "event_ts": pa.array(event, TIMESTAMP),
        "priority": pa.array(np.full(count, "normal")),
        "source": pa.array(np.full(count, "local")),
        "origin": pa.array(PRODUCERS[(epoch + writes) % len(PRODUCERS)]),
        "vector": _scatter(_vectors(random, key.filter(pa.array(kind == "vector"))), kind == "vector"),
        "sample": _scatter(_samples(random, int((kind == "sample").sum())), kind == "sample"),
        "signal": _scatter(_signals(random, key.filter(pa.array(kind == "signal"))), kind == "signal"),
    }
    return pa.table({name: columns[name] for name in LOG_SCHEMA.names}, schema=LOG_SCHEMA)


def _verdicts(random: np.random.Generator, count: int) -> tuple[pa.Array, dict[str, pa.Array]]:
    dice = random.random(count)
    refused = dice < REFUSED_SHARE
    verdict = np.where(refused, "refused", np.where(dice < REFUSED_SHARE + DUPLICATE_SHARE, "duplicate", "accepted"))
    chosen = pa.array(refused)

    def only_refused(value: str | bytes | int, kind: pa.DataType) -> pa.Array:
        return pa.compute.if_else(chosen, pa.scalar(value, kind), pa.scalar(None, kind))

    return pa.array(verdict), {
        "reason": only_refused("from_the_future", pa.string()),
        "detail": only_refused("event_ts is further ahead of the clock than its skew", pa.string()),
        "raw": only_refused(b'{"namespace":"shop","kind":"signal","delta_id":"?"}', pa.binary()),
        "raw_bytes": only_refused(52, pa.int64()),
    }


def _delta_ids(first: int, last: int) -> pa.Array:
    numbers = pa.array(np.arange(first, last)).cast(pa.string())
    return pa.compute.binary_join_element_wise("d", numbers, "")


def _mix(numbers: np.ndarray) -> np.ndarray:
    """splitmix64: different numbers, different 64-bit values that look random."""
    with np.errstate(over="ignore"):
        mixed = numbers + np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        mixed ^= mixed >> np.uint64(31)
    return mixed.view(np.int64)


def _scatter(payloads: pa.Array, chosen: np.ndarray) -> pa.Array:
    """Payloads at the chosen rows, null elsewhere."""
    places = np.cumsum(chosen) - 1
    return payloads.take(pa.array(places, mask=~chosen))


def _signals(random: np.random.Generator, keys: pa.Array) -> pa.Array:
    count = len(keys)
    return pa.StructArray.from_arrays(
        [
            keys,
            pa.array(SIGNALS[random.integers(0, len(SIGNALS), count)]),
            pa.array(random.integers(1, 4, count)),
            pa.array(random.integers(0, 5_000_000, count)),
        ],
        fields=list(SIGNAL),
    )


def _samples(random: np.random.Generator, count: int) -> pa.Array:
    hosts = pa.array([f"host-{n:03d}" for n in range(200)]).take(pa.array(random.integers(0, 200, count)))
    values = pa.concat_arrays([pa.array(["cpu"] * count, pa.string()), hosts])
    interleaved = values.take(pa.array(np.arange(2 * count).reshape(2, count).T.ravel()))
    names = pa.array(["__name__", "host"] * count, pa.string())
    labels = pa.MapArray.from_arrays(pa.array(np.arange(0, 2 * count + 1, 2), pa.int32()), names, interleaved)
    return pa.StructArray.from_arrays([labels, pa.array(random.normal(50.0, 15.0, count))], fields=list(SAMPLE))


def _vectors(random: np.random.Generator, keys: pa.Array) -> pa.Array:
    count = len(keys)
    values = pa.array(random.normal(0.0, 1.0, count * VECTOR_DIMENSION).astype(np.float32))
    offsets = pa.array(np.arange(0, (count + 1) * VECTOR_DIMENSION, VECTOR_DIMENSION), pa.int32())
    columns = {
        "vector_id": keys,
        "op": pa.array(["replace"] * count, pa.string()),
        "values": pa.ListArray.from_arrays(offsets, values),
    }
    arrays = [columns.get(field.name, pa.nulls(count, field.type)) for field in VECTOR]
    return pa.StructArray.from_arrays(arrays, fields=list(VECTOR))


def _with_copies(random: np.random.Generator, table: pa.Table, earlier: pa.Table) -> pa.Table:
    """Overwrite a few rows with accepted rows of the segment before; some of them with other content."""
    sources = np.flatnonzero(pa.compute.equal(earlier["verdict"], "accepted").to_numpy())
    targets = np.flatnonzero(pa.compute.equal(table["verdict"], "accepted").to_numpy())
    count = max(1, round(len(table) * COPY_SHARE))
    reused = max(1, round(len(table) * REUSE_SHARE))
    sources = random.choice(sources, count, replace=False)
    targets = np.sort(random.choice(targets, count, replace=False))
    places = np.arange(len(table))
    places[targets] = len(table) + sources
    arrived = {"shard", "epoch", "ordinal", "producer", "sequence", "received_ts", "watermark_ts"}
    both = pa.concat_tables([table, earlier])
    copied = both.take(pa.array(places))
    columns = [table[name] if name in arrived else copied[name] for name in LOG_SCHEMA.names]
    content = columns[LOG_SCHEMA.get_field_index("content_hash")].to_numpy().copy()
    content[targets[:reused]] += 1
    columns[LOG_SCHEMA.get_field_index("content_hash")] = pa.chunked_array([pa.array(content)])
    return pa.table(columns, schema=LOG_SCHEMA)
