"""Columns of the counts per minute, hour, day and so on, and their meaning.

Belongs here: the columns, and the tables that follow from the chain of tiers. These have the same columns; only the
width of a bucket differs. The coarser ones also keep two facts that sums would lose: when the first delta was, to the
minute, and whether a minute ever fell below zero.
"""

import pyarrow as pa

from assets.ingest.schema import DELTAS
from tidemark.counts.windows import Window
from tidemark.model.timegrid import MINUTE
from tidemark.tables.table_spec import TIMESTAMP, Column, TableSpec
from tidemark.tables.tiers import TRAILING, Tier

MEASURES = ("count", "weight_sum", "deltas")


# Minutes do not need these columns: a minute is its own first one, and its own lowest.
EXTREMES = (
    Column("first_minute", TIMESTAMP, "The first minute in it that has a delta.", is_required=True),
    Column("lowest_minute", pa.int64(), "The smallest count of a minute in it that has a delta.", is_required=True),
)


def _counts(tier: Tier) -> TableSpec:
    partition_by = f"bucket_{tier.partition_grain.name}"
    return TableSpec(
        name=tier.table,
        description=f"Signals per entity and {tier}: how often, with what weight, by how many deltas.",
        columns=(
            Column("namespace", pa.string(), "The namespace of the entity.", is_required=True),
            Column("entity_id", pa.string(), "What the signals are about.", is_required=True),
            Column("signal", pa.string(), "Which signal.", is_required=True),
            Column("bucket_start", TIMESTAMP, f"Start of the {tier}, in event time.", is_required=True),
            Column("count", pa.int64(), "Sum of the signals' counts; retractions are negative.", is_required=True),
            Column("weight_sum", pa.int64(), "Sum of the weights, in millionths.", is_required=True),
            Column("deltas", pa.int64(), "How many deltas were summed up.", is_required=True),
            *(() if tier.made_from is None else EXTREMES),
            Column(partition_by, TIMESTAMP, tier.declared.partition_comment, is_required=True),
        ),
        partition_by=partition_by,
        divided_by=tier.partition_grain,
        constraints={"deltas_are_counted": "deltas >= 1"},
        properties={"delta.enableDeletionVectors": "false", "delta.checkpointPolicy": "classic"},
        order_by=("namespace", "entity_id"),
    )


# The table of each tier, from fine to coarse; the tiers are declared in `tidemark/tables/tiers.py`.
COUNTS = {tier: _counts(tier) for tier in Tier}
MINUTE_COUNTS = COUNTS[Tier.MINUTE]
TIERS = tuple(COUNTS.values())
# The tables that trailing counts are made from.
TRAILING_COUNTS = {tier: COUNTS[tier] for tier in TRAILING}
# Each rollup with its input, in the order in which they are refreshed (R1).
CHAIN = tuple((DELTAS if tier.made_from is None else COUNTS[tier.made_from], COUNTS[tier]) for tier in Tier)

WINDOWS = tuple(Window)


def _windowed() -> TableSpec:
    reach = {window: "ever" if window is Window.ALL else f"in the last {window}" for window in WINDOWS}
    columns = (
        Column("namespace", pa.string(), "The namespace of the entity.", is_required=True),
        Column("entity_id", pa.string(), "What the signals are about.", is_required=True),
        Column("signal", pa.string(), "Which signal.", is_required=True),
        *(
            Column(f"count_{window}", pa.int64(), f"Sum of the signals' counts {reach[window]}.", is_required=True)
            for window in WINDOWS
        ),
        *(
            Column(
                f"weight_sum_{window}",
                pa.int64(),
                f"Sum of the weights {reach[window]}, in millionths.",
                is_required=True,
            )
            for window in WINDOWS
        ),
        Column("deltas_all", pa.int64(), "How many deltas there ever were.", is_required=True),
        *(
            Column(
                f"velocity_{window}",
                pa.float64(),
                f"Counts per hour {reach[window]}: count_{window}, exact, by the hours of the window or, if that is "
                "shorter, since first_minute; two divisions of floats.",
                is_required=True,
            )
            for window in WINDOWS
        ),
        Column(
            "decay",
            pa.map_(pa.string(), pa.float64()),
            "Half-life as it is configured, and the score: every count by 2^(-age / half-life), ages in whole minutes, "
            "hours or days, by the half-life; a sum of integers, as a float.",
            is_required=True,
        ),
        Column("first_minute", TIMESTAMP, "The minute of the first delta there ever was.", is_required=True),
        Column("lowest_minute", pa.int64(), "The smallest count that a minute ever had.", is_required=True),
        Column(
            "as_of", TIMESTAMP, "Up to when, and from when back, deltas are counted; on a minute.", is_required=True
        ),
    )
    return TableSpec(
        name="windowed_counts",
        description="Every entity's signals over all five windows, velocities and decayed scores, as of one minute.",
        columns=columns,
        partition_by="as_of",
        divided_by=MINUTE,
        constraints={"deltas_are_counted": "deltas_all >= 1"},
        properties={"delta.enableDeletionVectors": "false", "delta.checkpointPolicy": "classic"},
        order_by=("namespace", "entity_id"),
        is_replaced_whole=True,
    )


WINDOWED_COUNTS = _windowed()
