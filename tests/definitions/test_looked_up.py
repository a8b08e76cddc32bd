"""What waits where the orchestrator's mappings cannot tell: session joins and batches (O3, O4). No Spark, no daemon."""

from collections.abc import Iterator
from datetime import UTC, datetime

import dagster as dg
import pytest

from assets import dependents, trust
from assets.graph import Derived, graph_of
from assets.ingest.schema import DELTAS
from assets.partitions import PARTITIONS
from assets.table_asset import TableAsset
from assets.windows.catalog import derived_tables
from orchestration import automation
from orchestration.automation import automated
from tests.support.batch import send
from tests.support.live import TEN_O_CLOCK, HandClock, signal
from tests.support.orchestrator import judge, materialize
from tidemark.model.deltas import Kind
from tidemark.model.timegrid import HOUR, HOUR_US, hour_key, to_us
from tidemark.storage.home import Home
from tidemark.streams import Join, JoinForm, Stream, Streams, WindowSpec, WindowType

NOW = datetime(2026, 3, 25, 10, 30, tzinfo=UTC)
RUNNING_US = to_us(NOW) // HOUR_US * HOUR_US
RUNNING, LONG_AGO, LATELY = (hour_key(RUNNING_US - hours * HOUR_US) for hours in (0, 30, 3))
VISITS = Stream("visits", "shop", Kind.SIGNAL, WindowSpec(WindowType.SESSION, gap_us=HOUR_US))
EDITS = Stream("edits", "shop", Kind.VECTOR, WindowSpec(WindowType.SESSION, gap_us=HOUR_US))
BATCHES = Stream("batches", "shop", Kind.SIGNAL, WindowSpec(WindowType.ADAPTIVE), key=())
PAIRS = Join("pairs", "visits", "edits", JoinForm.SESSIONS)
GRAPH = graph_of(derived_tables(Streams({each.name: each for each in (VISITS, EDITS, BATCHES)}, {"pairs": PAIRS})))


@dg.asset(name=DELTAS.name, partitions_def=PARTITIONS[HOUR])
def deltas() -> None:
    """Stands for the table of deltas."""


def table(derived: Derived) -> dg.AssetsDefinition:
    return automated(TableAsset(derived, lambda run, hours: []).definition)


class Platform:
    """Tables of sessions, batches and pairs; what is stale is told by hand, and so is what was found wrong."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance, self.stale = instance, dict[str, set[str]]()
        self.defs = dg.Definitions(
            [deltas, *map(table, GRAPH.values())], resources={"tidemark": dg.ResourceDefinition.none_resource()}
        )

    def requested(self) -> dict[str, set[str]]:
        """What a look of the sensor requests, by asset."""
        found = dg.evaluate_automation_conditions(self.defs, self.instance, evaluation_time=NOW)
        keys = {name: found.get_requested_partitions(dg.AssetKey(name)) for name in self.stale}
        return {name: {str(key) for key in of} for name, of in keys.items() if of}


@pytest.fixture
def platform(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    monkeypatch.setattr(automation, "GRAPH", GRAPH)
    tables = {DELTAS.name: DELTAS, **{name: of.spec for name, of in GRAPH.items()}}
    for module in (automation, trust):
        monkeypatch.setattr(module, "TABLES", tables)
    # The sessions that close in the running hour began thirty hours ago.
    monkeypatch.setattr(dependents, "look_back", lambda path, spec: {RUNNING_US: RUNNING_US - 30 * HOUR_US})
    with dg.DagsterInstance.ephemeral() as instance:
        found = Platform(instance)
        told = lambda instance: {name: dict.fromkeys(keys, "") for name, keys in found.stale.items()}  # noqa: E731
        monkeypatch.setattr(automation, "find_stale", told)
        yield found


def wrong(platform: Platform, asset: str, partition: str) -> None:
    materialize(platform.instance, asset, [partition])
    judge(platform.instance, asset, [partition], passed=False)


def test_pairs_wait_for_sessions_that_wait_themselves_however_long_ago_they_began(platform: Platform) -> None:
    """Made now, they would be stale afterwards, and be requested again at every look."""
    wrong(platform, DELTAS.name, LONG_AGO)
    platform.stale = {"visits": {LONG_AGO}, "pairs": {RUNNING, LATELY}}
    assert platform.requested() == {"pairs": {LATELY}}


def test_pairs_are_requested_together_with_the_sessions_that_they_are_made_of(platform: Platform) -> None:
    platform.stale = {"visits": {LONG_AGO, RUNNING}, "pairs": {RUNNING}}
    assert platform.requested() == {"visits": {LONG_AGO, RUNNING}, "pairs": {RUNNING}}


def test_pairs_are_held_back_by_sessions_found_wrong_however_long_ago_they_began(platform: Platform) -> None:
    wrong(platform, "edits", LONG_AGO)
    platform.stale = {"pairs": {RUNNING, LATELY}}
    assert platform.requested() == {"pairs": {LATELY}}


def test_an_hour_found_wrong_holds_back_the_batches_of_its_deltas_and_no_others(home: Home, platform: Platform) -> None:
    """The first write's batch is recorded in the second segment, which is sealed hours later."""
    later, again = (TEN_O_CLOCK + hours * HOUR_US for hours in (3, 6))
    for delta_id, now_us in (("a", TEN_O_CLOCK), ("b", later), ("c", again)):
        send(home, [signal(delta_id, at=now_us)], producer=delta_id, clock=HandClock(now_us))
    wrong(platform, DELTAS.name, hour_key(TEN_O_CLOCK))
    platform.stale = {"batches": {hour_key(now_us) for now_us in (TEN_O_CLOCK, later, again)}}
    assert platform.requested() == {"batches": {hour_key(later), hour_key(again)}}
