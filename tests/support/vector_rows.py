"""Rows of `vectors` as plain Python says they should be, and a fold of files without Spark.

Belongs here: the oracle of whole tables, and a stand-in for the one Spark job that fills them: what its tasks do, one
after the other, in this process.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from resources.lake import Lake
from tests.support.vector_oracle import Delta, place_of, said, table_of
from tidemark.vectors.bucket_files import FoldResult, Target, fold_buckets
from tidemark.vectors.chain import state_of
from tidemark.vectors.packed import Packet, Wanted, pack, read_deltas
from tidemark.vectors.reading.snapshot import FileOf
from tidemark.vectors.schema import ARRIVED, CURRENT, STATES

Key = tuple[str, str]


def arrived_of(deltas: Sequence[Delta]) -> pa.Table:
    """Deltas as the log has them."""
    return table_of(deltas).select(ARRIVED.names).cast(ARRIVED)


def expected_rows(deltas: Sequence[Delta]) -> dict[Key, dict[str, Any]]:
    """What each vector should be, by the core that folds one vector in memory."""
    found = {}
    for key in sorted({(delta["namespace"], delta["vector_id"]) for delta in deltas}):
        own = [delta for delta in deltas if (delta["namespace"], delta["vector_id"]) == key]
        counts = Counter(place if isinstance(place := place_of(delta, own), str) else "placed" for delta in own)
        states = said(state_of(table_of(own)))
        nothing = dict.fromkeys(STATES.names) | {"exists": False, "is_dead": False, "shard": 0}
        nothing |= {"deltas": 0, "no_base": 0, "no_effect": 0, "namespace": key[0], "vector_id": key[1]}
        waiting = {"parked": counts["parked"], "cycles": counts["cycle"]}
        has_parents = any(delta["parent_id"] is not None for delta in own)
        found[key] = (states[0] if states else nothing) | waiting | {"has_parents": has_parents}
    return found


def rows_by_name(rows: pa.Table) -> dict[Key, dict[str, Any]]:
    """Rows (`CURRENT`) by the names of their vectors; each has one."""
    found = {(row["namespace"], row["vector_id"]): row for row in said(rows)}
    assert len(found) == rows.num_rows
    return found


def table_rows_by_name(lake: Lake) -> dict[Key, dict[str, Any]]:
    """The table `vectors`, by delta-rs."""
    table = DeltaTable(lake.path("vectors")).to_pyarrow_table()
    times = {"eff_us": "eff_ts", "event_us": "event_ts"}
    columns = [
        table[times[field.name]].cast(pa.int64()) if field.name in times else table[field.name].cast(field.type)
        for field in CURRENT
    ]
    return rows_by_name(pa.Table.from_arrays(columns, schema=CURRENT))


def run_in_this_process(lake: Lake, files: Sequence[FileOf], wanted: Wanted, target: Target) -> list[FoldResult]:
    """What `assets.vectors.job.run` has Spark do."""
    path = lake.home.root / "packets"
    found: list[Packet] = []
    with path.open("wb") as packets:
        for file in files:
            for rows in read_deltas(file.path, wanted, target.pieces):
                found += pack(rows, file.partition, target.pieces, wanted, str(path), packets)
    outcomes = list(fold_buckets(target, sorted(found, key=lambda packet: packet[:3])))
    path.unlink()
    return outcomes
