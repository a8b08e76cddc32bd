"""What is wrong with a delta by itself (D4, D6, D7, D9), decided for a whole batch of columns at once.

Belongs here: one condition per reason, in the order in which they are told (the first one found is the verdict).
Those about the time of an event are in `time_checks.py`. What needs other deltas to decide (duplicates, missing
parents) does not belong here.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tidemark.arrays.columns import NO_ROWS, NO_WORDS, Numbers, Rows, Words, missing, numbers_of, odd_ids, odd_names
from tidemark.door.decoded import SIGNAL_NAMES, Finding, Refusal
from tidemark.model.deltas import Operation, Priority, Reason, Source
from tidemark.model.settings import NAME_PATTERN, Settings
from tidemark.verdicts.time_checks import find_times

Mask = npt.NDArray[np.bool_]

ID_LIMIT = 256  # bytes; long enough for any URL that is used as an id in earnest
CONTROL_CHARACTERS = r"[\x00-\x1f\x7f]"
# Sums of these stay within 64 bits for eight million deltas of the largest size in one bucket.
COUNT_LIMIT = 10**12
LABELS_LIMIT = 64
MAP_LIMIT = 256
DIMENSION_LIMIT = 65_536

_NAME_RULE = "a lower-case letter, then up to 62 of a-z, 0-9 and _"
_PRIORITIES, _SOURCES = tuple(map(str, Priority)), tuple(map(str, Source))

# What each operation needs, of (values, indices, factor, amount); it may have nothing else of these.
_NEEDS: dict[Operation, tuple[str, ...]] = {
    Operation.CREATE: ("values",),
    Operation.REPLACE: ("values",),
    Operation.SET_DIMS: ("values", "indices"),
    Operation.ADD_DIMS: ("values", "indices"),
    Operation.SCALE: ("factor",),
    Operation.OFFSET: ("amount",),
    Operation.DELETE: (),
}


def check(
    columns: Mapping[str, pa.Array],
    received_us: Numbers,
    settings: Settings,
    skip: Mask,
    words: Words = NO_WORDS,
    *,
    cut_us: int | None = None,
) -> dict[int, Refusal]:
    """Row → why it is refused. Rows in `skip` were refused before and are not looked at.

    `words` are all texts of some columns, where they are few: if these are right, the column is. `cut_us` is the cut of
    vectors that is in force.
    """
    findings = [*_envelope(columns, words), *find_times(columns, received_us, settings, cut_us)]
    finders: dict[str, Callable[..., list[Finding]]] = {
        "vector": _vector,
        "sample": _sample,
        "signal": lambda payloads, *_: _signal(payloads, words.get(SIGNAL_NAMES)),
    }
    for kind, find in finders.items():
        payloads = columns[kind]
        if payloads.null_count == len(payloads):
            continue
        if not payloads.null_count and not skip.any():
            findings += find(payloads, columns, settings)
            continue
        rows = np.flatnonzero(np.asarray(payloads.is_valid()) & ~skip)
        if len(rows):
            chosen = pa.array(rows)
            part = {name: columns[name].take(chosen) for name in ("namespace", "delta_id")}
            found = find(payloads.take(chosen), part, settings)
            findings += [finding._replace(wrong=rows[finding.wrong]) for finding in found]
    refusals: dict[int, Refusal] = {}
    for finding in findings:
        for row in finding.wrong.tolist():
            if row not in refusals and not skip[row]:
                shown = f" It is {_shorten(columns[finding.column][row])}." if finding.column else ""
                refusals[row] = Refusal(finding.reason, finding.detail + shown)
    return refusals


def _envelope(columns: Mapping[str, pa.Array], words: Words) -> list[Finding]:
    empty_ids, bad_ids = _wrong_ids(columns["delta_id"])
    empty_keys, bad_keys = _wrong_ids(columns["key"])
    return [
        Finding(
            _no_names(columns["namespace"], words.get("namespace")),
            Reason.BAD_NAME,
            f"namespace must be {_NAME_RULE}.",
            "namespace",
        ),
        Finding(empty_ids, Reason.EMPTY_ID, "delta_id is empty."),
        Finding(bad_ids, Reason.BAD_ID, f"delta_id has control characters or more than {ID_LIMIT} bytes."),
        Finding(empty_keys, Reason.EMPTY_ID, "The id of what the delta is about is empty."),
        Finding(bad_keys, Reason.BAD_ID, f"The id has control characters or more than {ID_LIMIT} bytes.", "key"),
        Finding(
            _none_of(columns["priority"], _PRIORITIES, words.get("priority")),
            Reason.WRONG_TYPE,
            f"priority must be {_listed(_PRIORITIES)}.",
            "priority",
        ),
        Finding(
            _none_of(columns["source"], _SOURCES, words.get("source")),
            Reason.WRONG_TYPE,
            f"source must be {_listed(_SOURCES)}.",
            "source",
        ),
        Finding(
            _no_names(columns["origin"], words.get("origin"), may_be_missing=True),
            Reason.BAD_NAME,
            f"origin must be {_NAME_RULE}.",
            "origin",
        ),
    ]


def _signal(signals: pa.StructArray, names: frozenset[str] | None) -> list[Finding]:
    count, weight = signals.field("count"), signals.field("weight_millionths")
    return [
        Finding(
            _no_names(signals.field("signal"), names),
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


def _sample(samples: pa.StructArray, envelope: Mapping[str, pa.Array], settings: Settings) -> list[Finding]:  # noqa: ARG001 - one shape for all kinds
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


def _vector(vectors: pa.StructArray, envelope: Mapping[str, pa.Array], settings: Settings) -> list[Finding]:
    dimensions, ids = _dimensions(envelope["namespace"], settings), envelope["delta_id"]
    op, values, indices = (vectors.field(name) for name in ("op", "values", "indices"))
    lengths, index_counts = _list_sizes(values), _list_sizes(indices)
    is_whole = _one_of(op, [Operation.CREATE, Operation.REPLACE])
    is_partial = _one_of(op, [Operation.SET_DIMS, Operation.ADD_DIMS])
    bound = np.where(dimensions > 0, dimensions, DIMENSION_LIMIT)
    flat = np.asarray(_flat(indices).fill_null(-1))
    row_bound = np.repeat(bound, np.maximum(index_counts, 0))
    parent = vectors.field("parent_id")
    return [
        _found(
            ~_one_of(op, list(Operation)), Reason.UNKNOWN_OPERATION, f"vector.op must be {_listed(tuple(Operation))}."
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
        _found(_is_empty(parent) & np.asarray(parent.is_valid()), Reason.EMPTY_ID, "vector.parent_id is empty."),
        _found(
            _is_bad_id(parent), Reason.BAD_ID, f"vector.parent_id has control characters or more than {ID_LIMIT} bytes."
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
    """An operation without what it needs, or with what means nothing to it."""
    found = []
    for operation, needs in _NEEDS.items():
        rows = _one_of(op, [operation])
        wrong = np.zeros(len(op), dtype=np.bool_)
        for name in ("values", "indices", "factor", "amount"):
            wrong |= np.asarray(vectors.field(name).is_valid()) != (name in needs)
        found.append(
            (
                rows & wrong,
                f"vector.op {str(operation)!r} needs {' and '.join(needs) or 'no numbers'}, and nothing else.",
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
    """Declared length of each row's vectors; 0 where none is declared."""
    declared = {name: namespace.dimension or 0 for name, namespace in settings.namespaces.items()}
    encoded = namespaces.dictionary_encode()
    known = np.array([declared.get(name, 0) for name in encoded.dictionary.to_pylist()] or [0], dtype=np.int64)
    return np.asarray(known[np.asarray(encoded.indices.fill_null(0))])


def _no_names(texts: pa.Array, words: frozenset[str] | None = None, *, may_be_missing: bool = False) -> Rows:
    """Rows without a plain name; only those are looked at that are not surely one."""
    if words and all(map(_is_name, words)):
        return NO_ROWS
    odd = odd_names(texts)
    if not len(odd):
        return NO_ROWS
    looked_at = texts.take(pa.array(odd))
    is_name = _matches(looked_at, NAME_PATTERN)
    return odd[~is_name & np.asarray(looked_at.is_valid())] if may_be_missing else odd[~is_name]


def _wrong_ids(texts: pa.Array) -> tuple[Rows, Rows]:
    """Rows with an empty id, and rows with a bad one; only those are looked at that are not surely decent."""
    odd = odd_ids(texts, ID_LIMIT)
    if not len(odd):
        return NO_ROWS, NO_ROWS
    looked_at = texts.take(pa.array(odd))
    return odd[_is_empty(looked_at)], odd[_is_bad_id(looked_at)]


@lru_cache(1_024)
def _is_name(word: str) -> bool:
    return bool(_matches(pa.array([word], pa.string()), NAME_PATTERN)[0])


def _none_of(texts: pa.Array, allowed: tuple[str, ...], words: frozenset[str] | None) -> Rows:
    """Rows with another word than the allowed ones."""
    return NO_ROWS if words and words.issubset(allowed) else np.flatnonzero(~_one_of(texts, allowed))


def _too_large(column: pa.Array) -> Rows:
    numbers = numbers_of(column)
    if numbers.min() >= -COUNT_LIMIT and numbers.max() <= COUNT_LIMIT:
        return NO_ROWS
    return ((numbers < -COUNT_LIMIT) | (numbers > COUNT_LIMIT)).nonzero()[0]


def _matches(texts: pa.Array, pattern: str) -> Mask:
    return np.asarray(pc.fill_null(pc.match_substring_regex(texts, pattern), False))


def _one_of(texts: pa.Array, allowed: Sequence[str]) -> Mask:
    return np.asarray(pc.is_in(texts, pa.array([str(value) for value in allowed])))


def _is_empty(texts: pa.Array) -> Mask:
    return np.asarray(pc.fill_null(pc.equal(pc.utf8_trim_whitespace(texts), ""), True))


def _is_bad_id(texts: pa.Array) -> Mask:
    too_long = pc.greater(pc.binary_length(texts), ID_LIMIT)
    return np.asarray(pc.fill_null(pc.or_(too_long, pc.match_substring_regex(texts, CONTROL_CHARACTERS)), False))


def _list_sizes(lists: pa.Array) -> npt.NDArray[np.int64]:
    return np.asarray(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)


def _map_sizes(maps: pa.Array) -> npt.NDArray[np.int64]:
    entries = maps.cast(pa.list_(pa.struct([("key", maps.type.key_type), ("value", maps.type.item_type)])))
    return _list_sizes(entries)


def _flat(lists: pa.Array) -> pa.Array:
    """All elements of the lists that are there (`flatten` passes over what null rows hide)."""
    return lists.flatten()


def _bad_entries(labels: pa.Array) -> Mask:
    """Entries of maps whose name is empty or whose name or value is no decent text."""
    valid = labels.filter(labels.is_valid())
    entries = valid.cast(pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))).flatten()
    names, values = entries.field("key"), entries.field("value")
    return np.asarray(_is_empty(names) | _is_bad_id(names) | _is_bad_id(values) | np.asarray(values.is_null()))


def _any_in_row(lists: pa.Array, wrong: Mask) -> Mask:
    """Rows in which any element is wrong."""
    sizes = _map_sizes(lists) if pa.types.is_map(lists.type) else _list_sizes(lists)
    row = np.repeat(np.arange(len(lists)), sizes)
    return np.asarray(np.bincount(row[wrong], minlength=len(lists))[: len(lists)] > 0)


@lru_cache
def _listed(values: tuple[str, ...]) -> str:
    return "one of " + ", ".join(str(value) for value in values)


def _shorten(value: pa.Scalar) -> str:
    text = repr(value.as_py())
    return text if len(text) <= 60 else text[:57] + "…"
