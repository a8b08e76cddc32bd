"""Rows of `vectors` as files: a bucket's rows are read, folded further, and written anew.

Belongs here: from packets of deltas to the files of a bucket, one piece of it in memory at a time. `bucket.py` changes
rows, `packed.py` makes packets, and `resources/lake.py` commits the files.

A file's name says which piece of its bucket it contains, so a reader of another piece does not open it.
"""

import re
import time
import uuid
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.tables.new_files import Bounds, NewFile, statistics_of
from tidemark.tables.table_spec import TIMESTAMP
from tidemark.vectors.bucket import ENVELOPE, Deltas, InMemory, Picked, go_on, in_order, unable_to_go_on
from tidemark.vectors.checksums import Numbers, checksums_of
from tidemark.vectors.order import begins_vector
from tidemark.vectors.packed import FAMILIES, Packet, name_of, piece_of, unpack
from tidemark.vectors.schema import ARRIVED, CURRENT, KEY, STATES
from tidemark.vectors.tables import BUCKET

# Deltas are folded when so many bytes of them are in memory and an hour is complete, so a vector with very many of them
# takes no more memory than its busiest hour. If deltas name parents, all envelopes are in memory together, with so many
# bytes of payloads at a time.
HELD_BYTES = 32 << 20

# Times are timestamps in a file, and numbers in a fold.
_TIMES = {"eff_us": "eff_ts", "event_us": "event_ts"}
_BASES = pa.schema([*STATES, ("is_base", pa.bool_()), ("cut_ts", TIMESTAMP)])
# In the other columns nearly every row has its own value, so a dictionary would be of no use.
_REPEATED = ["namespace", "origin"]
_PIECE = re.compile(r"piece-(\d+)-of-(\d+)-")


class Target(NamedTuple):
    """The facts that tasks need about the table that they write."""

    table: str  # its directory
    pieces: int  # number of pieces of a bucket
    present: dict[int, tuple[str, ...]]  # files by bucket; none if everything is folded anew
    bases: dict[int, tuple[str, ...]]  # files of `vector_checkpoints` by bucket
    anew: pa.Array  # names of vectors that are folded from all of their deltas, regardless of their rows


class FoldResult(NamedTuple):
    """For a bucket: its files, or, without files, the names of the vectors that have to be folded anew first."""

    bucket: int
    files: list[NewFile]
    unable: list[str]


def fold_buckets(target: Target, packets: Iterable[Packet]) -> Iterator[FoldResult]:
    """The buckets that have packets; packets come bucket by bucket, piece by piece, hour by hour."""
    for bucket, of_bucket in groupby(packets, key=lambda packet: packet.bucket):
        yield _fold_bucket(target, bucket, of_bucket)


def _fold_bucket(target: Target, bucket: int, packets: Iterable[Packet]) -> FoldResult:
    files, unable, piece = list[NewFile](), list[str](), 0
    for number, of_piece in groupby(packets, key=lambda packet: packet.piece):
        if not unable:
            files += _copied(target, bucket, range(piece, number))
        rows, names = _fold_piece(target, bucket, number, of_piece, is_known_unable=bool(unable))
        unable += names
        if not unable:
            files += _write(target, bucket, number, rows)
        piece = number + 1
    if not unable:
        return FoldResult(bucket, files + _copied(target, bucket, range(piece, target.pieces)), [])
    for file in files:
        (Path(target.table) / file.path).unlink()
    return FoldResult(bucket, [], unable)


def _copied(target: Target, bucket: int, pieces: Iterable[int]) -> list[NewFile]:
    """Pieces without deltas, as they are: the bucket is written whole."""
    return [file for piece in pieces for file in _write(target, bucket, piece, _present(target, bucket, piece))]


def _fold_piece(
    target: Target, bucket: int, piece: int, packets: Iterable[Packet], *, is_known_unable: bool
) -> tuple[pa.Table, list[str]]:
    """The rows of a piece after its deltas, and the names of vectors that cannot go on from their rows.

    Once the bucket has one of these, only others are looked for.
    """
    rows, bases = _present(target, bucket, piece), _bases(target, bucket, piece)
    unable = list[str]()
    for deltas in _complete_hours(packets):
        found = unable_to_go_on(rows, deltas.envelopes, bases)
        unable += name_of(found["namespace"], found["vector_id"]).to_pylist()
        if not unable and not is_known_unable:
            rows = go_on(rows, deltas, bases)
    return rows, unable


def _complete_hours(packets: Iterable[Packet]) -> Iterator[Deltas]:
    """Deltas of whole hours, as many as are kept in memory at once; all of them if any names a parent."""
    has_families, held_bytes, held = False, 0, list[Packet]()
    for hour_us, of_hour in groupby(packets, key=lambda packet: packet.hour_us):
        if hour_us == FAMILIES:
            has_families = True
            continue
        if held and held_bytes > HELD_BYTES and not has_families:
            yield _held(held)
            held_bytes, held = 0, []
        for packet in of_hour:
            held.append(packet)
            held_bytes += packet.bytes
    if held:
        yield InPackets(held, held_bytes) if has_families and held_bytes > HELD_BYTES else _held(held)


def _held(packets: Sequence[Packet]) -> InMemory:
    return InMemory(pa.Table.from_batches(map(unpack, packets), ARRIVED))


class InPackets:
    """Deltas that stay in their packets, which are read again for picked payloads.

    A delta that names a parent may have a place hours after its own time. Most places are near it, so a packet is read
    again once or twice.
    """

    def __init__(self, packets: Sequence[Packet], packed_bytes: int) -> None:
        self._packets = packets
        schema = pa.schema([ARRIVED.field(name) for name in ENVELOPE])
        # A copy of each, so that the rest of a packet can be freed.
        batches = [pa.ipc.read_record_batch(unpack(packet).select(ENVELOPE).serialize(), schema) for packet in packets]
        self._begins = np.cumsum([0, *(batch.num_rows for batch in batches)])
        self.envelopes = pa.Table.from_batches(batches, schema).combine_chunks()
        self.at_once = 1 + HELD_BYTES * self.envelopes.num_rows // packed_bytes

    def pick(self, numbers: Numbers) -> Picked:
        """Some of them, packet by packet."""
        order = np.argsort(numbers, kind="stable")
        wanted = numbers[order]
        bounds = np.searchsorted(wanted, self._begins)
        parts = [ARRIVED.empty_table()]
        for number in np.flatnonzero(np.diff(bounds)).tolist():
            rows = wanted[bounds[number] : bounds[number + 1]] - self._begins[number]
            parts.append(pa.Table.from_batches([unpack(self._packets[number]).take(pa.array(rows))]))
        places = np.empty(len(numbers), np.int64)
        places[order] = np.arange(len(numbers))
        return Picked(pa.concat_tables(parts), wanted, places)


def _present(target: Target, bucket: int, piece: int) -> pa.Table:
    """Rows as they are, less those that are folded anew."""
    rows = _read(target.present.get(bucket, ()), CURRENT, piece, target.pieces)
    if not len(target.anew):
        return rows
    return rows.filter(pc.invert(pc.is_in(name_of(rows["namespace"], rows["vector_id"]), value_set=target.anew)))


def _bases(target: Target, bucket: int, piece: int) -> pa.Table:
    """For each vector with bases, the base that reaches furthest (K5)."""
    rows = _read(target.bases.get(bucket, ()), _BASES, piece, target.pieces, only="is_base")
    rows = rows.sort_by([*((name, "ascending") for name in KEY), ("cut_ts", "descending"), ("deltas", "descending")])
    is_first = np.ones(rows.num_rows, np.bool_)
    is_first[1:] = begins_vector(rows)
    return rows.select(STATES.names).filter(pa.array(is_first))


def _read(files: Sequence[str], schema: pa.Schema, piece: int, pieces: int, only: str | None = None) -> pa.Table:
    """Rows of a piece of a bucket from its files, with a flag set; columns that a file lacks are null."""
    found = [schema.empty_table()]
    for path in files:
        named = _PIECE.match(Path(path).name)
        if named and int(named[2]) >= pieces and int(named[1]) % pieces != piece:
            continue
        with pq.ParquetFile(path, pre_buffer=False) as file:
            there = set(file.schema_arrow.names)
            names = [name for field in schema if (name := _TIMES.get(field.name, field.name)) in there]
            for group in range(file.num_row_groups):
                chosen = None if only is None else file.read_row_group(group, columns=[only])[only].fill_null(False)
                if chosen is not None and not pc.any(chosen).as_py():
                    continue
                rows = _typed(file.read_row_group(group, columns=names, use_threads=False), schema)
                rows = rows if chosen is None else rows.filter(chosen)
                if pieces > 1:
                    keys = (rows[name].combine_chunks() for name in KEY)
                    rows = rows.filter(pa.array(piece_of(checksums_of(*keys), pieces) == piece))
                found.append(rows)
    return pa.concat_tables(found)


def _typed(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    there = set(rows.schema.names)
    columns = []
    for field in schema:
        name = _TIMES.get(field.name, field.name)
        column = rows[name] if name in there else pa.nulls(rows.num_rows, field.type)
        columns.append(column.cast(TIMESTAMP).cast(field.type) if field.name in _TIMES else column.cast(field.type))
    return pa.Table.from_arrays(columns, schema=schema)


def _write(target: Target, bucket: int, piece: int, rows: pa.Table) -> list[NewFile]:
    """Rows as a file of the table, in order; no file without rows."""
    if not rows.num_rows:
        return []
    ordered = in_order(rows)
    columns = [
        ordered[field.name].cast(TIMESTAMP) if field.name in _TIMES else ordered[field.name] for field in CURRENT
    ]
    path = f"{BUCKET}={bucket}/piece-{piece:05d}-of-{target.pieces:05d}-{uuid.uuid4()}.parquet"
    file = Path(target.table) / path
    file.parent.mkdir(exist_ok=True)
    pq.write_table(
        pa.Table.from_arrays(columns, names=[_TIMES.get(name, name) for name in CURRENT.names]),
        file,
        compression="snappy",
        use_dictionary=_REPEATED,
        write_statistics=list(KEY),
        store_schema=False,
    )
    found = {name: pc.min_max(rows[name]).as_py() for name in KEY}
    statistics = statistics_of(rows.num_rows, {name: Bounds(each["min"], each["max"]) for name, each in found.items()})
    return [NewFile(path, bucket, file.stat().st_size, time.time_ns() // 1_000_000, statistics)]
