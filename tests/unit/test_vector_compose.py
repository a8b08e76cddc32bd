"""Composition (D5): one form does what its deltas do one after the other, on every state."""

from collections.abc import Callable
from functools import reduce
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.live import new_home, open_platform, signal, vector
from tests.support.vector_oracle import Delta, Oracle, deltas, payload, place_of
from tidemark.delivery.batching import Batch
from tidemark.model.deltas import Vector
from tidemark.model.log_schema import LOG_SCHEMA
from tidemark.model.log_schema import VECTOR as PAYLOAD
from tidemark.model.operations import Operation
from tidemark.vectors.compose import TOMBSTONE, Form, Live, State, apply_form, compose, form_of
from tidemark.vectors.errors import UnknownOperationError
from tidemark.vectors.merged import merged_forms

FIELDS = [field.name for field in PAYLOAD if field.name != "clock"]  # clocks are not composed
# How far apart apply_form(compose(a, b), s) and apply_form(b, apply_form(a, s)) may lie, relative to the same
# calculation with all numbers taken without their signs (what cancels out has been rounded before). Each delta rounds a
# number three times at most, by 2^-53 each: a thousand of them, at which compaction is forced, by 4e-13.
RELATIVE_TOLERANCE = 1e-12
STATES: list[State] = [
    None,
    TOMBSTONE,
    *(Live(tuple(0.3 + place for place in range(length)), {"k": "old", "m": "old"}) for length in range(1, 6)),
]


def _vector(random: Random, op: str | None = None) -> Vector:
    while True:
        found = payload(random)
        if op in (None, found["op"]):
            patch = {key: random.choice((None, "x", "y")) for key in "kl" if random.random() < 0.5}
            return Vector("v", metadata=patch, **found)


def _one_by_one(vectors: list[Vector], state: State) -> State:
    """The fold of D3, in plain Python, from any state on."""
    oracle = Oracle()
    oracle.exists = state is not None
    if isinstance(state, Live):
        oracle.values, oracle.metadata = list(state.values), dict(state.metadata)
    for v in vectors:
        numbers = {"op": v.op, "values": v.values, "indices": v.indices, "factor": v.factor, "amount": v.amount}
        oracle.fold([{**numbers, "metadata": v.metadata, "clock": None}])
    if oracle.values is not None:
        return Live(tuple(oracle.values), oracle.metadata)
    return TOMBSTONE if oracle.exists else None


def _unsigned(vectors: list[Vector], state: State) -> State:
    """The same calculation with all numbers taken without their signs: what roundings are relative to."""
    plain = [
        Vector(
            "v",
            v.op,
            values=v.values and [abs(value) for value in v.values],
            indices=v.indices,
            factor=None if v.factor is None else abs(v.factor),
            amount=None if v.amount is None else abs(v.amount),
        )
        for v in vectors
    ]
    return _one_by_one(plain, state)


def _assert_same(found: State, expected: State, size: State) -> None:
    assert type(found) is type(expected)
    if isinstance(found, Live) and isinstance(expected, Live) and isinstance(size, Live):
        assert found.metadata == expected.metadata
        for a, b, bound in zip(found.values, expected.values, size.values, strict=True):
            assert abs(a - b) <= RELATIVE_TOLERANCE * bound


@pytest.mark.parametrize(("first", "second"), list(product(map(str, Operation), repeat=2)))
def test_every_ordered_pair_composes_to_what_both_do_in_turn(first: str, second: str) -> None:
    random = Random(f"{first} {second}")
    for _ in range(12):
        pair = [_vector(random, first), _vector(random, second)]
        a, b = map(form_of, pair)
        for state in STATES:
            _assert_same(apply_form(a, state), _one_by_one(pair[:1], state), _unsigned(pair[:1], state))
            _assert_same(apply_form(compose(a, b), state), _one_by_one(pair, state), _unsigned(pair, state))
            _assert_same(apply_form(compose(a, b), state), apply_form(b, apply_form(a, state)), _unsigned(pair, state))


@settings(max_examples=60)
@given(st.integers(0, 1 << 32), st.integers(3, 12))
def test_composition_is_associative_within_the_tolerance(seed: int, length: int) -> None:
    random = Random(seed)
    vectors = [_vector(random) for _ in range(length)]
    forms = [form_of(vector) for vector in vectors]
    leftwards = reduce(compose, forms)
    rightwards = reduce(lambda later, earlier: compose(earlier, later), reversed(forms))
    halves = compose(reduce(compose, forms[: length // 2]), reduce(compose, forms[length // 2 :]))
    for state in STATES:
        for form in (leftwards, rightwards, halves):
            _assert_same(apply_form(form, state), _one_by_one(vectors, state), _unsigned(vectors, state))
    assert [least for least, _ in leftwards.pieces] == [least for least, _ in rightwards.pieces]


def _form(op: str, **payload: object) -> Form:
    return form_of(Vector("v", op, **payload))  # type: ignore[arg-type]


def test_a_form_knows_whether_it_made_a_base_of_its_own() -> None:
    delete, create = _form("delete"), _form("create", values=[1.0])
    assert apply_form(delete, None) is None
    assert apply_form(compose(create, delete), None) == TOMBSTONE
    assert apply_form(compose(delete, create), TOMBSTONE) == Live((1.0,))


def test_what_points_beyond_a_vector_has_no_effect_in_a_composition_either() -> None:
    form = compose(_form("set_dims", indices=[3], values=[9.0], metadata={"k": "x"}), _form("scale", factor=2.0))
    assert apply_form(form, Live((1.0, 1.0))) == Live((2.0, 2.0))
    assert apply_form(form, Live((1.0, 1.0, 1.0, 1.0))) == Live((2.0, 2.0, 2.0, 18.0), {"k": "x"})


def test_one_meaning_has_one_form() -> None:
    create = _form("create", values=[1.0], metadata={"k": None, "l": "x"})
    assert compose(_form("set_dims", indices=[3], values=[9.0]), create) == create
    assert compose(create, _form("set_dims", indices=[3], values=[9.0])) == create
    assert len(compose(_form("set_dims", indices=[3], values=[9.0]), _form("delete")).pieces) == 1
    set_one = _form("set_dims", indices=[0], values=[9.0])
    assert compose(_form("add_dims", indices=[0], values=[1.0]), set_one) == set_one  # what was added is gone


def test_a_form_of_an_unknown_operation_is_refused() -> None:
    with pytest.raises(UnknownOperationError, match="'merge'"):
        _form("merge")


def _logged(arrived: list[Delta]) -> pa.RecordBatch:
    """Deltas as a batch brings them."""
    rows = [
        {
            **{name: delta[name] for name in ("namespace", "delta_id", "shard", "epoch", "ordinal")},
            "kind": "vector",
            "event_ts": delta["event_us"],
            "producer" if delta["epoch"] % 2 else "origin": delta["origin"],
            "vector": {name: delta[name] for name in FIELDS if name in delta},
        }
        for delta in arrived
    ]
    [batch] = pa.Table.from_pylist(rows, LOG_SCHEMA).combine_chunks().to_batches()
    return batch


@settings(max_examples=60)
@given(deltas())
def test_c5_a_batch_merged_by_vector_does_what_its_deltas_do_parents_first(arrived: list[Delta]) -> None:
    forms = merged_forms(_logged(arrived))
    assert {vector_id for _, vector_id in forms} == {delta["vector_id"] for delta in arrived}
    for (_, vector_id), form in forms.items():
        own = [delta for delta in arrived if delta["vector_id"] == vector_id]
        # A parent that is not in the batch is none: who names it stands at its own time, before all below it.
        there = {delta["delta_id"] for delta in own}
        rooted = [delta if delta["parent_id"] in there else {**delta, "parent_id": None} for delta in own]
        placed = sorted(rooted, key=_place(rooted))
        ordered = [msgspec.convert({name: delta.get(name) for name in FIELDS}, Vector) for delta in placed]
        for state in STATES:
            _assert_same(apply_form(form, state), _one_by_one(ordered, state), _unsigned(ordered, state))


def _place(arrived: list[Delta]) -> Callable[[Delta], tuple[Any, ...]]:
    """The place of D3, and its own time for a delta that is its own ancestor."""

    def key(delta: Delta) -> tuple[Any, ...]:
        found = place_of(delta, arrived)
        own = (delta["event_us"], 0, delta["event_us"], delta["origin"], delta["delta_id"])
        return own if isinstance(found, str) else found

    return key


def test_c5_a_child_stands_behind_its_parent_though_that_ones_parent_came_before() -> None:
    envelope = {"namespace": "demo", "vector_id": "v", "shard": 0, "ordinal": 0, "origin": "p"}
    head = {**envelope, "delta_id": "a", "parent_id": "p0", "event_us": 50, "epoch": 1, "op": "offset", "amount": 10.0}
    child = {**envelope, "delta_id": "b", "parent_id": "a", "event_us": 40, "epoch": 2, "op": "scale", "factor": 2.0}
    assert apply_form(merged_forms(_logged([child, head]))["demo", "v"], Live((1.0,))) == Live((22.0,))


def test_c5_a_subscriber_that_merges_what_it_gets_has_the_vectors(tmp_path: Path) -> None:
    mine: dict[tuple[str, str], State] = {}
    with open_platform(new_home(tmp_path)) as platform, platform.shards[0].subscribe() as batches:
        writes = [
            [vector("a", "create", values=[1.0, 2.0]), vector("b", "add_dims", indices=[1], values=[0.5]), signal("s")],
            [vector("c", "scale", factor=2.0), vector("d", "create", vector_id="v2", values=[7.0])],
            [vector("e", "delete", vector_id="v2"), vector("f", "set_dims", indices=[0], values=[9.0])],
        ]
        for write in writes:
            platform.producer("p").write(write).wait()
            platform.shards[0].close_batch()
            batch = batches.get(timeout=10)
            assert isinstance(batch, Batch)
            for key, form in merged_forms(batch.deltas()).items():
                mine[key] = apply_form(form, mine.get(key))
    assert mine == {("shop", "v1"): Live((9.0, 5.0)), ("shop", "v2"): TOMBSTONE}
