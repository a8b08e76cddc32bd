"""What is told of single deltas: which of a write were refused, and why; which were duplicates (W4).

Belongs here: finding and counting them in a decided group. The verdicts themselves are given in `arrival.py`.
"""

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.log.log_rows import LogRows
from tidemark.model.deltas import Verdict

# Of one write, each: a producer whose every delta is wrong learns it from the first ones.
MOST_TOLD = 100


class RefusedRow(NamedTuple):
    """One refused delta."""

    ordinal: int  # its place in the write
    reason: str
    detail: str


class ToldRows(NamedTuple):
    """The first deltas of a write that were not accepted."""

    refused: tuple[RefusedRow, ...] = ()
    duplicates: tuple[int, ...] = ()  # their places in the write


NOTHING_TOLD = ToldRows()


def told_rows(rows: LogRows) -> dict[int, ToldRows]:
    """Epoch → what its producer is told; only of writes that were not accepted whole."""
    refused = _first_of(rows, Verdict.REFUSED, ("ordinal", "reason", "detail"))
    duplicates = _first_of(rows, Verdict.DUPLICATE, ("ordinal",))
    return {
        epoch: ToldRows(
            tuple(RefusedRow(ordinal, reason, detail or "") for ordinal, reason, detail in refused.get(epoch, ())),
            tuple(ordinal for (ordinal,) in duplicates.get(epoch, ())),
        )
        for epoch in refused.keys() | duplicates.keys()
    }


def refused_reasons(rows: LogRows) -> dict[str, int]:
    """Why deltas of a group were refused, and how many for each reason."""
    counted = pc.value_counts(rows.column("reason").drop_null())
    return dict(zip(counted.field("values").to_pylist(), counted.field("counts").to_pylist(), strict=True))


def _first_of(rows: LogRows, verdict: Verdict, names: tuple[str, ...]) -> dict[int, list[tuple[Any, ...]]]:
    """Epoch → these columns of its first rows with a verdict."""
    chosen = pa.array(np.flatnonzero(np.asarray(pc.equal(rows.column("verdict"), str(verdict)))))
    if not len(chosen):
        return {}
    epochs = rows.column("epoch").take(chosen).to_numpy()
    columns = [rows.column(name).take(chosen) for name in names]
    starts = np.flatnonzero(np.diff(epochs, prepend=-1)).tolist()
    return {
        int(epochs[start]): list(
            zip(*(column.slice(start, min(end - start, MOST_TOLD)).to_pylist() for column in columns), strict=True)
        )
        for start, end in zip(starts, [*starts[1:], len(epochs)], strict=True)
    }
