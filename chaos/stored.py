"""The segments of a shard, as plain rows: the side of the truth that no client can dispute.

Belongs here: reading segments through the manifest, each of them once. What must be in them is in `checker.py`.
"""

from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.log.batch_record import BatchRecord
from tidemark.log.manifest import Entry, Manifest
from tidemark.log.segments import read_batches
from tidemark.storage.disk import Disk

_COLUMNS = (
    "epoch",
    "ordinal",
    "producer",
    "sequence",
    "received_ts",
    "watermark_ts",
    "namespace",
    "kind",
    "delta_id",
    "event_ts",
    "verdict",
    "reason",
    "raw",
)
# The other fields of payloads are many, and do not matter here.
_NUMBERS = (("signal", "count"), ("sample", "value"), ("vector", "amount"))
_READ = [*_COLUMNS, *(f"{kind}.{field}" for kind, field in _NUMBERS)]


class Row(NamedTuple):
    """One delta in a segment."""

    epoch: int
    ordinal: int
    producer: str
    sequence: int
    received_us: int
    stamp_us: int | None
    namespace: str | None
    kind: str | None
    delta_id: str | None
    event_us: int | None
    verdict: str
    reason: str | None
    raw: bytes | None
    number: int | None  # that of `Made.number`


class Stored:
    """All segments that the manifest names."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: list[tuple[str, list[Row], list[BatchRecord]]] = []  # of each segment: checksum, rows, batches
        self.entries: list[Entry] = []

    def look(self, disk: Disk) -> None:
        """Bring this up to date; segments that were read before are not read again."""
        manifest = Manifest(self._directory, disk)
        self.entries = list(manifest.all())
        same = 0
        for (checksum, _, _), entry in zip(self._known, self.entries, strict=False):
            if checksum != entry.sha256:
                break
            same += 1
        del self._known[same:]
        for entry in self.entries[same:]:
            with manifest.open_segment(entry) as file:
                table = pq.ParquetFile(file).read(columns=_READ, use_threads=False)
            batches = read_batches(self._directory, entry, disk)
            self._known.append((entry.sha256, rows_of(table), batches))

    def rows(self) -> list[Row]:
        """All rows, in the order of the segments."""
        return [row for _, rows, _ in self._known for row in rows]

    def batches(self) -> list[list[BatchRecord]]:
        """The batches that each segment records."""
        return [batches for _, _, batches in self._known]

    def parts(self) -> list[tuple[Entry, list[Row]]]:
        """Each segment's entry and rows."""
        return [(entry, rows) for entry, (_, rows, _) in zip(self.entries, self._known, strict=True)]


def rows_of(table: pa.Table) -> list[Row]:
    """A table in the log's schema as rows."""
    columns = [(table[name].cast(pa.int64()) if name.endswith("_ts") else table[name]).to_pylist() for name in _COLUMNS]
    payloads = zip(*(_numbers(table, kind, field) for kind, field in _NUMBERS), strict=True)
    numbers = [next((int(number) for number in found if number is not None), None) for found in payloads]
    return [Row(*values) for values in zip(*columns, numbers, strict=True)]


def _numbers(table: pa.Table, kind: str, field: str) -> list[float | None]:
    if kind not in table.column_names:  # a payload that no row of a segment has
        return [None] * len(table)
    values: list[float | None] = [
        number for chunk in table[kind].chunks for number in pc.struct_field(chunk, field).to_pylist()
    ]
    return values
