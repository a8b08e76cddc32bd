"""Rows of vectors after more deltas, against plain Python (D3, K1): whatever the arrival and the cut into runs."""

from collections import Counter
from collections.abc import Sequence
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.vector_oracle import Delta, Oracle, canonical, random_deltas, said, table_of
from tests.support.vector_rows import arrived_of, expected_rows, rows_by_name
from tidemark.vectors.bucket import InMemory, in_order, unable_to_go_on
from tidemark.vectors.bucket import go_on as go_on_from
from tidemark.vectors.chain import state_of
from tidemark.vectors.errors import RemovedPayloadError
from tidemark.vectors.schema import ARRIVED, CURRENT, KEY

NAMES = "uv"


def go_on(rows: pa.Table, deltas: pa.Table, bases: pa.Table | None = None) -> pa.Table:
    return go_on_from(rows, InMemory(deltas), bases)


def some_deltas(seed: int, size: int = 12) -> list[Delta]:
    """In the order of their arrival; with every second seed, none names a parent."""
    return [delta | ({"parent_id": None} if seed % 2 else {}) for delta in random_deltas(Random(seed), size, NAMES)]


def of(deltas: Sequence[Delta], name: str) -> list[Delta]:
    return [delta for delta in deltas if delta["vector_id"] == name]


def assert_same(rows: pa.Table, deltas: Sequence[Delta]) -> None:
    assert rows.schema.equals(CURRENT)
    assert rows_by_name(rows) == expected_rows(deltas)


def without(rows: pa.Table, names: pa.Table) -> pa.Table:
    return rows.filter(pc.invert(pc.is_in(rows["vector_id"], names["vector_id"].combine_chunks())))


@settings(max_examples=50)
@given(st.integers(0, 2**32))
def test_all_at_once_is_what_plain_python_says_d3(seed: int) -> None:
    deltas = some_deltas(seed)
    rows = go_on(CURRENT.empty_table(), arrived_of(deltas))
    assert_same(rows, deltas)
    assert in_order(rows).equals(rows)
    # The core that they are compared with is itself what a few lines of Python say.
    for row in said(rows):
        oracle = Oracle().fold(canonical(of(deltas, row["vector_id"]), row["vector_id"]))
        assert row["no_base"] == oracle.effects.count("no_base")
        assert row["values"] == (None if oracle.values is None else np.array(oracle.values, np.float32).tobytes())


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 12), max_size=3))
def test_any_cut_into_runs_leads_to_the_same_rows_k1(seed: int, cuts: list[int]) -> None:
    """Late deltas, ties, healed parents and bases: some vectors go on from their rows, the others are folded anew."""
    deltas = some_deltas(seed)
    rows, covered = CURRENT.empty_table(), 0
    for upto in (*sorted(cuts), len(deltas)):
        new = arrived_of(deltas[covered:upto])
        unable = unable_to_go_on(rows, new)
        anew = set(unable["vector_id"].to_pylist())
        given_deltas = [d for n, d in enumerate(deltas[:upto]) if n >= covered or d["vector_id"] in anew]
        rows = go_on(without(rows, unable), arrived_of(given_deltas))
        covered = upto
        assert_same(rows, deltas[:covered])


def test_a_vector_goes_on_only_if_nothing_is_late_and_nobody_names_a_parent_k4() -> None:
    ways: Counter[bool] = Counter()
    for seed in range(60):
        deltas = some_deltas(seed)
        before, new = deltas[:8], deltas[8:]
        rows = go_on(CURRENT.empty_table(), arrived_of(before))
        unable = set(unable_to_go_on(rows, arrived_of(new))["vector_id"].to_pylist())
        for name in {delta["vector_id"] for delta in new} & {delta["vector_id"] for delta in before}:
            ordered = canonical(of(deltas, name), name)
            has_parents = any(delta["parent_id"] is not None for delta in of(deltas, name))
            is_late = ordered[: len(of(before, name))] != canonical(of(before, name), name)
            assert (name in unable) == (has_parents or is_late), (seed, name)
            ways[name in unable] += 1
    assert min(ways.values()) > 5, "both ways are taken"


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.randoms(use_true_random=False))
def test_the_order_in_which_rows_lie_does_not_matter(seed: int, random: Random) -> None:
    deltas = some_deltas(seed)
    shuffled = deltas.copy()
    random.shuffle(shuffled)
    before, after = (go_on(CURRENT.empty_table(), arrived_of(each)) for each in (deltas, shuffled))
    assert before.equals(after)


@settings(max_examples=50)
@given(st.integers(0, 2**32), st.integers(1, 11))
def test_a_vector_goes_on_from_a_base_and_leaves_out_what_it_holds_k5(seed: int, held: int) -> None:
    """The payloads below it may be gone: what is held is not folded again, and is still the parent of others."""
    deltas = some_deltas(seed)
    ordered = {name: canonical(of(deltas, name), name) for name in NAMES}
    first = {name: line[:held] for name, line in ordered.items() if line}
    if not first:
        return
    bases = pa.concat_tables([state_of(table_of(line)) for line in first.values()])
    gone = [delta for line in first.values() for delta in line]
    left = [delta | ({"values": None, "op": "replace"} if delta in gone else {}) for delta in deltas]
    assert_same(go_on(CURRENT.empty_table(), arrived_of(left), bases), deltas)


def test_a_base_of_a_vector_without_deltas_becomes_no_row() -> None:
    deltas = some_deltas(1)
    one, other = of(deltas, "u"), of(deltas, "v")
    rows = go_on(CURRENT.empty_table(), arrived_of(one), state_of(table_of(other)))
    assert rows["vector_id"].to_pylist() == ["u"]


def test_a_payload_that_is_gone_without_a_base_is_an_error_k5() -> None:
    stripped = [delta | {"values": None, "op": "replace", "parent_id": None} for delta in some_deltas(1)]
    with pytest.raises(RemovedPayloadError):
        go_on(CURRENT.empty_table(), arrived_of(stripped))


def test_rows_of_vectors_without_new_deltas_stay_as_they_were() -> None:
    deltas = some_deltas(3, 30)
    rows = go_on(CURRENT.empty_table(), arrived_of(of(deltas, "u")))
    after = go_on(rows, arrived_of(of(deltas, "v")))
    assert after.slice(0, rows.num_rows).equals(rows)
    assert_same(after, deltas)
    assert go_on(rows, ARRIVED.empty_table()).equals(rows)


def test_many_deltas_of_one_moment_are_ordered_by_their_texts_d3() -> None:
    """Ties of all numbers, in two vectors whose runs lie side by side."""
    deltas = [delta | {"event_us": 0, "parent_id": None} for seed in range(5) for delta in some_deltas(seed)]
    unique = {(delta["vector_id"], delta["origin"], delta["delta_id"]): delta for delta in deltas}
    assert len(unique) > 30
    assert_same(go_on(CURRENT.empty_table(), arrived_of(list(unique.values()))), list(unique.values()))


def test_names_are_those_of_a_vector_in_its_namespace() -> None:
    """Two vectors of one name in two namespaces are two vectors."""
    deltas = [delta | {"namespace": space} for space in ("a", "b") for delta in of(some_deltas(5, 20), "u")]
    rows = go_on(CURRENT.empty_table(), arrived_of(deltas))
    assert rows.select(list(KEY)).to_pylist() == [{"namespace": space, "vector_id": "u"} for space in ("a", "b")]
    one, other = ({**row, "namespace": None} for row in said(rows))
    assert one == other
