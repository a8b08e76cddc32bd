"""From a producer's writes to columns: writes of rows or of columns in, one Arrow batch out.

Belongs here: which door a write takes, and concatenating the writes of a group. The doors themselves are in
`decode_rows.py` and `column_door.py`.
"""

from collections.abc import Iterator, Sequence
from itertools import chain, groupby

import numpy as np
import pyarrow as pa

from tidemark.door.column_door import to_batch
from tidemark.door.decode_columns import concatenate, decode_columns
from tidemark.door.decode_rows import DELTA_LIMIT, decode_rows, keys_of_rows
from tidemark.door.decoded import FEW_WORDS, DecodedBatch, Sent
from tidemark.door.originals import original_bytes
from tidemark.model.fingerprint import SeriesNames

__all__ = [
    "DELTA_LIMIT",
    "DecodedBatch",
    "Sent",
    "decode",
    "decode_group",
    "keys_of",
    "original_bytes",
    "to_batch",
]


def decode(deltas: Sequence[Sent] | pa.RecordBatch, series: SeriesNames) -> DecodedBatch:
    """Turn deltas into columns, and say which of them are invalid."""
    return decode_columns(deltas, series) if isinstance(deltas, pa.RecordBatch) else decode_rows(deltas, series)


def keys_of(deltas: Sequence[Sent] | pa.RecordBatch, series: SeriesNames) -> tuple[pa.Array, pa.Array]:
    """Namespace and key of each delta exactly as `decode` has them: they say which shard it belongs to (Q3)."""
    if not isinstance(deltas, pa.RecordBatch):
        return keys_of_rows(deltas, series)
    columns = decode_columns(deltas, series).columns
    return columns["namespace"], columns["key"]


def decode_group(writes: Sequence[Sequence[Sent] | pa.RecordBatch], series: SeriesNames) -> DecodedBatch:
    """The same for several writes, in order: neighbours of one form are decoded together."""
    parts = []
    for is_columns, run in groupby(writes, lambda write: isinstance(write, pa.RecordBatch)):
        neighbours = list(run)
        whole = concatenate(neighbours) if is_columns else list(chain.from_iterable(neighbours))
        parts.append(decode(whole, series))
    if len(parts) == 1:
        return parts[0]
    starts = np.cumsum([0, *(part.rows for part in parts)])

    def place_of(row: int) -> int:
        return int(np.searchsorted(starts, row, side="right")) - 1

    def original(row: int) -> Sent:
        place = place_of(row)
        return parts[place].original(row - int(starts[place]))

    def originals(rows: Sequence[int], is_short: bool) -> Iterator[Sent]:
        for place, run in groupby(rows, place_of):
            yield from parts[place].originals([row - int(starts[place]) for row in run], is_short)

    return DecodedBatch(
        {
            name: pa.concat_arrays([part.columns[name] for part in parts])
            for name in parts[0].columns
            if all(name in part.columns for part in parts)
        },
        {
            int(start) + row: why
            for start, part in zip(starts, parts, strict=False)
            for row, why in part.refusals.items()
        },
        original,
        {
            name: frozenset().union(*(part.words[name] for part in parts))
            for name in FEW_WORDS
            if all(name in part.words for part in parts)
        },
        originals,
    )
