"""The vector index finds what brute force finds, whatever happened to it before (V1-V3)."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tidemark.vectors.index.errors import DimensionError, InternalIdError, NotANumberError, RepeatedError, SearchError
from tidemark.vectors.index.fold import Changes, Due, build, fold, rebuild_due, vectors_of
from tidemark.vectors.index.internal_ids import internal_ids
from tidemark.vectors.index.invariants import problems
from tidemark.vectors.index.metrics import Metric
from tidemark.vectors.index.recall import measure_recall, with_probing
from tidemark.vectors.index.search import Neighbours, Searcher, brute_force
from tidemark.vectors.index.state import VectorIndex, Vectors, ids_of

DIMENSION = 5  # no multiple of four: the loops take four dimensions at a time, and then the rest
METRICS = st.sampled_from(list(Metric))
NAMES = ["", "a", "b", "ab", "z", "é", "Z", "𝄞", "～"]
# Few and small whole numbers: distances are exact, and many are equal.
POINTS = st.lists(st.integers(-2, 2).map(float), min_size=DIMENSION, max_size=DIMENSION)
STATES = st.dictionaries(st.sampled_from(NAMES), POINTS)
Answer = list[tuple[str, int, float]]


def internal_id(shard: int, epoch: int, ordinal: int) -> int:
    return int(internal_ids(shard, epoch, ordinal))


def vectors(states: dict[str, tuple[int, list[float]]]) -> Vectors:
    rows = np.array([values for _, values in states.values()]).reshape(-1, DIMENSION)
    return vectors_of(list(states), [number for number, _ in states.values()], rows)


def answers(found: Neighbours) -> list[Answer]:
    return [
        [(each.vector_id, each.internal_id, each.distance) for each in found.of(query)]
        for query in range(len(found.ranks))
    ]


def exact(vectors: Vectors, query: npt.ArrayLike, k: int, metric: Metric) -> Answer:
    """Every distance in NumPy, by the definition, then all in order."""
    rows, asked = vectors.values.astype(np.float64), np.asarray(query, np.float64)
    if metric is Metric.L2:
        distances = np.sqrt(((rows - asked) ** 2).sum(axis=1))
    else:
        distances = -(rows @ asked)
        if metric is Metric.COSINE:
            norms = np.sqrt((rows**2).sum(axis=1) * (asked**2).sum())
            distances = 1 + np.divide(distances, norms, out=np.zeros(len(rows)), where=norms > 0)
    named = zip(vectors.vector_ids.to_pylist(), vectors.internal_ids.tolist(), distances.tolist(), strict=True)
    return sorted(named, key=lambda each: (each[2], each[0]))[:k]


def index_of(states: dict[str, list[float]], seed: int = 1) -> VectorIndex:
    numbered = {name: (internal_id(0, 1, place), values) for place, (name, values) in enumerate(states.items())}
    return build("shop", vectors(numbered), epoch=1, seed=seed)


@given(STATES, st.lists(POINTS, min_size=1, max_size=3), st.integers(1, 12), METRICS)
@settings(max_examples=60)
def test_with_all_probes_nearest_is_what_the_definition_says_ties_by_id_included(
    states: dict[str, list[float]], queries: list[list[float]], k: int, metric: Metric
) -> None:
    index = index_of(states)
    searcher = Searcher(index)
    found = answers(searcher.nearest(queries, k=k, probes=searcher.lists, metric=metric))
    assert found == [exact(index.vectors(), query, k, metric) for query in queries]
    assert found == answers(brute_force(index.vectors(), queries, k=k, metric=metric))
    assert problems(index) == []


@given(
    st.lists(st.dictionaries(st.sampled_from(NAMES), st.none() | POINTS, min_size=1), max_size=5),
    st.randoms(use_true_random=False),
    POINTS,
    METRICS,
)
@settings(max_examples=40)
def test_changes_folded_one_by_one_or_together_equal_a_fresh_assignment(
    history: list[dict[str, list[float] | None]], random: Any, query: list[float], metric: Metric
) -> None:
    index = index_of({"a": [1.0] * DIMENSION, "q": [0.0] * DIMENSION, "m": [-1.0] * DIMENSION})
    live = {name: (number, index.vectors().values[place].tolist()) for place, (name, number) in enumerate(known(index))}
    given_out = set(index.dictionary.internal_ids.tolist())
    for epoch, batch in enumerate(history, start=2):
        changes = list(batch.items())
        random.shuffle(changes)
        # Nearly always a new one; but it may be any that the vector had before, with the same values or with others.
        known_by = {name: random.randint(2, epoch) for name in batch}
        numbered = {
            name: (internal_id(known_by[name] % 2, known_by[name], NAMES.index(name)), values)
            for name, values in changes
            if values
        }
        gone = [name for name, values in changes if values is None]
        folded = fold(index, Changes(vectors(numbered), pa.array(gone, pa.string())))
        new = {number for number, _ in numbered.values()}
        assert set(folded.dead.tolist()) == {live[name][0] for name in batch if name in live} - new
        assert folded.is_changed == ({**live, **numbered} != live or any(name in live for name in gone))
        live = {name: state for name, state in live.items() if name not in gone} | numbered
        given_out |= {number for number, _ in numbered.values()}
        index = folded.index
        assert problems(index) == []
    expected = {number for number, _ in live.values()}
    assert dict(known(index)) == {name: number for name, (number, _) in live.items()}
    assert set(ids_of(index.deleted).tolist()) == given_out - expected
    searcher = Searcher(index)
    for probes in range(1, searcher.lists + 1):
        found = answers(searcher.nearest(query, k=4, probes=probes, metric=metric))[0]
        assert {number for _, number, _ in found} <= expected
    assert found == exact(vectors(live), query, 4, metric)
    again = build("shop", index.vectors(), epoch=99, seed=1)
    assert (again.dead, len(again.deleted), problems(again)) == (0, 0, [])
    assert found == answers(Searcher(again).nearest(query, k=4, metric=metric))[0]


def known(index: VectorIndex) -> list[tuple[str, int]]:
    return list(zip(index.dictionary.vector_ids.to_pylist(), index.dictionary.internal_ids.tolist(), strict=True))


@given(st.integers(0, 2**32), METRICS, st.integers(1, 30))
@settings(max_examples=15)
def test_any_values_are_found_as_brute_force_does_bit_for_bit_and_as_numpy_nearly(
    seed: int, metric: Metric, dimension: int
) -> None:
    random = np.random.default_rng(seed)
    scale = 10.0 ** random.integers(-30, 30)
    rows, queries = random.standard_normal((300, dimension)) * scale, random.standard_normal((7, dimension)) * scale
    made = vectors_of([f"v{place}" for place in range(300)], np.arange(300), rows)
    searcher = Searcher(build("shop", made, epoch=1, seed=seed))
    found = searcher.nearest(queries, k=20, probes=searcher.lists, metric=metric)
    truth = brute_force(made, queries, k=20, metric=metric)
    assert np.array_equal(found.ranks, truth.ranks)
    assert found.distances.tobytes() == truth.distances.tobytes()
    alone = [searcher.nearest(query, k=20, probes=searcher.lists, metric=metric).distances for query in queries]
    assert np.concatenate(alone).tobytes() == truth.distances.tobytes()
    for row, query in enumerate(queries.astype(np.float32)):
        oracle = [distance for *_, distance in exact(made, query, 20, metric)]
        size = 1.0 if metric is Metric.COSINE else max(abs(distance) for distance in oracle)
        np.testing.assert_allclose(found.distances[row], oracle, rtol=1e-12, atol=1e-12 * size)


@given(st.permutations(range(60)), st.integers(0, 3))
@settings(max_examples=10)
def test_centroids_are_the_same_bytes_for_the_same_vectors_in_any_order(order: list[int], seed: int) -> None:
    random = np.random.default_rng(5)
    ids, rows = random.permutation(1000)[:60], random.standard_normal((60, DIMENSION))
    made = [
        build("shop", vectors_of([f"v{ids[place]}" for place in some], ids[some], rows[some]), epoch=1, seed=seed)
        for some in (list(range(60)), order)
    ]
    first, second = made
    assert first.centroids.tobytes() == second.centroids.tobytes()
    assert first.postings.values.tobytes() == second.postings.values.tobytes()
    assert first.postings.internal_ids.tolist() == second.postings.internal_ids.tolist()


def test_a_vector_lies_in_the_list_with_the_smaller_id_when_two_centroids_are_equally_near() -> None:
    index = index_of({name: [value] + [0.0] * 4 for name, value in (("a", 2.0), ("b", -2.0))})
    assert len(index.centroids) == 2
    middle = Changes(vectors({"m": (internal_id(0, 2, 0), [0.0] * 5)}), pa.array([], pa.string()))
    assert fold(index, middle).lists.tolist() == [0]


def test_deleted_and_created_again_a_vector_is_found_under_its_new_internal_id_alone() -> None:
    index = index_of({"a": [1.0] * DIMENSION, "b": [2.0] * DIMENSION})
    old, new = internal_id(0, 1, 0), internal_id(0, 3, 0)
    gone = fold(index, Changes(vectors({}), pa.array(["a", "never there"]))).index
    assert [each[0] for each in answers(Searcher(gone).nearest([1.0] * 5, k=9))[0]] == ["b"]
    back = Changes(vectors({"a": (new, [1.0] * 5)}), pa.array([], pa.string()))
    again = fold(gone, back).index
    assert answers(Searcher(again).nearest([1.0] * 5, k=1)) == [[("a", new, 0.0)]]
    assert ids_of(again.deleted).tolist() == [old]
    told_twice = fold(again, back)
    assert (len(told_twice.dead), told_twice.is_changed, told_twice.index.live) == (0, False, 2)


@pytest.mark.parametrize("epoch", [1, 2, 3], ids=["dead already", "never there", "the same"])
def test_another_state_under_an_id_that_is_not_later_takes_the_place_of_what_is_there(epoch: int) -> None:
    index = index_of({"a": [1.0] * DIMENSION, "b": [2.0] * DIMENSION})
    nothing, latest = pa.array([], pa.string()), internal_id(0, 3, 0)
    index = fold(index, Changes(vectors({"a": (latest, [3.0] * 5)}), nothing)).index
    number = internal_id(0, epoch, 0)
    folded = fold(index, Changes(vectors({"a": (number, [9.0] * 5)}), nothing))
    assert answers(Searcher(folded.index).nearest([9.0] * 5, k=1)) == [[("a", number, 0.0)]]
    assert ids_of(folded.index.deleted).tolist() == sorted({internal_id(0, 1, 0), latest} - {number})
    assert problems(folded.index) == []


def test_a_hundred_copies_of_one_point_are_one_list_and_come_in_the_order_of_their_ids() -> None:
    index = index_of({f"v{place:03d}": [1.0] * DIMENSION for place in range(100)})
    assert len(index.centroids) == 1
    found = answers(Searcher(index).nearest([0.0] * 5, k=3, metric=Metric.COSINE))[0]
    assert [(name, distance) for name, _, distance in found] == [("v000", 1.0), ("v001", 1.0), ("v002", 1.0)]


def test_an_empty_index_answers_nothing_and_takes_its_first_vectors() -> None:
    empty = with_probing(index_of({}), seed=1)
    assert (problems(empty), answers(Searcher(empty).nearest([0.0] * 5, k=3))) == ([], [[]])
    first = fold(empty, Changes(vectors({"a": (7, [1.0] * 5)}), pa.array([], pa.string()))).index
    assert answers(Searcher(first).nearest([1.0] * 5, k=3)) == [[("a", 7, 0.0)]]


def test_recall_is_recorded_and_what_it_promises_is_found() -> None:
    random = np.random.default_rng(3)
    rows = random.standard_normal((2_000, 8)) + 3 * random.standard_normal((20, 8))[random.integers(0, 20, 2_000)]
    made = vectors_of([f"v{place}" for place in range(2_000)], np.arange(2_000), rows)
    index = with_probing(build("shop", made, epoch=1, seed=1), seed=2)
    searcher, queries = Searcher(index), rows[:100] + 0.1
    for metric, probes, recall in index.probing:
        truth = brute_force(made, queries, k=10, metric=metric)
        assert recall >= 0.95
        assert probes < searcher.lists
        assert searcher.default_probes[metric] == probes
        assert measure_recall(searcher, truth, queries, k=10, probes=probes, metric=metric).mean > 0.9
        assert measure_recall(searcher, truth, queries, k=10, probes=searcher.lists, metric=metric).mean == 1.0


def cut(made: Vectors, begin: int, end: int) -> Vectors:
    return Vectors(made.vector_ids[begin:end], made.internal_ids[begin:end], made.values[begin:end])


def test_a_rebuild_is_due_when_a_fifth_is_dead_or_the_number_of_vectors_has_doubled_or_halved() -> None:
    random = np.random.default_rng(3)
    names, rows = [f"v{place}" for place in range(3_000)], random.standard_normal((3_000, 2))
    made = vectors_of(names, np.arange(3_000), rows)
    nothing = pa.array([], pa.string())
    part, rest, none = cut(made, 0, 1_000), cut(made, 1_000, 3_000), cut(made, 0, 0)
    index = build("shop", part, epoch=1, seed=1)
    assert rebuild_due(index) is None
    assert rebuild_due(fold(index, Changes(cut(rest, 0, 1_000), nothing)).index) is None
    grown = fold(index, Changes(rest, nothing)).index
    assert rebuild_due(grown) is Due.GROWN
    assert rebuild_due(build("shop", grown.vectors(), epoch=2, seed=1)) is None
    assert rebuild_due(fold(index, Changes(none, pa.array(names[:200]))).index) is None
    assert rebuild_due(fold(index, Changes(none, pa.array(names[:201]))).index) is Due.DEAD


def test_internal_ids_are_packed_and_never_cut_off() -> None:
    packed = internal_ids([0, 1023, 5], [0, 2**36 - 1, 77], [0, 2**17 - 1, 99_999])
    assert packed.tolist() == [0, 2**63 - 1, 5 << 53 | 77 << 17 | 99_999]
    for wrong in ((1024, 1, 1), (-1, 1, 1), (0, 2**36, 0), (0, 1, 2**17), (0, 1, -1)):
        with pytest.raises(InternalIdError, match="does not fit into an internal id"):
            internal_id(*wrong)


def test_what_has_no_answer_is_refused() -> None:
    searcher = Searcher(index_of({"a": [1.0] * DIMENSION}))
    with pytest.raises(DimensionError, match=r"shape \(4,\); this index has vectors of 5 dimensions"):
        searcher.nearest([0.0] * 4, k=1)
    with pytest.raises(NotANumberError, match="row 0 contains NaN"):
        searcher.nearest([float("nan")] * 5, k=1)
    with pytest.raises(SearchError, match="Request 1 at least"):
        searcher.nearest([0.0] * 5, k=0)
    with pytest.raises(SearchError, match="Probe 1 at least"):
        searcher.nearest([0.0] * 5, k=1, probes=0)
    with pytest.raises(RepeatedError, match="occurs twice among the changes"):
        fold(index_of({}), Changes(vectors({"a": (1, [1.0] * 5)}), pa.array(["a"])))


def test_values_beyond_32_bits_are_far_from_everything_and_never_not_a_number() -> None:
    index = index_of({"far": [1e200] * 5, "opposite": [1e200, -1e200, 0, 0, 0], "near": [1.0] * 5})
    for metric in Metric:
        found = answers(Searcher(index).nearest([[1e300] * 5, [0.0] * 5], k=3, metric=metric))
        assert all(np.isfinite(distance) for answer in found for *_, distance in answer)
    assert [name for name, *_ in answers(Searcher(index).nearest([0.0] * 5, k=1))[0]] == ["near"]
