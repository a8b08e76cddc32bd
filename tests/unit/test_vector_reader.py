"""Reading vectors without a JVM (K6): always what all deltas say, whatever is behind, stale, or gone."""

from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.vector_lake import STEP_US, VectorLake, spread_deltas
from tests.support.vector_oracle import Delta, Oracle, canonical, place_of, table_of
from tidemark.model.timegrid import from_us
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.vectors.chain import chain, state_of
from tidemark.vectors.errors import BeforeHorizonError, UnknownVectorError
from tidemark.vectors.reading.answers import Place, Source, Status, Vector
from tidemark.vectors.reading.reader import Vectors
from tidemark.vectors.reading.reads import read_rates, reads_file
from tidemark.vectors.tables import bucket_of

NAMES = "uvw"
MOMENTS = (-2 * STEP_US, -1, 2 * STEP_US)

Made = Callable[[], VectorLake]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Made:
    root, numbers = tmp_path_factory.mktemp("lakes"), count()
    return lambda: VectorLake(Home(root / str(next(numbers))).create())


def said(vector: Vector) -> dict[str, Any]:
    """Everything that a vector says of its state, numbers as bytes."""
    return {
        "exists": vector.exists,
        "is_dead": vector.is_dead,
        "values": None if vector.values is None else vector.values.tobytes(),
        "metadata": vector.metadata,
        "clock": vector.clock,
        "place": vector.place,
        "reach": vector.arrival,
        "counts": vector.counts[:3],
    }


def expected(state: pa.Table) -> dict[str, Any]:
    """The same of a state of the fold."""
    if not state.num_rows:
        nothing: dict[str, Any] = {
            "exists": False,
            "is_dead": False,
            "values": None,
            "metadata": {},
            "clock": {},
            "place": None,
        }
        return {**nothing, "reach": (None,) * 4, "counts": (0, 0, 0)}
    (row,) = state.to_pylist()
    return {
        "exists": row["exists"],
        "is_dead": row["is_dead"],
        "values": None if row["values"] is None else np.array(row["values"], np.float32).tobytes(),
        "metadata": dict(row["metadata"] or ()),
        "clock": dict(row["clock"] or ()),
        "place": Place(*(row[name] for name in ("eff_us", "depth", "event_us", "origin", "delta_id"))),
        "reach": tuple(row[name] for name in ("shard", "first_epoch", "last_epoch", "last_ordinal")),
        "counts": tuple(row[name] for name in ("deltas", "no_base", "no_effect")),
    }


def same_as_all_deltas(lake: VectorLake, vectors: Vectors, all_deltas: list[Delta] | None = None) -> None:
    """Current states, one by one and together, equal a fold of everything, and the oracle."""
    every = lake.deltas if all_deltas is None else all_deltas
    found = vectors.many([*lake.names(), "nobody"], namespace="demo")
    assert sorted(found) == lake.names()
    for name in lake.names():
        own = [delta for delta in every if delta["vector_id"] == name]
        right = expected(state_of(table_of(own)))
        assert said(found[name]) == right
        one = vectors.vector(name, namespace="demo")
        assert said(one) == right
        assert one.counts == found[name].counts
        assert one.counts.parked + one.counts.cycles == len(own) - one.deltas
        end = Oracle().fold(canonical(own, name)).values
        assert (None if one.values is None else one.values.tolist()) == (
            None if end is None else [float(np.float32(value)) for value in end]
        )


def history_is_right(
    lake: VectorLake, vectors: Vectors, every: list[Delta], name: str, *, from_us: int = -(10**18), epoch: int = 0
) -> None:
    own = [delta for delta in every if delta["vector_id"] == name]
    epochs = [each for each in (2, 4, 7) if each >= epoch]
    for as_of in (moment for moment in MOMENTS if moment >= from_us):
        right = expected(state_of(table_of(own), as_of_us=as_of))
        assert said(vectors.vector(name, namespace="demo", as_of=as_of)) == right
    for each in epochs:
        right = expected(state_of(table_of(own), upto_epoch=each))
        assert said(vectors.vector(name, namespace="demo", epoch=each)) == right
    as_of = max(from_us, STEP_US)
    right = expected(state_of(table_of(own), as_of_us=as_of, upto_epoch=epochs[-1]))
    assert said(vectors.vector(name, namespace="demo", as_of=as_of, epoch=epochs[-1])) == right


seeds = st.integers(0, 1 << 32)


@settings(max_examples=5)
@given(seeds, st.integers(0, 6), st.booleans(), st.booleans())
def test_a_current_read_is_never_behind_what_is_committed(
    make: Made, seed: int, folded_epochs: int, has_rows_for_parked: bool, has_parents: bool
) -> None:
    lake, arrived = make(), spread_deltas(seed, 16, NAMES)
    if not has_parents:
        arrived = [{**delta, "parent_id": None} for delta in arrived]
    vectors = Vectors(lake.home)
    first = [delta for delta in arrived if delta["epoch"] <= folded_epochs]
    if first:
        lake.send(first)
        lake.fold(has_rows_for_parked=has_rows_for_parked)
        same_as_all_deltas(lake, vectors)
    lake.send([delta for delta in arrived if delta["epoch"] > folded_epochs])
    same_as_all_deltas(lake, vectors)
    lake.fold(has_rows_for_parked=has_rows_for_parked)
    same_as_all_deltas(lake, vectors)
    assert all(
        each.read_from.folded == 0 for each in vectors.many(lake.names(), namespace="demo").values() if each.deltas
    )


@settings(max_examples=5)
@given(seeds, st.integers(1, 7), st.integers(1, 8), st.booleans())
def test_every_moment_and_epoch_reads_as_if_there_were_no_checkpoints_and_no_stale_ones(
    make: Made, seed: int, known_epochs: int, prefix: int, has_parents: bool
) -> None:
    lake, arrived = make(), spread_deltas(seed, 14, "v")
    if not has_parents:
        arrived = [{**delta, "parent_id": None} for delta in arrived]
    known = [delta for delta in arrived if delta["epoch"] <= known_epochs]
    lake.send(known)
    # Made from what was known then: what arrives later may make them stale.
    states = [lake.state_after("v", each, known_epochs) for each in {prefix, prefix // 2, 1}]
    if any(state is not None for state in states):
        lake.checkpoint([state for state in states if state is not None])
    lake.fold()
    if len(arrived) > len(known):
        lake.send(delta for delta in arrived if delta["epoch"] > known_epochs)
    history_is_right(lake, Vectors(lake.home), arrived, "v")
    found = Vectors(lake.home).chain("v", namespace="demo")
    assert found["effect"].to_pylist() == chain(table_of(arrived))["effect"].to_pylist()


@settings(max_examples=5)
@given(seeds, st.integers(-2, 3), st.integers(1, 7), st.booleans())
def test_after_payloads_are_gone_everything_since_the_cut_reads_as_before(
    make: Made, seed: int, cut: int, settled: int, is_folded_before: bool
) -> None:
    lake, cut_us = make(), cut * STEP_US
    # Once the cut is in the log, nothing older is taken; what was taken before it was received before it.
    every = [
        {**delta, "received_us": cut_us - 1 if delta["epoch"] <= settled else cut_us}
        for delta in spread_deltas(seed, 14, "v")
        if delta["event_us"] >= cut_us or delta["epoch"] <= settled
    ]
    if not every:
        return
    lake.send(every)
    if is_folded_before:
        lake.fold()
    ordered, prefix = canonical(every, "v"), 0
    while (
        prefix < len(ordered) and ordered[prefix]["received_us"] < cut_us and _eff_us(ordered[prefix], every) < cut_us
    ):
        prefix += 1
    base = lake.state_after("v", prefix, 99)
    if base is None:
        return
    lake.checkpoint([base], is_base=True, cut_ts=cut_us)
    lake.remove_payloads(ordered[:prefix])
    vectors = Vectors(lake.home)
    same_as_all_deltas(lake, vectors, every)
    last_epoch = base["last_epoch"][0].as_py()
    history_is_right(lake, vectors, every, "v", from_us=cut_us, epoch=last_epoch)
    assert vectors.chain("v", namespace="demo")["effect"].to_pylist().count("covered") == prefix
    with pytest.raises(BeforeHorizonError, match="before the horizon") as refused:
        vectors.vector("v", namespace="demo", as_of=cut_us - 1)
    assert f"{from_us(cut_us):%Y-%m-%dT%H:%M:%SZ}" in str(refused.value)
    assert refused.value.earliest_us == cut_us
    with pytest.raises(BeforeHorizonError, match=f"epoch {last_epoch}"):
        vectors.vector("v", namespace="demo", epoch=last_epoch - 1)


def _eff_us(delta: Delta, every: list[Delta]) -> int:
    place = place_of(delta, every)
    assert not isinstance(place, str)
    return int(place[0])


def _delta(name: str, at: int, epoch: int, **payload: Any) -> Delta:
    envelope: Delta = {
        "namespace": "demo",
        "vector_id": name,
        "origin": "app",
        "parent_id": None,
        "shard": 0,
        "ordinal": 0,
    }
    payload = payload or {"op": "create", "values": [float(epoch)] * 8}
    return {
        **envelope,
        "event_us": at,
        "epoch": epoch,
        "delta_id": f"d{epoch}",
        "ordinal": 0,
        "metadata": None,
        "clock": None,
    } | payload


@pytest.fixture
def small(make: Made) -> VectorLake:
    lake = make()
    lake.send([_delta(name, 0, 1) for name in ("item-1", "item-2", "other")])
    lake.fold()
    return lake


def test_an_unknown_vector_is_refused_with_the_name_that_may_be_meant(small: VectorLake) -> None:
    vectors = Vectors(small.home)
    with pytest.raises(UnknownVectorError, match="Did you mean 'item-2' in demo"):
        vectors.vector("itm-2", namespace="demo")
    with pytest.raises(UnknownVectorError, match="There is one in demo"):
        vectors.vector("other", namespace="shop")
    with pytest.raises(UnknownVectorError, match="is it drained"):
        vectors.chain("nothing like it", namespace="demo")
    assert vectors.namespaces_of("other") == ["demo"]


def test_what_had_not_happened_yet_is_no_error_and_no_vector(small: VectorLake) -> None:
    found = Vectors(small.home).vector("other", namespace="demo", as_of=from_us(-1))
    assert found.status is Status.NO_BASE
    assert found.values is None
    assert found.place is None


def test_a_warm_handle_sees_each_new_version_and_reads_only_what_changed(small: VectorLake) -> None:
    vectors = Vectors(small.home)
    names = small.names()
    vectors.many(names, namespace="demo")
    decoded = vectors._cache.decoded
    vectors.many(names, namespace="demo")
    assert vectors._cache.decoded == decoded
    small.send([_delta("other", STEP_US, 2, op="offset", amount=1.0)])
    fresh = vectors.vector("other", namespace="demo")
    assert fresh.values is not None
    assert fresh.values.tolist() == [2.0] * 8
    assert (fresh.read_from.source, fresh.read_from.folded, fresh.read_from.files) == (Source.VECTORS, 1, 1)
    assert vectors.vector("item-1", namespace="demo").read_from.folded == 0
    assert vectors._cache.decoded == decoded
    assert fresh.versions["deltas"] == 2


def test_a_row_that_somebody_else_wrote_is_not_believed(small: VectorLake) -> None:
    vectors = Vectors(small.home)
    assert vectors.vector("other", namespace="demo").read_from.source is Source.VECTORS
    table = lake_files.open_table(small.home.lake / "vectors")
    assert table is not None
    table.update(updates={"is_dead": "true"}, predicate=f"bucket = {bucket_of('demo', 'other')}")
    found = vectors.vector("other", namespace="demo")
    assert not found.is_dead
    assert found.read_from.source is Source.NOTHING


def test_deltas_that_somebody_else_changed_are_folded_anew(small: VectorLake) -> None:
    vectors = Vectors(small.home)
    table = lake_files.open_table(small.home.lake / "deltas")
    assert table is not None
    table.delete("key = 'other'")
    assert sorted(vectors.many(["other", "item-1"], namespace="demo")) == ["item-1"]


def test_without_any_tables_every_vector_is_unknown(tmp_path: Path) -> None:
    vectors = Vectors(Home(tmp_path / "home").create())
    assert vectors.many(["a"], namespace="demo") == {}
    with pytest.raises(UnknownVectorError):
        vectors.vector("a", namespace="demo")


def test_what_is_held_in_memory_has_a_bound(make: Made) -> None:
    lake = make()
    names = [f"v{number}" for number in range(64)]
    lake.send([_delta(name, 0, 1) for name in names])
    lake.fold()
    whole = Vectors(lake.home)
    expected_values = {name: found.values.tolist() for name, found in whole.many(names, namespace="demo").items()}  # type: ignore[union-attr]
    assert whole.held_bytes > 0
    for room in (0, whole.held_bytes // 3):
        bound = Vectors(lake.home, room=room)
        for _ in range(2):
            found = bound.many(names, namespace="demo")
            assert {name: each.values.tolist() for name, each in found.items()} == expected_values  # type: ignore[union-attr]
            assert bound.held_bytes <= room


def test_values_cannot_be_written_to(small: VectorLake) -> None:
    for found in (
        Vectors(small.home).vector("other", namespace="demo"),
        Vectors(small.home).vector("other", namespace="demo", epoch=1),
    ):
        assert found.values is not None
        with pytest.raises(ValueError, match="read-only"):
            found.values[0] = 1.0


def test_reads_are_counted_and_written_down_on_close(small: VectorLake) -> None:
    now_us = 5 * STEP_US
    with Vectors(small.home, clock=lambda: now_us) as vectors:
        vectors.many(["item-1", "nobody"], namespace="demo")
        vectors.vector("item-1", namespace="demo", as_of=0)
        assert not reads_file(small.home.root, now_us).exists()
    vectors.close()
    rates = read_rates(small.home.root, now_us).to_pylist()
    assert rates == [{"namespace": "demo", "vector_id": "item-1", "reads_per_hour": 2 / 24}]
    with Vectors(small.home, counts_reads=False, clock=lambda: now_us) as quiet:
        quiet.vector("other", namespace="demo")
    assert read_rates(small.home.root, now_us).num_rows == 1


def test_a_home_that_cannot_be_written_to_can_be_read(small: VectorLake) -> None:
    small.home.reads.write_text("a file where the folder would be")
    with Vectors(small.home) as vectors:
        assert vectors.vector("other", namespace="demo").exists


def test_a_line_of_reads_that_is_torn_is_no_read(small: VectorLake) -> None:
    path = reads_file(small.home.root, STEP_US)
    path.parent.mkdir()
    path.write_text('{"namespace":"demo","vector_id":"a","reads":24,"at_us":5}\n{"namespace":"de')
    assert read_rates(small.home.root, STEP_US)["reads_per_hour"].to_pylist() == [1.0]
