"""The door for rows: dictionaries, structs and JSON become columns of the log, delta by delta.

Belongs here: structure (is it an object, are the fields there and of the right type). `verdicts/checks.py` checks
values, for all rows at once. Nothing is thrown away: input that cannot be decoded becomes a row that says why, with the
bytes that were sent. This door defines what a delta is; the door for columns (`column_door.py`) sends every unproven
row through it.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from operator import attrgetter
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tidemark.arrays.columns import Numbers, constant, nulls
from tidemark.door.decode_values import all_event_us, all_millionths, event_us, moment_of
from tidemark.door.decoded import FEW_WORDS, SIGNAL_NAMES, DecodedBatch, Refusal, RefusedError, Sent
from tidemark.door.json_objects import loads, names_each_once, refuse_repeats
from tidemark.door.payloads import INT64_MAX, INT64_MIN, PAYLOAD_ROWS
from tidemark.model.deltas import KEY_FIELDS, OTHERS, PAYLOADS, Delta, Kind, Reason
from tidemark.model.fingerprint import SeriesNames
from tidemark.model.log_schema import SENT_FIELDS, SENT_SCHEMA, SIGNAL, TIMESTAMP

# One delta: a vector of 65,536 dimensions in JSON is below this.
DELTA_LIMIT = 4 * 1024 * 1024
# Groups of so many rows are common.
_SMALL = 256
# Named, because an inline union would be built anew for every delta.
_TEXT = (bytes, str)

_encoder = msgspec.json.Encoder()
_ENVELOPE_AND_PAYLOADS = attrgetter(*(name for name, _ in SENT_FIELDS))
_PAYLOADS_OF = attrgetter(*PAYLOADS)
# By kind, the place of its payload among these; there, how it is read, and what comes before and after it.
_PLACES: dict[str, int] = {payload: place for place, payload in enumerate(PAYLOADS)}
_TAKEN = [
    (PAYLOAD_ROWS[Kind(payload)], (None,) * place, (None,) * (len(PAYLOADS) - place - 1))
    for payload, place in _PLACES.items()
]
_NO_PAYLOAD_AND_NO_KEY = (None,) * (len(PAYLOADS) + 1)
_ENVELOPE_TEXTS = ("namespace", "kind", "delta_id", "priority", "source", "origin")
_SIGNAL_FIELDS = list(SIGNAL)
_SIGNAL_VALUES = attrgetter("entity_id", "signal", "count", "weight")
_MOMENT = (str, datetime)
_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`")


class _TextDelta(Delta, forbid_unknown_fields=True):
    """A delta in JSON. Its time stays a text here, so that one function parses the times of both kinds of rows."""

    event_ts: str | int  # type: ignore[assignment] # replaced by a moment before anybody else sees it


_decoder = msgspec.json.Decoder(_TextDelta)


def decode_rows(deltas: Sequence[Sent], series: SeriesNames) -> DecodedBatch:
    """Turn deltas into columns, and say which of them are invalid."""
    taken = _taken(deltas)
    signals = taken.as_signals()
    columns = _columns(taken.as_rows(series)) if signals is None else _signal_columns(signals)
    original = deltas.__getitem__
    return DecodedBatch(
        columns.arrays, taken.refusals, original, columns.words, lambda wanted, _: map(original, wanted)
    )


def keys_of_rows(deltas: Sequence[Sent], series: SeriesNames) -> tuple[pa.Array, pa.Array]:
    """Namespace and key of each delta as `decode_rows` has them, without the other columns."""
    taken = _taken(deltas)
    signals = taken.as_signals()
    if signals is not None:
        return _texts(signals.by_name["namespace"]), _texts(signals.keys)
    rows = taken.as_rows(series)
    return _texts([row[0] for row in rows]), _texts([row[-1] for row in rows])


def _texts(values: Sequence[str | None]) -> pa.Array:
    return _array(tuple(values), pa.string())


class _Signals(NamedTuple):
    """The values of deltas that are all well-formed signals, field by field."""

    by_name: dict[str, tuple[Any, ...]]
    keys: tuple[str, ...]
    names: tuple[str, ...]
    counts: tuple[int, ...]
    moments: Numbers
    millionths: Numbers


class _Taken(NamedTuple):
    """Deltas as typed structs; those that are refused have their reason, and the parts that can be shown."""

    deltas: list[Delta | None]
    refusals: dict[int, Refusal]
    envelopes: dict[int, Mapping[str, Any]]

    def as_signals(self) -> _Signals | None:
        """Deltas that are all signals, field by field instead of delta by delta; None if they need a closer look."""
        rows = len(self.deltas)
        if not rows or self.refusals or self.deltas[0].kind != Kind.SIGNAL:  # type: ignore[union-attr]
            return None
        values = zip(*map(_ENVELOPE_AND_PAYLOADS, self.deltas), strict=True)
        by_name = dict(zip((name for name, _ in SENT_FIELDS), values, strict=True))
        signals = by_name[Kind.SIGNAL]
        if by_name["kind"].count(Kind.SIGNAL) < rows or None in signals:
            return None
        if any(by_name[payload].count(None) < rows for payload in OTHERS):
            return None
        keys, names, counts, weights = zip(*map(_SIGNAL_VALUES, signals), strict=True)
        moments, millionths = all_event_us(by_name["event_ts"]), all_millionths(weights)
        if moments is None or millionths is None or min(counts) < INT64_MIN or max(counts) > INT64_MAX:
            return None
        return _Signals(by_name, keys, names, counts, moments, millionths)

    def as_rows(self, series: SeriesNames) -> list[tuple[Any, ...]]:
        """The values of each delta in the order of the columns, with its key at the end; some more may be refused."""
        rows: list[tuple[Any, ...]] = []
        for number, delta in enumerate(self.deltas):
            try:
                rows.append(_row(delta, series) if delta is not None else _partial_row(self.envelopes[number]))
            except RefusedError as refused:
                self.refusals[number] = refused.refusal
                rows.append(_partial_row(refused.envelope))
        return rows


def _taken(deltas: Sequence[Sent]) -> _Taken:
    taken = _Taken([], {}, {})
    found, refusals, envelopes = taken
    for sent in deltas:
        try:
            found.append(_structure(sent))
        except RefusedError as refused:
            refusals[len(found)], envelopes[len(found)] = refused.refusal, refused.envelope
            found.append(None)
        except Exception as error:  # noqa: BLE001 - any error of a delta refuses only this delta (C14)
            detail = f"The delta cannot be read ({type(error).__name__})."
            refusals[len(found)], envelopes[len(found)] = Refusal(Reason.MALFORMED, detail), {}
            found.append(None)
    return taken


def _structure(sent: Sent) -> Delta:
    """The delta as a typed struct, or the reason why it is invalid."""
    if isinstance(sent, _TEXT):
        _refuse_above_limit(text_bytes(sent))
        try:
            delta: Delta = _decoder.decode(sent)
            moment: Any = delta.event_ts
            if type(moment) is str:
                delta.event_ts = moment_of(moment)
        except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError):
            return _from_object(loads(sent))
        return delta if delta.signal is not None or names_each_once(sent, delta) else _from_object(loads(sent))
    if isinstance(sent, Delta):
        sent = msgspec.to_builtins(sent, builtin_types=(datetime,))
    delta_or_none = _plain(sent)
    return _from_object(sent, limit=DELTA_LIMIT) if delta_or_none is None else delta_or_none


def text_bytes(sent: bytes | str) -> int:
    """The length of a text in UTF-8, as it is stored."""
    return len(sent) if isinstance(sent, bytes) or sent.isascii() else len(sent.encode("utf-8", "surrogatepass"))


def _refuse_above_limit(size: int) -> None:
    if size > DELTA_LIMIT:
        raise RefusedError(Reason.TOO_LARGE, f"The delta has {size} bytes; {DELTA_LIMIT} are allowed.")


def _plain(found: Any) -> Delta | None:
    """The delta, if it is surely valid: the right types, texts in Unicode, and numbers that JSON can express."""
    if type(found) is not dict or isinstance(found.get("event_ts"), str):
        return None
    try:
        delta = msgspec.convert(found, Delta)
        size = len(_encoder.encode(delta))
    except (msgspec.MsgspecError, UnicodeError, OverflowError, RecursionError):
        return None
    _refuse_above_limit(size)
    return delta


def _from_object(found: Any, limit: int | None = None) -> Delta:
    """The delta in an object; `limit` applies if it was not measured as text."""
    if not isinstance(found, Mapping):
        raise RefusedError(Reason.MALFORMED, f"A delta is a JSON object, not {_type_name(found)}.")
    try:
        # Lone surrogates are legal in Python and in escaped JSON, but they are not valid Unicode text.
        size = len(json.dumps(found, ensure_ascii=False, default=str, separators=(",", ":")).encode())
    except (UnicodeError, ValueError, TypeError, RecursionError) as error:
        raise RefusedError(
            Reason.MALFORMED, f"The delta has text that is not Unicode, or refers to itself: {error}."
        ) from error
    if limit is not None:
        _refuse_above_limit(size)
    refuse_repeats(found)
    if isinstance(found.get("event_ts"), _MOMENT):
        found = {**found, "event_ts": _moment(found["event_ts"], found)}
    try:
        return msgspec.convert(found, Delta)
    except (msgspec.ValidationError, RecursionError) as error:
        raise RefusedError(*_explain(str(error)), envelope=found) from error


def _moment(found: str | datetime, envelope: Mapping[str, Any]) -> datetime:
    try:
        return moment_of(found)
    except (ValueError, TypeError, OverflowError) as error:
        raise RefusedError(Reason.BAD_TIMESTAMP, f"event_ts is no moment in time: {error}.", envelope) from error


def _explain(message: str) -> Refusal:
    """A validation message, sorted into one of our reasons."""
    place = _PLACE.search(message)
    where = place["path"] if place else ""
    text = _PLACE.sub("", message).replace("`", "'")
    if "missing required field" in text:
        reason = Reason.MISSING_FIELD
    elif "unknown field" in text:
        reason = Reason.UNKNOWN_FIELD
    elif where == "event_ts":
        reason = Reason.BAD_TIMESTAMP
    else:
        reason = Reason.WRONG_TYPE
    return Refusal(reason, f"{text}{f' at {where}' if where else ''}.")


def _row(delta: Delta, series: SeriesNames) -> tuple[Any, ...]:
    """A well-formed delta in the order of the columns, with its key at the end."""
    payloads, place = _PAYLOADS_OF(delta), _PLACES.get(delta.kind)
    if place is None:
        detail = f"The kind {delta.kind!r} is not known; it is one of {', '.join(PAYLOADS)}."
        raise RefusedError(Reason.UNKNOWN_KIND, detail, _envelope(delta))
    if payloads[place] is None or payloads.count(None) < len(payloads) - 1:
        found = ", ".join(name for name, each in zip(PAYLOADS, payloads, strict=True) if each is not None) or "none"
        detail = f"A delta of kind {delta.kind!r} has exactly the payload {delta.kind!r}; this one has {found}."
        raise RefusedError(Reason.PAYLOAD_MISMATCH, detail, _envelope(delta))
    take, before, behind = _TAKEN[place]
    try:
        key, payload = take(payloads[place], series)
    except RefusedError as refused:
        if delta.kind in KEY_FIELDS:
            _head(delta)  # an error in its time is reported first
        raise RefusedError(*refused.refusal, _envelope(delta)) from refused
    return (*_head(delta), *before, payload, *behind, key)


def _head(delta: Delta) -> tuple[Any, ...]:
    moment = delta.event_ts
    try:
        moment_us = event_us(moment)
    except RefusedError as refused:
        raise RefusedError(*refused.refusal, _envelope(delta)) from refused
    return (delta.namespace, delta.kind, delta.delta_id, moment_us, delta.priority, delta.source, delta.origin)


def _envelope(delta: Delta) -> dict[str, Any]:
    return {
        name: getattr(delta, name)
        for name in ("namespace", "kind", "delta_id", "event_ts", "priority", "source", "origin")
    }


def _partial_row(envelope: Mapping[str, Any]) -> tuple[Any, ...]:
    """The parts of a refused delta that can be shown: the envelope's valid texts."""
    texts = {name: value for name, value in envelope.items() if isinstance(value, str)}
    moment = envelope.get("event_ts")
    try:
        moment = _moment(moment, {}) if isinstance(moment, str) else moment
        # True is an int in Python, but not a time.
        moment_us = event_us(moment) if isinstance(moment, datetime | int) and not isinstance(moment, bool) else None
    except RefusedError:
        moment_us = None
    return (
        texts.get("namespace"),
        texts.get("kind"),
        texts.get("delta_id"),
        moment_us,
        texts.get("priority"),
        texts.get("source"),
        texts.get("origin"),
        *_NO_PAYLOAD_AND_NO_KEY,
    )


class _Columns(NamedTuple):
    arrays: dict[str, pa.Array]
    words: dict[str, frozenset[str]]


def _signal_columns(signals: _Signals) -> _Columns:
    rows, by_name = len(signals.keys), signals.by_name
    key = pa.array(signals.keys, pa.string())
    counts = pa.array(np.array(signals.counts, dtype=np.int64))
    fields = [key, _array(signals.names, pa.string()), counts, pa.array(signals.millionths)]
    arrays = {name: _array(by_name[name], pa.string()) for name in _ENVELOPE_TEXTS}
    arrays["event_ts"] = pa.array(signals.moments).view(TIMESTAMP)
    arrays[Kind.SIGNAL.value] = pa.StructArray.from_arrays(fields, fields=_SIGNAL_FIELDS)
    arrays |= _other_payloads(rows) if rows <= _SMALL else _other_payloads.__wrapped__(rows)
    arrays["key"] = key
    words = {name: frozenset(by_name[name]) for name in FEW_WORDS}
    return _Columns(arrays, words | {SIGNAL_NAMES: frozenset(signals.names)})


@lru_cache(_SMALL)
def _other_payloads(rows: int) -> dict[str, pa.Array]:
    """Null payloads of other kinds for signal rows; cached, because a vector has many parts."""
    return {payload: nulls(rows, SENT_SCHEMA.field(payload).type) for payload in OTHERS}


def _columns(rows: list[tuple[Any, ...]]) -> _Columns:
    """Transpose; structs are built from their fields, several times faster than from dictionaries."""
    values: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) if rows else [()] * (len(SENT_FIELDS) + 1)
    by_name = dict(zip((name for name, _ in SENT_FIELDS), values, strict=False))
    columns = {name: _array(by_name[name], kind) for name, kind in SENT_FIELDS}
    # If all rows are signals, the key is an existing column.
    columns["key"] = (
        columns[Kind.SIGNAL].field("entity_id")
        if rows and not columns[Kind.SIGNAL].null_count
        else _array(values[len(SENT_FIELDS)], pa.string())
    )
    words = {name: frozenset(by_name[name]) for name in FEW_WORDS}
    return _Columns(columns, {name: found for name, found in words.items() if None not in found})


def _array(values: tuple[Any, ...], kind: pa.DataType) -> pa.Array:
    first: Any = values[0] if values else None
    if first is None and values.count(None) == len(values):
        return nulls(len(values), kind)
    if pa.types.is_struct(kind):
        return _structs(values, kind)
    if pa.types.is_string(kind):
        return constant(first, len(values)) if values.count(first) == len(values) else pa.array(values, kind)
    if kind in (pa.int64(), TIMESTAMP) and None not in values:
        return pa.array(np.array(values, dtype=np.int64)).view(kind)
    return pa.array(values, kind)


def _structs(values: tuple[Any, ...], kind: pa.StructType) -> pa.StructArray:
    gap = (None,) * kind.num_fields
    is_whole = None not in values
    children = zip(*(values if is_whole else (value or gap for value in values)), strict=True)
    fields = list(kind)
    arrays = [_array(child, field.type) for child, field in zip(children, fields, strict=True)]
    absent = None if is_whole else pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(arrays, fields=fields, mask=absent)


def _type_name(value: Any) -> str:
    names = {
        list: "an array",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
        type(None): "null",
    }
    return names.get(type(value), f"a {type(value).__name__}")
