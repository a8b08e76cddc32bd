"""How a record (O1) is put together: what every table's record says in the same way, whatever its rows are made from.

Belongs here: a table's identity, its inputs, levels and watermark in a record, and how far the log reaches. No Spark.
Does not belong here: what is in a partition, and which records it was made from (`records.py` of each stage).
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from resources.lake import Lake
from resources.record import Record, not_below
from tidemark.observe.sealed_log import Log, Watermark, least
from tidemark.observe.status import read_status
from tidemark.shard_state.clock_reset import ceiling_us
from tidemark.tables import lake_files
from tidemark.tables.lineage import Input
from tidemark.tables.plans import Plan, plan_at

if TYPE_CHECKING:
    from dagster import AssetExecutionContext, DagsterInstance

Ranges = dict[int, tuple[int, int]]  # shard → first epoch, and the one after the last


@dataclass(frozen=True)
class Levels:
    """How far each shard is, at each level (C2): shard → epoch."""

    applied: dict[int, int] = field(default_factory=dict)
    flushed: dict[int, int] = field(default_factory=dict)
    durable: dict[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Writing:
    """A run that writes partitions, for their records: where to, by which clock, and since when."""

    context: "AssetExecutionContext"
    lake: Lake
    clock: Callable[[], int]
    started_s: float = field(default_factory=time.monotonic)

    @property
    def instance(self) -> "DagsterInstance":
        """The orchestrator's."""
        instance: DagsterInstance = self.context.instance
        return instance

    def anew(self) -> "Writing":
        """The same run, which begins with something else now."""
        return replace(self, started_s=time.monotonic())

    @cached_property
    def duration_ms(self) -> int:
        """How long it took until its first record was made."""
        return round((time.monotonic() - self.started_s) * 1000)


class Recorder:
    """Makes the records of a table that was just written; what they have in common is looked up once."""

    def __init__(
        self, run: Writing, table: str, inputs: Mapping[str, Input] | None = None, *, asset: str | None = None
    ) -> None:
        lake, now_us = run.lake, run.clock()
        self.known = lake.known(table)
        self.ceiling_us = ceiling_us(lake.home, now_us)
        self._common: dict[str, Any] = {
            "asset": asset or table,
            "generation": self.known.generation,
            "table_version": self.known.version,
            "table_id": self.known.table_id,
            "input_versions": {name: read.version for name, read in (inputs or {}).items()},
            "input_generations": {name: read.generation for name, read in (inputs or {}).items()},
            "duration_ms": run.duration_ms,
            "recorded_us": now_us,
        }

    def record(
        self,
        partition: str | None,
        files: Iterable[lake_files.PartitionFiles],
        reached: Levels,
        watermark: Watermark,
        previous: Record | None,
        **own: Any,
    ) -> Record:
        """The record of a partition with these files; `own` are the fields that only its stage can fill in.

        No watermark falls below that of `previous`, the record that the partition has (T3).
        """
        watermark_us, held_by = not_below(watermark.time_us, watermark.held_by, previous, self.ceiling_us)
        held = list(files)
        fields = {
            **self._common,
            "rows_out": sum(each.rows for each in held),
            "bytes": sum(each.bytes for each in held),
            **own,
        }
        return Record(
            partition=partition,
            applied=reached.applied,
            flushed=reached.flushed,
            durable=reached.durable,
            watermark_us=watermark_us,
            held_by=held_by,
            **fields,
        )


def of_generation(record: Record | None, generation: int) -> Record | None:
    """A record, unless it is about an earlier life of the table."""
    return record if record and record.generation == generation else None


def levels(lake: Lake, plan: Plan | None) -> Levels:
    """Applied and flushed from the log, durable from the committed plan; no level is ever ahead of the one below it."""
    durable = plan.durable if plan else {}
    status = {shard.shard: shard for shard in read_status(lake.home)}
    return Levels(
        applied={shard: max(found.applied_epoch, durable.get(shard, 0)) for shard, found in status.items()},
        flushed={shard: max(found.flushed_epoch, durable.get(shard, 0)) for shard, found in status.items()},
        durable={shard: durable.get(shard, 0) for shard in status},
    )


def reach_at(lake: Lake, version: int, sources: Iterable[str]) -> tuple[Levels, Watermark]:
    """How far a version of `deltas` reaches: at each level, and in event time.

    The watermark is the minimum over these namespaces and kinds; idle ones do not count (T2, T3).
    """
    plan = plan_at(lake.home, version)
    marks = Log(lake.home).sources(plan.upto if plan else {})
    return levels(lake, plan), least([marks[source] for source in dict.fromkeys(sources) if source in marks])


def widest(records: Iterable[Record]) -> Ranges:
    """Per shard, the smallest range of epochs that contains those of all records."""
    found: Ranges = {}
    for shard, (first, end) in (item for record in records for item in record.epochs.items()):
        low, high = found.get(shard, (first, end))
        found[shard] = (min(low, first), max(high, end))
    return found
