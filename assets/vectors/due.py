"""Which vectors are due for a checkpoint, and how many, from the tables' files and without a JVM (K3).

Belongs here: the estimate that starts a compaction. The run decides again, exactly: here the place of a delta with a
parent is taken to be its own time, which may be earlier. Does not belong here: the rule itself
(`tidemark/vectors/checkpoints.py`).
"""

from collections import Counter
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from assets.ingest.schema import DELTAS
from assets.vectors.schema import VECTOR_CHECKPOINTS, VECTORS
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.vectors.checkpoints import CompactionRules, DueReason, Strategy, due_reasons
from tidemark.vectors.tables import bucket_of

# Vectors with deltas after their last checkpoint: how many there are, and since when.
_PENDING = """
    WITH latest AS (
        SELECT namespace, vector_id, max(deltas) AS held,
            arg_max(struct_pack(eff_ts := eff_ts, origin := origin, delta_id := delta_id), deltas) AS place
        FROM {checkpoints} GROUP BY ALL
    ),
    pending AS (
        SELECT namespace, vector_id, deltas - coalesce(held, 0) AS pending, place
        FROM {vectors} LEFT JOIN latest USING (namespace, vector_id)
        WHERE deltas - coalesce(held, 0) > $kept
    )
    SELECT pending.namespace, pending.vector_id, pending,
        coalesce(min(epoch_us(received_ts)), $now), coalesce(min(epoch_us(event_ts)), $now)
    FROM pending
    LEFT JOIN {deltas} AS delta ON delta.kind = 'vector' AND delta.namespace = pending.namespace
        AND delta.key = pending.vector_id
        AND (place IS NULL OR struct_pack(eff_ts := event_ts, origin := coalesce(delta.origin, delta.producer),
            delta_id := delta.delta_id) > place)
    GROUP BY pending.namespace, pending.vector_id, pending
"""
_NO_CHECKPOINTS = (
    "(SELECT ''::VARCHAR AS namespace, ''::VARCHAR AS vector_id, 0::BIGINT AS deltas, "
    "now()::TIMESTAMPTZ AS eff_ts, ''::VARCHAR AS origin, ''::VARCHAR AS delta_id WHERE false)"
)


class Due(NamedTuple):
    """Vectors that are due: reason → number, and their buckets."""

    reasons: dict[str, int]
    buckets: tuple[int, ...]


def find_due(home: Home, rules: CompactionRules, now_us: int) -> Due:
    """The vectors that are due; empty if there are none."""
    vectors, deltas = (lake_files.files(home.lake / spec.name) for spec in (VECTORS, DELTAS))
    if not vectors or not deltas:
        return Due({}, ())
    checkpoints = lake_files.files(home.lake / VECTOR_CHECKPOINTS.name)
    kept = rules.keep_recent if rules.strategy in (Strategy.TIERED_MERGE, Strategy.ADAPTIVE) else 0
    values: dict[str, object] = {"kept": kept, "now": now_us, "vectors": vectors, "deltas": deltas}
    values |= {"checkpoints": checkpoints} if checkpoints else {}
    query = _PENDING.format(
        vectors="read_parquet($vectors)",
        deltas="read_parquet($deltas)",
        checkpoints="read_parquet($checkpoints)" if checkpoints else _NO_CHECKPOINTS,
    )
    with lake_files.quiet_database() as database:
        database.execute("SET TimeZone = 'UTC'")
        found = database.execute(query, values).to_arrow_table().combine_chunks()
    pending, received_us, event_us = (np.asarray(column, np.int64) for column in found.columns[2:])
    is_over = np.ones(found.num_rows, np.bool_)
    if rules.strategy is Strategy.TIME_BOUNDARY:
        # A state is due when its interval is over, and not before.
        is_over = (event_us // rules.interval_us + 1) * rules.interval_us <= now_us
    reasons = np.where(is_over, due_reasons(pending, received_us, now_us, kept, rules), 0)
    names = tuple(DueReason)
    counts = {names[number].value: count for number, count in sorted(Counter(reasons.tolist()).items()) if number}
    due = found.select(["namespace", "vector_id"]).filter(pa.array(reasons > 0)).to_pylist()
    return Due(counts, tuple(sorted({bucket_of(row["namespace"], row["vector_id"]) for row in due})))
