"""Every expectation about `vector_checkpoints` holds for good rows and can fail (O4)."""

import zlib
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assets.ingest.schema import DELTAS
from assets.vectors.schema import BUCKETS, VECTOR_CHECKPOINTS
from expectations.runner import Verdict, run_suite
from expectations.suite import read_suite
from resources.session import frame_of
from resources.timegrid import HOUR_US, WHOLE
from tests.support.vector_tables import delta_row, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Row = dict[str, Any]
CUT = 10 * HOUR_US
NUMBERS = {name: pa.int64() for name in ("applied_epoch", "flushed_epoch", "durable_epoch", "previous_durable_epoch")}


def checkpoint(vector_id: str, **more: Any) -> Row:
    row: Row = {
        "namespace": "shop",
        "vector_id": vector_id,
        "bucket": zlib.crc32(f"shop/{vector_id}".encode()) % BUCKETS,
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
        "strategy": "full_merge",
        "is_base": False,
    }
    return row | more


def base(vector_id: str, **more: Any) -> Row:
    return checkpoint(vector_id, **{"is_base": True, "cut_ts": CUT, "kept": [], "strategy": "horizon", **more})


def delta(vector_id: str, epoch: int, **more: Any) -> Row:
    at = {"event_us": HOUR_US, "delta_id": "d1", "shard": 0, "epoch": epoch, "ordinal": 0, "origin": "p"}
    return delta_row({"namespace": "shop", "vector_id": vector_id, "op": "create", **at}) | more


def judged(spark: "SparkSession", rows: list[Row], deltas: list[Row], refolded: list[Row]) -> Verdict:
    counts = ("rows_out", "rows_found", "watermark_us", "previous_watermark_us")
    shards = {"bucket": pa.int64(), "shard": pa.int32(), **NUMBERS, "highest_epoch": pa.int64()}
    edits = {"bucket": pa.int64(), "version": pa.int64(), "operation": pa.string()}
    views = {
        "records": pa.table({"bucket": [-1], **{name: [1] for name in counts}}),
        "shards": pa.table({name: pa.array([], kind) for name, kind in shards.items()}),
        "edits": pa.table({name: pa.array([], kind) for name, kind in edits.items()}),
        "deltas": table_rows(DELTAS, deltas),
        "refolded": table_rows(VECTOR_CHECKPOINTS, refolded),
    }
    batch = frame_of(spark, table_rows(VECTOR_CHECKPOINTS, rows))
    frames = {name: frame_of(spark, view) for name, view in views.items()}
    [verdict] = run_suite(read_suite("vector_checkpoints"), batch, partitions=[WHOLE], views=frames).verdicts
    return verdict


def test_o4_every_expectation_holds_for_good_rows_and_can_fail(spark: "SparkSession") -> None:
    gone = delta("w", 2, removed_bytes=4)
    good = judged(spark, [checkpoint("v"), base("w")], [delta("v", 1), gone], [checkpoint("v")])
    assert good.passed, good.message

    kept = {"kept": [{"shard": 0, "epoch": 4, "ordinal": 0}]}
    rows = [
        *(checkpoint("twice"), checkpoint("twice")),
        checkpoint("elsewhere", bucket=99),
        checkpoint("empty", deltas=0),
        base("without", cut_ts=None),
        *(base("two"), base("two", delta_id="d2")),
        base("fewer", deltas=5),
        base("kept", **kept),
        checkpoint("other", values=[-0.0]),
    ]
    deltas = [delta("nobody", 3, removed_bytes=0), delta("kept", 4, removed_bytes=0)]
    wrong = judged(spark, rows, deltas, [checkpoint("other", values=[0.0])])
    own = {each.name for each in read_suite("vector_checkpoints").expectations if each.name in OWN}
    assert {outcome.name for outcome in wrong.failed} >= own == OWN


OWN = {
    "places_are_unique",
    "rows_lie_in_their_bucket",
    "states_are_whole",
    "bases_say_their_cut",
    "one_base_for_each_vector",
    "what_is_gone_is_covered",
    "bases_hold_what_they_say",
    "before_equals_after",
}
