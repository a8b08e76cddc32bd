"""An index goes through its tables unchanged, and what is wrong with one is told."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from pyroaring import FrozenBitMap64

from tidemark.vectors.index.errors import IndexDamageError
from tidemark.vectors.index.fold import Changes, build, fold, vectors_of
from tidemark.vectors.index.invariants import problems
from tidemark.vectors.index.metrics import Metric
from tidemark.vectors.index.recall import with_probing
from tidemark.vectors.index.search import Searcher
from tidemark.vectors.index.state import Dictionary, Postings, VectorIndex
from tidemark.vectors.index.tables import Origin, Tables, Versions, from_tables, pointer_row, to_tables, versions_of

VERSIONS = Versions(4, 3, 2, 1)


def made(namespace: str = "shop") -> VectorIndex:
    rows = np.random.default_rng(1).standard_normal((50, 3))
    named = vectors_of([f"v{place}" for place in range(50)], np.arange(50) * 7, rows)
    return with_probing(build(namespace, named, epoch=12, seed=3, default_metric=Metric.COSINE), seed=4)


def folded_changes() -> tuple[VectorIndex, Changes]:
    changed = vectors_of(["v3", "new"], [1_001, 1_002], [[1.0, 2.0, 3.0], [0.0, 0.0, 0.0]])
    return made(), Changes(changed, pa.array(["v9"]))


def assert_same(one: VectorIndex, other: VectorIndex) -> None:
    assert one.centroids.tobytes() == other.centroids.tobytes()
    assert [part.tolist() for part in one.postings] == [part.tolist() for part in other.postings]
    assert one.dictionary.vector_ids == other.dictionary.vector_ids
    assert one.dictionary.internal_ids.tolist() == other.dictionary.internal_ids.tolist()
    facts = ("namespace", "deleted", "training", "probing", "default_metric")
    assert [getattr(one, name) for name in facts] == [getattr(other, name) for name in facts]


def test_an_index_is_read_from_its_tables_as_it_was_whatever_the_order_of_rows_and_beside_others() -> None:
    index = fold(*folded_changes()).index
    both = (pa.concat_tables(pair) for pair in zip(to_tables(made("other")), to_tables(index), strict=True))
    tables = Tables(*(table.take(pa.array(np.arange(table.num_rows)[::-1])) for table in both))
    pointer = pointer_row(index, VERSIONS, Origin(7))
    assert versions_of(pointer) == VERSIONS
    assert_same(from_tables(pointer, tables), index)


def test_tables_of_other_versions_are_not_taken_for_the_index() -> None:
    index, changes = folded_changes()
    pointer = pointer_row(fold(index, changes).index, VERSIONS, Origin(7))
    with pytest.raises(IndexDamageError, match="52 rows in vector_postings, and 50 were read"):
        from_tables(pointer, to_tables(index))


def test_every_broken_invariant_is_told() -> None:
    index = fold(*folded_changes()).index
    assert problems(index) == []
    known, postings = index.dictionary, index.postings
    for broken, told in (
        (replace(index, deleted=FrozenBitMap64()), "2 entries are neither live nor deleted, and would be returned"),
        (
            replace(index, deleted=index.deleted | FrozenBitMap64([0])),
            "1 internal ids are in the dictionary and deleted",
        ),
        (
            replace(index, dictionary=Dictionary(known.vector_ids, known.internal_ids + 10_000)),
            "are in no posting list",
        ),
        (replace(index, dictionary=Dictionary(known.vector_ids, known.internal_ids * 0)), "more than once"),
        (replace(index, dictionary=Dictionary(known.vector_ids[::-1], known.internal_ids)), "not in the order"),
        (replace(index, postings=postings._replace(values=-postings.values)), "not in the list of their nearest"),
        (replace(index, postings=Postings(postings.offsets[:-1], *postings[1:])), "do not begin and end"),
        (replace(index, postings=postings._replace(internal_ids=postings.internal_ids // 14)), "in posting lists more"),
    ):
        assert any(told in sentence for sentence in problems(broken)), told
    with pytest.raises(IndexDamageError, match="neither in the dictionary nor deleted"):
        Searcher(replace(index, deleted=FrozenBitMap64()))
