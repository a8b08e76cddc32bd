"""Watching a home from outside: when each table changed, and when the rows of a write were there.

Belongs here: looking at the tables' folders, and whether anything is still to be done. A look lists a few dozen folders
and reads a file only when it is new. Does not belong here: the orchestrator's own
account of a run (`freshness_steps.py`).
"""

import json
import time
from collections import defaultdict
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from benchmarks.freshness_home import Sent
from benchmarks.harness import looking
from tidemark.storage.home import Home

if TYPE_CHECKING:
    from dagster import DagsterInstance

LOOK_S = 0.1


@dataclass
class Watch:
    """What was seen of a home's tables since it was made: commits by table, and the rows of one write."""

    home: Home
    sent: Sent | None = None
    commits: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    deltas_at: float | None = None
    hourly_at: float | None = None
    changed_at: float = field(default_factory=time.time)
    _seen: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._seen = {table.name: _versions(table) for table in self._tables()}

    def look(self) -> None:
        """Note every commit that was not there at the last look."""
        for table in self._tables():
            versions = _versions(table)
            fresh = versions - self._seen.get(table.name, set())
            self._seen[table.name] = versions
            if fresh:
                self.changed_at = time.time()
                self.commits[table.name] += [self.changed_at] * len(fresh)
                self._find_rows(table, fresh)

    def watching(self) -> AbstractContextManager[None]:
        """Look again and again."""
        return looking(self.look, LOOK_S)

    def _tables(self) -> list[Path]:
        return sorted(self.home.lake.iterdir()) if self.home.lake.exists() else []

    def _find_rows(self, table: Path, versions: set[str]) -> None:
        if self.sent is None:
            return
        if table.name == "deltas" and self.deltas_at is None:
            self.deltas_at = self.changed_at if has_row(table, versions, "delta_id", self.sent.delta_id) else None
        if table.name == "hourly_counts" and self.hourly_at is None:
            self.hourly_at = self.changed_at if has_row(table, versions, "entity_id", self.sent.entity_id) else None


def has_row(table: Path, versions: set[str], column: str, value: str) -> bool:
    """Whether a file that one of these commits added has a row with this value."""
    for version in versions:
        for line in (table / "_delta_log" / version).read_text().splitlines():
            added = json.loads(line).get("add")
            if added and value in column_of(table / unquote(added["path"]), column):
                return True
    return False


def column_of(file: Path, column: str) -> set[str]:
    """The values of a column of one file."""
    found: pa.ChunkedArray = pq.ParquetFile(file).read(columns=[column])[column]
    return set(pc.unique(found.cast(pa.string())).to_pylist())


def _versions(table: Path) -> set[str]:
    log = table / "_delta_log"
    return {path.name for path in log.glob("*.json") if path.stem.isdigit()} if log.exists() else set()


def is_settled(home: Home, instance: "DagsterInstance") -> bool:
    """Whether nothing runs and nothing is left to do, by the platform's own account of what is behind."""
    from dagster import DagsterRunStatus, RunsFilter

    from assets.partitions import existing
    from assets.stale import stale_partitions
    from assets.tables import TABLES
    from assets.trust import unchecked
    from orchestration.materialize import PARTITIONED
    from orchestration.sensors import reported_epochs
    from orchestration.vectors import due_work
    from tidemark.observe.sealed_log import Log

    under_way = [DagsterRunStatus.QUEUED, DagsterRunStatus.STARTING, DagsterRunStatus.STARTED]
    if instance.get_runs_count(RunsFilter(statuses=[*under_way, DagsterRunStatus.NOT_STARTED])):
        return False
    reported = reported_epochs(instance)
    if any(epoch > reported.get(shard, 1) for shard, epoch in Log(home).sealed.items()):
        return False
    stale, now_us = stale_partitions(instance, home), time.time_ns() // 1_000
    behind = (
        existing(home.settings, grain, stale.get(name, ()), now_us)
        for grain in PARTITIONED
        for name in PARTITIONED[grain]
    )
    if any(behind) or due_work(instance, home).tables:
        return False
    return not any(unchecked(instance, name) for name, spec in TABLES.items() if not spec.is_whole)
