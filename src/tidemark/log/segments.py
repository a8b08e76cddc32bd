"""The format of a segment as a Parquet file, and the counts in its manifest entry.

Belongs here: the encoding of log rows, and counting them without a step per row. When a log file becomes a segment,
and in which order that reaches the disk, is in `shard_state/seal.py`.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from io import BufferedIOBase
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.arrays.columns import Mask, Numbers, nulls, numbers_of
from tidemark.log.batch_record import BatchRecord, decode_batches
from tidemark.log.log_rows import FEW_TEXTS, NUMBERING, LogRows, Writes
from tidemark.log.manifest import Entry, HourCounts, SourceHours
from tidemark.log.manifest_files import RESTORE
from tidemark.model.deltas import KINDS, PAYLOADS, Verdict
from tidemark.model.log_schema import LOG_SCHEMA
from tidemark.model.shard_errors import SegmentDamageError
from tidemark.model.timegrid import HOUR_US, hour_key
from tidemark.storage.disk import Disk, RealDisk

# Columns of few values. In the others a dictionary is of no use: ids and hashes hardly repeat.
DICTIONARIES = [
    *("shard", "epoch", "producer", "sequence", "received_ts", "watermark_ts", "verdict", "reason", "detail"),
    *("namespace", "kind", "priority", "source", "origin"),
    *(f"{kind}.{name}" for kind, rule in KINDS.items() for name in rule.few),
]
# Numbers near one another: their differences are stored, in as many bits as these need.
DIFFERENCES = ["ordinal", "event_ts", *(f"{kind}.{name}" for kind, rule in KINDS.items() for name in rule.near)]
# By these a reader can pass over a whole segment, or a part of it; of the others nobody asks for the least and the
# greatest.
STATISTICS = ["epoch", "event_ts", "received_ts"]
# Values that are encoded at once: a few more than the default are faster, and many more fall out of the cache.
_VALUES_AT_ONCE = 16_384
# Rows of a row group, which can be read alone.
_ROWS_TOGETHER = 250_000
# The key in the footer for the records of batches.
BATCHES_KEY = b"tidemark.batches"
# The column that puts a delta into an hour, for each list of hours.
SOURCE_TIMES = {"event": "event_ts", "receipt": "received_ts", "stamp": "watermark_ts"}
# Groups of fewer rows than this are copied together first: every chunk of a column has its price.
_LARGE_GROUP = 2_048


def encode_segment(groups: Sequence[LogRows], batches: bytes = b"") -> memoryview:
    """Encode log rows as a Parquet file. Part by part: a part is encoded while it is still in the cache.

    A payload that no row has is left out: nothing takes as long to encode as a vector that is not there. The records of
    batches go into the footer (`encode_batches`).
    """
    coded = frozenset(
        name for name in (*FEW_TEXTS, "producer") if all(rows.texts_by_run(name) is not None for rows in groups)
    )
    names = [name for name in LOG_SCHEMA.names if name not in PAYLOADS or any(name in rows.columns for rows in groups)]
    tables = (_table(part, names, coded) for part in _parts(groups))
    first = next(tables)
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(
        sink,
        first.schema,
        compression="zstd",
        compression_level=1,
        use_dictionary=_among(DICTIONARIES, names),
        column_encoding=dict.fromkeys(_among(DIFFERENCES, names), "DELTA_BINARY_PACKED"),
        write_statistics=STATISTICS,
        write_batch_size=_VALUES_AT_ONCE,
        # A reader would make dictionaries of the columns that are dictionaries here; without the schema all are plain.
        store_schema=False,
    ) as writer:
        for table in chain([first], tables):
            writer.write_table(table, row_group_size=len(table))
        if batches:
            writer.add_key_value_metadata({BATCHES_KEY: batches})
    return memoryview(sink.getvalue())


def read_batches(directory: Path, entry: Entry, disk: Disk | None = None) -> list[BatchRecord]:
    """The batches that a segment records (C5); reads only the footer of the file."""
    if not entry.batches_sha256:
        return entry.batches  # of an older home, or none
    path = directory / entry.file
    try:
        with (disk or RealDisk()).open(path) as file, pq.ParquetFile(file) as segment:
            records = (segment.metadata.metadata or {}).get(BATCHES_KEY, b"")
    except (FileNotFoundError, pa.ArrowInvalid) as error:
        raise SegmentDamageError(f"Segment {path} is missing or damaged ({error}). {RESTORE}") from error
    if hashlib.sha256(records).hexdigest() != entry.batches_sha256:
        raise SegmentDamageError(f"Segment {path} has other records of batches than when it was sealed. {RESTORE}")
    return decode_batches(records)


def read_segment(file: BinaryIO | BufferedIOBase | Path, columns: Sequence[str] = LOG_SCHEMA.names) -> pa.Table:
    """Columns of a segment in the log's types; a payload that no row has is read as null."""
    with pq.ParquetFile(file) as segment:
        return whole(segment.read(columns=list(columns), use_threads=False), columns)


def whole(table: pa.Table, columns: Sequence[str] = LOG_SCHEMA.names) -> pa.Table:
    """Add the payloads that were left out of a segment to the columns read from it."""
    found = [
        table[name] if name in table.column_names else nulls(len(table), LOG_SCHEMA.field(name).type)
        for name in columns
    ]
    return pa.table(found, names=list(columns)).cast(pa.schema([LOG_SCHEMA.field(name) for name in columns]))


def _among(paths: Sequence[str], names: Sequence[str]) -> list[str]:
    """The paths inside one of these columns."""
    return [path for path in paths if path.partition(".")[0] in names]


def _parts(groups: Sequence[LogRows]) -> Iterator[list[LogRows]]:
    """Groups that become one row group: enough of them to have this many rows, or the rest."""
    part: list[LogRows] = []
    rows = 0
    for group in groups:
        part.append(group)
        rows += group.rows
        if rows >= _ROWS_TOGETHER:
            yield part
            part, rows = [], 0
    if part:
        yield part


def _table(groups: Sequence[LogRows], names: Sequence[str], coded: Collection[str]) -> pa.Table:
    numbering = LogRows(groups[0].shard, _joined([rows.writes for rows in groups]), {}, (), {})
    return pa.table(
        {name: _dictionary(groups, name) if name in coded else _column(groups, numbering, name) for name in names}
    )


def _column(groups: Sequence[LogRows], numbering: LogRows, name: str) -> pa.Array | pa.ChunkedArray:
    kind, total = LOG_SCHEMA.field(name).type, numbering.rows
    if name in NUMBERING or (name == "watermark_ts" and numbering.writes.stamps_us):
        return numbering.column(name)
    arrays = [rows.column(name) for rows in groups]
    if all(column.null_count == len(column) for column in arrays):
        return nulls(total, kind)
    return pa.concat_arrays(arrays) if total < _LARGE_GROUP * len(arrays) else pa.chunked_array(arrays, kind)


def _dictionary(groups: Sequence[LogRows], name: str) -> pa.DictionaryArray:
    """A dictionary of texts with many rows each; Parquet stores it as it is, without a look at every row."""
    runs = [run for rows in groups if (run := rows.texts_by_run(name)) is not None]
    numbers: dict[str, int] = {}
    codes = [numbers.setdefault(text, len(numbers)) for texts, _ in runs for text in texts]
    by_row = np.repeat(np.array(codes, dtype=np.int32), np.concatenate([sizes for _, sizes in runs]))
    return pa.DictionaryArray.from_arrays(pa.array(by_row), pa.array(list(numbers), pa.string()), safe=False)


def _joined(groups: Sequence[Writes]) -> Writes:
    """The writes of several groups, as if they had been flushed together."""
    stamps = [writes.stamps_us for writes in groups if writes.stamps_us is not None]
    return Writes(
        epochs=list(chain(*(writes.epochs for writes in groups))),
        producers=list(chain(*(writes.producers for writes in groups))),
        sequences=list(chain(*(writes.sequences for writes in groups))),
        received_us=list(chain(*(writes.received_us for writes in groups))),
        ordinals=list(chain(*(writes.ordinals for writes in groups))),
        sizes=list(chain(*(writes.sizes for writes in groups))),
        stamps_us=list(chain(*stamps)) if len(stamps) == len(groups) else None,
    )


class Census:
    """The counts over the rows of one segment, in the order of the log."""

    def __init__(self, groups: Sequence[LogRows]) -> None:
        self._groups = [(rows, rows.by_verdict()) for rows in groups]
        self._epochs = np.unique(np.concatenate([rows.writes.epochs for rows in groups]))

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(rows.rows for rows, _ in self._groups)

    @property
    def to_epoch(self) -> int:
        """The epoch after the last one."""
        return int(self._epochs[-1]) + 1

    def gaps(self, from_epoch: int) -> list[tuple[int, int]]:
        """Epochs that were given out and are missing: an epoch not logged before a later one was lost (C7)."""
        edges = np.concatenate(([from_epoch - 1], self._epochs))
        return [(int(edges[at]) + 1, int(edges[at + 1])) for at in np.flatnonzero(np.diff(edges) > 1)]

    def verdicts(self) -> HourCounts:
        """Deltas by verdict."""
        counted: Counter[str] = Counter()
        for rows, chosen in self._groups:
            for verdict, mask in chosen.items():
                counted[verdict] += rows.rows if mask is None else int(np.count_nonzero(mask))
        return HourCounts(**counted)

    def by_hour(self, column: str) -> dict[str, HourCounts]:
        """Verdicts by hour. A refused delta's event time proves nothing, so it is counted under no hour."""
        counted: dict[int | None, Counter[str]] = {}
        for rows, chosen in self._groups:
            for verdict, mask in chosen.items():
                is_usable = column == "received_ts" or verdict != Verdict.REFUSED
                for hour, count in _hours(rows, column, mask, is_usable=is_usable).items():
                    counted.setdefault(hour, Counter())[verdict] += count
        by_key = {"" if hour is None else hour_key(hour * HOUR_US): counts for hour, counts in counted.items()}
        return {key: HourCounts(**by_key[key]) for key in sorted(by_key)}

    def by_source(self) -> dict[str, SourceHours]:
        """The hours of accepted deltas, by namespace and kind."""
        found: dict[str, dict[str, set[str]]] = {}
        for rows, chosen in self._groups:
            if Verdict.ACCEPTED not in chosen:
                continue
            for source, mask in _by_source(rows, chosen[Verdict.ACCEPTED]).items():
                hours = found.setdefault(source, {name: set() for name in SourceHours.__struct_fields__})
                for name, column in SOURCE_TIMES.items():
                    there = (hour for hour in _hours(rows, column, mask, is_usable=True) if hour is not None)
                    hours[name] |= {hour_key(hour * HOUR_US) for hour in there}
        return {
            source: SourceHours(**{name: sorted(keys) for name, keys in found[source].items()})
            for source in sorted(found)
        }

    def sequences(self) -> dict[str, tuple[int, int]]:
        """First and last sequence of each producer."""
        writes = [rows.writes for rows, _ in self._groups]
        heads = pa.table(
            {
                "producer": [producer for found in writes for producer in found.producers],
                "sequence": [sequence for found in writes for sequence in found.sequences],
            }
        )
        grouped = heads.group_by("producer").aggregate([("sequence", "min"), ("sequence", "max")])
        rows: list[dict[str, Any]] = grouped.sort_by("producer").to_pylist()
        return {row["producer"]: (row["sequence_min"], row["sequence_max"]) for row in rows}


def _by_source(rows: LogRows, accepted: Mask | None) -> dict[str, Mask | None]:
    """Each namespace and kind among the accepted rows, with the mask of its rows; None means all rows."""
    found: dict[str, Mask | None] = {"": accepted}
    for name in ("namespace", "kind"):
        if name in rows.shared:
            texts: dict[str, Mask | None] = {rows.shared[name]: None}
        else:
            column = rows.column(name)
            distinct = column.drop_null().unique().to_pylist()
            texts = {text: np.asarray(pc.equal(column, text).fill_null(False)) for text in distinct}
        found = {
            f"{before}/{text}" if before else text: both
            for before, one in found.items()
            for text, other in texts.items()
            if (both := _both(one, other)) is None or both.any()
        }
    return found


def _both(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return other if one is None else one
    return one & other


def _hours(rows: LogRows, column: str, mask: Mask | None, *, is_usable: bool) -> Counter[int | None]:
    """How many of the chosen rows have a time in each hour; under None, how many have no usable time."""
    total = rows.rows if mask is None else int(np.count_nonzero(mask))
    if not is_usable:
        return Counter({None: total})
    by_write = rows.by_write(column)
    if mask is None and by_write is not None:
        return _tally(by_write, np.array(rows.writes.sizes))
    times = rows.column(column)
    found = numbers_of(times)
    if times.null_count:
        is_there = np.asarray(times.is_valid())
        mask = is_there if mask is None else mask & is_there
    if mask is not None:
        found = found[mask]
    counted = _tally(found)
    if len(found) < total:
        counted[None] = total - len(found)
    return counted


def _tally(times: Numbers, weights: Numbers | None = None) -> Counter[int | None]:
    if not len(times):
        return Counter()
    total = len(times) if weights is None else int(weights.sum())
    first, last = (int(time) // HOUR_US for time in (times.min(), times.max()))
    if first == last:
        return Counter({first: total})
    hours, places = np.unique(times // HOUR_US, return_inverse=True)
    counts = np.bincount(places, weights).astype(np.int64)
    return Counter(dict(zip(hours.tolist(), counts.tolist(), strict=True)))
