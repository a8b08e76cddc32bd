"""The data of `bench coordinator`: signals as Arrow IPC messages or as JSON, each delta once.

Belongs here: the shape of the data, and the expected result. All sides make the same data from the same numbers, before
their clock starts.
"""

from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.arrays.hashing import combine, hash_array
from tidemark.log.manifest import Manifest
from tidemark.log.segment_files import verify_segment
from tidemark.model.log_schema import SENT_FIELDS, SIGNAL, TIMESTAMP
from tidemark.storage.home import Home

ENTITIES = 100_000
SIGNALS = np.array(["view", "click", "cart", "purchase"])
# Columns from a producer of signals; the coordinator fills in the others.
COLUMNS = ("namespace", "kind", "delta_id", "event_ts", "priority", "source", "signal")
SCHEMA = pa.schema([(name, kind) for name, kind in SENT_FIELDS if name in COLUMNS])


class Content(NamedTuple):
    """How many deltas there are, and the sum of their identities' hashes (64 bits): no order can change it."""

    deltas: int
    hashes: int

    def __add__(self, other: object) -> "Content":
        if not isinstance(other, Content):
            return NotImplemented
        return Content(self.deltas + other.deltas, (self.hashes + other.hashes) % 2**64)


NOTHING = Content(0, 0)


def signals(first: int, rows: int, now_us: int) -> pa.RecordBatch:
    """Deltas number `first` and following, with events of the last three seconds."""
    random = np.random.default_rng(first)
    numbers = pc.utf8_lpad(pa.array(random.integers(0, ENTITIES, rows)).cast(pa.string()), 6, "0")
    payload = pa.StructArray.from_arrays(
        [
            pc.binary_join_element_wise("entity-", numbers, ""),
            pa.array(SIGNALS[random.integers(0, len(SIGNALS), rows)]),
            pa.array(random.integers(1, 4, rows)),
            pa.array(random.integers(0, 5_000_000, rows)),
        ],
        fields=list(SIGNAL),
    )
    columns = {
        "namespace": pa.array(["shop"] * rows),
        "kind": pa.array(["signal"] * rows),
        "delta_id": pc.binary_join_element_wise("d", pa.array(np.arange(first, first + rows)).cast(pa.string()), ""),
        "event_ts": pa.array(now_us - random.integers(0, 3_000_000, rows)).view(TIMESTAMP),
        "priority": pa.array(["normal"] * rows),
        "source": pa.array(["local"] * rows),
        "signal": payload,
    }
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def again(batch: pa.RecordBatch, later_us: int) -> pa.RecordBatch:
    """The same deltas at a later time, so they are new deltas."""
    at = batch.schema.get_field_index("event_ts")
    times = pa.array(batch["event_ts"].view(pa.int64()).to_numpy() + later_us).view(TIMESTAMP)
    return batch.set_column(at, SCHEMA.field(at), times)


def messages(rows: int, write_rows: int, now_us: int) -> tuple[list[bytes], Content]:
    """Writes as IPC messages, and their contents."""
    content = NOTHING
    encoded: list[bytes] = []
    for first in range(0, rows, write_rows):
        batch = signals(first, write_rows, now_us)
        encoded.append(batch.serialize().to_pybytes())
        content += content_of(batch)
    return encoded, content


def lines(count: int, now_us: int) -> tuple[list[bytes], Content]:
    """Single deltas as JSON, and their contents."""
    batch = signals(0, count, now_us)
    rows = batch.set_column(
        batch.schema.get_field_index("event_ts"), "event_ts", batch["event_ts"].view(pa.int64())
    ).to_pylist()
    for row in rows:
        row["signal"]["weight"] = row["signal"].pop("weight_millionths") / 1_000_000
    return [msgspec.json.encode(row) for row in rows], content_of(batch)


def read_message(message: bytes) -> pa.RecordBatch:
    """The batch in a message, as a server would read it."""
    return pa.ipc.read_record_batch(pa.py_buffer(message), SCHEMA)


def content_of(batch: pa.RecordBatch) -> Content:
    """The contents of a batch of signals, computed without the coordinator."""
    identity = (batch["namespace"], batch["signal"].field("entity_id"), batch["event_ts"], batch["delta_id"])
    hashes = combine(*(hash_array(column) for column in identity))
    return Content(len(batch), int(np.sum(hashes, dtype=np.uint64)))


def sealed_content(home: Home) -> Content:
    """The contents of a home's sealed segments: every accepted delta counts."""
    content = NOTHING
    for table in _segments(home):
        accepted = table.filter(pc.equal(table["verdict"], "accepted"))["identity_hash"].to_numpy().view(np.uint64)
        content += Content(len(accepted), int(np.sum(accepted, dtype=np.uint64)))
    return content


def _segments(home: Home) -> Iterator[pa.Table]:
    for shard in range(home.settings.shards):
        manifest = Manifest(home.segments(shard))
        for entry in manifest.all():
            path = verify_segment(manifest.directory, entry)
            yield pq.read_table(path, columns=["identity_hash", "verdict"], partitioning=None)
