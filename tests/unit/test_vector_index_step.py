"""The next index of a namespace (V1, V2): whichever way it was reached, it is one of the vectors as they are."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from assets.vectors.index_step import Step, Way, build_index, next_index, rows_of_parts
from tidemark.vectors.index.invariants import problems
from tidemark.vectors.index.metrics import Metric
from tidemark.vectors.index.search import Searcher
from tidemark.vectors.index.state import VectorIndex
from tidemark.vectors.index.tables import Origin
from tidemark.vectors.reading.stored_index import States, states_of
from tidemark.vectors.tables import BUCKET, BUCKETS

# Of each vector the epoch of its latest delta, and its values.
Rows = dict[str, tuple[int, list[float] | None]]


def states(rows: Rows) -> States:
    values: Any = [values for _, values in rows.values()]
    return states_of(
        pa.table(
            {
                "vector_id": pa.array(list(rows), pa.string()),
                "values": pa.array(values, pa.list_(pa.float32())),
                "shard": pa.array([0] * len(rows), pa.int32()),
                "last_epoch": pa.array([epoch for epoch, _ in rows.values()], pa.int64()),
                "last_ordinal": pa.array(range(len(rows)), pa.int32()),
            }
        )
    )


def built(rows: Rows) -> Step:
    step = build_index("shop", states(rows), seed=0)
    assert step is not None
    return step


def followed(before: Step, rows: Rows, told: Sequence[str] = ()) -> Step:
    """The step after some rows of the table have been written again; all of them, if nothing is said."""
    origin, every = Origin(0, before.left_out, before.measured_entries), states(rows)
    is_told = np.array([not told or name in told for name in rows])
    chosen = States(
        *(part.filter(pa.array(is_told)) if isinstance(part, pa.Array) else part[is_told] for part in every)
    )
    return next_index(before.index, origin, chosen, lambda: every, seed=0)


def held(index: VectorIndex) -> dict[str, list[float]]:
    vectors = index.vectors()
    return dict(zip(vectors.vector_ids.to_pylist(), vectors.values.tolist(), strict=True))


FIRST: Rows = {f"v{place}": (1, [float(place), 1.0]) for place in range(10)}


@pytest.mark.parametrize(
    ("before", "after", "dimension"),
    [
        (
            {"test": (1, [1.0, 2.0, 3.0])},
            {"test": (1, [1.0, 2.0, 3.0])} | {f"v{place}": (2, [float(place)] * 4) for place in range(2_000)},
            4,
        ),
        (FIRST, FIRST | {f"v{place}": (2, [1.0, 2.0, float(place)]) for place in range(9)}, 3),
        (
            FIRST | {f"w{place}": (1, [1.0, 2.0, 3.0]) for place in range(9)},
            FIRST | {f"w{place}": (1, [1.0, 2.0, 3.0]) for place in range(9)} | {"v0": (2, None), "v1": (2, None)},
            3,
        ),
        (FIRST, FIRST | {"w": (2, [1.0, 2.0, 3.0])}, 2),
    ],
    ids=["a first vector for a try", "nearly all replaced", "some of the others deleted", "one more"],
)
def test_an_index_that_followed_has_the_length_that_most_vectors_have(
    before: Rows, after: Rows, dimension: int
) -> None:
    changed = [name for name in after if after[name] != before.get(name)]
    step, right = followed(built(before), after, changed), built(after)
    assert step.index.dimension == right.index.dimension == dimension
    assert step.left_out == right.left_out > 0
    assert held(step.index) == held(right.index)
    assert problems(step.index) == []


@pytest.mark.parametrize("metric", list(Metric))
def test_values_beyond_32_bits_are_the_same_in_an_index_that_was_built_and_in_one_that_followed(metric: Metric) -> None:
    far = FIRST | {"far": (2, [float("inf"), 1e30]), "opposite": (2, [float("-inf"), 1e30])}
    right, step = built(far), followed(built(FIRST), far)
    assert step.way is Way.FOLDED
    assert held(right.index) == held(step.index)
    for index in (right.index, step.index):
        assert np.isfinite(index.centroids).all()
        searcher = Searcher(index)
        found = searcher.nearest([1.0, 1.0], k=20, probes=searcher.lists, metric=metric).of(0)
        assert sorted(each.vector_id for each in found) == sorted(far)
        assert np.isfinite([each.distance for each in found]).all()
        assert len(searcher.nearest([1.0, 1.0], k=20, probes=1, metric=metric).of(0)) > 0


@pytest.mark.parametrize("epoch", [2, 3, 4], ids=["an earlier id", "the same id", "a later id"])
def test_a_vector_that_has_changed_is_in_the_index_as_it_is_whatever_its_id_is_now(epoch: int) -> None:
    before = built(FIRST | {"v3": (3, [56.0, 56.0])})
    after = FIRST | {"v3": (epoch, [12.0, 12.0])}
    step = followed(before, after)
    assert (step.way, step.upserts) == (Way.FOLDED, 1)
    assert held(step.index) == held(built(after).index)
    assert problems(step.index) == []
    assert followed(step, after).way is Way.KEPT


def test_only_buckets_that_a_step_names_have_other_rows() -> None:
    many: Rows = {f"v{place}": (1, [float(place % 17), float(place)]) for place in range(100)}
    before = built(many)
    step = followed(before, many | {"v3": (1, [5.0, 50.0]), "v8": (2, [9.0, 99.0]), "v9": (2, None)})
    assert step.touched is not None
    old, new = rows_of_parts([before.index]), rows_of_parts([step.index])
    assert old.keys() == new.keys() == step.touched.keys()
    for table, touched in step.touched.items():
        others = pa.array(sorted(set(range(BUCKETS)) - touched), pa.int32())
        unchanged = (rows[table].filter(pc.is_in(rows[table][BUCKET], others)) for rows in (old, new))
        assert len({str(rows.to_pylist()) for rows in unchanged}) == 1, table
    assert len(step.touched["vector_postings"]) < BUCKETS
