"""Vectors as rows of the lake's tables, made from the oracle's deltas; and rows of the lake as the core takes them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from assets.ingest.schema import DELTAS
from resources.session import frame_of
from tests.support.small_lake import table_rows
from tests.support.vector_oracle import Delta
from tidemark.model.timegrid import HOUR_US, floor_to
from tidemark.tables.table_spec import TableSpec
from tidemark.vectors.schema import STATES

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PAYLOAD = ("op", "values", "indices", "factor", "amount", "parent_id", "clock", "metadata")


def delta_row(delta: Delta) -> dict[str, Any]:
    """A delta of the oracle as a row of `deltas`; it arrived when it happened unless it says something else."""
    return {
        **{name: delta[name] for name in ("namespace", "delta_id", "origin", "shard", "epoch", "ordinal")},
        "kind": "vector",
        "key": delta["vector_id"],
        "event_ts": delta["event_us"],
        "received_ts": delta.get("received_us", delta["event_us"]),
        "producer": "p",
        "identity_hash": 0,
        "vector": {"vector_id": delta["vector_id"], **{name: delta.get(name) for name in PAYLOAD}},
        "event_hour": floor_to(delta["event_us"], HOUR_US),
    }


def delta_frame(spark: "SparkSession", arrived: Iterable[Delta]) -> "DataFrame":
    return frame_of(spark, table_rows(DELTAS, [delta_row(delta) for delta in arrived]))


def frame(spark: "SparkSession", spec: TableSpec, rows: Sequence[dict[str, Any]] = ()) -> "DataFrame":
    return frame_of(spark, table_rows(spec, rows))


def states_in(rows: pa.Table) -> pa.Table:
    """Rows of `vectors` or `vector_checkpoints` as states of the core."""
    renamed = {"eff_us": "eff_ts", "event_us": "event_ts"}
    columns = [rows[renamed[name]].cast(pa.int64()) if name in renamed else rows[name] for name in STATES.names]
    return pa.Table.from_arrays(columns, names=STATES.names).cast(STATES)
