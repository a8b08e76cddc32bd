"""Which vectors are due, where checkpoints stand, what a base holds: the plans of Spark against the core (K1 to K5)."""

from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from assets.ingest.removal import GOES, with_fate, without_payloads
from assets.vectors.bases import checkpoints_above, foreseen_bases, new_bases, plan_bases
from assets.vectors.checkpoints import kept_checkpoints, new_checkpoints, plan_checkpoints
from assets.vectors.schema import VECTOR_CHECKPOINTS
from tests.support.checkpoint_rules import checkpoint_positions, kept_by
from tests.support.vector_oracle import Delta, canonical, place_of, random_deltas, said, table_of
from tests.support.vector_tables import delta_frame, frame, states_in
from tidemark.model.timegrid import HOUR_US
from tidemark.vectors.chain import state_of
from tidemark.vectors.checkpoints import CompactionRules, Strategy, due_reasons

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

VECTORS = "uvwxyz"
NOW = 3
# One of them at every run of the tests: it has the most places.
SINGLE = [
    Strategy.TIME_BOUNDARY,
    *(pytest.param(each, marks=pytest.mark.slow) for each in (Strategy.FULL_MERGE, Strategy.TIERED_MERGE)),
]


def arrivals(seed: int, size: int) -> list[Delta]:
    """Deltas of six vectors around time zero; received some time after they happened."""
    random = Random(seed)
    arrived = random_deltas(random, size, VECTORS)
    for delta in arrived:
        delta["received_us"] = delta["event_us"] + random.choice((0, 0, 1, 3))
    return arrived


def compacted(deltas: "DataFrame", checkpoints: "DataFrame", rules: CompactionRules, **more: Any) -> pa.Table:
    """The table of checkpoints after one more compaction, as a run writes it."""
    plan = plan_checkpoints(deltas, checkpoints, now_us=NOW, rules=rules, **more).persist()
    kept = kept_checkpoints(plan, checkpoints, rules=rules)
    return kept.unionByName(new_checkpoints(plan, deltas, checkpoints)).toArrow()


def own(table: pa.Table, vector_id: str) -> pa.Table:
    return table.filter(pc.equal(table["vector_id"], vector_id))


def arrivals_of(deltas: "DataFrame") -> set[tuple[int, int]]:
    return {(row["epoch"], row["ordinal"]) for row in deltas.select("epoch", "ordinal").collect()}


def states_of(arrived: list[Delta], vector_id: str, number: int) -> list[dict[str, Any]]:
    """The state after the first deltas of a vector, from the beginning, by the core."""
    ordered = canonical(arrived, vector_id)[:number]
    chosen = [delta for delta in arrived if delta["vector_id"] == vector_id]
    unfolded = {id(delta) for delta in chosen} - {id(delta) for delta in ordered}
    # Those behind are left out; nothing that stands before names them as a parent.
    return said(state_of(table_of(delta for delta in chosen if id(delta) not in unfolded)))


@pytest.mark.parametrize("strategy", SINGLE)
def test_k2_k3_due_vectors_get_checkpoints_where_the_core_says_and_they_are_its_states(
    spark: "SparkSession", strategy: Strategy
) -> None:
    rules = CompactionRules(strategy, threshold=4, hard_limit=7, keep_recent=2, interval_us=2, max_age_us=3)
    arrived = arrivals(1, 40)
    nothing = frame(spark, VECTOR_CHECKPOINTS)
    made = compacted(delta_frame(spark, arrived), nothing, rules)
    count = 0
    for vector_id in VECTORS:
        ordered = canonical(arrived, vector_id)
        oldest = min((delta["received_us"] for delta in ordered), default=0)
        due = due_reasons(np.array([len(ordered)]), np.array([oldest]), NOW, kept_by(strategy, rules), rules)[0]
        times = np.array([place_of(delta, arrived)[0] for delta in ordered], np.int64)
        wanted = checkpoint_positions(times, NOW, strategy, rules) if due else []
        found = own(made, vector_id).sort_by("deltas")
        assert found["deltas"].to_pylist() == [position + 1 for position in wanted]
        for row, position in enumerate(wanted):
            assert said(states_in(found.slice(row, 1))) == states_of(arrived, vector_id, position + 1)
        count += len(wanted)
    assert count > 3
    assert set(made["strategy"].to_pylist()) == {str(strategy)}


def test_k4_a_late_delta_throws_checkpoints_away_and_the_vector_is_folded_anew(spark: "SparkSession") -> None:
    rules = CompactionRules(Strategy.TIME_BOUNDARY, threshold=1, hard_limit=9, keep_recent=0, interval_us=1)
    arrived = arrivals(2, 30)
    nothing = frame(spark, VECTOR_CHECKPOINTS)
    held = spark.createDataFrame(compacted(delta_frame(spark, arrived[:15]), nothing, rules, is_forced=True))
    # What came late is in the same rows as if it had been there from the beginning.
    deltas = delta_frame(spark, arrived)
    made = compacted(deltas, held, rules, is_forced=True)
    at_once = compacted(deltas, nothing, rules, is_forced=True)
    order = [(name, "ascending") for name in ("vector_id", "eff_ts", "depth", "event_ts", "origin", "delta_id")]
    assert said(states_in(made.sort_by(order))) == said(states_in(at_once.sort_by(order)))
    again = plan_checkpoints(deltas, spark.createDataFrame(made), now_us=NOW, rules=rules, is_forced=True)
    assert again.count() == 0, "done again it changes nothing (O2)"


@pytest.mark.slow
def test_adaptive_takes_the_strategy_of_the_rates_of_each_vector(spark: "SparkSession") -> None:
    arrived = arrivals(3, 30)
    rules = CompactionRules(Strategy.ADAPTIVE, keep_recent=1, interval_us=HOUR_US, busy_writes_per_hour=1.0)
    rates = [("demo", "u", 100.0), ("demo", "v", 1.0)]
    reads = spark.createDataFrame(rates, "namespace string, vector_id string, reads_per_hour double")
    nothing = frame(spark, VECTOR_CHECKPOINTS)
    made = compacted(delta_frame(spark, arrived), nothing, rules, is_forced=True, reads=reads)
    found = dict(zip(made["vector_id"].to_pylist(), made["strategy"].to_pylist(), strict=True))
    assert found["u"] == "full_merge"
    assert found["v"] == "tiered_merge"
    assert {name for name, strategy in found.items() if strategy == "time_boundary"} == set(found) - {"u", "v"}


def test_k1_k5_what_is_readable_at_a_base_and_after_it_is_the_same_without_the_payloads(spark: "SparkSession") -> None:
    arrived = arrivals(4, 48)
    whole = delta_frame(spark, arrived)
    deltas, held, gone = whole, frame(spark, VECTOR_CHECKPOINTS), set[tuple[int, int]]()
    for cut_us in (0, 2):
        plan = plan_bases(deltas, held, cut_us=cut_us)
        foreseen = foreseen_bases(plan, held, cut_us=cut_us)
        going = arrivals_of(with_fate(deltas, foreseen, cut_us).where(f"fate = '{GOES}'"))
        gone_before = arrivals_of(deltas.where("removed_bytes IS NOT NULL"))
        made = new_bases(plan, deltas, held, cut_us=cut_us)
        held = spark.createDataFrame(checkpoints_above(plan, held).unionByName(made).toArrow())
        deltas = spark.createDataFrame(deltas.transform(without_payloads, held.where("is_base")).toArrow())
        assert plan_bases(deltas, held, cut_us=cut_us).count() == 0, "a base is final"
        gone = arrivals_of(deltas.where("removed_bytes IS NOT NULL"))
        assert gone - gone_before == going != set(), "what goes is known before anything is cut"
    bases = held.toArrow()
    assert len(gone) > 8
    emptied = [
        delta | {"op": delta["op"] if delta["op"] == "delete" else None, "values": None, "indices": None}
        if (delta["epoch"], delta["ordinal"]) in gone
        else delta
        for delta in arrived
    ]
    compared = 0
    for vector_id in VECTORS:
        base = own(bases, vector_id)
        assert base.num_rows <= 1
        full = table_of(delta for delta in arrived if delta["vector_id"] == vector_id)
        rest = table_of(delta for delta in emptied if delta["vector_id"] == vector_id)
        start = states_in(base) if base.num_rows else None
        assert said(state_of(rest, start)) == said(state_of(full))
        since = base["cut_ts"].cast(pa.int64())[0].as_py() if start else -9
        for as_of_us in range(since, 8):
            assert said(state_of(rest, start, as_of_us=as_of_us)) == said(state_of(full, as_of_us=as_of_us))
            compared += 1
        for epoch in {delta["epoch"] for delta in arrived if delta["received_us"] >= since}:
            if start is None or epoch >= start["last_epoch"][0].as_py():
                expected = said(state_of(full, upto_epoch=epoch))
                assert said(state_of(rest, start, upto_epoch=epoch)) == expected
    assert compared > 20
