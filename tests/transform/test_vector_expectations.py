"""Every expectation about the tables of vectors holds for good rows and can fail (O4)."""

import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assets.ingest.schema import DELTAS
from assets.vectors.schema import BUCKETS, VECTOR_CHECKPOINTS, VECTOR_CONFLICTS, VECTORS
from expectations.refold import REFOLDED
from expectations.results import CheckResult
from expectations.runner import run_suite
from expectations.suite import read_suite
from resources.session import frame_of
from tests.support.small_lake import table_rows
from tests.support.suites import failures
from tests.support.vector_tables import delta_row
from tidemark.model.buckets import BUCKET, bucket_keys
from tidemark.model.timegrid import HOUR_US
from tidemark.tables.table_spec import TableSpec
from tidemark.vectors.tables import bucket_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
CUT = 10 * HOUR_US
# The number of no bucket.
ELSEWHERE = 99
LEVELS = ("applied_epoch", "flushed_epoch", "durable_epoch", "previous_durable_epoch", "highest_epoch")
DIMENSIONS = pa.table({"namespace": ["shop"], "dimension": [1]})


def named(vector_id: str) -> Row:
    bucket = zlib.crc32(f"shop/{vector_id}".encode()) % BUCKETS
    return {"namespace": "shop", "vector_id": vector_id, "bucket": bucket}


def state(vector_id: str, **more: Any) -> Row:
    row: Row = {
        **named(vector_id),
        "exists": True,
        "is_dead": False,
        "values": [0.5],
        "eff_ts": HOUR_US,
        "depth": 0,
        "event_ts": HOUR_US,
        "origin": "p",
        "delta_id": "d1",
        "shard": 0,
        "first_epoch": 1,
        "last_epoch": 1,
        "last_ordinal": 0,
        "deltas": 1,
        "no_base": 0,
        "no_effect": 0,
    }
    return row | more


def checkpoint(vector_id: str, **more: Any) -> Row:
    return state(vector_id, **{"strategy": "full_merge", "is_base": False, **more})


def current(vector_id: str, **more: Any) -> Row:
    return state(vector_id, **{"parked": 0, "cycles": 0, "has_parents": False, **more})


def conflict(vector_id: str, **more: Any) -> Row:
    sides = {"origin": "p", "event_ts": HOUR_US, "eff_ts": HOUR_US, "op": "create"}
    both = {f"{side}_{name}": value for side in ("earlier", "later") for name, value in sides.items()}
    own = {"earlier_delta_id": "d1", "earlier_epoch": 1, "earlier_clock": {"p": 1}}
    other = {"later_delta_id": "d2", "later_epoch": 2, "later_clock": {"q": 1}}
    return {**named(vector_id), "kind": "concurrent", **both, **own, **other, **more}


def base(vector_id: str, **more: Any) -> Row:
    return checkpoint(vector_id, **{"is_base": True, "cut_ts": CUT, "kept": [], "strategy": "horizon", **more})


def delta(vector_id: str, epoch: int, **more: Any) -> Row:
    at = {"event_us": HOUR_US, "delta_id": "d1", "shard": 0, "epoch": epoch, "ordinal": 0, "origin": "p"}
    known: Row = {name: more.pop(name) for name in ("event_us", "delta_id", "clock") if name in more}
    return delta_row({"namespace": "shop", "vector_id": vector_id, "op": "create", **at, **known}) | more


def judged(
    spark: "SparkSession", spec: TableSpec, rows: list[Row], deltas: list[Row], **more: pa.Table
) -> list[CheckResult]:
    counts = ("rows_out", "rows_found", "watermark_us", "previous_watermark_us")
    edits = {"bucket": pa.int64(), "version": pa.int64(), "operation": pa.string()}
    every = list(range(BUCKETS))
    shard = {"bucket": every, "shard": pa.array([0] * BUCKETS, pa.int32())}
    given = table_rows(DELTAS, deltas)
    buckets = [bucket_of(row["namespace"], row["key"]) for row in given.select(["namespace", "key"]).to_pylist()]
    views = {
        "records": pa.table({"bucket": every, **{name: [1] * BUCKETS for name in counts}}),
        "shards": pa.table({**shard, **{name: [2] * BUCKETS for name in LEVELS}}),
        "edits": pa.table({name: pa.array([], kind) for name, kind in edits.items()}),
        "deltas": given.append_column("bucket", pa.array(buckets, pa.int32())),
        **more,
    }
    batch = frame_of(spark, table_rows(spec, rows))
    frames = {name: frame_of(spark, view) for name, view in views.items()}
    partitions = [*bucket_keys(BUCKETS), BUCKET.key(ELSEWHERE)]
    return run_suite(read_suite(spec.name), batch, partitions=partitions, views=frames)


def refolded(*rows: Row) -> pa.Table:
    times = [{"eff_us": row["eff_ts"], "event_us": row["event_ts"]} for row in rows]
    return pa.Table.from_pylist([row | time for row, time in zip(rows, times, strict=True)], REFOLDED)


def refolded_checkpoints(rows: list[Row], whole_state: bytes | None = None) -> pa.Table:
    table = table_rows(VECTOR_CHECKPOINTS, rows)
    return table.append_column("whole_state", pa.array([whole_state] * len(rows), pa.binary()))


def failed(results: list[CheckResult]) -> set[str]:
    return {name for result in results for name in failures(result)}


def wrong_buckets(results: list[CheckResult], name: str) -> set[str]:
    """The partitions in which an expectation does not hold."""
    return {result.partition for result in results if name in failures(result)}


def own_of(spec: TableSpec) -> set[str]:
    """The expectations of a table alone; those of every table are in all three suites."""
    suites = (read_suite(each.name) for each in (VECTORS, VECTOR_CONFLICTS, VECTOR_CHECKPOINTS))
    shared = set.intersection(*({each.name for each in suite.expectations} for suite in suites))
    return {each.name for each in read_suite(spec.name).expectations} - shared


def test_o4_every_expectation_of_vectors_holds_for_good_rows_and_can_fail(spark: "SparkSession") -> None:
    views = {"dimensions": DIMENSIONS, "refolded": refolded(current("v"))}
    good = judged(spark, VECTORS, [current("v")], [delta("v", 1)], **views)
    assert failed(good) == set()

    rows = [
        *(current("twice"), current("twice")),
        current("elsewhere", bucket=ELSEWHERE),
        current("empty", values=None),
        current("less", no_base=-1),
        current("ahead", last_epoch=9),
        current("long", values=[1.0, 2.0]),
        current("nowhere"),
        current("waits", parked=1, has_parents=True),
        current("early"),
        current("other", values=[-0.0]),
    ]
    there = ["twice", "elsewhere", "empty", "less", "ahead", "long", "other"]
    deltas = [*(delta(each, 1) for each in there), delta("waits", 1), delta("waits", 2, delta_id="d2")]
    late = delta("early", 1, event_us=2 * HOUR_US)
    views["refolded"] = refolded(current("other", values=[0.0]))
    wrong = judged(spark, VECTORS, rows, [*deltas, late], **views)
    assert failed(wrong) >= own_of(VECTORS)
    # Each is found in the bucket that it is in, and in no other; one that is missing, where it should be.
    assert wrong_buckets(wrong, "dimension_is_the_declared_one") == {BUCKET.key(bucket_of("shop", "long"))}
    assert wrong_buckets(wrong, "bucket_is_that_of_the_name") == {BUCKET.key(ELSEWHERE)}
    gone = judged(spark, VECTORS, [], [delta("gone", 1)], **views)
    assert wrong_buckets(gone, "every_delta_is_somewhere") == {BUCKET.key(bucket_of("shop", "gone"))}


def test_o4_every_expectation_of_conflicts_holds_for_good_rows_and_can_fail(spark: "SparkSession") -> None:
    deltas = [delta("v", 1, clock={"p": 1}), delta("v", 2, delta_id="d2", clock={"q": 1})]
    good = judged(spark, VECTOR_CONFLICTS, [conflict("v")], deltas)
    assert failed(good) == set()

    rows = [
        *(conflict("v"), conflict("v")),
        conflict("elsewhere", bucket=ELSEWHERE),
        conflict("turned", earlier_eff_ts=2 * HOUR_US),
        conflict("agreed", later_clock={"p": 2}),
    ]
    wrong = judged(spark, VECTOR_CONFLICTS, rows, deltas)
    assert failed(wrong) >= own_of(VECTOR_CONFLICTS)


def test_o4_every_expectation_of_checkpoints_holds_for_good_rows_and_can_fail(spark: "SparkSession") -> None:
    gone = delta("w", 2, removed_bytes=4)
    # A table may have all numbers of a state where a fold gives those alone that its values do not say.
    numbers, whole = {"values": [1.0, 2.0, 3.0], "state": b"a place, a value"}, b"all three of the numbers"
    again = refolded_checkpoints([checkpoint("v", **numbers)], whole_state=whole)
    rows = [checkpoint("v", **numbers | {"state": whole}), base("w")]
    good = judged(spark, VECTOR_CHECKPOINTS, rows, [delta("v", 1), gone], refolded=again)
    assert failed(good) == set()

    kept = {"kept": [{"shard": 0, "epoch": 4, "ordinal": 0}]}
    rows = [
        *(checkpoint("twice"), checkpoint("twice")),
        checkpoint("elsewhere", bucket=ELSEWHERE),
        checkpoint("empty", deltas=0),
        base("without", cut_ts=None),
        *(base("two"), base("two", delta_id="d2")),
        base("fewer", deltas=5),
        base("kept", **kept),
        checkpoint("other", values=[-0.0]),
    ]
    deltas = [delta("nobody", 3, removed_bytes=0), delta("kept", 4, removed_bytes=0)]
    again = refolded_checkpoints([checkpoint("other", values=[0.0])])
    wrong = judged(spark, VECTOR_CHECKPOINTS, rows, deltas, refolded=again)
    assert failed(wrong) >= own_of(VECTOR_CHECKPOINTS)
    uncovered = {BUCKET.key(bucket_of("shop", name)) for name in ("nobody", "kept")}
    assert wrong_buckets(wrong, "what_is_gone_is_covered") == uncovered
