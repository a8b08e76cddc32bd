"""Canonical places (D3, Q4), against what the rules say word for word: any order of arrival, parents, cycles."""

from random import Random

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.vector_oracle import Delta, deltas, place_of, table_of
from tidemark.vectors.places import place, with_places


def _said(arrived: list[Delta]) -> dict[tuple[str, int, str], tuple[object, ...]]:
    return {
        (row["vector_id"], row["event_us"], row["delta_id"]): (row["standing"], row["eff_us"], row["depth"])
        for row in with_places(table_of(arrived)).to_pylist()
    }


def _expected(arrived: list[Delta]) -> dict[tuple[str, int, str], tuple[object, ...]]:
    expected = {}
    for delta in arrived:
        found = place_of(delta, arrived)
        said = (found, delta["event_us"], 0) if isinstance(found, str) else ("placed", *found[:2])
        expected[delta["vector_id"], delta["event_us"], delta["delta_id"]] = said
    return expected


def _line(*deltas: tuple[str, int, str | None], vector_id: str = "v") -> list[Delta]:
    return [
        {
            "namespace": "demo",
            "vector_id": vector_id,
            "origin": "app",
            "delta_id": own,
            "event_us": at,
            "parent_id": parent,
        }
        for own, at, parent in deltas
    ]


@settings(max_examples=120)
@given(deltas(max_size=16), st.integers(0, 99))
def test_places_are_those_of_the_rule_in_any_order_of_arrival(arrived: list[Delta], seed: int) -> None:
    expected = _expected(arrived)
    assert _said(arrived) == expected
    Random(seed).shuffle(arrived)
    assert _said(arrived) == expected


def test_a_child_that_is_older_than_its_parent_stands_right_after_it() -> None:
    arrived = _line(("parent", 10, None), ("child", -5, "parent"), ("grandchild", 10, "child"), ("later", 11, "child"))
    found = {key[2]: said for key, said in _said(arrived).items()}
    assert found["child"] == ("placed", 10, 1)
    assert found["grandchild"] == ("placed", 10, 2)
    assert found["later"] == ("placed", 11, 0)


def test_what_lacks_an_ancestor_is_parked_and_healed_when_it_arrives() -> None:
    arrived = _line(("b", 2, "a"), ("c", 3, "b"), ("free", 1, None))
    assert [said[0] for said in _said(arrived).values()] == ["parked", "parked", "placed"]
    healed = _said([*arrived, *_line(("a", 5, None))])
    assert [said[0] for said in healed.values()] == ["placed"] * 4
    assert healed["v", 3, "c"] == ("placed", 5, 2)


def test_a_cycle_and_all_below_it_have_no_place() -> None:
    arrived = _line(
        ("a", 1, "b"), ("b", 2, "c"), ("c", 3, "a"), ("below", 4, "c"), ("free", 5, None), ("own", 6, "own")
    )
    assert [said[0] for said in _said(arrived).values()] == ["cycle"] * 4 + ["placed", "cycle"]


def test_a_parent_is_a_delta_of_the_same_vector() -> None:
    arrived = _line(("a", 9, None), vector_id="other") + _line(("b", 1, "a"))
    assert _said(arrived)["v", 1, "b"][0] == "parked"


def test_of_several_deltas_with_one_id_the_earliest_is_the_parent() -> None:
    arrived = _line(("a", 7, None), ("a", 4, None), ("b", 1, "a"))
    assert _said(arrived)["v", 1, "b"] == ("placed", 4, 1)


def test_a_chain_of_a_million_is_walked_without_recursion() -> None:
    length = 1_000_000
    ids = pa.array(np.arange(length)).cast(pa.string())
    parents = pa.concat_arrays([pa.nulls(1, pa.string()), ids[:-1]])
    backwards = pa.array(np.arange(length)[::-1])
    found = place(
        np.zeros(length, np.int64),
        np.zeros(length, np.int64),
        pa.repeat("app", length),
        ids.take(backwards),
        parents.take(backwards),
    )
    assert not found.standing.any()
    assert np.array_equal(found.depth[::-1], np.arange(length))
