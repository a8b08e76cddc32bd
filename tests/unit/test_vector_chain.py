"""One vector's chain and its states at moments and epochs (D3, K1, K4, K6)."""

from random import Random

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.checkpoint_rules import checkpoint_positions
from tests.support.vector_oracle import (
    Delta,
    Oracle,
    canonical,
    cut,
    deltas,
    folded,
    kept_state,
    place_of,
    rows_in_order,
    said,
    table_of,
)
from tidemark.vectors.chain import chain, state_of
from tidemark.vectors.checkpoints import CompactionRules, Strategy
from tidemark.vectors.errors import BeforeCheckpointError, StaleCheckpointError
from tidemark.vectors.places import PLACE_COLUMNS

one_vector = deltas(max_size=16, vectors="v")
# Those of the oracle's deltas, and one after all of them.
MOMENTS = range(-4, 6)


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
        assert found[0]["state"] == kept_state(end.values)
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


@settings(max_examples=8)
@given(one_vector, st.sampled_from([each for each in Strategy if each is not Strategy.ADAPTIVE]), st.integers(0, 3))
def test_k2_compaction_after_any_write_with_any_strategy_leaves_every_readable_state_as_it_was(
    arrived: list[Delta], strategy: Strategy, keep_recent: int
) -> None:
    """`adaptive` is one of these for each vector. A checkpoint that a late delta made wrong is refused, never read.

    Where an id is used twice, who reads counts what lies below a checkpoint (`test_vector_reader.py`): here none is.
    """
    rules = CompactionRules(keep_recent=keep_recent, interval_us=2)
    arrived = list({delta["delta_id"]: delta for delta in reversed(arrived)}.values())[::-1]
    epochs = sorted({delta["epoch"] for delta in arrived})
    for compacted_at in epochs:
        line = rows_in_order([delta for delta in arrived if delta["epoch"] <= compacted_at])
        places = checkpoint_positions(line["eff_us"].to_numpy(), MOMENTS[-1], strategy, rules)
        for checkpoint in (folded(cut(line.slice(0, place + 1), [])) for place in places):
            for epoch in epochs[epochs.index(compacted_at) :]:
                _reads_alike([delta for delta in arrived if delta["epoch"] <= epoch], checkpoint, compacted_at)


def _reads_alike(known: list[Delta], checkpoint: pa.Table, compacted_at: int) -> None:
    """The states of what is known, at every moment that the checkpoint can answer."""
    (held,) = checkpoint.to_pylist()
    last = tuple(held[name] for name in PLACE_COLUMNS)
    places = [(delta, place_of(delta, known)) for delta in known if delta["epoch"] > compacted_at]
    is_stale = any(not isinstance(place, str) and place < last for _, place in places)
    for as_of_us in (None, *(moment for moment in MOMENTS if moment >= held["eff_us"])):
        if is_stale:
            with pytest.raises(StaleCheckpointError):
                state_of(table_of(known), checkpoint, as_of_us=as_of_us)
            continue
        without = said(state_of(table_of(known), as_of_us=as_of_us))
        assert said(state_of(table_of(known), checkpoint, as_of_us=as_of_us)) == without
