"""Selections of a table's partitions: ranges of them, and the SQL that is true for their rows.

Belongs here: numbers, and predicates built from numbers alone. Reading and writing is in `resources/lake.py`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tidemark.model.timegrid import Grain, from_us


def sql_timestamp(time_us: int) -> str:
    """A typed literal: predicates are built from numbers, never from outside text."""
    return f"TIMESTAMP '{from_us(time_us):%Y-%m-%d %H:%M:%S.%f} UTC'"


@dataclass(frozen=True)
class Range:
    """Partitions from `start_us` (in it) to `end_us` (not in it)."""

    start_us: int
    end_us: int
    gaps_us: int = 0  # length of gaps that were not requested

    @property
    def asked_us(self) -> int:
        """The requested time: the work for a range is measured by this."""
        return self.end_us - self.start_us - self.gaps_us

    def holds(self, time_us: int) -> bool:
        """Whether the time lies in the range."""
        return self.start_us <= time_us < self.end_us


class Within(NamedTuple):
    """Rows whose time in a column lies in a range."""

    column: str
    range: Range

    @property
    def sql(self) -> str:
        """SQL that is true for them."""
        return partition_predicate(self.column, self.range)


def contiguous(starts: Iterable[int], grain: Grain) -> list[Range]:
    """Partitions as the fewest ranges without gaps, earliest first."""
    ranges: list[Range] = []
    for start in sorted(set(starts)):
        if ranges and ranges[-1].end_us == start:
            ranges[-1] = Range(ranges[-1].start_us, grain.next(start))
        else:
            ranges.append(Range(start, grain.next(start)))
    return ranges


def partition_predicate(column: str, hours: Range | Sequence[int]) -> str:
    """SQL that is true for the partitions of a range, or for the given ones."""
    if isinstance(hours, Range):
        return f"{column} >= {sql_timestamp(hours.start_us)} AND {column} < {sql_timestamp(hours.end_us)}"
    return f"{column} IN ({', '.join(sql_timestamp(hour) for hour in hours)})"


def any_of(column: str, ranges: Iterable[Range]) -> str:
    """SQL that is true for the partitions of any of these ranges."""
    return any_within(within(column, ranges))


def within(column: str, ranges: Iterable[Range]) -> list[Within]:
    """Rows whose time in a column lies in any of these ranges."""
    return [Within(column, each) for each in ranges]


def any_within(rows: Iterable[Within]) -> str:
    """SQL that is true for any of these rows."""
    return " OR ".join(f"({each.sql})" for each in rows) or "false"


def bucket_predicate(column: str, buckets: Sequence[int]) -> str:
    """SQL that is true for the rows of the given buckets."""
    return f"{column} IN ({', '.join(str(int(bucket)) for bucket in buckets)})" if buckets else "false"
