"""Rows that were flushed and are in no logged batch: a crash came before the log of their batch (C5).

Belongs here: finding them again at a start, in segments and in log files.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.log.groups import decode_group
from tidemark.log.log_content import LogContent
from tidemark.log.log_rows import LogRows
from tidemark.log.manifest import Entry, Manifest
from tidemark.log.segments import whole
from tidemark.model.log_schema import LOG_SCHEMA

Logs: TypeAlias = list[tuple[Path, LogContent]]


def unbatched(manifest: Manifest, logs: Logs, batched_to: int) -> Iterator[LogRows]:
    """Rows that are in no logged batch: a crash came between their flush and the log of their batch.

    Which files have them is fixed now; they are read on demand, and may be sealed by then.
    """
    entries = list(manifest.since(batched_to))
    return chain(
        _rows_of_segments(manifest, entries, batched_to),
        _rows_of_logs(logs, max(batched_to, manifest.to_epoch)),
    )


def _rows_of_segments(manifest: Manifest, entries: Sequence[Entry], from_epoch: int) -> Iterator[LogRows]:
    for entry in entries:
        with manifest.open_segment(entry) as file:
            parts = pq.ParquetFile(file)
            for number in range(parts.num_row_groups):
                if _last_epoch(parts, number) >= from_epoch:
                    yield from _from(whole(parts.read_row_group(number)), from_epoch)


def _rows_of_logs(logs: Logs, from_epoch: int) -> Iterator[LogRows]:
    for _, content in logs:
        for frame in content.frames:
            if frame.last_epoch >= from_epoch:
                # Copied: a batch may outlive the file.
                rows = decode_group(memoryview(bytes(frame.payload))).rows
                if rows is not None:
                    is_whole = rows.writes.epochs[0] >= from_epoch
                    yield from [rows] if is_whole else _from(pa.table(rows.batch()), from_epoch)


def _from(table: pa.Table, epoch: int) -> Iterator[LogRows]:
    """The rows of this epoch and later ones."""
    table = table.filter(pc.greater_equal(table["epoch"], epoch)).combine_chunks()
    return (LogRows.of(batch) for batch in table.to_batches() if len(batch))


def _last_epoch(parts: pq.ParquetFile, number: int) -> int:
    last: int = parts.metadata.row_group(number).column(LOG_SCHEMA.get_field_index("epoch")).statistics.max
    return last
