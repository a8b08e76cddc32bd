"""Signals on their way into the counters: from columns of texts to rows, and from the log's rows to signals.

Belongs here: choosing the accepted signals among the rows of a batch, a segment or a frame, and resolving their names.
How they are counted is in `state.py`.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.counts.warm.buckets import Numbers, Rows, minutes_of
from tidemark.counts.warm.names import Names
from tidemark.counts.warm.state import State
from tidemark.model.deltas import Kind, Verdict

# The columns that are read of a segment.
LOG_COLUMNS = ["verdict", "kind", "namespace", "epoch", "event_ts", "signal"]


class Arrivals(NamedTuple):
    """Accepted signals of one shard; a column each."""

    namespaces: pa.Array
    signals: pa.Array
    entities: pa.Array
    times_us: Numbers
    counts: Numbers
    epochs: Numbers

    def __bool__(self) -> bool:
        return len(self.epochs) > 0


def accepted_signals(column: Callable[[str], pa.Array], after: int, upto: int) -> Arrivals:
    """The accepted signals of the log's rows, of epochs above `after` and not above `upto`."""
    epochs = np.asarray(column("epoch"), dtype=np.int64)
    is_signal = pc.and_(
        pc.equal(column("verdict"), Verdict.ACCEPTED.value), pc.equal(column("kind"), Kind.SIGNAL.value)
    )
    chosen = np.asarray(is_signal.fill_null(False)) & (epochs > after) & (epochs <= upto)
    payload: pa.StructArray = column("signal").filter(pa.array(chosen))
    entity, signal, count, _ = payload.flatten()
    return Arrivals(
        column("namespace").filter(pa.array(chosen)),
        signal,
        entity,
        np.asarray(column("event_ts").filter(pa.array(chosen)).cast(pa.int64())),
        np.asarray(count),
        epochs[chosen],
    )


def of_table(table: pa.Table | pa.RecordBatch) -> Callable[[str], pa.Array]:
    """Columns of a table, each in one piece."""

    def column(name: str) -> pa.Array:
        found = table[name]
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found

    return column


def rows_of(names: Names, namespaces: pa.Array, signals: pa.Array, entities: pa.Array) -> Rows:
    """The row of each (namespace, signal, entity); new ones get new rows."""
    rows = np.empty(len(entities), np.int64)
    for namespace, signal, chosen in _pairs(namespaces, signals):
        group = names.open(namespace, signal)
        if chosen is None:
            return names.take(group, entities)
        rows[chosen] = names.take(group, entities.filter(pa.array(chosen)))
    return rows


def count_arrivals(state: State, rows: Rows, arrivals: Arrivals, shard: int, last_epoch: int) -> None:
    """Count signals whose rows are known, and note that everything up to an epoch is counted."""
    if arrivals:
        state.count(rows, minutes_of(arrivals.times_us), arrivals.counts, shard, arrivals.epochs)
    state.applied[shard] = max(state.applied.get(shard, 0), last_epoch)


def _pairs(namespaces: pa.Array, signals: pa.Array) -> Iterator[tuple[str, str, npt.NDArray[Any] | None]]:
    """Each namespace with each of its signals, and the mask of their rows; None means all rows."""
    if not len(namespaces):
        return
    spaces, kinds = namespaces.dictionary_encode(), signals.dictionary_encode()
    codes = np.asarray(spaces.indices, np.int64) * len(kinds.dictionary) + np.asarray(kinds.indices, np.int64)
    found = np.unique(codes)
    for code in found.tolist():
        space, kind = divmod(code, len(kinds.dictionary))
        names = spaces.dictionary[space].as_py(), kinds.dictionary[kind].as_py()
        yield (*names, None if len(found) == 1 else codes == code)
