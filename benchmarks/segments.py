"""Sealed segments from a table of log rows, without a coordinator.

Belongs here: what benchmarks and tests of the batch plane need to have a log to read: a segment file and its manifest
entry, as the coordinator would leave them. Does not belong here: deciding verdicts; rows come with theirs.
"""

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tidemark.log.manifest import Entry, HourCounts, Manifest
from tidemark.model.deltas import Verdict
from tidemark.model.log_schema import LOG_SCHEMA
from tidemark.model.timegrid import HOUR_US, hour_key

NULL_HOUR = np.iinfo(np.int64).min


def seal(directory: Path, rows: pa.Table, *, sealed_us: int, watermarks: dict[str, int] | None = None) -> Entry:
    """Write `rows` as the shard's next segment and append its entry; rows must be of one shard, in log order."""
    directory.mkdir(parents=True, exist_ok=True)
    manifest = Manifest(directory)
    rows = rows.select(LOG_SCHEMA.names).cast(LOG_SCHEMA)
    first, last = pc.min(rows["epoch"]).as_py(), pc.max(rows["epoch"]).as_py()
    lost = [(manifest.to_epoch, first)] if first > manifest.to_epoch else []
    number = manifest.count + 1
    path = directory / f"{number:08d}-{first:012d}.parquet"
    pq.write_table(rows, path, compression="zstd", row_group_size=128 * 1024)
    verdicts = rows["verdict"]
    entry = Entry(
        shard=rows["shard"][0].as_py(),
        number=number,
        file=path.name,
        from_epoch=manifest.to_epoch,
        to_epoch=last + 1,
        lost=lost,
        rows=len(rows),
        bytes=path.stat().st_size,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        verdicts=HourCounts(
            **{verdict.value: pc.sum(pc.equal(verdicts, verdict.value)).as_py() for verdict in Verdict}
        ),
        event_hours=_by_hour(rows["event_ts"], verdicts),
        receipt_hours=_by_hour(rows["received_ts"], verdicts),
        stamp_hours=_accepted_by_hour(rows["watermark_ts"], verdicts),
        producers=_sequences(rows),
        watermarks=watermarks or {},
        sealed_us=sealed_us,
        incarnation=1,
        previous=manifest.head,
    )
    return manifest.append(entry)


def _hours(times: pa.ChunkedArray) -> np.ndarray:
    """Start of each row's hour in microseconds; `NULL_HOUR` where there is no time."""
    numbers = times.cast(pa.int64())
    hours = pc.fill_null(numbers, 0).to_numpy() // HOUR_US * HOUR_US
    return np.where(numbers.is_null().to_numpy(), NULL_HOUR, hours)


def _key(hour: int) -> str:
    return "" if hour == NULL_HOUR else hour_key(hour)


def _by_hour(times: pa.ChunkedArray, verdicts: pa.ChunkedArray) -> dict[str, HourCounts]:
    hours = _hours(times)
    counts: dict[str, dict[str, int]] = {}
    for verdict in Verdict:
        chosen = hours[pc.equal(verdicts, verdict.value).to_numpy()]
        for hour, count in zip(*np.unique(chosen, return_counts=True), strict=True):
            counts.setdefault(_key(int(hour)), {})[verdict.value] = int(count)
    return {key: HourCounts(**found) for key, found in sorted(counts.items())}


def _accepted_by_hour(times: pa.ChunkedArray, verdicts: pa.ChunkedArray) -> dict[str, int]:
    hours = _hours(times)[pc.equal(verdicts, Verdict.ACCEPTED.value).to_numpy()]
    return {_key(int(hour)): int(count) for hour, count in zip(*np.unique(hours, return_counts=True), strict=True)}


def _sequences(rows: pa.Table) -> dict[str, tuple[int, int]]:
    grouped = rows.group_by("producer").aggregate([("sequence", "min"), ("sequence", "max")])
    return {row["producer"]: (row["sequence_min"], row["sequence_max"]) for row in grouped.to_pylist()}
