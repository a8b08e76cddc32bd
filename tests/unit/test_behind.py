"""What is behind: one comparison, and two memories of what partitions were made from that agree (O2, R1)."""

from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import dagster as dg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.stale import stale_partitions
from assets.trust import found_wrong
from resources.record import Record
from tests.support.small_lake import SOURCES, SPECS, Event, SmallLake
from tidemark.counts.tables import Tables
from tidemark.counts.windows import Tier
from tidemark.model.timegrid import DAY_US, HOUR_US, WEEK_US
from tidemark.storage.home import Home
from tidemark.tables import lake_files
from tidemark.tables.behind import Behind, find_behind
from tidemark.tables.known_table import KnownTableFile
from tidemark.tables.lineage import FOREIGN, UNKNOWN, Made
from tidemark.tables.table_spec import TableSpec

MONDAY = 4 * DAY_US  # the first after 1970 began
# Two hours of a day, another day of that week, and another week.
HOURS = (MONDAY, MONDAY + HOUR_US, MONDAY + 2 * DAY_US, MONDAY + WEEK_US)
TIERS = (Tier.MINUTE, Tier.HOUR, Tier.DAY, Tier.WEEK)


@pytest.mark.parametrize(
    ("made", "changed", "generation", "why"),
    [
        (None, -1, 1, None),
        (None, 0, 1, Behind.NEVER_MADE),
        (Made(5, 3, 1), -1, 1, None),
        (Made(5, 3, 1), 3, 1, None),
        (Made(5, 3, 1), 4, 1, Behind.CHANGED),
        (Made(5, 3, 1), 3, 2, Behind.REPLACED),
        (Made(-1, 3, 1), -1, 2, Behind.REPLACED),
        (Made(5, UNKNOWN, 0), -1, 1, Behind.NOT_KNOWN),
        (Made(5, FOREIGN, 0), 3, 1, Behind.NOT_KNOWN),
        (Made(-1, UNKNOWN, 1), 0, 1, Behind.CHANGED),
    ],
)
def test_a_partition_is_behind_what_its_input_has_for_it_now(
    made: Made | None, changed: int, generation: int, why: Behind | None
) -> None:
    assert find_behind(made, changed=changed, generation=generation) is why


class Platform:
    """Tables of counts, whose every commit is recorded in both ways: beside the table, and by the orchestrator."""

    def __init__(self, home: Home, instance: dg.DagsterInstance) -> None:
        self.home, self.instance, self.lake = home, instance, SmallLake(home)
        self.deltas = SOURCES[Tier.MINUTE]

    def send(self, hours: Iterable[int]) -> None:
        sent = set(hours)
        self.lake.send([Event(hour) for hour in sent])
        self._record(self.deltas, None, sent)

    def begin_again(self) -> None:
        self.lake.begin_again()
        self._record(self.deltas, None, lake_files.partitions(self.home.lake / self.deltas.name))

    def roll_up(self, tier: Tier, hours: Iterable[int]) -> None:
        """Compute the partitions that hold these hours, where the input has anything for them."""
        spec, source = SPECS[tier], SOURCES[tier]
        there = lake_files.partitions(self.home.lake / source.name)
        starts = {spec.grain.floor(hour) for hour in hours} & {spec.grain.floor(start) for start in there}
        if starts:
            self.lake.roll_up(tier, starts)
            self._record(spec, source, starts)

    def stale(self) -> dict[Tier, set[int]]:
        found = stale_partitions(self.instance, self.home)
        return {tier: {SPECS[tier].grain.start(key) for key in found[SPECS[tier].name]} for tier in TIERS}

    def behind(self) -> dict[Tier, set[int]]:
        return {tier: set(starts) for tier, starts in Tables(self.home).behind.items()}

    def _record(self, spec: TableSpec, source: TableSpec | None, starts: Iterable[int]) -> None:
        for start in starts:
            record = Record(
                asset=spec.name,
                partition=spec.grain.key(start),
                generation=self._generation(spec),
                table_version=self._version(spec),
                table_id=spec.name,
                input_versions={source.name: self._version(source)} if source else {},
                input_generations={source.name: self._generation(source)} if source else {},
            )
            made = dg.AssetMaterialization(spec.name, partition=record.partition, metadata=record.to_metadata())
            self.instance.report_runless_asset_event(made)

    def _generation(self, spec: TableSpec) -> int:
        return KnownTableFile(self.home.plans, spec.name).read().generation

    def _version(self, spec: TableSpec) -> int:
        state = lake_files.table_state(self.home.lake / spec.name)
        assert state is not None
        return state.version


some_hours = st.sets(st.sampled_from(HOURS), min_size=1)
steps = st.one_of(
    st.tuples(st.just("send"), some_hours),
    st.tuples(st.sampled_from(TIERS), some_hours),
    st.just(("begin_again", frozenset[int]())),
)


@settings(max_examples=25)
@given(history=st.lists(steps, min_size=3, max_size=9))
def test_the_orchestrators_records_and_the_lineage_of_tables_agree_on_what_is_behind(
    history: list[tuple[str, set[int]]],
) -> None:
    """After every step, whatever was computed and whatever was left behind."""
    with TemporaryDirectory() as folder, dg.DagsterInstance.ephemeral() as instance:
        platform = Platform(Home(Path(folder) / "home").create(), instance)
        for what, hours in history:
            if what == "send":
                platform.send(hours)
            elif what == "begin_again":
                platform.begin_again()
            else:
                platform.roll_up(Tier(what), hours)
            assert platform.stale() == platform.behind()


def test_a_hand_edit_is_behind_for_exact_counts_and_blocks_what_the_orchestrator_would_make_of_it(
    tmp_path: Path,
) -> None:
    """Decision 0010: it is neither used nor carried on, and nothing is stale because of it."""
    with dg.DagsterInstance.ephemeral() as instance:
        platform = Platform(Home(tmp_path / "home").create(), instance)
        platform.send(HOURS)
        for tier in TIERS:
            platform.roll_up(tier, HOURS)
        assert platform.stale() == platform.behind() == dict.fromkeys(TIERS, set())
        platform.lake.tamper(Tier.HOUR, MONDAY)
        assert platform.stale() == dict.fromkeys(TIERS, set())
        assert platform.behind()[Tier.HOUR] == {MONDAY}
        hourly = SPECS[Tier.HOUR]
        assert hourly.grain.key(MONDAY) in found_wrong(platform.home, instance, hourly.name)


def test_what_the_orchestrator_has_no_record_of_is_stale_whatever_lies_beside_the_tables(tmp_path: Path) -> None:
    """Its storage was deleted, or a run was killed between its commit and its record: it is made again, recorded."""
    with dg.DagsterInstance.ephemeral() as instance, dg.DagsterInstance.ephemeral() as new:
        platform = Platform(Home(tmp_path / "home").create(), instance)
        platform.send(HOURS[:1])
        for tier in TIERS:
            platform.roll_up(tier, HOURS[:1])
        assert platform.behind() == dict.fromkeys(TIERS, set())
        platform.instance = new
        assert platform.stale() == {tier: {SPECS[tier].grain.floor(HOURS[0])} for tier in TIERS}
