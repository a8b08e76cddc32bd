"""Errors in the payload of a delta by itself (D4, D6, D7), for each kind.

Belongs here: one list of conditions for each kind of delta, in the order in which they are reported, and the table of
these lists. The operands of operations on vectors are declared in `tidemark/model/operations.py`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.arrays.columns import NO_ROWS, Numbers, Rows, Words, missing, numbers_of
from tidemark.door.decoded import SIGNAL_NAMES, Finding
from tidemark.model.deltas import Kind, Reason
from tidemark.model.operations import OPERANDS, RULES, Operation
from tidemark.model.settings import Settings
from tidemark.verdicts.conditions import ID_LIMIT, Mask, is_bad_id, is_empty, listed, no_names, one_of

# Sums of these stay within 64 bits for eight million deltas of the largest size in one bucket.
COUNT_LIMIT = 10**12
LABELS_LIMIT = 64
MAP_LIMIT = 256
DIMENSION_LIMIT = 65_536

# By how their values are checked.
_WHOLE = [operation for operation, rule in RULES.items() if rule.is_whole]
_PARTIAL = [operation for operation, rule in RULES.items() if rule.is_partial]


class Beside(NamedTuple):
    """The inputs of a payload's checks, besides the payload."""

    envelope: Mapping[str, pa.Array]  # namespaces and ids of the same rows
    settings: Settings
    words: Words  # all texts of some columns of the batch that have few


def _signal(signals: pa.StructArray, beside: Beside) -> list[Finding]:
    count, weight = signals.field("count"), signals.field("weight_millionths")
    return [
        Finding(
            no_names(signals.field("signal"), beside.words.get(SIGNAL_NAMES)),
            Reason.BAD_NAME,
            "signal.signal must be a plain name such as view.",
        ),
        Finding(
            np.union1d(missing(count), missing(weight)) if count.null_count or weight.null_count else NO_ROWS,
            Reason.MISSING_FIELD,
            "signal.count or its weight is missing.",
        ),
        Finding(_too_large(count), Reason.OUT_OF_RANGE, f"signal.count is beyond {COUNT_LIMIT:,} either way."),
        Finding(
            _too_large(weight),
            Reason.OUT_OF_RANGE,
            f"signal.weight is beyond {COUNT_LIMIT // 10**6:,} either way.",
        ),
    ]


def _sample(samples: pa.StructArray, _: Beside) -> list[Finding]:
    labels = samples.field("labels")
    sizes = np.asarray(_map_sizes(labels))
    value = samples.field("value")
    return [
        _found(sizes < 1, Reason.NO_LABELS, "sample.labels is empty: a series is known by its labels."),
        _found(sizes > LABELS_LIMIT, Reason.TOO_LARGE, f"sample.labels has more than {LABELS_LIMIT} entries."),
        _found(
            _any_in_row(labels, _bad_entries(labels)),
            Reason.BAD_ID,
            "A label has an empty name, control characters or is too long.",
        ),
        _found(np.asarray(value.is_null()), Reason.MISSING_FIELD, "sample.value is missing."),
        _found(
            ~np.isfinite(np.asarray(value.fill_null(0.0))), Reason.NOT_FINITE, "sample.value is not a finite number."
        ),
    ]


def _vector(vectors: pa.StructArray, beside: Beside) -> list[Finding]:
    dimensions, ids = _dimensions(beside.envelope["namespace"], beside.settings), beside.envelope["delta_id"]
    op, values, indices = (vectors.field(name) for name in ("op", "values", "indices"))
    lengths, index_counts = _list_sizes(values), _list_sizes(indices)
    is_whole = one_of(op, _WHOLE)
    is_partial = one_of(op, _PARTIAL)
    bound = np.where(dimensions > 0, dimensions, DIMENSION_LIMIT)
    flat = np.asarray(_flat(indices).fill_null(-1))
    row_bound = np.repeat(bound, np.maximum(index_counts, 0))
    parent = vectors.field("parent_id")
    return [
        _found(
            ~one_of(op, list(Operation)), Reason.UNKNOWN_OPERATION, f"vector.op must be {listed(tuple(Operation))}."
        ),
        *(_found(wrong, Reason.PAYLOAD_MISMATCH, detail) for wrong, detail in _mismatches(vectors, op)),
        _found(
            _has_non_finite(vectors, values),
            Reason.NOT_FINITE,
            "A number in the vector delta is not finite (as 32-bit float).",
        ),
        _found(
            is_whole & (dimensions > 0) & (lengths != dimensions),
            Reason.WRONG_DIMENSION,
            "vector.values has not the namespace's declared length.",
        ),
        _found(
            is_whole & ((lengths < 1) | (lengths > DIMENSION_LIMIT)),
            Reason.WRONG_DIMENSION,
            f"vector.values must have 1 to {DIMENSION_LIMIT:,} numbers.",
        ),
        _found(
            is_partial & (lengths != index_counts),
            Reason.WRONG_DIMENSION,
            "vector.values and vector.indices differ in length.",
        ),
        _found(is_partial & (index_counts < 1), Reason.WRONG_DIMENSION, "vector.indices is empty."),
        _found(
            _any_in_row(indices, (flat < 0) | (flat >= row_bound)),
            Reason.INDEX_OUT_OF_RANGE,
            "vector.indices has one outside the vector.",
        ),
        _found(
            _has_repeats(indices, flat, index_counts), Reason.REPEATED_INDEX, "vector.indices names a dimension twice."
        ),
        _found(is_empty(parent) & np.asarray(parent.is_valid()), Reason.EMPTY_ID, "vector.parent_id is empty."),
        _found(
            is_bad_id(parent), Reason.BAD_ID, f"vector.parent_id has control characters or more than {ID_LIMIT} bytes."
        ),
        _found(
            np.asarray(pc.fill_null(pc.equal(parent, ids), False)),
            Reason.SELF_PARENT,
            "The delta names itself as its parent.",
        ),
        *(
            _found(
                _map_sizes(vectors.field(name)) > MAP_LIMIT,
                Reason.TOO_LARGE,
                f"vector.{name} has more than {MAP_LIMIT} entries.",
            )
            for name in ("clock", "metadata")
        ),
    ]


def _mismatches(vectors: pa.StructArray, op: pa.Array) -> list[tuple[Mask, str]]:
    """An operation that lacks an operand, or has one that it does not use."""
    found = []
    for operation, rule in RULES.items():
        rows = one_of(op, [operation])
        wrong = np.zeros(len(op), dtype=np.bool_)
        for name in OPERANDS:
            wrong |= np.asarray(vectors.field(name).is_valid()) != (name in rule.needs)
        found.append(
            (
                rows & wrong,
                f"vector.op {str(operation)!r} needs {' and '.join(rule.needs) or 'no numbers'}, and nothing else.",
            )
        )
    return found


def _has_non_finite(vectors: pa.StructArray, values: pa.Array) -> Mask:
    flat = np.asarray(_flat(values).fill_null(np.nan))
    wrong = _any_in_row(values, ~np.isfinite(flat))
    for name in ("factor", "amount"):
        wrong |= ~np.isfinite(np.asarray(vectors.field(name).fill_null(0.0)))
    return wrong


def _has_repeats(indices: pa.Array, flat: npt.NDArray[np.int32], counts: npt.NDArray[np.int64]) -> Mask:
    row = np.repeat(np.arange(len(indices)), np.maximum(counts, 0))
    order = np.lexsort((flat, row))
    again = (np.diff(row[order]) == 0) & (np.diff(flat[order]) == 0)
    wrong = np.zeros(len(indices), dtype=np.bool_)
    wrong[row[order][1:][again]] = True
    return wrong


def _found(wrong: Mask, reason: Reason, detail: str) -> Finding:
    return Finding(np.flatnonzero(wrong), reason, detail)


def _dimensions(namespaces: pa.Array, settings: Settings) -> Numbers:
    """Declared length of each row's vectors; 0 if none is declared."""
    declared = {name: namespace.dimension or 0 for name, namespace in settings.namespaces.items()}
    encoded = namespaces.dictionary_encode()
    known = np.array([declared.get(name, 0) for name in encoded.dictionary.to_pylist()] or [0], dtype=np.int64)
    return np.asarray(known[np.asarray(encoded.indices.fill_null(0))])


def _too_large(column: pa.Array) -> Rows:
    numbers = numbers_of(column)
    if numbers.min() >= -COUNT_LIMIT and numbers.max() <= COUNT_LIMIT:
        return NO_ROWS
    return ((numbers < -COUNT_LIMIT) | (numbers > COUNT_LIMIT)).nonzero()[0]


def _list_sizes(lists: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)


def _map_sizes(maps: pa.Array) -> npt.NDArray[np.int64]:
    entries = maps.cast(pa.list_(pa.struct([("key", maps.type.key_type), ("value", maps.type.item_type)])))
    return _list_sizes(entries)


def _flat(lists: pa.Array) -> pa.Array:
    """All elements of non-null lists (`flatten` skips elements hidden below null rows)."""
    return lists.flatten()


def _bad_entries(labels: pa.Array) -> Mask:
    """Entries of maps whose name is empty or whose name or value is not a valid text."""
    valid = labels.filter(labels.is_valid())
    entries = valid.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))).flatten()
    names, values = entries.field("key"), entries.field("value")
    return np.asarray(is_empty(names) | is_bad_id(names) | is_bad_id(values) | np.asarray(values.is_null()))


def _any_in_row(lists: pa.Array, wrong: Mask) -> Mask:
    """Rows in which any element is wrong."""
    sizes = _map_sizes(lists) if pa.types.is_map(lists.type) else _list_sizes(lists)
    row = np.repeat(np.arange(len(lists)), sizes)
    return np.asarray(np.bincount(row[wrong], minlength=len(lists))[: len(lists)] > 0)


# By kind: the checks of its payload. A kind that is missing here is refused before anything is checked.
PAYLOAD_CHECKS: dict[Kind, Callable[[pa.StructArray, Beside], list[Finding]]] = {
    Kind.VECTOR: _vector,
    Kind.SAMPLE: _sample,
    Kind.SIGNAL: _signal,
}
