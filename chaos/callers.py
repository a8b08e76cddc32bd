"""Writes that callers send to the public API, in every form, and what they do with their objects afterwards (C14).

Belongs here: making a write, valid or hostile, small or enormous, and spoiling it once it was sent. `public.py` knows
the right result.
"""

import json
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from random import Random
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa

from tidemark.model.deltas import Delta
from tidemark.model.log_schema import SENT_SCHEMA

# A delta that is refused takes a multiple of its size in the log; this many of these come near the limit of a frame.
MANY = 3_000
WIDE = 96


class Sent(NamedTuple):
    """A write on its way to the API."""

    deltas: Any
    expected: list[tuple[str, int] | None]  # id and count of each delta; None for one that must be refused
    spoil: Callable[[], None]  # what the caller does to its objects when `write` has returned


class _Raising:
    """An object of a caller's own."""

    def __repr__(self) -> str:
        raise RuntimeError("no code may look at this")

    __str__ = __repr__


class Caller:
    """Makes writes by seed. Ids and counts are unique, so that results can be told apart."""

    def __init__(self, random: Random, name: str, now_us: int) -> None:
        self._random, self._name, self._now_us = random, name, now_us
        self._numbers = count(1)

    def write(self) -> Sent:
        """Any write that a caller may send."""
        kinds = {
            self._objects: 5,
            self._texts: 3,
            self._structs: 2,
            self._columns: 3,
            self._shared_buffer: 2,
            self._hostile: 4,
            self._enormous: 1,
        }
        return self._random.choices(list(kinds), list(kinds.values()))[0]()

    def _sound(self) -> dict[str, Any]:
        number = next(self._numbers)
        payload = {"entity_id": f"e{number % 5}", "signal": "view", "count": number}
        return {
            "namespace": "shop",
            "kind": "signal",
            "delta_id": f"{self._name}-{number}",
            "event_ts": self._now_us,
            "signal": payload,
        }

    def _some(self) -> list[dict[str, Any]]:
        return [self._sound() for _ in range(self._random.randint(1, 5))]

    def _objects(self) -> Sent:
        deltas = self._some()
        expected = _expected(deltas)

        def spoil() -> None:
            for delta in deltas:
                delta["signal"]["count"] = -7
                delta["delta_id"] = "spoiled"
            deltas.clear()

        return Sent(deltas, expected, spoil)

    def _texts(self) -> Sent:
        deltas = self._some()
        texts: list[Any] = [
            json.dumps(delta) if self._random.random() < 0.5 else json.dumps(delta).encode() for delta in deltas
        ]
        return Sent(texts, _expected(deltas), texts.clear)

    def _structs(self) -> Sent:
        deltas = self._some()
        structs = [msgspec.convert(delta, Delta) for delta in deltas]

        def spoil() -> None:
            for struct in structs:
                struct.delta_id = "spoiled"
                if struct.signal is not None:
                    struct.signal.count = -7

        return Sent(structs, _expected(deltas), spoil)

    def _columns(self) -> Sent:
        deltas = self._some()
        batch = _batch(deltas)
        return Sent(pa.table(batch) if self._random.random() < 0.5 else batch, _expected(deltas), lambda: None)

    def _shared_buffer(self) -> Sent:
        """Columns over an array that the caller fills again."""
        deltas = self._some()
        batch = _batch(deltas)
        counts = np.array([delta["signal"]["count"] for delta in deltas], dtype=np.int64)
        signals = batch["signal"]
        fields = {name: signals.field(name) for name in ("entity_id", "signal", "count", "weight_millionths")}
        fields["count"] = pa.Array.from_buffers(pa.int64(), len(counts), [None, pa.py_buffer(counts)])
        columns = {name: batch[name] for name in batch.schema.names}
        columns["signal"] = pa.StructArray.from_arrays(list(fields.values()), fields=list(signals.type))
        shared = pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)
        return Sent(shared, _expected(deltas), lambda: counts.fill(-7))

    def _hostile(self) -> Sent:
        """Invalid deltas among valid ones."""
        itself: dict[str, Any] = {"namespace": "shop"}
        itself["signal"] = itself
        deep: Any = []
        for _ in range(sys.getrecursionlimit() * 2):
            deep = [deep]
        bad = [
            itself,
            {b"namespace": b"shop"},
            {"namespace": _Raising()},
            deep,
            _Raising(),
            {**self._sound(), "event_ts": 2**62},
            {**self._sound(), "event_ts": datetime(9999, 12, 31, tzinfo=UTC)},
            {**self._sound(), "signal": {"entity_id": "\ud800", "signal": "view"}},
            {**self._sound(), "delta_id": "x" * 100_000},
            b"\xff\xfe",
            "[" * 100_000,
            float("nan"),
            None,
        ]
        if self._random.random() < 0.3:
            return self._hostile_columns()
        deltas: list[Any] = self._some()
        expected: list[tuple[str, int] | None] = list(_expected(deltas))
        for _ in range(self._random.randint(1, 3)):
            place = self._random.randrange(len(deltas) + 1)
            deltas.insert(place, self._random.choice(bad))
            expected.insert(place, None)
        return Sent(deltas, expected, deltas.clear)

    def _hostile_columns(self) -> Sent:
        """A row that only the door for rows can check, beside a valid one."""
        sound, other = self._sound(), self._sound()
        vector = {"vector_id": "v", "op": "delete"}
        labels = [("host", "a"), ("host", "b")]
        bad = self._random.choice(
            (
                {**other, "event_ts": 253_402_300_800_000_000},  # Python has no calendar for it
                _other(other, "vector", {**vector, "clock": [("n", -1)]}),
                _other(other, "vector", {**vector, "clock": [("n", None)]}),
                _other(other, "vector", {**vector, "metadata": [("a", "b"), ("a", "b")]}),
                _other(other, "sample", {"labels": labels, "value": 1.0}),
                _other(other, "sample", {"labels": [("host", None)], "value": 1.0}),
            )
        )
        table = pa.table(_batch([sound, bad]))
        if self._random.random() < 0.3:
            table = pa.table(_batch([sound, other])).append_column("colour", pa.array([None, "red"]))
        return Sent(table, [*_expected([sound]), None], lambda: None)

    def _enormous(self) -> Sent:
        """Columns that are refused row by row, near the limit of a frame or beyond it."""
        rows = self._random.choice((MANY // 4, MANY, 4 * MANY))
        payload = {"vector_id": "v", "op": "nonsense", "values": [0.123456789] * WIDE}
        delta = {"namespace": "shop", "kind": "vector", "delta_id": "v", "event_ts": self._now_us, "vector": payload}
        one = _batch([delta])
        return Sent(one.take(pa.array([0] * rows)), [None] * rows, lambda: None)


def _other(delta: dict[str, Any], kind: str, payload: dict[str, Any]) -> dict[str, Any]:
    """The same delta of another kind."""
    return {**{name: value for name, value in delta.items() if name != "signal"}, "kind": kind, kind: payload}


def _batch(deltas: list[dict[str, Any]]) -> pa.RecordBatch:
    rows = []
    for delta in deltas:
        row = {"priority": "normal", "source": "local", **delta}
        if "signal" in row:
            row["signal"] = {**row["signal"], "weight_millionths": 0}
        rows.append({name: row.get(name) for name in SENT_SCHEMA.names})
    return pa.RecordBatch.from_pylist(rows, SENT_SCHEMA)


def _expected(deltas: list[dict[str, Any]]) -> list[tuple[str, int] | None]:
    return [(delta["delta_id"], delta["signal"]["count"]) for delta in deltas]
