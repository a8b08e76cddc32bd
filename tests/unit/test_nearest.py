"""Searching vectors without a JVM (V1-V3): always what is committed, however far the index is behind."""

import json
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.vectors.index_schema import PARTS, VECTOR_INDEX
from assets.vectors.index_step import Way
from tests.support.commands import ask
from tests.support.vector_shop import Shop, without_spark
from tidemark.storage.home import Home
from tidemark.vectors.index.errors import SearchError
from tidemark.vectors.index.fold import vectors_of
from tidemark.vectors.index.invariants import problems
from tidemark.vectors.index.metrics import Metric
from tidemark.vectors.index.search import brute_force
from tidemark.vectors.index.tables import CENTROIDS as CENTROID_ROWS
from tidemark.vectors.index.tables import DELETED, DICTIONARY, POINTER, POSTINGS, versions_of
from tidemark.vectors.reading.nearest import Index, NoIndexError, open_index
from tidemark.vectors.reading.reader import Vectors
from tidemark.vectors.reading.stored_index import pointers, read_index

Make = Callable[[], Shop]


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    without_spark(monkeypatch)
    numbers = count()
    return lambda: Shop(Home(tmp_path / str(next(numbers))).create())


@pytest.fixture
def shop(make: Make) -> Shop:
    """Four corners, folded and indexed."""
    made = make()
    for name, values in {"a": [0, 0], "b": [1, 0], "c": [0, 2], "d": [5, 5]}.items():
        made.send("create", name, [float(value) for value in values])
    made.tables.fold()
    made.follow()
    return made


def near(index: Index, *query: float, k: int = 10, **asked: Any) -> list[str]:
    return [each.vector_id for each in index.nearest(query, k=k, **asked).neighbours]


def test_the_nearest_come_first_and_a_vector_is_not_near_to_itself(shop: Shop) -> None:
    with open_index(shop.home) as index:
        assert near(index, 0.9, 0.0) == ["b", "a", "c", "d"]
        found = index.nearest_to("a", k=2)
        assert [(each.vector_id, each.distance) for each in found.neighbours] == [("b", 1.0), ("c", 2.0)]
        assert (found.live, found.changed, found.epochs) == (4, 0, {0: 4})
        assert (found.recall, found.probes) == (1.0, found.lists)


@pytest.mark.parametrize("is_folded", [False, True], ids=["only sent", "folded, not indexed"])
def test_what_is_deleted_is_not_found_from_the_next_read_on_and_what_is_created_again_is(
    shop: Shop, is_folded: bool
) -> None:
    """V1, the third show: the index itself stays as it is all the time."""
    with open_index(shop.home) as index:
        assert near(index, 1.0, 0.0, k=1) == ["b"]
        shop.send("delete", "b")
        if is_folded:
            shop.tables.fold()
        assert "b" not in near(index, 1.0, 0.0)
        with pytest.raises(SearchError, match="deleted"):
            index.nearest_to("b")
        shop.send("create", "b", [5.0, 6.0])
        if is_folded:
            shop.tables.fold()
        assert near(index, 5.0, 6.0, k=1) == ["b"]
        assert near(index, 1.0, 0.0, k=1) == ["a"]
        assert shop.follow()[0].way is (Way.FOLDED if is_folded else Way.KEPT)
        assert near(index, 5.0, 6.0, k=1) == ["b"]
        changed = index.nearest([0.0, 0.0]).changed
        assert changed == (0 if is_folded else 1)


def test_a_run_that_dies_between_the_tables_leaves_the_index_that_there_was(shop: Shop) -> None:
    before = pointers(shop.home)
    with open_index(shop.home) as index:
        shop.send("create", "e", [0.5, 0.0])
        shop.send("delete", "d")
        shop.tables.fold()
        # A fold has no centroids to write.
        for table in ("vector_postings", "vector_dictionary", "vector_deleted", "vector_index"):
            shop.lake.dies_at = table
            with pytest.raises(InterruptedError):
                shop.follow()
            assert pointers(shop.home) == before
            assert problems(read_index(shop.home, before["demo"])) == []
            assert near(index, 0.6, 0.0) == ["e", "b", "a", "c"], "the old index, and what came since"
        shop.lake.dies_at, shop.lake.written = "", []
        (step,) = shop.follow()
        assert step.way is Way.FOLDED
        assert all(buckets is None for _, buckets in shop.lake.written), "what was left behind is written whole"
        (row,) = pointers(shop.home).values()
        assert problems(read_index(shop.home, row)) == []
        assert near(index, 0.6, 0.0) == ["e", "b", "a", "c"]
        assert index.nearest([0.0, 0.0]).changed == 0


def test_only_touched_buckets_are_written_and_nothing_if_nothing_has_changed(shop: Shop) -> None:
    shop.lake.written = []
    assert [step.way for step in shop.follow()] == [Way.KEPT]
    assert shop.lake.written == []
    shop.send("create", "e", [0.5, 0.0])
    shop.tables.fold()
    shop.follow()
    written = dict(shop.lake.written)
    assert [len(written[name] or ()) for name in ("vector_postings", "vector_dictionary", "vector_deleted")] == [1] * 3
    assert "vector_centroids" not in written
    assert written["vector_index"] is None


def test_the_same_vectors_and_the_same_seed_give_the_same_index_when_asked_for_it_anew(shop: Shop) -> None:
    (built,) = shop.follow(seed=7, is_rebuild=True)
    (again,) = shop.follow(seed=7, is_rebuild=True)
    assert built.way is again.way is Way.BUILT
    assert built.index.centroids.tobytes() == again.index.centroids.tobytes()
    assert built.index.training.seed == 7


def test_vectors_of_another_length_are_left_out_and_counted(shop: Shop) -> None:
    shop.send("create", "long", [1.0, 2.0, 3.0])
    shop.tables.fold()
    (step,) = shop.follow()
    assert (step.left_out, step.way) == (1, Way.KEPT)
    shop.send("replace", "a", [1.0, 2.0, 3.0])
    shop.tables.fold()
    (step,) = shop.follow()
    assert step.left_out == 2
    with open_index(shop.home) as index:
        assert near(index, 0.0, 0.0) == ["b", "c", "d"]


def test_an_index_whose_parts_are_gone_is_made_again(shop: Shop) -> None:
    for file in (shop.home.lake / "vector_postings").rglob("*.parquet"):
        file.unlink()
    assert [step.way for step in shop.follow()] == [Way.BUILT]
    with open_index(shop.home) as index:
        assert near(index, 0.0, 0.0) == ["a", "b", "c", "d"]


def test_where_no_index_is_it_is_said_and_which_there_are(shop: Shop, make: Make) -> None:
    with pytest.raises(NoIndexError, match=r"no index of other yet. There is one of demo"):
        open_index(shop.home, "other").nearest([0.0])
    with pytest.raises(NoIndexError, match="drain"):
        open_index(make().home)


def test_a_namespace_whose_vectors_are_all_gone_has_an_index_that_finds_nothing(shop: Shop) -> None:
    for name in "abcd":
        shop.send("delete", name)
    shop.tables.fold()
    shop.follow()
    with open_index(shop.home) as index:
        assert near(index, 0.0, 0.0) == []


def test_the_command_line_answers_people_and_scripts(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = ask(shop.home, capsys, "nearest", "a", "-k", "2", "--metric", "l2", "--probes", "all")
    assert code == 0
    assert [line.split() for line in out.splitlines() if line.startswith((" b", " c"))] == [["b", "1"], ["c", "2"]]
    assert "searched 4 of 4 lists with 4 vectors, recall 1.000" in out
    code, out, _ = ask(shop.home, capsys, "nearest", "--values", "5,4", "-k", "1", "--json")
    answer = json.loads(out)
    assert (code, [each["vector_id"] for each in answer["neighbours"]]) == (0, ["d"])
    assert answer["reach"]["epochs"] == {"0": 4}


def test_what_cannot_be_asked_is_told(shop: Shop, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, told in (
        ((), "an ID, or numbers with --values"),
        (("a", "--values", "1,2"), "an ID, or numbers with --values"),
        (("--values", "1;2"), "commas between them"),
        (("a", "--probes", "0"), "1 at least"),
        (("--values", "1,2,3"), "2 dimensions"),
        (("unknown",), "no vector 'unknown'"),
        (("--values", "1,2", "--namespace", "other"), "There is one of demo"),
    ):
        code, out, error = ask(shop.home, capsys, "nearest", *arguments)
        assert (code != 0, out) == (True, "")
        assert told in " ".join(error.split())


CHANGES = st.lists(
    st.tuples(
        st.sampled_from(["create", "delete", "replace", "fold", "follow"]),
        st.sampled_from("abcdefg"),
        st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=2, max_size=2),
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=5)
@given(changes=CHANGES, metric=st.sampled_from(list(Metric)))
def test_a_search_of_all_lists_is_brute_force_over_what_lives_whatever_is_behind(
    make_many: Make, changes: list[tuple[str, str, list[float]]], metric: Metric
) -> None:
    """V3, and V1 at every moment: between sending, folding and indexing in any order."""
    shop = make_many()
    shop.send("create", "z", [1.0, 1.0])
    shop.tables.fold()
    shop.follow()
    index, query = Index(shop.home, "demo"), [0.5, -0.5]
    for op, name, values in changes:
        if op == "fold":
            shop.tables.fold()
        elif op == "follow":
            shop.follow()
            assert problems(read_index(shop.home, pointers(shop.home)["demo"])) == []
        else:
            shop.send(op, name, None if op == "delete" else values)
    with Vectors(shop.home, counts_reads=False) as vectors:
        states = vectors.many([*"abcdefgz"], namespace="demo")
    live = {name: state.values for name, state in states.items() if state.values is not None}
    found = index.nearest(query, k=8, probes=1_000, metric=metric).neighbours
    if not live:
        assert found == []
        return
    named = vectors_of(list(live), np.arange(len(live)), np.array(list(live.values())))
    truth = brute_force(named, [query], k=8, metric=metric).of(0)
    assert [(each.vector_id, each.distance) for each in found] == [(each.vector_id, each.distance) for each in truth]


@pytest.fixture(scope="module")
def make_many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Make]:
    numbers, root = count(), tmp_path_factory.mktemp("shops")
    with pytest.MonkeyPatch.context() as patch:
        without_spark(patch)
        yield lambda: Shop(Home(root / str(next(numbers))).create())


def test_the_declared_tables_are_those_that_an_index_is_stored_as() -> None:
    stored = {"dictionary": DICTIONARY, "centroids": CENTROID_ROWS, "postings": POSTINGS, "deleted": DELETED}
    declared = {spec.name.removeprefix("vector_"): spec for spec in (*PARTS, VECTOR_INDEX)}
    for name, schema in {**stored, "index": POINTER}.items():
        columns = {column.name: column for column in declared[name].columns}
        columns.pop("bucket")
        assert set(columns) == set(schema.names)
        assert all(columns[field.name].sql == _sql(field.type) for field in schema)


def _sql(kind: pa.DataType) -> str:
    from tidemark.tables.table_spec import sql_type

    return sql_type(kind)


def test_all_rows_of_the_pointer_name_the_same_versions(shop: Shop) -> None:
    named = {versions_of(row) for row in pointers(shop.home).values()}
    assert len(named) == 1
    (versions,) = named
    assert versions == tuple(shop.lake.version(f"vector_{name}") for name in versions._fields)
