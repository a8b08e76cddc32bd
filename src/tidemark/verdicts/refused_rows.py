"""Which deltas of a write were refused, and why, as its producer is told (W4).

Belongs here: finding them in a decided group. The verdicts themselves are given in `arrival.py`.
"""

from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.log.log_rows import LogRows
from tidemark.model.deltas import Verdict

# Of one write; a producer whose every delta is wrong learns it from the first ones.
MOST_TOLD = 100


class RefusedRow(NamedTuple):
    """One refused delta."""

    ordinal: int  # its place in the write
    reason: str
    detail: str


def first_refusals(rows: LogRows) -> dict[int, tuple[RefusedRow, ...]]:
    """Epoch → the first refused deltas of that write."""
    refused = pa.array(np.flatnonzero(np.asarray(pc.equal(rows.column("verdict"), str(Verdict.REFUSED)))))
    epochs, ordinals, reasons, details = (
        rows.column(name).take(refused) for name in ("epoch", "ordinal", "reason", "detail")
    )
    numbers = epochs.to_numpy()
    starts = np.flatnonzero(np.diff(numbers, prepend=-1)).tolist()
    found = {}
    for start, end in zip(starts, [*starts[1:], len(numbers)], strict=True):
        size = min(end - start, MOST_TOLD)
        told = (column.slice(start, size).to_pylist() for column in (ordinals, reasons, details))
        found[int(numbers[start])] = tuple(
            RefusedRow(ordinal, reason, detail or "") for ordinal, reason, detail in zip(*told, strict=True)
        )
    return found
