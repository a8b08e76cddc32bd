"""Payloads in rows: from a producer's fields to the log's fields, for each kind of delta.

Belongs here: which values go into the log's fields, and which cannot because no column could hold them. Values that a
column can hold are checked in `verdicts/payload_checks.py`, for all rows at once. In columns, payloads are converted by
the types of their fields alone (`column_door.py`).
"""

import math
from collections.abc import Callable
from typing import Any

from tidemark.door.decode_values import millionths_of
from tidemark.door.decoded import RefusedError, name_series
from tidemark.model.deltas import Kind, Reason, Sample, Signal, Vector
from tidemark.model.fingerprint import SeriesNames

INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1

# The key of a delta, and its payload in the order of the log's fields.
PayloadRow = tuple[str, tuple[Any, ...]]


def _vector(payload: Vector, _: SeriesNames) -> PayloadRow:
    for name, numbers, low, high in (
        ("indices", payload.indices or (), -(2**31), 2**31 - 1),
        ("clock", (payload.clock or {}).values(), 0, INT64_MAX),
    ):
        if any(not low <= number <= high for number in numbers):
            reason = Reason.INDEX_OUT_OF_RANGE if name == "indices" else Reason.OUT_OF_RANGE
            raise RefusedError(reason, f"vector.{name} has a number outside {low} to {high}.")
    return payload.vector_id, (
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


def _sample(payload: Sample, series: SeriesNames) -> PayloadRow:
    labels = sorted(payload.labels.items())
    return name_series(labels, series), (labels, payload.value)


def _signal(payload: Signal, _: SeriesNames) -> PayloadRow:
    weight = payload.weight
    if not math.isfinite(weight):
        raise RefusedError(Reason.NOT_FINITE, f"signal.weight is {weight}.")
    millionths = millionths_of(weight)
    for name, value in (("count", payload.count), ("weight", millionths)):
        if not INT64_MIN <= value <= INT64_MAX:
            raise RefusedError(Reason.OUT_OF_RANGE, f"signal.{name} does not fit into 64 bits.")
    return payload.entity_id, (payload.entity_id, payload.signal, payload.count, millionths)


PAYLOAD_ROWS: dict[Kind, Callable[[Any, SeriesNames], PayloadRow]] = {
    Kind.VECTOR: _vector,
    Kind.SAMPLE: _sample,
    Kind.SIGNAL: _signal,
}
