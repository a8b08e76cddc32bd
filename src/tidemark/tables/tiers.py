"""The tiers of counts: how wide a bucket is, which table holds it, and what it is the sum of (R1).

Belongs here: the chain of tiers, declared once. The tables with their columns, suites and assets, the partitions of
the orchestrator, its jobs, retention, trailing counts and the graph of watermarks follow from it. Importing this needs
neither Spark nor Dagster nor Arrow. Does not belong here: columns (`assets/rollups/schema.py`), which buckets make up
a window (`tidemark/counts/windows.py`).
"""

from dataclasses import dataclass
from enum import StrEnum

from tidemark.model.timegrid import DAY, HOUR, MINUTE, MONTH, WEEK, FixedGrain, Grain

# What the finest tier is counted from.
DELTAS = "deltas"


class Tier(StrEnum):
    """A width of buckets that counts are kept in, from fine to coarse; `TIERS` below declares each."""

    MINUTE = "minute"
    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"

    @property
    def declared(self) -> "DeclaredTier":
        """All that is declared of it."""
        return TIERS[self]

    @property
    def table(self) -> str:
        """The table that holds its buckets."""
        return TIERS[self].table

    @property
    def grain(self) -> Grain:
        """Its buckets."""
        return TIERS[self].grain

    @property
    def partition_grain(self) -> Grain:
        """The partitions of its table."""
        return TIERS[self].partition_grain

    @property
    def made_from(self) -> "Tier | None":
        """The finer tier that it is the sum of; none for minutes, which are counted from deltas."""
        return TIERS[self].made_from

    @property
    def source(self) -> str:
        """The table that it is made from."""
        return DELTAS if self.made_from is None else self.made_from.table

    @property
    def made_of_it(self) -> "tuple[Tier, ...]":
        """The coarser tiers that are sums of it; while there is one, its old buckets may be dropped (R5)."""
        return tuple(tier for tier in Tier if tier.made_from is self)

    @property
    def is_trailing(self) -> bool:
        """Whether trailing counts are made of its buckets."""
        return TIERS[self].is_trailing

    @property
    def width_us(self) -> int:
        """How long a bucket is, of a tier whose buckets are equally long; all that trailing counts are made of are."""
        grain = TIERS[self].grain
        if not isinstance(grain, FixedGrain):
            raise TypeError(f"{self}s differ in their length")
        return grain.length_us

    def floor(self, time_us: int) -> int:
        """Start of the bucket that holds a moment."""
        return TIERS[self].grain.floor(time_us)

    def ceil(self, time_us: int) -> int:
        """Start of the first bucket that does not begin before a moment."""
        return TIERS[self].grain.ceil(time_us)


@dataclass(frozen=True)
class DeclaredTier:
    """What is declared of a tier."""

    table: str
    grain: Grain
    partition_grain: Grain
    made_from: Tier | None
    # How its buckets are called, and where they begin: for descriptions, suites and messages.
    title: str
    begins: str
    border: str
    partition_comment: str
    # Trailing counts cut time into buckets greedily, coarsest first (`tidemark/counts/windows.py`). That is right where
    # each grid has all borders of the coarser ones; a tier for which this is not so stands beside them, for readers.
    is_trailing: bool = True


# From fine to coarse. Minutes are counted from deltas, each other tier is the sum of a finer one.
TIERS = {
    Tier.MINUTE: DeclaredTier(
        table="minute_counts",
        grain=MINUTE,
        partition_grain=HOUR,
        made_from=None,
        title="minute",
        begins="on a minute of",
        border="a minute",
        partition_comment="Hour that holds the minute.",
    ),
    Tier.HOUR: DeclaredTier(
        table="hourly_counts",
        grain=HOUR,
        partition_grain=HOUR,
        made_from=Tier.MINUTE,
        title="hour",
        begins="on the hour of",
        border="an hour",
        partition_comment="The hour itself.",
    ),
    Tier.DAY: DeclaredTier(
        table="daily_counts",
        grain=DAY,
        partition_grain=DAY,
        made_from=Tier.HOUR,
        title="day (UTC)",
        begins="at the midnight of",
        border="a day",
        partition_comment="The day itself.",
    ),
    Tier.WEEK: DeclaredTier(
        table="weekly_counts",
        grain=WEEK,
        partition_grain=WEEK,
        made_from=Tier.DAY,
        title="week (Monday, UTC)",
        begins="on the Monday of",
        border="a Monday",
        partition_comment="The week itself, by its Monday.",
    ),
    # Of days, because a month is no sum of weeks; and no window is made of it, because its borders are none of theirs.
    Tier.MONTH: DeclaredTier(
        table="monthly_counts",
        grain=MONTH,
        partition_grain=MONTH,
        made_from=Tier.DAY,
        title="month (UTC)",
        begins="on the first day of",
        border="the first of a month",
        partition_comment="The month itself, by its first day.",
        is_trailing=False,
    ),
}
# Those that trailing counts are made of, from fine to coarse: each has one coarser tier among them, but for the last.
TRAILING = tuple(tier for tier in Tier if tier.is_trailing)
