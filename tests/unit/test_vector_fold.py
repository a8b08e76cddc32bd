"""The fold (D2, D3, D4, K1): the same bits as one number at a time, in any order, any batches, from any checkpoint."""

from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.vector_oracle import (
    Delta,
    Oracle,
    canonical,
    cut,
    deltas,
    folded,
    kept_state,
    rows_in_order,
    said,
    starts,
)
from tidemark.vectors.errors import RemovedPayloadError, UnknownOperationError, UnsortedError
from tidemark.vectors.fold import Folder, whole_states
from tidemark.vectors.schema import FOLD_INPUT

borders = st.lists(st.integers(0, 40), max_size=4)


def _expected(arrived: list[Delta], vector_id: str) -> dict[str, Any]:
    ordered = canonical(arrived, vector_id)
    end = Oracle().fold(ordered)
    last = max((d["epoch"], d["ordinal"]) for d in ordered)
    exact = None if end.values is None else np.array(end.values, np.float64)
    return {
        "vector_id": vector_id,
        "exists": end.exists,
        "is_dead": end.exists and end.values is None,
        "values": None if exact is None else exact.astype(np.float32).tobytes(),
        "state": kept_state(end.values),
        "metadata": sorted(end.metadata.items()) or None,
        "clock": sorted(end.clock.items()) or None,
        "delta_id": ordered[-1]["delta_id"],
        "event_us": ordered[-1]["event_us"],
        "last_epoch": last[0],
        "last_ordinal": last[1],
        "first_epoch": min(d["epoch"] for d in ordered),
        "deltas": len(ordered),
        "no_base": end.effects.count("no_base"),
        "no_effect": end.effects.count("after_delete") + end.effects.count("out_of_range"),
    }


def _delta(delta_id: str, at: int, op: str, **payload: Any) -> Delta:
    envelope = {"namespace": "demo", "vector_id": "v", "origin": "app", "parent_id": None, "shard": 0, "ordinal": 0}
    return {
        **envelope,
        "delta_id": delta_id,
        "event_us": at,
        "epoch": 1,
        "op": op,
        "metadata": None,
        "clock": None,
    } | payload


def _end(*arrived: Delta) -> dict[str, Any]:
    (row,) = folded(cut(rows_in_order(arrived), [])).to_pylist()
    return dict(row)


@settings(max_examples=150)
@given(deltas(), st.integers(0, 99), borders, st.sampled_from([1, 5, 1 << 16]))
def test_a_state_is_the_left_fold_whatever_the_arrival_and_the_batches(
    arrived: list[Delta], seed: int, borders: list[int], given_at_once: int
) -> None:
    Random(seed).shuffle(arrived)
    found = said(folded(cut(rows_in_order(arrived), borders), given_at_once=given_at_once))
    vectors = sorted(v for v in {d["vector_id"] for d in arrived} if canonical(arrived, v))
    expected = [_expected(arrived, vector_id) for vector_id in vectors]
    assert [{name: row[name] for name in want} for row, want in zip(found, expected, strict=True)] == expected


@settings(max_examples=40)
@given(deltas(), borders)
def test_going_on_from_a_checkpoint_after_any_row_gives_the_same_bits(arrived: list[Delta], borders: list[int]) -> None:
    rows = rows_in_order(arrived)
    if not rows.num_rows:
        return
    whole = said(folded(cut(rows, [])))
    emitting = rows.set_column(rows.schema.get_field_index("emit"), "emit", pa.array([True] * rows.num_rows))
    after_each = folded(cut(emitting, borders), is_last_only=False, given_at_once=7)
    assert after_each.num_rows == rows.num_rows
    for place in range(rows.num_rows):
        vector_id = rows["vector_id"][place].as_py()
        rest = [row for row in range(place + 1, rows.num_rows) if rows["vector_id"][row].as_py() == vector_id]
        start = starts(after_each.slice(place, 1))
        resumed = pa.concat_tables([start, rows.take(pa.array(rest, pa.int64())).select(start.schema.names)])
        assert said(folded(cut(resumed, borders))) == [row for row in whole if row["vector_id"] == vector_id]


@settings(max_examples=50)
@given(deltas(vectors="v"))
def test_finite_small_input_gives_finite_states(arrived: list[Delta]) -> None:
    for row in folded(cut(rows_in_order(arrived), [])).to_pylist():
        assert np.isfinite(np.frombuffer(row["state"] or b"")).all()
        assert np.isfinite(row["values"] or []).all()


def test_only_a_create_revives_what_was_deleted_and_a_tombstone_keeps_its_clock() -> None:
    made = _delta("a", 1, "create", values=[1.0, 2.0], metadata={"k": "x"}, clock={"p": 2})
    gone = _delta("b", 2, "delete", metadata={"k": "y"}, clock={"q": 1})
    late = _delta("c", 3, "offset", amount=1.0, metadata={"k": "z"}, clock={"p": 9})
    end = _end(made, gone, late)
    assert (end["exists"], end["is_dead"], end["values"], end["metadata"]) == (True, True, None, None)
    assert end["clock"] == [("p", 2), ("q", 1)]
    assert (end["deltas"], end["no_base"], end["no_effect"], end["delta_id"]) == (3, 0, 1, "c")
    again = _end(made, gone, late, _delta("d", 4, "create", values=[7.0], clock={"p": 3}))
    assert (again["is_dead"], again["values"], again["clock"]) == (False, [7.0], [("p", 3), ("q", 1)])


def test_what_has_no_base_is_counted_and_healed_by_a_create_that_sorts_before_it() -> None:
    early = _delta("b", 2, "add_dims", indices=[0], values=[1.0], metadata={"k": "x"})
    end = _end(early)
    assert (end["exists"], end["is_dead"], end["values"], end["no_base"], end["metadata"]) == (
        False,
        False,
        None,
        1,
        None,
    )
    healed = _end(early, _delta("a", 1, "create", values=[1.0]))
    assert (healed["exists"], healed["values"], healed["no_base"]) == (True, [2.0], 0)
    assert healed["metadata"] == [("k", "x")]


def test_an_index_beyond_the_present_length_leaves_the_whole_delta_without_effect() -> None:
    made = _delta("a", 1, "create", values=[1.0, 2.0])
    end = _end(made, _delta("b", 2, "set_dims", indices=[0, 2], values=[9.0, 9.0], metadata={"k": "x"}))
    assert (end["values"], end["metadata"], end["no_effect"]) == ([1.0, 2.0], None, 1)


def test_the_float64_state_is_stored_only_where_the_values_do_not_say_it() -> None:
    made = _delta("a", 1, "create", values=[0.5, 2.0])
    assert _end(made)["state"] is None
    assert _end(made, _delta("b", 2, "scale", factor=0.1))["state"] == np.array([0.5 * 0.1, 2.0 * 0.1]).tobytes()
    for index in (0, 1):  # one number that needs it is enough, wherever it stands
        assert _end(made, _delta("b", 2, "add_dims", indices=[index], values=[2.0**-40]))["state"] is not None


@pytest.mark.parametrize("differing", range(8))
def test_of_a_long_vector_only_the_numbers_are_stored_that_the_values_do_not_say(differing: int) -> None:
    """As pairs of place and number while these are shorter; what goes on from them goes on from the same bits."""
    made = _delta("a", 1, "create", values=[float(number) for number in range(1, 8)])
    tiny = {"indices": list(range(differing)), "values": [2.0**-40] * differing}
    rows = rows_in_order([made, _delta("b", 2, "add_dims", **tiny), _delta("c", 3, "scale", factor=1 / 3)])
    before = folded(cut(rows.slice(0, 2), []))
    [row] = said(before)
    assert row["state"] == kept_state([number + (2.0**-40 if number <= differing else 0.0) for number in range(1, 8)])
    assert len(row["state"] or b"") == 8 * min(2 * differing, 7)
    [whole] = whole_states(before.to_batches()[0]).to_pylist()
    exact = [number + (2.0**-40 if number <= differing else 0.0) for number in range(1, 8)]
    assert whole == (np.array(exact).tobytes() if differing else None)
    in_full = starts(before.set_column(before.schema.get_field_index("state"), "state", pa.array([whole], pa.binary())))
    resumed = pa.concat_tables([in_full, rows.slice(2).select(FOLD_INPUT.names)])
    assert said(folded(cut(resumed, []))) == said(folded(cut(rows, []))), "either form goes on from the same bits"
    resumed = pa.concat_tables([starts(before), rows.slice(2).select(FOLD_INPUT.names)])
    assert said(folded(cut(resumed, []))) == said(folded(cut(rows, [])))


def test_long_and_short_vectors_are_given_out_in_batches_of_bounded_size() -> None:
    arrived = [
        _delta(f"d{place}", place, "create", values=[float(place)] * (1 + 40 * (place % 5)), vector_id=f"v{place:02}")
        for place in range(30)
    ]
    folder = Folder(given_at_once=200)
    (batch,) = cut(rows_in_order([delta | {"emit": True} for delta in arrived]), [])
    given = list(folder.fold(batch))
    assert len(given) > 1
    assert [row["values"] for states in given for row in states.to_pylist()] == [d["values"] for d in arrived]


def test_the_last_arrival_is_found_whatever_its_place_and_its_shard() -> None:
    made = _delta("a", 5, "create", values=[1.0], epoch=3, ordinal=4, shard=1)
    end = _end(made, _delta("b", 6, "scale", factor=2.0, epoch=3, ordinal=2), _delta("c", 1, "delete", epoch=2))
    assert (end["shard"], end["last_epoch"], end["last_ordinal"], end["first_epoch"]) == (1, 3, 4, 2)


def test_rows_that_are_not_in_canonical_order_are_refused() -> None:
    rows = rows_in_order([_delta("a", 1, "create", values=[1.0]), _delta("b", 1, "delete")])
    backwards = rows.take([1, 0])
    for borders in ([], [1]):
        with pytest.raises(UnsortedError, match="does not sort after"):
            folded(cut(backwards, borders))
    states = folded(cut(rows, []))
    late_start = pa.concat_tables([rows.select(starts(states).schema.names).slice(0, 1), starts(states)])
    with pytest.raises(UnsortedError, match="not its first row"):
        folded(cut(late_start, []))


def test_a_row_without_a_known_operation_is_refused() -> None:
    rows = rows_in_order([_delta("a", 1, "create", values=[1.0])])
    for op in ("merge", None):
        odd = rows.set_column(rows.schema.get_field_index("op"), "op", pa.array([op], pa.string()))
        with pytest.raises(UnknownOperationError, match=repr(op)):
            folded(cut(odd, []))


def test_k5_what_was_removed_is_not_folded_as_if_it_had_said_nothing() -> None:
    kept = [_delta("a", 1, "create", values=[1.0]), _delta("b", 2, "set_dims", indices=[0], values=[2.0])]
    for gone in kept:
        rows = [each | {"values": None, "indices": None} if each is gone else each for each in kept]
        with pytest.raises(RemovedPayloadError, match=f"What delta {gone['delta_id']!r} of vector .* was removed"):
            folded(cut(rows_in_order(rows), []))
    assert said(folded(cut(rows_in_order([*kept, _delta("c", 3, "delete")]), [])))[0]["is_dead"]
