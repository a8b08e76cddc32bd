"""From what a producer handed over to columns: Python objects or JSON in, one Arrow batch out.

Belongs here: structure (is it an object, are the fields there and of the right type). What is wrong with a value is
decided in `checks.py`, for all rows at once. Nothing is thrown away: what cannot be decoded becomes a row that says
why, with the bytes that were sent.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from resources.coordinator.errors import WriteFormatError
from resources.coordinator.fingerprint import SeriesNames
from resources.coordinator.model import Delta, Kind, Reason, Sample, Signal, Vector
from resources.coordinator.schema import RAW_LIMIT, SAMPLE, SENT_FIELDS, SIGNAL, VECTOR
from resources.timegrid import to_us

Sent = Delta | Mapping[str, Any] | bytes | str
Deltas: TypeAlias = Sequence[Sent] | pa.RecordBatch  # what one write holds, in one shard

# One delta: a vector of 65,536 dimensions in JSON is below this.
DELTA_LIMIT = 4 * 1024 * 1024
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
MILLION = Decimal(1_000_000)
FIRST_US, LAST_US = to_us(datetime.min.replace(tzinfo=UTC)), to_us(datetime.max.replace(tzinfo=UTC))

_decoder = msgspec.json.Decoder(Delta)
_PLACE = re.compile(r" - at `\$\.?(?P<path>[^`]*)`")


class Refusal(NamedTuple):
    """Why a delta was refused, in one word and in a sentence."""

    reason: Reason
    detail: str


class DecodedBatch(NamedTuple):
    """Columns of `SENT_FIELDS` plus `key`, with the refusals and the original bytes beside them."""

    columns: dict[str, pa.Array]
    refusals: dict[int, Refusal]  # row → why; everything else was well-formed
    original: Callable[[int], Sent]  # row → what was sent

    @property
    def rows(self) -> int:
        """Number of deltas."""
        return len(self.columns["key"])


class _Refused(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, reason: Reason, detail: str, envelope: Mapping[str, Any] | None = None) -> None:
        super().__init__(detail)
        self.refusal = Refusal(reason, detail)
        self.envelope = envelope or {}


def decode(deltas: Sequence[Sent] | pa.RecordBatch, series: SeriesNames) -> DecodedBatch:
    """Lay deltas out in columns, and say which of them are none."""
    if isinstance(deltas, pa.RecordBatch):
        return _decode_columns(deltas, series)
    rows: list[tuple[Any, ...]] = []
    refusals: dict[int, Refusal] = {}
    for sent in deltas:
        try:
            rows.append(_row(_structure(sent), series))
        except _Refused as refused:
            refusals[len(rows)] = refused.refusal
            rows.append(_partial_row(refused.envelope))
    return DecodedBatch(_columns(rows), refusals, deltas.__getitem__)


def to_batch(table: pa.Table | pa.RecordBatch) -> pa.RecordBatch:
    """Columns that a producer sends, in the log's types; columns that are missing are taken as empty."""
    unknown = set(table.column_names) - {name for name, _ in SENT_FIELDS}
    if unknown or "kind" not in table.column_names:
        wanted, found = ", ".join(name for name, _ in SENT_FIELDS), ", ".join(table.column_names)
        raise WriteFormatError(f"A write in columns has {wanted}; this one has {found}.")
    try:
        fields = [pa.field(name, kind) for name, kind in SENT_FIELDS if name in table.column_names]
        arrays = [
            table[field.name].combine_chunks().cast(field.type)
            if isinstance(table, pa.Table)
            else table[field.name].cast(field.type)
            for field in fields
        ]
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise WriteFormatError(f"A column of the write cannot be read: {error}") from error
    present = dict(zip((field.name for field in fields), arrays, strict=True))
    columns = [present.get(name, pa.nulls(len(table), kind)) for name, kind in SENT_FIELDS]
    return pa.RecordBatch.from_arrays(columns, schema=pa.schema(SENT_FIELDS))


def _decode_columns(batch: pa.RecordBatch, series: SeriesNames) -> DecodedBatch:
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    refusals: dict[int, Refusal] = {}
    labels = columns["sample"].field("labels")
    keys = pc.coalesce(columns["vector"].field("vector_id"), columns["signal"].field("entity_id"))
    if labels.null_count < len(labels):
        names: list[str | None] = keys.to_pylist()
        for row, found in enumerate(labels.to_pylist()):
            if found is not None:
                try:
                    names[row] = _series_name(sorted(found), series, {})
                except _Refused as refused:
                    refusals[row] = refused.refusal
        keys = pa.array(names, pa.string())
    wrong = _payload_mismatches(columns)
    for row in np.flatnonzero(wrong).tolist():
        kind = columns["kind"][row].as_py()
        known = kind in {str(member) for member in Kind}
        refusals[row] = (
            Refusal(Reason.PAYLOAD_MISMATCH, f"A delta of kind {kind!r} has exactly the payload {kind!r}.")
            if known
            else Refusal(Reason.UNKNOWN_KIND, f"The kind {kind!r} is not known; it is one of vector, sample, signal.")
        )
    columns["key"] = keys
    return DecodedBatch(columns, refusals, lambda row: _row_as_object(batch, row))


def _payload_mismatches(columns: Mapping[str, pa.Array]) -> npt.NDArray[np.bool_]:
    """Rows that do not have exactly the payload that their kind promises."""
    wrong = ~np.asarray(pc.is_in(columns["kind"], pa.array([str(kind) for kind in Kind])))
    for kind in Kind:
        promised = np.asarray(pc.fill_null(pc.equal(columns["kind"], str(kind)), False))
        wrong |= promised != np.asarray(columns[kind].is_valid())
    return wrong


def _row_as_object(batch: pa.RecordBatch, row: int) -> dict[str, Any]:
    return {name: value for name, value in batch.slice(row, 1).to_pylist()[0].items() if value is not None}


def original_bytes(sent: Sent) -> bytes:
    """What was sent, as bytes: as they came, or as JSON if an object was handed over."""
    if isinstance(sent, bytes):
        return sent
    if isinstance(sent, str):
        return sent.encode("utf-8", "backslashreplace")
    if isinstance(sent, Delta):
        sent = msgspec.to_builtins(sent, builtin_types=(datetime,))
    return json.dumps(sent, default=str).encode("utf-8", "backslashreplace")


def bounded_original(sent: Sent) -> tuple[bytes, int]:
    """The first bytes of what was sent, and how many there were."""
    whole = original_bytes(sent)
    return whole[:RAW_LIMIT], len(whole)


def _structure(sent: Sent) -> Delta:
    """The delta as a typed struct, or the reason why it is none."""
    if isinstance(sent, bytes | str):
        if len(sent) > DELTA_LIMIT:
            raise _Refused(Reason.TOO_LARGE, f"The delta has {len(sent)} bytes; {DELTA_LIMIT} are allowed.")
        try:
            return _decoder.decode(sent)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return _from_object(_loads(sent))
    if isinstance(sent, Delta):
        sent = msgspec.to_builtins(sent, builtin_types=(datetime,))
    return _from_object(sent)


def _loads(sent: bytes | str) -> Any:
    """JSON as Python reads it, which knows NaN and Infinity, so that these are named and not just "malformed"."""
    try:
        return json.loads(sent)
    except (ValueError, RecursionError) as error:
        raise _Refused(Reason.MALFORMED, f"Not JSON: {error}.") from error


def _from_object(found: Any) -> Delta:
    if not isinstance(found, Mapping):
        raise _Refused(Reason.MALFORMED, f"A delta is a JSON object, not {_type_name(found)}.")
    try:
        # Lone surrogates are legal in Python and in escaped JSON, and no text for anybody else.
        json.dumps(found, ensure_ascii=False, default=str).encode()
    except (UnicodeError, ValueError, TypeError, RecursionError) as error:
        raise _Refused(
            Reason.MALFORMED, f"The delta has text that is not Unicode, or refers to itself: {error}."
        ) from error
    if isinstance(found.get("event_ts"), str):
        found = {**found, "event_ts": _moment(found["event_ts"], found)}
    try:
        return msgspec.convert(found, Delta)
    except (msgspec.ValidationError, RecursionError) as error:
        raise _Refused(*_explain(str(error)), envelope=found) from error


def _moment(text: str, envelope: Mapping[str, Any]) -> datetime:
    """ISO 8601 as Python reads it: more forms than the fast path knows (a date alone, a space for the T)."""
    try:
        return datetime.fromisoformat(text.strip())
    except ValueError as error:
        raise _Refused(Reason.BAD_TIMESTAMP, f"event_ts is no moment in time: {error}.", envelope) from error


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
    payloads = {Kind.VECTOR: delta.vector, Kind.SAMPLE: delta.sample, Kind.SIGNAL: delta.signal}
    present = [str(kind) for kind, payload in payloads.items() if isinstance(payload, Vector | Sample | Signal)]
    envelope = _envelope(delta)
    if delta.kind not in payloads:
        detail = f"The kind {delta.kind!r} is not known; it is one of vector, sample, signal."
        raise _Refused(Reason.UNKNOWN_KIND, detail, envelope)
    if present != [delta.kind]:
        found = ", ".join(present) or "none"
        detail = f"A delta of kind {delta.kind!r} has exactly the payload {delta.kind!r}; this one has {found}."
        raise _Refused(Reason.PAYLOAD_MISMATCH, detail, envelope)
    head = (
        delta.namespace,
        delta.kind,
        delta.delta_id,
        _event_us(delta.event_ts, envelope),
        delta.priority,
        delta.source,
        delta.origin,
    )
    payload = payloads[Kind(delta.kind)]
    if isinstance(payload, Signal):
        return (*head, None, None, _signal(payload, envelope), payload.entity_id)
    if isinstance(payload, Sample):
        labels = sorted(payload.labels.items())
        return (*head, None, (labels, payload.value), None, _series_name(labels, series, envelope))
    vector = cast(Vector, payload)  # the only one left: exactly the payload of the kind is present
    return (*head, _vector(vector, envelope), None, None, vector.vector_id)


def _series_name(labels: list[tuple[str, str]], series: SeriesNames, envelope: Mapping[str, Any]) -> str:
    name = series.fingerprint(labels)
    if series.collides(labels, name):
        detail = f"Another series has the same fingerprint {name}; change a label of one of them."
        raise _Refused(Reason.FINGERPRINT_COLLISION, detail, envelope)
    return name


def _event_us(found: datetime | int, envelope: Mapping[str, Any]) -> int:
    event_us = found if isinstance(found, int) else to_us(found if found.tzinfo else found.replace(tzinfo=UTC))
    if not FIRST_US <= event_us <= LAST_US:
        raise _Refused(
            Reason.BAD_TIMESTAMP, "event_ts is not within the years 1 to 9999 (microseconds since 1970).", envelope
        )
    return event_us


def _signal(payload: Signal, envelope: Mapping[str, Any]) -> tuple[str, str, int, int]:
    if not math.isfinite(payload.weight):
        raise _Refused(Reason.NOT_FINITE, f"signal.weight is {payload.weight}.", envelope)
    # The shortest decimal text of the number is what the producer meant; half a millionth goes to the even neighbour.
    millionths = (
        int((Decimal(repr(payload.weight)) * MILLION).to_integral_value(ROUND_HALF_EVEN)) if payload.weight else 0
    )
    for name, value in (("count", payload.count), ("weight", millionths)):
        if not INT64_MIN <= value <= INT64_MAX:
            raise _Refused(Reason.OUT_OF_RANGE, f"signal.{name} does not fit into 64 bits.", envelope)
    return payload.entity_id, payload.signal, payload.count, millionths


def _vector(payload: Vector, envelope: Mapping[str, Any]) -> tuple[Any, ...]:
    for name, numbers, low, high in (
        ("indices", payload.indices or (), -(2**31), 2**31 - 1),
        ("clock", (payload.clock or {}).values(), 0, INT64_MAX),
    ):
        if any(not low <= number <= high for number in numbers):
            reason = Reason.INDEX_OUT_OF_RANGE if name == "indices" else Reason.OUT_OF_RANGE
            raise _Refused(reason, f"vector.{name} has a number outside {low} to {high}.", envelope)
    return (
        payload.vector_id,
        payload.op,
        payload.values,
        payload.indices,
        payload.factor,
        payload.amount,
        payload.parent_id,
        sorted(payload.clock.items()) if payload.clock is not None else None,
        sorted(payload.metadata.items()) if payload.metadata is not None else None,
    )


def _envelope(delta: Delta) -> dict[str, Any]:
    return {
        name: getattr(delta, name)
        for name in ("namespace", "kind", "delta_id", "event_ts", "priority", "source", "origin")
    }


def _partial_row(envelope: Mapping[str, Any]) -> tuple[Any, ...]:
    """What can be shown of a refused delta: the envelope's texts that are texts."""
    texts = {name: value for name, value in envelope.items() if isinstance(value, str)}
    moment = envelope.get("event_ts")
    try:
        moment = _moment(moment, {}) if isinstance(moment, str) else moment
        # True is an int to Python, and no moment to anybody.
        event_us = (
            _event_us(moment, {}) if isinstance(moment, datetime | int) and not isinstance(moment, bool) else None
        )
    except _Refused:
        event_us = None
    return (
        texts.get("namespace"),
        texts.get("kind"),
        texts.get("delta_id"),
        event_us,
        texts.get("priority"),
        texts.get("source"),
        texts.get("origin"),
        None,
        None,
        None,
        None,
    )


def _columns(rows: list[tuple[Any, ...]]) -> dict[str, pa.Array]:
    """Transpose; structs are put together from their fields, which is several times faster than from dictionaries."""
    columns: list[tuple[Any, ...]] = list(zip(*rows, strict=True)) if rows else [()] * (len(SENT_FIELDS) + 1)
    result: dict[str, pa.Array] = {}
    for (name, kind), values in zip(SENT_FIELDS, columns, strict=False):
        result[name] = _structs(values, kind) if kind in (VECTOR, SAMPLE, SIGNAL) else pa.array(values, kind)
    result["key"] = pa.array(columns[len(SENT_FIELDS)], pa.string())
    return result


def _structs(values: tuple[Any, ...], kind: pa.StructType) -> pa.StructArray:
    width = kind.num_fields
    gap = (None,) * width
    fields = zip(*(value or gap for value in values), strict=True) if values else [()] * width
    children = [pa.array(field, kind.field(index).type) for index, field in enumerate(fields)]
    absent = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(children, fields=[kind.field(index) for index in range(width)], mask=absent)


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
