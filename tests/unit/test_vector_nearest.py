"""A search is right where `vectors` says nothing that can be relied on, and where states go back (V1-V3)."""

from pathlib import Path
from shutil import rmtree
from typing import Any

import pytest

from assets.vectors.index_step import Way
from tests.support.vector_lake import delta
from tests.support.vector_oracle import Delta
from tests.support.vector_shop import Shop, without_spark
from tidemark.model.timegrid import MINUTE_US
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.vectors.index.invariants import problems
from tidemark.vectors.reading.nearest import Index, NoIndexError, open_index
from tidemark.vectors.reading.reader import Vectors
from tidemark.vectors.reading.snapshot import Snapshot
from tidemark.vectors.reading.stored_index import pointers, read_index
from tidemark.vectors.tables import bucket_of


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """Four corners, folded and indexed."""
    without_spark(monkeypatch)
    made = Shop(Home(tmp_path / "home").create())
    for name, values in {"a": [0, 0], "b": [1, 0], "c": [0, 2], "d": [5, 5]}.items():
        made.send("create", name, [float(value) for value in values])
    made.tables.fold()
    made.follow()
    return made


def near(index: Index, *query: float) -> list[str]:
    return [each.vector_id for each in index.nearest(query).neighbours]


def update(shop: Shop, table: str, name: str, **values: str) -> None:
    """Change rows by hand."""
    opened = lake_files.open_table(shop.home.lake / table)
    assert opened is not None
    opened.update(updates=values, predicate=f"bucket = {bucket_of('demo', name)}")


@pytest.mark.parametrize("edited", ["b", "d"], ids=["in its own bucket", "in another bucket"])
def test_what_is_gone_is_not_found_where_somebody_else_has_changed_vectors(shop: Shop, edited: str) -> None:
    with open_index(shop.home) as index:
        update(shop, "vectors", edited, last_ordinal="last_ordinal + 7")
        shop.send("delete", "b")
        shop.send("create", "e", [1.0, 1.0])
        found = index.nearest([1.0, 0.0])
        assert [each.vector_id for each in found.neighbours] == ["a", "e", "c", "d"]
        assert (found.changed, found.epochs) == (2, {0: 6}), "what the hand changed is not taken"


def test_what_somebody_else_took_out_of_deltas_is_not_found(shop: Shop) -> None:
    with open_index(shop.home) as index:
        table = lake_files.open_table(shop.home.lake / "deltas")
        assert table is not None
        table.delete("key = 'b'")
        assert near(index, 1.0, 0.0) == ["a", "c", "d"]


def test_a_search_beside_a_fold_is_of_one_moment(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_index(shop.home) as index:
        shop.send("delete", "b")

        def moment_before_a_fold(vectors: Vectors) -> Snapshot:
            taken = vectors._look()
            shop.tables.fold()
            return taken

        monkeypatch.setattr(Vectors, "snapshot", property(moment_before_a_fold))
        assert near(index, 1.0, 0.0) == ["a", "c", "d"]


def test_without_vectors_it_is_said_what_to_do(shop: Shop) -> None:
    rmtree(shop.home.lake / "vectors")
    with open_index(shop.home) as index, pytest.raises(NoIndexError, match=r"vectors is gone.*\./tidemark drain"):
        index.nearest([0.0, 0.0])


def of_v(epoch: int, minute: int, delta_id: str, op: str, **said: Any) -> Delta:
    return {**delta(epoch, op, "v"), "event_us": minute * MINUTE_US, "delta_id": delta_id, **said}


@pytest.mark.parametrize("has_later", [True, False], ids=["and keeps its internal id", "and gets an earlier id"])
def test_a_state_that_loses_a_delta_because_of_a_twin_is_searched_and_indexed_as_it_is(
    shop: Shop, has_later: bool
) -> None:
    """The twin of `t` is older, so it is the parent of `d` from then on; it waits for its own, and `d` with it."""
    arrived = [
        of_v(11, 10, "c", "create", values=[1.0, 1.0]),
        of_v(12, 30, "t", "offset", amount=10.0),
        of_v(13, 35, "d", "scale", factor=5.0, parent_id="t"),
    ]
    later = 1.0 if has_later else 0.0
    arrived += [of_v(14, 40, "x", "offset", amount=later)] if has_later else []
    shop.tables.send(arrived)
    shop.tables.fold()
    shop.follow()
    with open_index(shop.home) as index:
        assert index.nearest([55.0 + later] * 2, k=1).neighbours[0].distance == 0.0
        shop.tables.send([of_v(15, 20, "t", "offset", amount=3.0, parent_id="z")])
        nearest, *_ = index.nearest([11.0 + later] * 2).neighbours
        assert (nearest.vector_id, nearest.distance) == ("v", 0.0)
        shop.tables.fold()
        assert index.nearest([11.0 + later] * 2, k=1).neighbours == [nearest]
        assert [step.way for step in shop.follow()] == [Way.FOLDED]
        assert problems(read_index(shop.home, pointers(shop.home)["demo"])) == []
        assert index.nearest([11.0 + later] * 2, k=1).neighbours == [nearest]
        assert index.nearest([0.0, 0.0]).changed == 0
        assert [step.way for step in shop.follow(is_rebuild=True)] == [Way.BUILT]
        assert index.nearest([11.0 + later] * 2, k=1).neighbours == [nearest]


def test_the_first_write_of_a_shard_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_spark(monkeypatch)
    shop = Shop(Home(tmp_path / "home").create("shards = 2\n"))
    shop.tables.send([delta(100, "create", "a", [0.0, 0.0])])
    shop.tables.fold()
    shop.follow()
    with open_index(shop.home) as index:
        shop.tables.send([{**delta(1, "create", "b", [1.0, 0.0]), "shard": 1}])
        assert near(index, 1.0, 0.0) == ["b", "a"]
        assert index.nearest([1.0, 0.0]).epochs == {0: 100, 1: 1}
