"""One vector's chain and its states at moments and epochs (D3, K1, K4, K6)."""

from random import Random

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from resources.vectors.chain import chain, state_of
from resources.vectors.errors import BeforeCheckpointError, StaleCheckpointError
from tests.support.vector_oracle import (
    Delta,
    Oracle,
    canonical,
    cut,
    deltas,
    folded,
    place_of,
    rows_in_order,
    said,
    table_of,
)

one_vector = deltas(max_size=16, vectors="v")


def _whole(arrived: list[Delta]) -> list[dict[str, object]]:
    return said(folded(cut(rows_in_order(arrived), [])))


@settings(max_examples=50)
@given(one_vector, st.integers(0, 99))
def test_a_chain_shows_every_delta_once_in_canonical_order_with_what_became_of_it(
    arrived: list[Delta], seed: int
) -> None:
    ordered = canonical(arrived, "v")
    effects = Oracle().fold(ordered).effects
    rest = sorted(
        (d["event_us"], d["origin"], d["delta_id"], place_of(d, arrived))
        for d in arrived
        if isinstance(place_of(d, arrived), str)
    )
    Random(seed).shuffle(arrived)
    found = [
        (row["event_us"], row["origin"], row["delta_id"], row["effect"]) for row in chain(table_of(arrived)).to_pylist()
    ]
    expected = [(d["event_us"], d["origin"], d["delta_id"], e) for d, e in zip(ordered, effects, strict=True)]
    assert found == [*expected, *rest]


@settings(max_examples=50)
@given(one_vector, st.integers(-4, 4), st.integers(0, 9))
def test_a_moment_filters_by_effect_and_an_epoch_by_arrival(arrived: list[Delta], as_of_us: int, epoch: int) -> None:
    known = [d for d in arrived if d["epoch"] <= epoch]
    seen = [d for d in canonical(known, "v") if place_of(d, known)[0] <= as_of_us]  # type: ignore[operator]
    found = state_of(table_of(arrived), as_of_us=as_of_us, upto_epoch=epoch).to_pylist()
    assert len(found) == bool(seen)
    if seen:
        end = Oracle().fold(seen)
        assert found[0]["deltas"] == len(seen)
        assert found[0]["state"] in (None, np.array(end.values).tobytes())
        assert found[0]["exists"] == end.exists
        assert (found[0]["values"] is None) == (end.values is None)


@settings(max_examples=30)
@given(one_vector, st.integers(0, 16))
def test_every_state_at_or_after_a_checkpoint_is_the_same_without_the_payloads_it_covers(
    arrived: list[Delta], at: int
) -> None:
    ordered = canonical(arrived, "v")
    assume(ordered)
    covered = ordered[: at % len(ordered) + 1]
    checkpoint = folded(cut(rows_in_order(arrived).slice(0, len(covered)), []))
    left = table_of(d | {"op": None, "values": None} if d in covered else d for d in arrived)
    assert chain(left, checkpoint)["effect"].to_pylist().count("covered") == len(covered)
    assert said(state_of(left, checkpoint)) == _whole(arrived)
    for as_of_us in {checkpoint["eff_us"][0].as_py(), 3}:
        before = state_of(table_of(arrived), as_of_us=as_of_us)
        assert said(state_of(left, checkpoint, as_of_us=as_of_us)) == said(before)


def _create(delta_id: str, at: int, epoch: int) -> Delta:
    envelope = {"namespace": "demo", "vector_id": "v", "origin": "app", "parent_id": None, "shard": 0, "ordinal": 0}
    return {**envelope, "delta_id": delta_id, "event_us": at, "epoch": epoch, "op": "create", "values": [1.0]}


def test_a_checkpoint_that_lacks_a_delta_below_it_is_refused() -> None:
    known = [_create("a", 5, 1), _create("b", 7, 2)]
    checkpoint = state_of(table_of(known))
    with pytest.raises(StaleCheckpointError, match="'late'"):
        state_of(table_of([*known, _create("late", 6, 3)]), checkpoint)
    assert state_of(table_of([*known, _create("new", 8, 3)]), checkpoint)["deltas"].to_pylist() == [3]


def test_what_lies_before_a_checkpoint_is_not_answered_from_it() -> None:
    known = [_create("a", 5, 1), _create("b", 7, 2)]
    checkpoint = state_of(table_of(known))
    with pytest.raises(BeforeCheckpointError, match=r"1970-01-01T00:00:00\.000006Z"):
        state_of(table_of(known), checkpoint, as_of_us=6)
    with pytest.raises(BeforeCheckpointError, match="Epoch 1"):
        state_of(table_of(known), checkpoint, upto_epoch=1)
