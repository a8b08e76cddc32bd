"""The graph of tables: what each derived table is made from, partition by partition.

Belongs here: which partitions of an input a partition is made from, and the other way round; staleness, blocked
partitions and the orchestrator's mappings all use this graph, so they cannot disagree. Importing this needs neither
Spark nor Dagster. Does not belong here: the tables themselves (each stage's `schema.py`), staleness (`stale.py`).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from assets.rollups.schema import CHAIN
from tidemark.model.ranges import Range, Within
from tidemark.tables.table_spec import TableSpec


class By(StrEnum):
    """The time that assigns the rows of an input to a partition."""

    EVENT = "event"  # the time of the input's own partitions
    RECEIPT = "receipt"  # the hour in which deltas arrived
    STAMP = "stamp"  # the hour of the watermark in force when they arrived
    BATCH = "batch"  # the hour in which the coordinator closed the batch that they are in
    CARRY = "carry"  # what the partition before it passed on
    MEETING = "meeting"  # sessions of the same partition, and earlier ones that their partners reach back to


# The column of `deltas` with that time; in other tables it is the column that the table is partitioned by.
_COLUMNS = {By.RECEIPT: "received_ts", By.STAMP: "watermark_ts"}


@dataclass(frozen=True)
class Need:
    """An input: which of its rows a partition is made from.

    A partition from `start` to `end` is made from the rows between `start - before_us` and `end + after_us`.
    """

    table: TableSpec
    by: By = By.EVENT
    before_us: int = 0
    after_us: int = 0
    partner: TableSpec | None = None  # by meeting: the table on the other side
    source: str | None = None  # of `deltas`: the only namespace and kind that count, as "namespace/kind"

    def partitions_of(self, target: TableSpec, start_us: int, length_us: int) -> Sequence[int]:
        """Starts of the partitions of `target` that are made from input rows in this piece of time."""
        return target.grain.starts(start_us - self.after_us, start_us + length_us + self.before_us)

    def takes(self, source: str) -> bool:
        """Whether deltas of this namespace and kind count."""
        return self.source in (None, source)

    def inputs_of(self, start_us: int, length_us: int) -> Sequence[int]:
        """Starts of the input's partitions that a partition is made from."""
        return self.table.grain.starts(start_us - self.before_us, start_us + length_us + self.after_us)


@dataclass(frozen=True)
class Derived:
    """A table that is made from others.

    `definition` is a short hash of what a file of definitions says about its rows.
    """

    spec: TableSpec
    needs: tuple[Need, ...]
    definition: str | None = None
    group: str = "windows"  # the orchestrator shows it under this name

    @property
    def inputs(self) -> tuple[str, ...]:
        """The other tables that it is made from, each once; a table's own carry-over is not one of them."""
        names = dict.fromkeys(need.table.name for need in self.needs)
        return tuple(name for name in names if name != self.spec.name)

    @property
    def is_carried(self) -> bool:
        """Whether a partition is made from the one before it."""
        return any(need.table is self.spec for need in self.needs)


def made_of(needs: Iterable[Need], table: str, ranges: Iterable[Range]) -> list[Within]:
    """The rows of an input that the partitions of these ranges are made from."""
    return [
        Within(
            _COLUMNS.get(need.by, need.table.partition_by),
            Range(_floor(need, each.start_us - need.before_us), each.end_us + need.after_us),
        )
        for need in needs
        if need.table.name == table and need.by in (By.EVENT, By.RECEIPT, By.STAMP)
        for each in ranges
    ]


def _floor(need: Need, time_us: int) -> int:
    """Start of the search: a partition that holds this time begins before it."""
    return need.table.grain.floor(time_us) if need.by is By.EVENT else time_us


def graph_of(tables: Iterable[Derived]) -> dict[str, Derived]:
    """Tables by name, each after its inputs."""
    waiting, done = {each.spec.name: each for each in tables}, dict[str, Derived]()
    while waiting:
        ready = [name for name, each in waiting.items() if not set(each.inputs) & (waiting.keys() - {name})]
        if not ready:
            raise ValueError(f"tables are made from one another in a circle: {', '.join(waiting)}")
        done |= {name: waiting.pop(name) for name in ready}
    return done


# Every tier of counts is made from a finer one, for the same time.
ROLLUPS = tuple(Derived(target, (Need(source),), group="rollups") for source, target in CHAIN)
