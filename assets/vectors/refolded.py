"""Checkpoints of some vectors, folded again independently of each other, for comparison in the check (K1, O4).

Belongs here: a second way to the same rows, as a pure function of DataFrames. Does not belong here: comparing them
(`expectations/suites/vector_checkpoints.yaml`).
"""

from collections.abc import Iterable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from assets.vectors.histories import as_checkpoints, counted, fold_marked, placed_envelopes
from assets.vectors.schema import VECTOR_CHECKPOINTS
from assets.vectors.transform import KEYS
from tidemark.vectors.fold import whole_states
from tidemark.vectors.places import PLACE_COLUMNS

# Folding a hundred vectors takes about a second, and almost surely finds an error that one in twenty of them has.
SAMPLED = 100

_REFOLDED_DDL = ", ".join(
    f"`{name}` {kind}"
    for name, kind in [*((column.name, column.sql) for column in VECTOR_CHECKPOINTS.columns), ("whole_state", "binary")]
)
_IS_FOLLOWED = (
    "lead(is_checkpoint, 1, false) OVER "
    f"(PARTITION BY {', '.join(KEYS)} ORDER BY {', '.join(PLACE_COLUMNS)}, is_checkpoint)"
)


def refolded_checkpoints(deltas: DataFrame, checkpoints: DataFrame) -> DataFrame:
    """Rows of `vector_checkpoints` again, for some of the vectors: from the beginning, or from bases if necessary.

    `whole_state` is the other form that the table may have a state in.
    """
    sampled = checkpoints.select(*KEYS).distinct().orderBy(F.xxhash64(*KEYS), *KEYS).limit(SAMPLED)
    held = checkpoints.join(sampled, on=list(KEYS), how="left_semi")
    names = sampled.select("namespace", F.col("vector_id").alias("key"))
    own = deltas.where("kind = 'vector'").join(names, on=["namespace", "key"], how="left_semi")
    gone = own.where("removed_bytes IS NOT NULL").select("namespace", F.col("key").alias("vector_id")).distinct()
    starts = held.where("is_base").join(gone, on=list(KEYS), how="left_semi")
    lines = counted(placed_envelopes(own), held).withColumn("emit", F.expr(_IS_FOLLOWED))
    begun = starts.select(*KEYS, F.col("deltas").alias("start"))
    rows = lines.where("NOT is_checkpoint").join(begun, on=list(KEYS), how="left").where("number > coalesce(start, 0)")
    return as_checkpoints(fold_marked(rows, own, starts)).mapInArrow(_with_whole_states, _REFOLDED_DDL)


def _with_whole_states(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield batch.append_column("whole_state", whole_states(batch))
