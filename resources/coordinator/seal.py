"""Sealing: a closed log file becomes a Parquet segment, and the manifest names it.

Belongs here: the way from one log file to one segment, which is the same after a crash as in normal life, and gives
the same segment however often it is begun. Order matters: segment on the disk, manifest on the disk, then the log
file may go.
"""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from resources.coordinator.batch_record import BatchRecord
from resources.coordinator.disk import Disk
from resources.coordinator.log_content import LogContent
from resources.coordinator.manifest import Entry, HourCounts, Manifest
from resources.coordinator.model import Verdict
from resources.coordinator.schema import LOG_SCHEMA
from resources.failpoints import reach
from resources.timegrid import HOUR_US, hour_key


class Sealer:
    """Turns the closed log files of one shard into segments."""

    def __init__(self, disk: Disk, directory: Path, manifest: Manifest) -> None:
        self._disk = disk
        self._directory = directory
        self._manifest = manifest

    def seal(
        self, content: LogContent, watermarks: dict[str, int], batches: list[BatchRecord], sealed_us: int
    ) -> Entry | None:
        """Seal one log file; None if it holds no write that is not sealed already.

        `batches` were closed since the last segment, those that this file tells of included.
        """
        rows = [group.rows for group in content.groups() if group.rows is not None]
        table = pa.Table.from_batches(rows, LOG_SCHEMA)
        if not table.num_rows or pc.max(table["epoch"]).as_py() < self._manifest.to_epoch:
            return None
        to_epoch = pc.max(table["epoch"]).as_py() + 1
        number = len(self._manifest.entries) + 1
        path = self._directory / f"{number:08d}-{self._manifest.to_epoch:012d}-{to_epoch:012d}.parquet"
        size, digest = self._write(table, path)
        entry = Entry(
            shard=content.header.shard,
            number=number,
            file=path.name,
            from_epoch=self._manifest.to_epoch,
            to_epoch=to_epoch,
            lost=_gaps(np.unique(np.asarray(table["epoch"])), self._manifest.to_epoch),
            rows=table.num_rows,
            bytes=size,
            sha256=digest,
            verdicts=_counts(table["verdict"]),
            event_hours=_by_hour(table, "event_ts"),
            receipt_hours=_by_hour(table, "received_ts"),
            stamp_hours={
                key: counts.accepted for key, counts in _by_hour(table, "watermark_ts").items() if counts.accepted
            },
            producers=_sequences(table),
            watermarks=watermarks,
            batches=batches,
            # Day files are read in the order of their names, so their days must not go back when a clock does.
            sealed_us=max([sealed_us, *(entry.sealed_us for entry in self._manifest.entries[-1:])]),
            incarnation=content.header.incarnation,
            previous=self._manifest.head,
        )
        self._manifest.append(entry)
        reach("seal.manifest_appended")
        return entry

    def _write(self, table: pa.Table, path: Path) -> tuple[int, str]:
        sink = pa.BufferOutputStream()
        pq.write_table(table, sink, compression="zstd", write_statistics=True, row_group_size=1_000_000)
        data = memoryview(sink.getvalue())
        fresh = path.with_name(path.name + ".sealing")
        self._disk.replace(fresh, data)
        reach("seal.segment_written")
        self._disk.rename(fresh, path)
        reach("seal.segment_named")
        return len(data), hashlib.sha256(data).hexdigest()


def _gaps(epochs: npt.NDArray[np.int64], from_epoch: int) -> list[tuple[int, int]]:
    """Epochs that were given out and are not there: what is not in the log before a later epoch was lost (C7)."""
    edges = np.concatenate(([from_epoch - 1], epochs))
    return [(int(edges[at]) + 1, int(edges[at + 1])) for at in np.flatnonzero(np.diff(edges) > 1)]


def _counts(verdicts: pa.ChunkedArray) -> HourCounts:
    found = {item["values"]: item["counts"] for item in pc.value_counts(verdicts).to_pylist()}
    return HourCounts(*(found.get(str(verdict), 0) for verdict in Verdict))


def _by_hour(table: pa.Table, column: str) -> dict[str, HourCounts]:
    """Verdicts by hour. A refused delta's event time proves nothing, so those are counted under no hour."""
    micros = table[column].cast(pa.int64())
    usable = micros.is_valid()
    if column != "received_ts":
        usable = pc.and_(usable, pc.not_equal(table["verdict"], str(Verdict.REFUSED)))
    hours = np.asarray(pc.if_else(usable, micros, 0)) // HOUR_US
    grouped = pa.table({"hour": pa.array(hours), "usable": usable, "verdict": table["verdict"]})
    counted = grouped.group_by(["hour", "usable", "verdict"]).aggregate([([], "count_all")]).to_pylist()
    result: dict[str, dict[str, int]] = {}
    for row in counted:
        key = hour_key(row["hour"] * HOUR_US) if row["usable"] else ""
        result.setdefault(key, {})[row["verdict"]] = row["count_all"]
    return {key: HourCounts(*(result[key].get(str(verdict), 0) for verdict in Verdict)) for key in sorted(result)}


def _sequences(table: pa.Table) -> dict[str, tuple[int, int]]:
    grouped = table.group_by("producer").aggregate([("sequence", "min"), ("sequence", "max")])
    rows: list[dict[str, Any]] = grouped.sort_by("producer").to_pylist()
    return {row["producer"]: (row["sequence_min"], row["sequence_max"]) for row in rows}
