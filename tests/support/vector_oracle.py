"""Vectors in plain Python, too simple to be wrong: what D3 and D4 say, with dicts, recursion and one number at a time.

Belongs here: deltas as dicts, strategies that make them, and what the compiled core is compared with.
"""

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from hypothesis import strategies as st

from tidemark.model.operations import Operation
from tidemark.vectors.fold import Folder, emit_last, starting_states
from tidemark.vectors.places import PLACE_COLUMNS, with_places
from tidemark.vectors.schema import FOLD_INPUT, STATES

Delta = dict[str, Any]
SORT_KEYS = [(name, "ascending") for name in ("namespace", "vector_id", *PLACE_COLUMNS)]
COLUMNS = [
    *(field for field in FOLD_INPUT if field.name not in ("eff_us", "depth")),
    pa.field("parent_id", pa.string()),
]

ORIGINS = ("a", "b", "\u00e4", "\U0001f30a", "\uffee")  # by their bytes in another order than by UTF-16
FACTORS = (0.0, -1.0, 0.1, 1 / 3, 3.0)


def payload(random: Random) -> Delta:
    """Any operation with what it needs, on vectors of at most four numbers; some indices point at nothing."""
    op = random.choice([*Operation, Operation.CREATE, Operation.ADD_DIMS, Operation.ADD_DIMS])
    if op in (Operation.CREATE, Operation.REPLACE):
        return {"op": op, "values": [random.uniform(-8, 8) for _ in range(random.randint(1, 4))]}
    if op in (Operation.SET_DIMS, Operation.ADD_DIMS):
        indices = random.sample(range(5), random.randint(1, 3))
        return {"op": op, "indices": indices, "values": [random.choice((-0.0, random.uniform(-8, 8))) for _ in indices]}
    if op == Operation.DELETE:
        return {"op": op}
    return {"op": op, "factor" if op == Operation.SCALE else "amount": random.choice(FACTORS)}


def _some(random: Random, keys: str, entries: Sequence[Any]) -> dict[str, Any] | None:
    return random.choice((None, {key: random.choice(entries) for key in keys if random.random() < 0.5}))


def random_deltas(random: Random, size: int, vectors: str) -> list[Delta]:
    """Deltas in the order of their arrival: ties, missing parents and cycles are frequent."""
    found: dict[tuple[str, int, str], Delta] = {}
    for _ in range(size):
        delta_id, parent = random.choice("abcdef"), random.choice((None, *"abcdefz"))
        delta: Delta = {
            "namespace": "demo",
            "vector_id": random.choice(vectors),
            "event_us": random.randint(-3, 3),
            "origin": random.choice(ORIGINS),
            "delta_id": delta_id,
            "parent_id": parent if parent != delta_id and random.random() < 0.6 else None,
            "metadata": _some(random, "kl", (None, "x", "y")),
            "clock": _some(random, "pq", (None, 0, 1, 2, 3)),
            **payload(random),
        }
        found.setdefault((delta["vector_id"], delta["event_us"], delta_id), delta)
    arrived = list(found.values())
    for place, delta in enumerate(arrived):
        delta |= {"shard": 0, "epoch": place // 2 + 1, "ordinal": place % 2}
    return arrived


def deltas(max_size: int = 14, vectors: str = "uv") -> st.SearchStrategy[list[Delta]]:
    """Deltas of a few vectors. Drawn from a seed: choosing every field by itself takes longer than what is tested."""
    return st.builds(
        lambda seed, size: random_deltas(Random(seed), size, vectors), st.integers(0, 1 << 32), st.integers(1, max_size)
    )


def table_of(rows: Iterable[Delta]) -> pa.Table:
    """Deltas as Arrow has them."""
    return pa.Table.from_pylist([{"emit": False, **row} for row in rows], schema=pa.schema(COLUMNS))


def place_of(delta: Delta, arrived: Sequence[Delta], below: tuple[int, ...] = ()) -> tuple[Any, ...] | str:
    """D3, word for word: a place, or why there is none."""
    if id(delta) in below:
        return "cycle"
    own = (delta["event_us"], 0)
    if delta["parent_id"] is not None:
        named = [
            other
            for other in arrived
            if (other["vector_id"], other["delta_id"]) == (delta["vector_id"], delta["parent_id"])
        ]
        if not named:
            return "parked"
        parent = place_of(min(named, key=lambda d: (d["event_us"], d["origin"])), arrived, (*below, id(delta)))
        if isinstance(parent, str):
            return parent
        own = (parent[0], parent[1] + 1) if delta["event_us"] <= parent[0] else own
    return (*own, delta["event_us"], delta["origin"], delta["delta_id"])


def canonical(arrived: Sequence[Delta], vector_id: str) -> list[Delta]:
    """The deltas of a vector that have a place, in the order of their places."""
    placed = [(place_of(d, arrived), d) for d in arrived if d["vector_id"] == vector_id]
    return [
        d for _, d in sorted((found for found in placed if not isinstance(found[0], str)), key=lambda found: found[0])
    ]


class Oracle:
    """The left fold of deltas that are in order, one Python float at a time."""

    def __init__(self) -> None:
        self.values: list[float] | None = None
        self.exists = False
        self.effects: list[str] = []
        self.metadata: dict[str, str] = {}
        self.clock: dict[str, int] = {}

    def fold(self, ordered: Iterable[Delta]) -> "Oracle":
        for delta in ordered:
            effect = self._apply(delta)
            self.effects.append(effect)
            if effect == "applied":
                before = {} if delta["op"] == "create" else self.metadata
                patched = {**before, **(delta["metadata"] or {})}
                self.metadata = {} if delta["op"] == "delete" else {k: v for k, v in patched.items() if v is not None}
                for key, count in (delta["clock"] or {}).items():
                    self.clock[key] = max(count or 0, self.clock.get(key, 0))
        return self

    def _apply(self, delta: Delta) -> str:
        op, given = delta["op"], [float(np.float32(value)) for value in delta.get("values") or []]
        if op == "create":
            self.exists, self.values = True, given
        elif self.values is None:
            return "after_delete" if self.exists else "no_base"
        elif op == "replace":
            self.values = given
        elif op == "delete":
            self.values = None
        elif op == "scale":
            self.values = [value * delta["factor"] for value in self.values]
        elif op == "offset":
            self.values = [value + delta["amount"] for value in self.values]
        elif max(delta["indices"]) >= len(self.values):
            return "out_of_range"
        else:
            for index, value in zip(delta["indices"], given, strict=True):
                self.values[index] = value if op == "set_dims" else self.values[index] + value
        return "applied"


def rows_in_order(arrived: Iterable[Delta]) -> pa.Table:
    """Rows as the fold takes them: those that have a place, sorted."""
    table = with_places(table_of(arrived))
    return table.filter(pc.equal(table["standing"], "placed")).sort_by(SORT_KEYS)


def cut(table: pa.Table, borders: Iterable[int]) -> list[pa.RecordBatch]:
    """The rows in batches that end at these borders, each a slice of one that is larger."""
    ends = sorted({border % (table.num_rows + 1) for border in borders} | {table.num_rows})
    whole = table.combine_chunks().to_batches()
    return [whole[0].slice(a, b - a) for a, b in zip([0, *ends], ends, strict=False) if b > a]


def folded(batches: Iterable[pa.RecordBatch], *, is_last_only: bool = True, given_at_once: int = 1 << 16) -> pa.Table:
    """States as the fold gives them."""
    folder = Folder(given_at_once)
    batches = emit_last(batches) if is_last_only else batches
    return pa.Table.from_batches([state for batch in batches for state in folder.fold(batch)], schema=STATES)


def starts(states: pa.Table) -> pa.Table:
    """States to go on from."""
    return pa.Table.from_batches(map(starting_states, states.to_batches()), schema=FOLD_INPUT)


def kept_state(values: Sequence[float] | None) -> bytes | None:
    """What is stored of a state beside its values: what they do not say, as pairs or whole, whichever is shorter."""
    exact = np.array([] if values is None else values, np.float64)
    differing = np.flatnonzero(exact.astype(np.float32).astype(np.float64) != exact)
    if not len(differing):
        return None
    pairs = [number for place in differing for number in (place, exact[place])]
    return np.array(pairs if len(pairs) < len(exact) else exact, np.float64).tobytes()


def said(states: pa.Table) -> list[dict[str, Any]]:
    """Everything that states say, bit for bit: numbers as bytes, so that -0.0 is not 0.0."""
    rows: list[dict[str, Any]] = states.to_pylist()
    for row in rows:
        row["values"] = None if row["values"] is None else np.array(row["values"], np.float32).tobytes()
    return rows
