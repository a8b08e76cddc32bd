"""`refresh`: what it makes, in which order, and what becomes of the rest when something fails. No Spark."""

from collections.abc import Callable, Iterator, Sequence

import dagster as dg
import pytest

from assets import refresh as module
from assets.as_seen import STATE_TAG, state_of
from assets.graph import Derived
from assets.ingest.schema import DELTAS
from assets.names import HELD_BACK
from assets.refresh import refresh_asset
from assets.table_asset import TableAsset
from assets.tables import GRAPH, TABLES
from orchestration.instance import open_instance
from orchestration.materialize import hours_between
from resources.lake import Lake
from resources.platform import TidemarkResource
from resources.record import Record
from resources.spark import SparkResource
from tests.support.orchestrator import judge, materialize
from tidemark.model.errors import StoppedError
from tidemark.model.ranges import Range
from tidemark.model.timegrid import MINUTE_US, hour_start
from tidemark.storage.home import Home

HOUR, NEXT, LATER = hours_between("2026-03-02-09:00", "2026-03-02-11:00")
DAY = "2026-03-02"
LOG = Derived(DELTAS, ())
MINUTES, HOURS, DAYS = "minute_counts", "hourly_counts", "daily_counts"


class Tables:
    """Stands in for tables of counts: what is stale is told round by round, and what is made is noted."""

    def __init__(self, home: Home, instance: dg.DagsterInstance) -> None:
        self.home, self.instance = home, instance
        self.rounds: list[dict[str, list[str]]] = []
        self.made: list[tuple[str, tuple[str, ...]]] = []
        self.tried: list[tuple[str, tuple[str, ...]]] = []
        self.checked: list[tuple[str, tuple[str, ...]]] = []
        self.failing: dict[str, BaseException] = {}
        self.bad = {HOUR, NEXT, LATER, DAY}  # the partitions of a failing table that fail
        self.wrong: set[str] = set()

    def stale(self, *_: object, **__: object) -> dict[str, dict[str, str]]:
        now = self.rounds.pop(0) if self.rounds else {}
        return {table: dict.fromkeys(keys, "stale") for table, keys in now.items()}

    def make(self, table: str) -> Callable[..., list[Record]]:
        grain = TABLES[table].grain

        def materialize(_: object, windows: Sequence[Range]) -> list[Record]:
            keys = [grain.key(start) for each in windows for start in grain.starts(each.start_us, each.end_us)]
            self.tried.append((table, tuple(keys)))
            if table in self.failing and not self.bad.isdisjoint(keys):
                raise self.failing[table]
            self.made.append((table, tuple(keys)))
            return [Record(asset=table, partition=key, generation=1, table_version=1, table_id="t") for key in keys]

        return materialize

    def check(self, context: dg.AssetExecutionContext, _: Lake, table: str, keys: Sequence[str | None]) -> None:
        named = [key for key in keys if key]
        self.checked.append((table, tuple(named)))
        judge(context.instance, table, named, passed=table not in self.wrong)

    def refresh(self, now: str = "2026-03-02-12:00", **more: object) -> dg.ExecuteInProcessResult:
        spark = SparkResource(home=str(self.home.root))
        resources = {"spark": spark, "tidemark": TidemarkResource(spark=spark, root=str(self.home.root))}
        tables = [TableAsset(GRAPH.get(name, LOG), self.make(name)) for name in (DAYS, HOURS, MINUTES, DELTAS.name)]
        config = {"ops": {"refresh": {"config": {"now_us": hour_start(now) + 30 * MINUTE_US, **more}}}}
        return dg.materialize(
            [refresh_asset(tables, self.check)],
            instance=self.instance,
            resources=resources,
            run_config=config,
            raise_on_error=False,
        )


@pytest.fixture
def tables(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tables]:
    with open_instance(home) as instance:
        found = Tables(home, instance)
        monkeypatch.setattr(module, "stale_partitions", found.stale)
        yield found


def held(result: dg.ExecuteInProcessResult) -> dict[str, dict[str, str]]:
    [event] = result.asset_materializations_for_node("refresh")[-1:]
    value = event.metadata[HELD_BACK].value
    assert isinstance(value, dict)
    return value


def test_every_table_is_made_after_its_inputs_and_checked_at_once(tables: Tables) -> None:
    tables.rounds = [{DAYS: [DAY], HOURS: [HOUR], MINUTES: [HOUR, NEXT]}]
    assert tables.refresh().success
    assert tables.made == [(MINUTES, (HOUR, NEXT)), (HOURS, (HOUR,)), (DAYS, (DAY,))]
    assert tables.checked == tables.made


def test_what_is_stale_only_afterwards_is_made_in_another_round(tables: Tables) -> None:
    """N2: what an hour passes on is known only when it was made."""
    tables.rounds = [{MINUTES: [HOUR]}, {MINUTES: [NEXT]}]
    assert tables.refresh().success
    assert tables.made == [(MINUTES, (HOUR,)), (MINUTES, (NEXT,))]


def test_what_stays_stale_is_not_made_for_ever(tables: Tables) -> None:
    tables.rounds = [{MINUTES: [HOUR]}] * 5
    assert tables.refresh().success
    assert tables.made == [(MINUTES, (HOUR,))]


def test_hours_that_lie_ahead_wait_until_they_are_partitions(tables: Tables) -> None:
    """A session of a week is carried to hours of next week."""
    tables.rounds = [{MINUTES: hours_between("2026-03-02-09:00", "2026-03-09-09:00")}]
    assert tables.refresh(now="2026-03-02-10:00").success
    assert tables.made == [(MINUTES, (HOUR, NEXT, LATER))], "the hour before, the running one and the next"


def test_only_some_tables_and_the_time_before_one_can_be_asked_for(tables: Tables) -> None:
    """Retention's cost follows what it drops, and not what is stale beside that (R5)."""
    tables.rounds = [{DAYS: [DAY], HOURS: [HOUR, NEXT], MINUTES: [HOUR, NEXT]}]
    assert tables.refresh(tables=[HOURS, MINUTES], before_us=hour_start(NEXT)).success
    assert tables.made == [(MINUTES, (HOUR,)), (HOURS, (HOUR,))]


def test_nothing_is_built_on_what_failed_its_check_and_the_refresh_says_what_waits_o4(tables: Tables) -> None:
    tables.wrong = {HOURS}
    tables.rounds = [{DAYS: [DAY], HOURS: [HOUR], MINUTES: [HOUR]}, {DAYS: [DAY]}]
    result = tables.refresh()
    assert result.success, "its rows are committed, and its check says what is wrong"
    assert tables.made == [(MINUTES, (HOUR,)), (HOURS, (HOUR,))]
    assert held(result) == {DAYS: {DAY: f"{HOURS} {HOUR}, whose check failed"}}


def test_a_table_that_fails_stops_what_is_made_from_it_and_nothing_else(tables: Tables) -> None:
    tables.failing = {HOURS: ValueError("no room")}
    tables.rounds = [{DAYS: [DAY], HOURS: [HOUR], MINUTES: [HOUR]}]
    result = tables.refresh()
    assert not result.success
    [failure] = result.get_step_failure_events()
    said = failure.step_failure_data.error
    assert said is not None
    assert "1 table(s) could not be refreshed, and the others were. hourly_counts: no room" in said.to_string()
    assert tables.made == [(MINUTES, (HOUR,))]
    tables.failing.clear()
    tables.rounds = [{DAYS: [DAY], HOURS: [HOUR]}]
    assert tables.refresh().success
    assert tables.made[1:] == [(HOURS, (HOUR,)), (DAYS, (DAY,))]


def test_a_stop_ends_a_refresh_before_the_next_table(tables: Tables) -> None:
    tables.failing = {MINUTES: StoppedError(15)}
    tables.rounds = [{HOURS: [HOUR], MINUTES: [HOUR]}]
    assert not tables.refresh().success
    assert tables.made == []


def test_one_partition_that_cannot_be_made_fails_alone(tables: Tables) -> None:
    """And not together with all that are new: what was asked for once is asked for in the next refresh again."""
    tables.failing, tables.bad = {MINUTES: ValueError("a key in two shards")}, {NEXT}
    tables.rounds = [{HOURS: [HOUR, NEXT, LATER], MINUTES: [HOUR, NEXT, LATER]}]
    result = tables.refresh()
    assert not result.success
    assert sorted(key for table, part in tables.made if table == MINUTES for key in part) == [HOUR, LATER]
    assert sorted(key for table, part in tables.made if table == HOURS for key in part) == [HOUR, LATER]


def test_a_table_of_which_everything_fails_is_given_up_soon(tables: Tables) -> None:
    hours = hours_between("2026-02-25-00:00", "2026-03-02-09:00")
    tables.failing, tables.bad = {MINUTES: ValueError("no room")}, set(hours)
    tables.rounds = [{MINUTES: hours}]
    assert not tables.refresh().success
    assert len(hours) > 100
    assert len(tables.tried) < 2 * module.FAILURES


def test_what_failed_its_check_is_made_again_when_somebody_asks_and_not_by_the_daemon(tables: Tables) -> None:
    """The daemon would find the same after every drain, for ever."""
    tables.wrong = {MINUTES}
    tables.rounds = [{MINUTES: [HOUR]}]
    assert tables.refresh().success
    assert tables.refresh(repairs=False).success
    assert tables.made == [(MINUTES, (HOUR,))]
    assert tables.refresh().success
    assert tables.made == [(MINUTES, (HOUR,))] * 2


def test_hours_that_a_drain_has_not_checked_yet_are_left_to_drains(tables: Tables) -> None:
    """Written anew beside it, they would be checked twice, and the later result would be about rows that are gone."""
    materialize(tables.instance, DELTAS.name, [HOUR, NEXT])
    judge(tables.instance, DELTAS.name, [NEXT], passed=False)
    assert tables.refresh(repairs=False).success
    assert tables.made == []
    assert tables.refresh().success
    assert tables.made == [(DELTAS.name, (NEXT,))]


def test_a_refresh_leaves_the_state_in_which_it_found_nothing_more_to_do(tables: Tables, home: Home) -> None:
    """Or what it has changed itself would look as if it were new, and another one would follow, and so on."""
    tables.rounds = [{MINUTES: [HOUR]}]
    run = tables.instance.get_run_by_id(tables.refresh().run_id)
    assert run is not None
    assert run.tags[STATE_TAG] == state_of(home, tables.instance)
