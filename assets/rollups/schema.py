"""Columns of the counts per minute, hour and week, and their meaning.

Belongs here: the three tables as they are declared. They have the same columns; only the width of a bucket differs.
"""

import pyarrow as pa

from resources.table_spec import TIMESTAMP, Column, TableSpec
from resources.timegrid import HOUR_US, WEEK_US

KEYS = ("namespace", "entity_id", "signal", "bucket_start")
MEASURES = ("count", "weight_sum", "deltas")


def _counts(name: str, bucket: str, partition_by: str, partition_us: int, partition_comment: str) -> TableSpec:
    return TableSpec(
        name=name,
        description=f"Signals per entity and {bucket}: how often, with what weight, by how many deltas.",
        columns=(
            Column("namespace", pa.string(), "The namespace of the entity.", is_required=True),
            Column("entity_id", pa.string(), "What the signals are about.", is_required=True),
            Column("signal", pa.string(), "Which signal.", is_required=True),
            Column("bucket_start", TIMESTAMP, f"Start of the {bucket}, in event time.", is_required=True),
            Column("count", pa.int64(), "Sum of the signals' counts; retractions are negative.", is_required=True),
            Column("weight_sum", pa.int64(), "Sum of the weights, in millionths.", is_required=True),
            Column("deltas", pa.int64(), "How many deltas were summed up.", is_required=True),
            Column(partition_by, TIMESTAMP, partition_comment, is_required=True),
        ),
        partition_by=partition_by,
        partition_us=partition_us,
        constraints={"deltas_are_counted": "deltas >= 1"},
        properties={"delta.enableDeletionVectors": "false", "delta.checkpointPolicy": "classic"},
        order_by=("namespace", "entity_id"),
    )


MINUTE_COUNTS = _counts("minute_counts", "minute", "bucket_hour", HOUR_US, "Hour that holds the minute.")
HOURLY_COUNTS = _counts("hourly_counts", "hour", "bucket_hour", HOUR_US, "The hour itself.")
WEEKLY_COUNTS = _counts("weekly_counts", "week", "bucket_week", WEEK_US, "The week itself, by its Monday.")
