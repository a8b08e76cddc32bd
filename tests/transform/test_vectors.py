"""What Spark does for vectors, against plain Python (D3, D8, K1).

Many small vectors are folded at once, each from a seed of its own: ties, late deltas, missing parents, cycles, deletes,
deltas without a base and indices beyond the end are frequent.
"""

from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from assets.vectors.asset import compared, write_vectors
from assets.vectors.conflicts import clocked_vectors
from assets.vectors.schema import VECTORS
from assets.vectors.transform import KEYS, whole_vectors
from resources.lake import Lake
from resources.session import frame_of
from tests.support.vector_lake import VectorLake
from tests.support.vector_oracle import Delta, canonical, random_deltas, table_of
from tests.support.vector_rows import expected_rows, table_rows_by_name
from tidemark.vectors.clocks import conflicts
from tidemark.vectors.tables import BUCKETS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEEDS = 40
COLUMNS = ("shard", "epoch", "ordinal", "event_us", "origin", "delta_id", "op", "values", "indices", "factor", "amount")
READ = [*KEYS, *COLUMNS, "metadata", "clock", "parent_id"]


@cache
def arrived() -> tuple[Delta, ...]:
    """Deltas of eighty vectors in the order of their arrival; in half of them none names a parent."""
    found: list[Delta] = []
    for seed in range(SEEDS):
        for delta in random_deltas(Random(seed), 12, "uv"):
            own = {"namespace": f"space-{seed}", "ordinal": seed * 2 + delta["ordinal"]}
            found.append(delta | own | ({"parent_id": None} if seed % 2 else {}))
    return tuple(found)


def frame(spark: "SparkSession", deltas: Sequence[Delta]) -> "DataFrame":
    return frame_of(spark, table_of(deltas).select(READ))


def by_vector(deltas: Sequence[Delta]) -> Iterator[tuple[tuple[str, str], list[Delta]]]:
    for key in sorted({(delta["namespace"], delta["vector_id"]) for delta in deltas}):
        yield key, [delta for delta in deltas if (delta["namespace"], delta["vector_id"]) == key]


def test_the_job_makes_of_files_what_its_tasks_make_of_rows_d3(lake: Lake) -> None:
    """Whole at first, then with what is new: late deltas, ties, healed parents and bases, by Spark's own tasks."""
    tables = VectorLake(lake.home)
    last = max(delta["epoch"] for delta in arrived())
    covered: dict[int, int] | None = None
    for upto in (last // 2, last):
        begin = covered[0] if covered else 0
        tables.send(delta | {"received_us": 0} for delta in arrived() if begin < delta["epoch"] <= upto)
        version = lake.version("deltas")
        assert version is not None
        with lake.lock("vectors"):
            write_vectors(lake, version, dict.fromkeys(range(BUCKETS), covered))
        assert table_rows_by_name(lake) == expected_rows(tables.deltas)
        covered = {0: upto}
    assert not any((lake.home.work / "vectors").iterdir()), "packets are gone when a run is over"
    # What Spark reads of the table is what lies in it.
    rows = lake.read("vectors")
    assert rows.columns == VECTORS.names
    found = {(row["namespace"], row["vector_id"]): row for row in rows.collect()}
    assert {key: row["deltas"] for key, row in found.items()} == {
        key: row["deltas"] for key, row in expected_rows(tables.deltas).items()
    }


def test_conflicts_are_those_of_each_vector_in_its_order_d8(spark: "SparkSession") -> None:
    deltas = frame(spark, arrived())
    rows = compared(deltas, clocked_vectors(deltas)).collect()
    found = sorted((r["namespace"], r["vector_id"], r["earlier_epoch"], r["later_epoch"], r["kind"]) for r in rows)
    expected = []
    for key, own in by_vector(arrived()):
        line = [delta for delta in canonical(own, key[1]) if delta["clock"]]
        pairs = conflicts([delta["clock"] for delta in line])
        expected += [(*key, line[one]["epoch"], line[other]["epoch"], kind.value) for one, other, kind in pairs]
    assert found == sorted(expected)
    assert {row["kind"] for row in rows} == {"concurrent", "inverted"}


@pytest.mark.parametrize("size", [1, 7, 100])
def test_rows_are_cut_between_vectors_alone(size: int) -> None:
    rows = pa.table({"namespace": ["n"] * 20, "vector_id": [f"v{(n * n) // 40:02d}" for n in range(20)]})
    tables = list(whole_vectors(rows.to_batches(max_chunksize=3), size))
    assert pa.concat_tables(tables).equals(rows)
    seen = [set(table["vector_id"].to_pylist()) for table in tables]
    assert sum(len(each) for each in seen) == pc.count_distinct(rows["vector_id"]).as_py()
