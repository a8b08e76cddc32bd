"""Vector deltas on their way from files of `deltas` to the task that folds their bucket.

Belongs here: which rows of a file are wanted, and the form in which they travel: as packets, which one task writes to a
file and another reads, each with rows of one bucket. Spark gets only their locations, and groups those of a bucket;
lists of numbers, row by row, would cost it ten times as much. `bucket.py` folds them.

A bucket may be cut into pieces, so that a task has only one of them in memory. A packet has rows of one piece of a
bucket and of one hour: without parents, deltas of a later hour are folded later.
"""

from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.tables.table_spec import TIMESTAMP
from tidemark.vectors.checksums import Numbers, checksums_of
from tidemark.vectors.schema import ARRIVED
from tidemark.vectors.tables import BUCKETS

Flags = npt.NDArray[np.bool_]

# About so many bytes of rows are decoded at a time, and at most so many rows for each piece: a packet should be large
# enough to be worth its cost, and small enough that the next step finds it in the processor's cache.
DECODED_BYTES, DECODED_ROWS_LEAST, DECODED_ROWS_MOST = 32 << 20, 1 << 10, 1 << 14
# Instead of an hour, if some delta of this piece names a parent. Comes before all hours.
FAMILIES = -(2**63)

_PAYLOAD = ("op", "values", "indices", "factor", "amount", "metadata", "clock", "parent_id")
_ENVELOPE = ("namespace", "key", "event_ts", "origin", "producer", "delta_id", "shard", "epoch", "ordinal")


class Wanted(NamedTuple):
    """The wanted deltas: for each bucket those of later epochs than it covers; for the named vectors, all."""

    covered: dict[int, dict[int, int]]  # bucket → shard → epoch; a missing bucket wants nothing
    anew: pa.Array | None = None  # names (`name_of`)

    @property
    def lowest(self) -> dict[int, int]:
        """Shard → the epoch up to which no bucket wants anything; from other shards everything may be wanted."""
        shards = set.intersection(*map(set, self.covered.values())) if self.covered else set[int]()
        return {shard: min(epochs[shard] for epochs in self.covered.values()) for shard in shards}

    @property
    def is_even(self) -> bool:
        """Whether all buckets cover the same."""
        first, *others = [*self.covered.values()] or [{}]
        return all(each == first for each in others)


class Packet(NamedTuple):
    """Deltas (`ARRIVED`) of one piece of a bucket and of one hour, and their location."""

    bucket: int
    piece: int
    hour_us: int
    columns: int  # the bit of every column that is present; the others are null
    file: str
    begin: int
    bytes: int


def name_of(namespaces: pa.Array, vector_ids: pa.Array) -> pa.Array:
    """One text for every vector; a namespace has no slash."""
    return pc.binary_join_element_wise(namespaces, vector_ids, "/")


def read_deltas(path: str, wanted: Wanted, pieces: int) -> Iterator[pa.RecordBatch]:
    """The wanted vector deltas of a file, as they arrived (`ARRIVED`)."""
    with pq.ParquetFile(path, pre_buffer=False) as file:
        names = [*_ENVELOPE, *(f"vector.{name}" for name in _PAYLOAD)]
        for group in range(file.num_row_groups):
            is_wanted = _choose(file, group, wanted)
            if not is_wanted.any():
                continue
            about, begin = file.metadata.row_group(group), 0
            rows_at_once = DECODED_BYTES * about.num_rows // max(about.total_byte_size, 1)
            rows_at_once = min(max(rows_at_once, DECODED_ROWS_LEAST), DECODED_ROWS_MOST * pieces)
            for batch in file.iter_batches(rows_at_once, row_groups=[group], columns=names, use_threads=False):
                own = is_wanted[begin : begin + batch.num_rows]
                begin += batch.num_rows
                if own.any():
                    yield _arrived(batch if own.all() else batch.filter(pa.array(own)))


def payload_bytes(path: str) -> int:
    """How many bytes of a file are payloads of vectors, according to its footer."""
    about = pq.read_metadata(path)
    columns = (
        about.row_group(group).column(column)
        for group in range(about.num_row_groups)
        for column in range(about.num_columns)
    )
    return sum(column.total_compressed_size for column in columns if column.path_in_schema.startswith("vector."))


def pack(
    rows: pa.RecordBatch, hour_us: int, pieces: int, wanted: Wanted, path: str, file: BinaryIO
) -> Iterator[Packet]:
    """Write deltas that were read (`read_deltas`) to a file, as packets of the buckets that want them."""
    checksums = checksums_of(rows.column("namespace"), rows.column("vector_id"))
    if not wanted.is_even:
        is_wanted = _is_wanted(rows, checksums % BUCKETS, wanted)
        rows, checksums = rows.filter(pa.array(is_wanted)), checksums[is_wanted]
    if not rows.num_rows:
        return
    places = checksums % BUCKETS * pieces + piece_of(checksums, pieces)
    order = np.argsort(places.astype(np.uint16) if BUCKETS * pieces <= 1 << 16 else places, kind="stable")
    there = [field for field, column in zip(ARRIVED, rows.columns, strict=True) if column.null_count < rows.num_rows]
    columns = sum(1 << ARRIVED.get_field_index(field.name) for field in there)
    sorted_rows = rows.select([field.name for field in there]).take(pa.array(order))
    has_parents = ARRIVED.field("parent_id") in there
    bounds = np.searchsorted(places[order], np.arange(BUCKETS * pieces + 1))
    for place in np.flatnonzero(np.diff(bounds)).tolist():
        bucket, piece = divmod(place, pieces)
        if bucket not in wanted.covered:
            continue
        own = sorted_rows.slice(bounds[place], bounds[place + 1] - bounds[place])
        if has_parents and own.column("parent_id").null_count < own.num_rows:
            yield Packet(bucket, piece, FAMILIES, 0, path, 0, 0)
        begin = file.tell()
        yield Packet(bucket, piece, hour_us, columns, path, begin, file.write(own.serialize()))


def unpack(packet: Packet) -> pa.RecordBatch:
    """The deltas of a packet."""
    there = [number for number in range(len(ARRIVED)) if packet.columns >> number & 1]
    with pa.OSFile(packet.file) as file:
        file.seek(packet.begin)
        data = file.read_buffer(packet.bytes)
    rows = pa.ipc.read_record_batch(data, pa.schema([ARRIVED.field(number) for number in there]))
    known = dict(zip(there, rows.columns, strict=True))
    columns = [known.get(number, pa.nulls(rows.num_rows, field.type)) for number, field in enumerate(ARRIVED)]
    return pa.RecordBatch.from_arrays(columns, schema=ARRIVED)


def piece_of(checksums: Numbers, pieces: int) -> Numbers:
    """Which piece of its bucket each vector is in."""
    return checksums // BUCKETS % pieces


def _choose(file: pq.ParquetFile, group: int, wanted: Wanted) -> Flags:
    """Which rows of a group are wanted, from as few columns as possible."""
    names, lowest = ["kind"], wanted.lowest
    if any(lowest.values()):
        names += ["shard", "epoch"] + (["namespace", "key"] if wanted.anew is not None else [])
    rows = file.read_row_group(group, columns=names, use_threads=False).combine_chunks()
    is_vector = np.asarray(pc.equal(rows["kind"], "vector"))
    if not any(lowest.values()):
        return is_vector
    is_wanted = is_vector & _is_later(rows, lowest)
    if wanted.anew is not None:
        others = np.flatnonzero(is_vector & ~is_wanted)
        named = rows.select(["namespace", "key"]).take(pa.array(others))
        is_wanted[others] = np.asarray(pc.is_in(name_of(*named.columns), value_set=wanted.anew))
    return np.asarray(is_wanted)


def _is_wanted(rows: pa.RecordBatch, buckets: Numbers, wanted: Wanted) -> Flags:
    """Which rows their buckets want, if not all buckets cover the same."""
    found = np.zeros(rows.num_rows, np.bool_)
    for bucket, covered in wanted.covered.items():
        own = buckets == bucket
        if own.any():
            found |= own & _is_later(rows, covered)
    if wanted.anew is not None:
        names = name_of(rows.column("namespace"), rows.column("vector_id"))
        found |= np.asarray(pc.is_in(names, value_set=wanted.anew))
    return found


def _is_later(rows: pa.RecordBatch | pa.Table, covered: dict[int, int]) -> Flags:
    """Which rows arrived after the epochs, shard by shard."""
    shards, epochs = (np.asarray(rows[name]) for name in ("shard", "epoch"))
    last = np.zeros(len(epochs), np.int64)
    for shard, epoch in covered.items():
        last[shards == shard] = epoch
    return np.asarray(epochs > last)


def _arrived(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of `deltas` under the names of the fold; a missing origin is the producer."""
    vector, origin = batch.column("vector"), batch.column("origin")
    there = {field.name for field in vector.type}
    known = {name: vector.field(name) if name in there else pa.nulls(len(vector)) for name in _PAYLOAD}
    known["vector_id"] = batch.column("key")
    known["event_us"] = batch.column("event_ts").cast(TIMESTAMP).cast(pa.int64())
    known["origin"] = pc.coalesce(origin, batch.column("producer")) if origin.null_count else origin
    columns = [known[field.name] if field.name in known else batch.column(field.name) for field in ARRIVED]
    return pa.RecordBatch.from_arrays(
        [column.cast(field.type) for column, field in zip(columns, ARRIVED, strict=True)], schema=ARRIVED
    )
