"""Every sort of delta that must be refused, with its reason.

Belongs here: how a good delta is spoiled, one way per sort. Pure: each sort gets its input as arguments. A sort that a
`Delta` cannot express (broken JSON, a field of another type) is the bytes that a producer would send.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from tidemark.door.decode import DELTA_LIMIT
from tidemark.model.deltas import Delta, Kind, Reason
from tidemark.model.operations import Operation
from tidemark.model.timegrid import DAY_US, MINUTE_US, from_us

# What a producer sends: a delta, or one JSON object as bytes.
Item = Delta | bytes

Fields = dict[str, Any]


@dataclass(frozen=True)
class Sort:
    """One way to be wrong: a good delta of `kind`, spoiled, is refused as `reason`."""

    name: str
    kind: Kind
    reason: Reason
    spoil: Callable[[Delta, int], Item]


def _edited(edit: Callable[[Fields], object]) -> Callable[[Delta, int], Item]:
    """The delta's JSON with something changed that its type would not allow."""

    def spoil(delta: Delta, _arrival_us: int) -> Item:
        fields: Fields = msgspec.to_builtins(delta)
        edit(fields)
        return msgspec.json.encode(fields)

    return spoil


def _typed(edit: Callable[[Delta], object]) -> Callable[[Delta, int], Item]:
    """The delta with values that its type allows and its meaning does not."""

    def spoil(delta: Delta, _arrival_us: int) -> Item:
        edit(delta)
        return delta

    return spoil


def _at(event_ts: Callable[[int], str | int]) -> Callable[[Delta, int], Item]:
    """The delta at another time, which may depend on the time of arrival."""

    def spoil(delta: Delta, arrival_us: int) -> Item:
        return msgspec.json.encode({**msgspec.to_builtins(delta), "event_ts": event_ts(arrival_us)})

    return spoil


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Delta, int], Item]:
    """The delta's JSON text, damaged."""
    return lambda delta, _arrival_us: change(msgspec.json.encode(delta))


def _with_value(sample: bytes, value: bytes) -> bytes:
    """The JSON of a sample with another number, also one that no encoder would write."""
    before, key, _number = sample.rpartition(b'"value":')
    return before + key + value + b"}}"


def _set(part: str, **values: object) -> Callable[[Delta, int], Item]:
    """The delta with fields of its payload `part` set, whatever their type."""
    return _edited(lambda fields: fields[part].update(values))


def _operation(op: Operation, **values: object) -> Callable[[Delta, int], Item]:
    """The vector delta as another operation, with exactly these operands."""

    def edit(fields: Fields) -> None:
        fields["vector"] = {"vector_id": fields["vector"]["vector_id"], "op": op.value, **values}

    return _edited(edit)


def _payload(**values: object) -> Callable[[Delta], None]:
    """Set fields of whatever payload the delta has, past the types that JSON could carry (NaN, infinity)."""

    def edit(delta: Delta) -> None:
        for payload in (delta.vector, delta.sample, delta.signal):
            if isinstance(payload, msgspec.Struct):
                for name, value in values.items():
                    setattr(payload, name, value)

    return edit


_NO_OPERANDS = {"values": None, "indices": None, "factor": None, "amount": None}
# One byte more than any delta may have.
_ENDLESS = b" " * (DELTA_LIMIT + 1)
_MANY_LABELS = {f"label_{n}": "x" for n in range(65)}

_MALFORMED = [
    Sort("broken_json", Kind.SIGNAL, Reason.MALFORMED, _bytes(lambda text: text[: len(text) // 2])),
    Sort("empty_line", Kind.SIGNAL, Reason.MALFORMED, _bytes(lambda _text: b"")),
    Sort("not_an_object", Kind.SIGNAL, Reason.MALFORMED, _bytes(lambda text: b"[" + text + b"]")),
    Sort("not_utf8", Kind.SIGNAL, Reason.MALFORMED, _bytes(lambda text: text.replace(b'"kind"', b'"\xff\xfe"'))),
]

_SHAPE = [
    Sort("unknown_field", Kind.SIGNAL, Reason.UNKNOWN_FIELD, _edited(lambda fields: fields.update(colour="red"))),
    Sort("unknown_payload_field", Kind.SIGNAL, Reason.UNKNOWN_FIELD, _set("signal", colour="red")),
    Sort("missing_id", Kind.SIGNAL, Reason.MISSING_FIELD, _edited(lambda fields: fields.pop("delta_id"))),
    Sort("missing_time", Kind.SAMPLE, Reason.MISSING_FIELD, _edited(lambda fields: fields.pop("event_ts"))),
    Sort("missing_value", Kind.SAMPLE, Reason.MISSING_FIELD, _edited(lambda fields: fields["sample"].pop("value"))),
    Sort("text_for_count", Kind.SIGNAL, Reason.WRONG_TYPE, _set("signal", count="many")),
    Sort("number_for_id", Kind.SIGNAL, Reason.WRONG_TYPE, _edited(lambda fields: fields.update(delta_id=17))),
    Sort("text_for_vector", Kind.VECTOR, Reason.WRONG_TYPE, _set("vector", op="create", values="1,2,3")),
    Sort("list_for_labels", Kind.SAMPLE, Reason.WRONG_TYPE, _set("sample", labels=["host", "a"])),
    Sort("unknown_kind", Kind.SIGNAL, Reason.UNKNOWN_KIND, _edited(lambda fields: fields.update(kind="rumour"))),
    Sort("unknown_operation", Kind.VECTOR, Reason.UNKNOWN_OPERATION, _set("vector", op="transmogrify")),
    Sort(
        "two_payloads",
        Kind.SIGNAL,
        Reason.PAYLOAD_MISMATCH,
        _edited(lambda fields: fields.update(sample={"labels": {"host": "a"}, "value": 1.0})),
    ),
    Sort("no_payload", Kind.SIGNAL, Reason.PAYLOAD_MISMATCH, _edited(lambda fields: fields.pop("signal"))),
    Sort("other_payload", Kind.SIGNAL, Reason.PAYLOAD_MISMATCH, _edited(lambda fields: fields.update(kind="sample"))),
]

_NAMES = [
    Sort("quote_in_name", Kind.SIGNAL, Reason.BAD_NAME, _edited(lambda fields: fields.update(namespace="sh'op\""))),
    Sort("slash_in_name", Kind.SIGNAL, Reason.BAD_NAME, _edited(lambda fields: fields.update(namespace="../shop"))),
    Sort("capital_in_name", Kind.SAMPLE, Reason.BAD_NAME, _edited(lambda fields: fields.update(namespace="Fleet"))),
    Sort("empty_id", Kind.SIGNAL, Reason.EMPTY_ID, _edited(lambda fields: fields.update(delta_id=""))),
    Sort("empty_entity", Kind.SIGNAL, Reason.EMPTY_ID, _set("signal", entity_id="")),
    Sort("control_in_id", Kind.SIGNAL, Reason.BAD_ID, _edited(lambda fields: fields.update(delta_id="a\x00b"))),
    Sort("endless_id", Kind.SIGNAL, Reason.BAD_ID, _edited(lambda fields: fields.update(delta_id="x" * 5_000))),
]

_TIMES = [
    Sort("no_time_at_all", Kind.SIGNAL, Reason.BAD_TIMESTAMP, _at(lambda _arrival: "yesterday, about noon")),
    Sort("thirtieth_of_february", Kind.SAMPLE, Reason.BAD_TIMESTAMP, _at(lambda _arrival: "2026-02-30T12:00:00Z")),
    Sort("year_2019", Kind.SIGNAL, Reason.TOO_OLD, _at(lambda _arrival: "2019-07-01T00:00:00Z")),
    Sort("before_1970", Kind.SAMPLE, Reason.TOO_OLD, _at(lambda _arrival: -1)),
    Sort("year_9999", Kind.SIGNAL, Reason.FROM_THE_FUTURE, _at(lambda _arrival: "9999-12-31T23:59:59Z")),
    Sort("wrong_clock", Kind.SAMPLE, Reason.FROM_THE_FUTURE, _at(lambda arrival: arrival + 11 * MINUTE_US)),
    Sort("tomorrow", Kind.VECTOR, Reason.FROM_THE_FUTURE, _at(lambda arrival: f"{from_us(arrival + DAY_US):%FT%TZ}")),
]

_VALUES = [
    Sort("nan_in_json", Kind.SAMPLE, Reason.NOT_FINITE, _bytes(lambda text: _with_value(text, b"NaN"))),
    Sort("infinity_in_json", Kind.SAMPLE, Reason.NOT_FINITE, _bytes(lambda text: _with_value(text, b"1e999"))),
    Sort("nan_sample", Kind.SAMPLE, Reason.NOT_FINITE, _typed(_payload(value=math.nan))),
    Sort("infinite_weight", Kind.SIGNAL, Reason.NOT_FINITE, _typed(_payload(weight=math.inf))),
    Sort(
        "infinite_factor",
        Kind.VECTOR,
        Reason.NOT_FINITE,
        _typed(_payload(**{**_NO_OPERANDS, "op": "scale", "factor": -math.inf})),
    ),
    Sort("count_beyond_64_bits", Kind.SIGNAL, Reason.OUT_OF_RANGE, _set("signal", count=2**63)),
    Sort("endless_weight", Kind.SIGNAL, Reason.OUT_OF_RANGE, _set("signal", weight=1e300)),
    Sort("short_vector", Kind.VECTOR, Reason.WRONG_DIMENSION, _operation(Operation.CREATE, values=[0.5, 0.25])),
    Sort(
        "index_too_high",
        Kind.VECTOR,
        Reason.INDEX_OUT_OF_RANGE,
        _operation(Operation.SET_DIMS, indices=[99], values=[1.0]),
    ),
    Sort(
        "index_below_zero",
        Kind.VECTOR,
        Reason.INDEX_OUT_OF_RANGE,
        _operation(Operation.ADD_DIMS, indices=[-1], values=[1.0]),
    ),
    Sort(
        "index_twice",
        Kind.VECTOR,
        Reason.REPEATED_INDEX,
        _operation(Operation.ADD_DIMS, indices=[1, 1], values=[1.0, 2.0]),
    ),
    Sort(
        "own_parent",
        Kind.VECTOR,
        Reason.SELF_PARENT,
        _edited(lambda fields: fields["vector"].update(parent_id=fields["delta_id"])),
    ),
    Sort("no_labels", Kind.SAMPLE, Reason.NO_LABELS, _set("sample", labels={})),
    Sort("too_many_labels", Kind.SAMPLE, Reason.TOO_LARGE, _set("sample", labels=_MANY_LABELS)),
    Sort("oversized", Kind.SAMPLE, Reason.TOO_LARGE, _bytes(lambda text: text + _ENDLESS)),
]

SORTS: tuple[Sort, ...] = (*_MALFORMED, *_SHAPE, *_NAMES, *_TIMES, *_VALUES)
