"""The rows of a group as the log stores them: a value shared by a write, or by all rows, is stored once.

Belongs here: splitting a group in the log's schema into its writes, the texts that are the same on every row and the
columns that differ from row to row, and putting it together again. Three columns in four need not be stored: a row
without them takes a third of the space, and sealing or replaying it needs no step per row. How that becomes bytes is in
`groups.py`.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from tidemark.arrays.columns import Mask, Numbers, constant, constant_of, nulls, numbers_of, repeated
from tidemark.model.log_schema import LOG_SCHEMA

# Columns that say which write a row belongs to, and its place there.
NUMBERING = ("shard", "epoch", "ordinal", "producer", "sequence", "received_ts")
# Texts with few values in the log, and one value in most groups.
FEW_TEXTS = ("verdict", "namespace", "kind", "priority", "source", "origin")
# Columns that are often not only equal to another column but share its memory: an origin that was not stated, the key
# of signals. The second is a field of a payload.
ORIGIN_OF, KEY_OF = "producer", ("signal", "entity_id")


class Writes(Struct, frozen=True):
    """The writes of a group in order, a list for each property. The rows of one are numbered without a gap."""

    epochs: list[int]
    producers: list[str]
    sequences: list[int]
    received_us: list[int]
    ordinals: list[int]  # of their first rows
    sizes: list[int]
    stamps_us: list[int] | None  # watermarks; None if a row has none, or a different one than its write's first row
    digests: list[int] | None = None  # they identify retries (Q2); stored in the log and not in segments


class LogRows(NamedTuple):
    """One group. A schema column that is in none of these is null on every row."""

    shard: int
    writes: Writes
    shared: Mapping[str, str]  # column → the text of every row
    copies: tuple[str, ...]  # "origin" and "key", where they share memory as described above
    columns: Mapping[str, pa.Array]  # the columns that differ from row to row

    @property
    def rows(self) -> int:
        """Number of rows."""
        return sum(self.writes.sizes)

    @property
    def nbytes(self) -> int:
        """Bytes that they take in the log's schema, in which readers get them."""
        columns = sum(int(column.get_total_buffer_size()) for column in self.columns.values())
        texts = sum(4 + len(text) for text in self.shared.values())
        producers = sum(len(name) * size for name, size in zip(self.writes.producers, self.writes.sizes, strict=True))
        return columns + producers + self.rows * (texts + _NUMBERING_BYTES)

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> "LogRows":
        """Build it from a group in the log's schema, of at least one row."""
        columns = dict(zip(LOG_SCHEMA.names, batch.columns, strict=True))
        texts = {name: constant_of(columns[name]) for name in FEW_TEXTS}
        shared = {name: text for name, text in texts.items() if text is not None}
        return cls.made(batch["shard"][0].as_py(), _writes_of(columns), shared, columns)

    @classmethod
    def made(cls, shard: int, writes: Writes, shared: Mapping[str, str], columns: Mapping[str, pa.Array]) -> "LogRows":
        """Build it from known parts. Those of `columns` that the rest implies are left out."""
        copies = tuple(name for name, is_copy in _COPIES.items() if is_copy(columns))
        said = {*NUMBERING, *shared, *copies, *(["watermark_ts"] if writes.stamps_us else [])}
        varying = {
            name: columns[name]
            for name in LOG_SCHEMA.names
            if name not in said and columns[name].null_count < len(columns[name])
        }
        return cls(shard, writes, {name: shared[name] for name in shared if name not in copies}, copies, varying)

    def batch(self) -> pa.RecordBatch:
        """The rows in the log's schema."""
        return pa.RecordBatch.from_arrays([self.column(name) for name in LOG_SCHEMA.names], schema=LOG_SCHEMA)

    def column(self, name: str) -> pa.Array:
        """One column in the log's schema."""
        if name in self.columns:
            return self.columns[name]
        if name in self.shared:
            return constant(self.shared[name], self.rows)
        if name in self.copies:
            payload, field = KEY_OF
            return self.columns[payload].field(field) if name == "key" else self.column(ORIGIN_OF)
        if name in _BY_WRITE:
            return self._spread(name)
        return nulls(self.rows, LOG_SCHEMA.field(name).type)

    def by_verdict(self) -> dict[str, Mask | None]:
        """Each verdict that occurs, with the mask of its rows; None means all rows."""
        if "verdict" in self.shared:
            return {self.shared["verdict"]: None}
        verdicts = self.columns["verdict"]
        return {found: np.asarray(pc.equal(verdicts, found)) for found in verdicts.unique().to_pylist()}

    def texts_by_run(self, name: str) -> tuple[list[str], Numbers] | None:
        """The texts with their row counts, if a text is the same within a write, or on all rows; otherwise None."""
        if name in self.shared:
            return [self.shared[name]], np.array([self.rows])
        if name == ORIGIN_OF or (name == "origin" and name in self.copies):
            return self.writes.producers, np.array(self.writes.sizes)
        return None

    def _spread(self, name: str) -> pa.Array:
        writes, sizes = self.writes, np.array(self.writes.sizes)
        if name == "producer":
            return repeated(writes.producers, sizes)
        if name == "shard":
            return pa.array(np.full(self.rows, self.shard, dtype=np.int32))
        if name == "ordinal":
            firsts = np.array(writes.ordinals, dtype=np.int32) - (np.cumsum(sizes) - sizes).astype(np.int32)
            return pa.array(np.arange(self.rows, dtype=np.int32) + np.repeat(firsts, sizes))
        values = self.by_write(name)
        if values is None:
            return nulls(self.rows, LOG_SCHEMA.field(name).type)
        return pa.array(np.repeat(values, sizes)).view(LOG_SCHEMA.field(name).type)

    def by_write(self, name: str) -> Numbers | None:
        """The number (or the time, in microseconds) that all rows of a write share; None where they may differ."""
        found = {
            "epoch": self.writes.epochs,
            "sequence": self.writes.sequences,
            "received_ts": self.writes.received_us,
            "watermark_ts": self.writes.stamps_us,
        }.get(name)
        return None if found is None else np.array(found)


_BY_WRITE = frozenset((*NUMBERING, "watermark_ts"))
# Of a row, with its watermark: 64 bits each, but for the shard, the place in its write and the offset of a text.
_NUMBERING_BYTES = 4 + 8 + 4 + 4 + 8 + 8 + 8


def _writes_of(columns: Mapping[str, pa.Array]) -> Writes:
    epochs = numbers_of(columns["epoch"])
    starts = np.concatenate(([0], (epochs[1:] != epochs[:-1]).nonzero()[0] + 1))
    sizes = np.diff(starts, append=len(epochs))
    chosen = pa.array(starts)
    stamps = columns["watermark_ts"]
    stamps_us = None if stamps.null_count else numbers_of(stamps)
    if stamps_us is not None and len(starts) < len(epochs):
        is_stamp_of_write = np.array_equal(np.repeat(stamps_us[starts], sizes), stamps_us)
        stamps_us = stamps_us if is_stamp_of_write else None
    return Writes(
        epochs=epochs[starts].tolist(),
        producers=columns["producer"].take(chosen).to_pylist(),
        sequences=numbers_of(columns["sequence"])[starts].tolist(),
        received_us=numbers_of(columns["received_ts"])[starts].tolist(),
        ordinals=columns["ordinal"].take(chosen).to_pylist(),
        sizes=sizes.tolist(),
        stamps_us=None if stamps_us is None else stamps_us[starts].tolist(),
    )


def _lies_in(column: pa.Array) -> tuple[int, ...]:
    """The memory of a column: columns with the same memory are equal."""
    return (len(column), column.offset, *(buffer.address if buffer else 0 for buffer in column.buffers()))


def _is_key_of_signals(columns: Mapping[str, pa.Array]) -> bool:
    payload, field = KEY_OF
    signals = columns[payload]
    return not signals.null_count and _lies_in(columns["key"]) == _lies_in(signals.field(field))


_COPIES = {
    "origin": lambda columns: _lies_in(columns["origin"]) == _lies_in(columns[ORIGIN_OF]),
    "key": _is_key_of_signals,
}
