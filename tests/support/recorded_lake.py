"""Tables of counts without a JVM, whose every commit is recorded in both ways: beside the table, and by Dagster.

What a run leaves behind, for tests of those who ask afterwards what is stale and what may be built upon.
"""

from collections.abc import Iterable

import dagster as dg

from assets.stale import stale_partitions
from resources.record import Record
from tests.support.orchestrator import judge, tell
from tests.support.small_lake import SOURCES, SPECS, Event, SmallLake
from tidemark.counts.tables import Tables
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.known_table import KnownTableFile
from tidemark.tables.table_spec import TableSpec
from tidemark.tables.tiers import Tier

TIERS = tuple(Tier)
DELTAS = SOURCES[Tier.MINUTE]


class RecordedLake:
    """A small lake, and what Dagster knows of it. Every check passes."""

    def __init__(self, home: Home, instance: dg.DagsterInstance) -> None:
        self.home, self.instance, self.lake = home, instance, SmallLake(home)

    def send(self, hours: Iterable[int]) -> None:
        """Drain a delta of each hour."""
        sent = set(hours)
        self.lake.send([Event(hour) for hour in sent])
        self._record(DELTAS, None, sent)

    def begin_again(self) -> None:
        """Another `deltas` with the same rows, under a new generation."""
        self.lake.begin_again()
        self._record(DELTAS, None, lake_files.partitions(self.home.lake / DELTAS.name))

    def roll_up(self, tier: Tier, hours: Iterable[int]) -> set[str]:
        """Compute the partitions that hold these hours, where the input has anything for them."""
        spec, source = SPECS[tier], SOURCES[tier]
        path, file = self.home.lake / spec.name, KnownTableFile(self.home.plans, spec.name)
        there = lake_files.partitions(self.home.lake / source.name)
        starts = {spec.grain.floor(hour) for hour in hours} & {spec.grain.floor(start) for start in there}
        if starts:
            file.record_edits(path)
            self.lake.roll_up(tier, starts)
            file.record_commit(path, rewritten=lambda start: start in starts)
            self._record(spec, source, starts)
        return {spec.grain.key(start) for start in starts}

    def stale(self) -> dict[Tier, set[int]]:
        """By Dagster's records."""
        found = stale_partitions(self.instance, self.home)
        return {tier: {SPECS[tier].grain.start(key) for key in found[SPECS[tier].name]} for tier in TIERS}

    def behind(self) -> dict[Tier, set[int]]:
        """By the lineage that lies beside the tables."""
        return {tier: set(starts) for tier, starts in Tables(self.home, tiers=TIERS).behind.items()}

    def _record(self, spec: TableSpec, source: TableSpec | None, starts: Iterable[int]) -> None:
        keys = [spec.grain.key(start) for start in starts]
        for key in keys:
            record = Record(
                asset=spec.name,
                partition=key,
                generation=self._generation(spec),
                table_version=self._version(spec),
                table_id=spec.name,
                input_versions={source.name: self._version(source)} if source else {},
                input_generations={source.name: self._generation(source)} if source else {},
            )
            tell(self.instance, record)
        judge(self.instance, spec.name, keys)

    def _generation(self, spec: TableSpec) -> int:
        return KnownTableFile(self.home.plans, spec.name).read().generation

    def _version(self, spec: TableSpec) -> int:
        state = lake_files.table_state(self.home.lake / spec.name)
        assert state is not None
        return state.version
