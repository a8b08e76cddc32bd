"""The accepted deltas of a group, by write and stream: they move watermarks, and get the stamps.

Belongs here: splitting a group for `verdicts/arrival.py`, without a step per row. When a watermark moves is in
`watermarks.py`.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa

from tidemark.arrays.columns import Mask, Numbers, Words, numbers_of
from tidemark.model.event_time_rules import Stream

# Less than any time.
NO_TIME = int(np.iinfo(np.int64).min)


# The accepted deltas of one write in one stream, at least one: the part's number, the write's place in the group, the
# stream, how many deltas, and the latest event time in microseconds.
Part = tuple[int, int, Stream, int, int]


class Parts:
    """A group split into parts. `sizes` are the rows of each write, none of which is empty."""

    def __init__(self, columns: Mapping[str, pa.Array], words: Words, sizes: Numbers, accepted: Mask) -> None:
        self._columns, self._sizes, self._accepted = columns, sizes, accepted
        self._starts = np.cumsum(sizes) - sizes
        self._streams, codes = _streams(columns, words)
        width = len(self._streams)
        self._of_row: Numbers | None = None  # the part of each row; None while there is only one stream
        if codes is not None:
            self._of_row = np.repeat(np.arange(len(sizes)) * width, sizes) + codes
        self.number_of_parts = len(sizes) * width

    @property
    def has_one_stream(self) -> bool:
        """Whether all rows are in the same stream: then a write is one part."""
        return self._of_row is None

    def __iter__(self) -> Iterator[Part]:
        """Parts in the order of the writes: plain tuples, because there may be one for every delta."""
        counts, latest = self._counts().tolist(), self.greatest(numbers_of(self._columns["event_ts"])).tolist()
        width = len(self._streams)
        for number, count in enumerate(counts):
            if count:
                yield number, number // width, self._streams[number % width], count, latest[number]

    def greatest(self, values: Numbers) -> Numbers:
        """For each part, the greatest value over its accepted deltas; `NO_TIME` where it has none."""
        if self._of_row is None:
            usable = values if self._accepted.all() else np.where(self._accepted, values, NO_TIME)
            return np.maximum.reduceat(usable, self._starts)
        result = np.full(self.number_of_parts, NO_TIME)
        np.maximum.at(result, self._of_row[self._accepted], values[self._accepted])
        return result

    def spread(self, values: Numbers) -> Numbers:
        """Give each part's value to all of its rows."""
        return np.repeat(values, self._sizes) if self._of_row is None else values[self._of_row]

    def _counts(self) -> Numbers:
        if self._of_row is None:
            return np.add.reduceat(self._accepted, self._starts, dtype=np.int64)
        return np.bincount(self._of_row[self._accepted], minlength=self.number_of_parts)


def _streams(columns: Mapping[str, pa.Array], words: Words) -> tuple[list[Stream], Numbers | None]:
    """The streams that may occur, and each row's number among them; no numbers if there is only one."""
    if all(len(words.get(name, ())) == 1 for name in ("namespace", "kind")):
        (namespace,), (kind,) = words["namespace"], words["kind"]
        return [(namespace, kind)], None
    by_name, by_kind = columns["namespace"].dictionary_encode(), columns["kind"].dictionary_encode()
    # A row without one of them was refused, and is in no stream: any number will do.
    namespaces, kinds = by_name.dictionary.to_pylist() or [""], by_kind.dictionary.to_pylist() or [""]
    codes = np.asarray(by_name.indices.fill_null(0)).astype(np.int64) * len(kinds)
    codes += np.asarray(by_kind.indices.fill_null(0))
    return [(name, kind) for name in namespaces for kind in kinds], codes
