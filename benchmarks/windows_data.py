"""Days of signals as a table `deltas`: the input of `bench windows` and `bench joins`.

Belongs here: the shape of the data, as files of the table and one commit to its log; all sides read these files. Text
ids, skewed as traffic is; deltas arrive seconds after their events, and one in a hundred much later, stamped with the
watermark of that time.
"""

from enum import StrEnum
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from assets.ingest.schema import DELTAS
from benchmarks.lake_data import START_US, TIMESTAMP, added, commit, made, signal_rows
from tidemark.model.timegrid import HOUR_US, MINUTE_US, SECOND_US, from_us
from tidemark.storage.home import Home

SIGNALS, SHARES = np.array(["view", "click", "cart", "purchase", "return"]), (0.4, 0.25, 0.15, 0.1, 0.1)
LATE_SHARE = 0.01
VISIT = 12  # signals of an entity that come together


class Traffic(StrEnum):
    """How the signals of an entity lie in time."""

    SCATTERED = "scattered"
    VISITS = "visits"


def write_deltas(
    home: Home, *, rows: int, entities: int, hours: int, seed: int, traffic: Traffic = Traffic.SCATTERED
) -> None:
    """Fill `deltas` with signals of so many entities over the hours."""
    random = np.random.default_rng(seed)
    path = made(home, DELTAS)
    names = pa.array([f"item-{number:07d}" for number in range(entities)])
    entity, event = TRAFFIC[traffic](random, rows, entities, hours)
    bounds = np.searchsorted(event, START_US + HOUR_US * np.arange(hours + 1))
    actions = [
        _write_hour(
            path,
            random,
            START_US + hour * HOUR_US,
            slice(int(first), int(last)),
            names.take(pa.array(entity[first:last])),
            event[first:last],
        )
        for hour, (first, last) in enumerate(pairwise(bounds))
    ]
    commit(home, DELTAS.name, 1, actions)


def _scattered(random: np.random.Generator, rows: int, entities: int, hours: int) -> tuple[np.ndarray, np.ndarray]:
    """Every signal at a time of its own."""
    return _entities(random, rows, entities), np.sort(START_US + random.integers(0, hours * HOUR_US, rows))


def _visits(random: np.random.Generator, rows: int, entities: int, hours: int) -> tuple[np.ndarray, np.ndarray]:
    """Signals of an entity come together: a dozen or so within minutes, then nothing for long."""
    visits = rows // VISIT
    length = 1 + random.poisson(VISIT - 1, visits)
    visit = np.resize(np.repeat(np.arange(visits), length), rows)
    begun = random.integers(0, hours * HOUR_US, visits)
    step = random.exponential(40 * SECOND_US, rows).astype(np.int64)
    so_far = np.cumsum(step)
    is_first = np.diff(visit, prepend=-1) != 0
    since = so_far - np.maximum.accumulate(np.where(is_first, so_far, 0))
    event = START_US + (begun[visit] + since) % (hours * HOUR_US)
    order = np.argsort(event, kind="stable")
    return _entities(random, visits, entities)[visit][order], event[order]


def _entities(random: np.random.Generator, count: int, entities: int) -> np.ndarray:
    """Half of all go to a tenth of the entities."""
    return (entities * random.random(count) ** 3.3).astype(np.int64)


def _write_hour(
    path: Path, random: np.random.Generator, start: int, rows: slice, entity: pa.Array, event: np.ndarray
) -> dict[str, object]:
    first, last, count = rows.start, rows.stop, len(event)
    delay = random.exponential(2 * SECOND_US, count)
    delay = np.where(random.random(count) < LATE_SHARE, random.exponential(40 * MINUTE_US, count), delay)
    received = event + delay.astype(np.int64)
    words = random.choice(SIGNALS, count, p=SHARES)
    stamps = pa.array(received - 10 * SECOND_US, TIMESTAMP)
    places = np.arange(first, last)
    table = signal_rows(random, places, entity, words, event, received, watermark_ts=stamps)
    return added_file(path, table, start, event, received)


def added_file(path: Path, table: pa.Table, start: int, event: np.ndarray, received: np.ndarray) -> dict[str, object]:
    """Write an hour of `deltas` as a file, and return its entry in the table's log."""
    hour = f"{from_us(start):%Y-%m-%d %H:%M:%S}"
    file = f"event_hour={hour.replace(':', '%3A')}/part-{start}.parquet"
    (path / file).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path / file, compression="zstd")
    bounds = {"event_ts": event, "received_ts": received, "watermark_ts": received - 10 * SECOND_US}
    stats = {
        "numRecords": len(table),
        "minValues": {name: _moment(int(values.min())) for name, values in bounds.items()},
        "maxValues": {name: _moment(int(values.max()) + 1_000) for name, values in bounds.items()},
        "nullCount": dict.fromkeys(bounds, 0),
    }
    name = file.replace("%", "%25").replace(" ", "%20")
    return added(name, (path / file).stat().st_size, {"event_hour": hour}, stats)


TRAFFIC = {Traffic.SCATTERED: _scattered, Traffic.VISITS: _visits}


def _moment(time_us: int) -> str:
    """As Delta writes it: rounded down to milliseconds; for a greatest value, the caller adds one first."""
    return f"{from_us(time_us):%Y-%m-%dT%H:%M:%S}.{time_us // 1_000 % 1_000:03d}Z"
