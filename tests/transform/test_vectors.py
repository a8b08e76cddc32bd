"""The fold in Spark against plain Python (D3, K1): whatever the arrival, the cut into drains and the way taken.

Many small vectors are folded at once, each from a seed of its own: ties, late deltas, missing parents, cycles, deletes,
deltas without a base and indices beyond the end are frequent.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from assets.vectors.asset import compared, known_parented
from assets.vectors.conflicts import clocked_vectors
from assets.vectors.schema import VECTORS
from assets.vectors.transform import (
    KEYS,
    fold_vectors,
    go_on,
    new_deltas,
    place_alone,
    starts_of,
    to_fold_anew,
    touched_vectors,
    untouched,
    whole_vectors,
)
from resources.session import frame_of
from resources.timegrid import to_us
from resources.vectors.chain import state_of
from resources.vectors.clocks import conflicts
from resources.vectors.schema import STATES
from tests.support.vector_oracle import (
    Delta,
    Oracle,
    canonical,
    place_of,
    random_deltas,
    said,
    table_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SEEDS, DRAINS = 40, 3
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


def rows_of(rows: "DataFrame") -> dict[tuple[str, str], dict[str, Any]]:
    """Rows of `vectors` by name, with times as the core has them, and numbers as bytes."""
    found = {}
    for row in said(rows.toArrow()):
        times = {f"{name}_us": row.pop(f"{name}_ts") for name in ("eff", "event")}
        row |= {name: None if time is None else to_us(time) for name, time in times.items()}
        found[row["namespace"], row["vector_id"]] = row
    return found


def expected_of(deltas: Sequence[Delta]) -> dict[tuple[str, str], dict[str, Any]]:
    """What each vector should be, by the core that folds one in memory."""
    found = {}
    for key, own in by_vector(deltas):
        counts = Counter(place if isinstance(place := place_of(delta, own), str) else "placed" for delta in own)
        states = said(state_of(table_of(own)))
        nothing = dict.fromkeys(STATES.names) | {"exists": False, "is_dead": False, "shard": 0}
        nothing |= {"deltas": 0, "no_base": 0, "no_effect": 0, "namespace": key[0], "vector_id": key[1]}
        waiting = {"parked": counts["parked"], "cycles": counts["cycle"]}
        has_parents = any(delta["parent_id"] is not None for delta in own)
        found[key] = (states[0] if states else nothing) | waiting | {"has_parents": has_parents}
    return found


def assert_same(rows: "DataFrame", deltas: Sequence[Delta]) -> None:
    found, expected = rows_of(rows), expected_of(deltas)
    assert found.keys() == expected.keys()
    for key, row in found.items():
        row.pop("bucket")
        assert row == expected[key], key


def test_all_at_once_is_what_plain_python_says_d3(spark: "SparkSession") -> None:
    deltas = frame(spark, arrived())
    rows = fold_vectors(deltas, parented=known_parented(deltas)).localCheckpoint()
    assert rows.columns == VECTORS.names
    assert_same(rows, arrived())
    # The core that they are compared with is itself what a few lines of Python say.
    found = rows_of(rows)
    for key, own in by_vector(arrived()):
        oracle = Oracle().fold(canonical(own, key[1]))
        assert found[key]["no_base"] == oracle.effects.count("no_base")
        values = None if oracle.values is None else np.array(oracle.values, np.float32).tobytes()
        assert found[key]["values"] == values
    kinds = expected_of(arrived()).values()
    for name in ("parked", "cycles", "no_base", "no_effect"):
        assert any(row[name] for row in kinds), f"no example has {name}"


def test_any_cut_into_drains_leads_to_the_same_rows_k1(spark: "SparkSession") -> None:
    """Late deltas, ties, healed parents and bases: some vectors go on from their rows, the others are folded anew."""
    last, deltas = max(delta["epoch"] for delta in arrived()), frame(spark, arrived())
    ways: Counter[bool] = Counter()
    present, covered = None, 0
    for upto in (last // DRAINS, 2 * last // DRAINS, last):
        there = deltas.where(f"epoch <= {upto}")
        if present is None:
            rows = fold_vectors(there, parented=known_parented(there))
        else:
            new = new_deltas(there, {0: covered})
            touched = touched_vectors(new, present).localCheckpoint()
            ways.update(row["is_fast"] for row in touched.collect())
            anew = to_fold_anew(there, touched)
            parts = (untouched(present, touched), go_on(new, present, touched))
            rows = parts[0].unionByName(parts[1]).unionByName(fold_vectors(anew, parented=touched.where("has_parents")))
        present, covered = rows.localCheckpoint(), upto
        assert_same(present, [delta for delta in arrived() if delta["epoch"] <= upto])
    assert ways[True] > 5
    assert ways[False] > 20


def test_a_fold_goes_on_from_a_base_and_leaves_out_what_it_holds_k5(spark: "SparkSession") -> None:
    """The payloads below it may be gone: what is held is not folded again, and is still the parent of others."""
    early = [delta for delta in arrived() if delta["event_us"] <= 0]
    held = frame(spark, early)
    folded = fold_vectors(held, parented=known_parented(held))
    bases = folded.where("deltas > 0 AND parked + cycles = 0").localCheckpoint()
    chosen = {(row["namespace"], row["vector_id"]) for row in bases.collect()}
    # A base is only ever made of a prefix that nothing can sort before (K4).
    whole = {key for key, own in by_vector(arrived()) if _is_prefix([d for d in own if d["event_us"] <= 0], own)}
    keys = sorted(chosen & whole)
    assert len(keys) > 10
    names = spark.createDataFrame(keys, "namespace string, vector_id string")
    bases = bases.join(names, list(KEYS), how="left_semi")
    stripped = [delta | ({"values": None, "op": "replace"} if delta in early else {}) for delta in arrived()]
    of_keys = [delta for delta in stripped if (delta["namespace"], delta["vector_id"]) in keys]
    deltas = frame(spark, of_keys)
    rows = fold_vectors(deltas, parented=known_parented(deltas), starts=starts_of(bases))
    assert_same(rows, [delta for delta in arrived() if (delta["namespace"], delta["vector_id"]) in keys])


def _is_prefix(early: list[Delta], own: list[Delta]) -> bool:
    if not early:
        return False
    ordered = canonical(own, own[0]["vector_id"])
    return ordered[: len(early)] == canonical(early, own[0]["vector_id"]) and len(early) > 0


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


def test_the_plan_brings_rows_together_once(spark: "SparkSession") -> None:
    """Without parents there is one exchange of rows before the fold, and no join (linear in the deltas)."""
    deltas = place_alone(frame(spark, arrived()[:5]))
    plan = fold_vectors(deltas.select(READ), parented=None)._jdf.queryExecution().executedPlan().toString()
    assert plan.count("Exchange") == 1
    assert "Join" not in plan
