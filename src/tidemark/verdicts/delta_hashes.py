"""The two hashes of a delta: of its identity, to find duplicates, and of its payload, to tell them from other deltas.

Belongs here: what goes into them, and when they are computed. A large write in columns is hashed on its producer's
thread, because all producers wait for the writer's thread; small writes are hashed together, with their group, because
every call has a cost.
"""

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from tidemark.arrays.columns import Bytes, Mask, Numbers, bytes_of, constant_of, numbers_of
from tidemark.arrays.compiled import compiled
from tidemark.arrays.hashing import Hashes, Offsets, chain, hash_of_texts, hash_rows, hash_text, mix
from tidemark.door.decode_columns import MANY_ROWS, key_column
from tidemark.model.deltas import OTHERS, SERIES_LABELS, Kind
from tidemark.model.log_schema import HASHES, SIGNAL
from tidemark.verdicts.identities import IDENTITY_COLUMNS

# Content hashes are made of all payloads. A signal's goes in last: the part before it is the same for all signals.


def with_hashes(batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch from `to_batch`; if it is large, with the hashes of its rows. Series have no name yet, and so no hash."""
    rows = len(batch)
    if rows < MANY_ROWS or any(batch[payload].null_count < rows for payload in SERIES_LABELS):
        return batch
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    columns["key"] = key_column(columns)
    hashes = _hashes(columns, constant_of(columns["namespace"])).values()
    return pa.RecordBatch.from_arrays([*batch.columns, *hashes], names=[*batch.schema.names, *HASHES])


def delta_hashes(columns: Mapping[str, pa.Array], namespace: str | None) -> dict[str, pa.Array]:
    """Both hashes of every row, from the batch if it has them; `namespace` is that of all rows."""
    is_brought = all(name in columns for name in HASHES)
    return {name: columns[name] for name in HASHES} if is_brought else _hashes(columns, namespace)


def of_passed(hashes: dict[str, pa.Array], passed: Mask) -> dict[str, pa.Array]:
    """The hashes of deltas that passed; null for others."""
    if passed.all():
        return hashes
    return {name: pa.array(numbers_of(column), mask=~passed) for name, column in hashes.items()}


def _hashes(columns: Mapping[str, pa.Array], namespace: str | None) -> dict[str, pa.Array]:
    rows = len(columns["key"])
    if namespace is not None and _are_signals(columns):
        hashes = _signal_hashes(columns, namespace, rows)
    else:
        known = columns if namespace is None else {**columns, "namespace": namespace}
        identity = [known[name] for name in IDENTITY_COLUMNS]
        hashes = hash_rows(identity, rows), hash_rows([columns[payload] for payload in (*OTHERS, Kind.SIGNAL)], rows)
    return {name: pa.array(hashed.view(np.int64)) for name, hashed in zip(HASHES, hashes, strict=True)}


def _are_signals(columns: Mapping[str, pa.Array]) -> bool:
    """Whether every row is a whole signal, as nearly always."""
    signals, rows = columns["signal"], len(columns["key"])
    is_whole = not (signals.null_count or columns["event_ts"].null_count or columns["delta_id"].null_count)
    is_alone = all(columns[payload].null_count == rows for payload in OTHERS)
    return is_whole and is_alone and not any(signals.field(place).null_count for place in range(len(SIGNAL)))


def _signal_hashes(columns: Mapping[str, pa.Array], namespace: str, rows: int) -> tuple[Hashes, Hashes]:
    """The same as `hash_rows`, in one loop: the hash of an entity goes into both."""
    identities, contents = np.empty(rows, dtype=np.uint64), np.empty(rows, dtype=np.uint64)
    signals = columns["signal"]
    _hash_signals(
        identities,
        contents,
        hash_of_texts((namespace,)),
        hash_of_texts((None,) * len(OTHERS)),
        *bytes_of(columns["key"]),
        *bytes_of(columns["delta_id"]),
        *bytes_of(signals.field("signal")),
        numbers_of(columns["event_ts"]),
        numbers_of(signals.field("count")),
        numbers_of(signals.field("weight_millionths")),
    )
    return identities, contents


@compiled
def _hash_signals(
    identities: Hashes,
    contents: Hashes,
    identity: np.uint64,
    content: np.uint64,
    keys: Offsets,
    key_data: Bytes,
    ids: Offsets,
    id_data: Bytes,
    names: Offsets,
    name_data: Bytes,
    events: Numbers,
    counts: Numbers,
    weights: Numbers,
) -> None:
    """`identity` and `content` are the hashes of what stands before these columns on every row."""
    for row in range(len(identities)):
        key = hash_text(key_data, keys[row] - keys[0], keys[row + 1] - keys[0])
        state = chain(chain(identity, key), mix(np.uint64(events[row])))
        identities[row] = chain(state, hash_text(id_data, ids[row] - ids[0], ids[row + 1] - ids[0]))
        name = hash_text(name_data, names[row] - names[0], names[row + 1] - names[0])
        payload = chain(chain(np.uint64(0), key), name)
        payload = chain(chain(payload, mix(np.uint64(counts[row]))), mix(np.uint64(weights[row])))
        contents[row] = chain(content, payload)
