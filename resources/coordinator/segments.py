"""What a segment looks like as a Parquet file, and what its manifest entry counts.

Belongs here: the encoding of log rows, and counting them without a step per row. When a log file becomes a segment,
and in which order that reaches the disk, is in `seal.py`.
"""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from resources.coordinator.columns import Numbers
from resources.coordinator.manifest import HourCounts
from resources.coordinator.model import Verdict
from resources.timegrid import HOUR_US, hour_key

# Columns of few values. In the others a dictionary is built in vain: ids and hashes hardly repeat.
DICTIONARIES = [
    *("shard", "epoch", "producer", "sequence", "received_ts", "watermark_ts", "verdict", "reason", "detail"),
    *("namespace", "kind", "priority", "source", "origin", "vector.op", "signal.signal", "signal.count"),
]
# By these a reader can pass over a whole segment; of the others nobody asks for the least and the greatest.
STATISTICS = ["epoch", "event_ts", "received_ts"]
# Values that are encoded at once: a few more than the default are faster, and many more fall out of the cache.
_VALUES_AT_ONCE = 16_384
_VERDICTS = [str(verdict) for verdict in Verdict]


def encode_segment(table: pa.Table) -> memoryview:
    """Log rows as a Parquet file."""
    sink = pa.BufferOutputStream()
    pq.write_table(
        table,
        sink,
        compression="zstd",
        compression_level=1,
        use_dictionary=DICTIONARIES,
        write_statistics=STATISTICS,
        write_batch_size=_VALUES_AT_ONCE,
        row_group_size=1_000_000,
    )
    return memoryview(sink.getvalue())


class Census:
    """The counts over the rows of one segment, in the order of the log."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self._verdicts = np.concatenate([_codes(chunk) for chunk in table["verdict"].chunks])
        epochs = np.asarray(table["epoch"])
        self._heads = np.flatnonzero(np.diff(epochs, prepend=epochs[:1] - 1))  # the first row of each write
        self._epochs = np.unique(epochs[self._heads])

    @property
    def to_epoch(self) -> int:
        """The epoch after the last one."""
        return int(self._epochs[-1]) + 1

    def gaps(self, from_epoch: int) -> list[tuple[int, int]]:
        """Epochs that were given out and are not there: what is not in the log before a later epoch was lost (C7)."""
        edges = np.concatenate(([from_epoch - 1], self._epochs))
        return [(int(edges[at]) + 1, int(edges[at + 1])) for at in np.flatnonzero(np.diff(edges) > 1)]

    def verdicts(self) -> HourCounts:
        """Deltas by verdict."""
        return HourCounts(*np.bincount(self._verdicts, minlength=len(_VERDICTS)).tolist())

    def by_hour(self, column: str) -> dict[str, HourCounts]:
        """Verdicts by hour. A refused delta's event time proves nothing, so those are counted under no hour."""
        micros = self._table[column].cast(pa.int64())
        usable = np.ones(len(micros), dtype=np.bool_) if not micros.null_count else np.asarray(micros.is_valid())
        if column != "received_ts":
            usable = usable & (self._verdicts != _VERDICTS.index(str(Verdict.REFUSED)))
        hours = np.asarray(micros.fill_null(0) if micros.null_count else micros) // HOUR_US
        counted = {hour_key(hour * HOUR_US): counts for hour, counts in self._count(hours, usable).items()}
        unusable = np.bincount(self._verdicts[~usable], minlength=len(_VERDICTS)).tolist()
        if any(unusable):
            counted[""] = HourCounts(*unusable)
        return dict(sorted(counted.items()))

    def _count(self, hours: Numbers, usable: npt.NDArray[np.bool_]) -> dict[int, HourCounts]:
        if not usable.any():
            return {}
        if not usable.all():
            hours = hours[usable]
        width = len(_VERDICTS)
        found, places = (
            (hours[:1], np.zeros(len(hours), dtype=np.int64))
            if hours.min() == hours.max()
            else np.unique(hours, return_inverse=True)
        )
        pairs = places * width + (self._verdicts if len(hours) == len(usable) else self._verdicts[usable])
        counts = np.bincount(pairs, minlength=len(found) * width).reshape(-1, width).tolist()
        return {hour: HourCounts(*row) for hour, row in zip(found.tolist(), counts, strict=True)}

    def sequences(self) -> dict[str, tuple[int, int]]:
        """First and last sequence of each producer."""
        heads = self._table.select(["producer", "sequence"]).take(pa.array(self._heads))
        grouped = heads.group_by("producer").aggregate([("sequence", "min"), ("sequence", "max")])
        rows: list[dict[str, Any]] = grouped.sort_by("producer").to_pylist()
        return {row["producer"]: (row["sequence_min"], row["sequence_max"]) for row in rows}


def _codes(verdicts: pa.Array) -> npt.NDArray[np.int8]:
    """Each verdict as its place in `Verdict`."""
    return np.asarray(pc.index_in(verdicts, pa.array(_VERDICTS))).astype(np.int8)
