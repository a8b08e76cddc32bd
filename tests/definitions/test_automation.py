"""When things run (O3), with the orchestrator's own test tools: no Spark, no daemon, no sleeping."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from assets.names import RANGE_END, RANGE_START
from assets.tables import GRAPH
from orchestration import automation
from orchestration.attempts import MAX_ATTEMPTS, GaveUpError
from orchestration.automation import in_ranges
from orchestration.build import build_defs
from orchestration.instance import open_instance
from orchestration.materialize import BUCKETED_ASSETS, hours_between
from orchestration.refreshes import stale_now
from orchestration.schedules import hourly_floor
from orchestration.sensors import HEAD_TAG, follow_manifest
from tests.support.batch import send
from tests.support.live import signal
from tests.support.orchestrator import INPUTS, judge, record_of, tell
from tidemark.storage.home import Home

NOW = datetime(2026, 3, 25, 10, 30, tzinfo=UTC)  # a Wednesday
RUNNING, EARLIER, OLD = "2026-03-25-10:00", "2026-03-25-09:00", "2026-03-04-03:00"
TODAY, OLD_DAY = "2026-03-25", "2026-03-04"
THIS_WEEK, OLD_WEEK = "2026-03-23", "2026-03-02"
THIS_MONTH = "2026-03-01"  # of the old hour, too


class Platform:
    """Definitions and an instance, whose events are told by hand; `tick` is the sensor's look at them."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance, self.now = instance, NOW
        self.cursor: Any = None
        self.versions: dict[str, int] = {}
        self.defs = build_defs()

    def tick(self) -> dict[str, list[str]]:
        """Asset → partitions that are requested."""
        self.now += timedelta(seconds=10)
        result = dg.evaluate_automation_conditions(
            self.defs, self.instance, cursor=self.cursor, evaluation_time=self.now
        )
        self.cursor = result.cursor
        found = {asset: result.get_requested_partitions(dg.AssetKey(asset)) for asset in INPUTS}
        return {asset: sorted(str(key) for key in keys) for asset, keys in found.items() if keys}

    def commit(self, asset: str) -> int:
        """A new version of a table."""
        self.versions[asset] = self.versions.get(asset, 0) + 1
        return self.versions[asset]

    def materialize(
        self, asset: str, partition: str, *, made_from: int | None = None, passed: bool | None = True
    ) -> None:
        """A materialization, made from a version of the input (the latest unless said otherwise), and its verdict."""
        source = INPUTS.get(asset)
        read = self.versions.get(source or "", 0) if made_from is None else made_from
        tell(self.instance, record_of(asset, partition, self.commit(asset), {source: read} if source else {}))
        if passed is not None:
            self.judge(asset, partition, passed=passed)

    def judge(self, asset: str, partition: str, *, passed: bool) -> None:
        """The verdict on the partition's last materialization."""
        judge(self.instance, asset, [partition], passed=passed)

    def follow(self, requested: dict[str, list[str]]) -> None:
        """What the runs of a request would leave behind."""
        for asset, keys in requested.items():
            for key in keys:
                self.materialize(asset, key)

    def follow_to_the_end(self) -> None:
        """Hours, days, then weeks and months: a tick each."""
        for _ in range(3):
            self.follow(self.tick())


@pytest.fixture
def platform(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Platform]:
    """As if a refresh had left all that is stale."""
    monkeypatch.setattr(automation, "was_refreshed", lambda *_: True)
    with dg.DagsterInstance.ephemeral() as instance:
        yield Platform(instance)


def hours_of(*hours: str) -> dict[str, list[str]]:
    """What one run computes together; days follow when it is done, then weeks and months."""
    return {"minute_counts": sorted(hours), "hourly_counts": sorted(hours)}


def test_what_a_run_makes_while_the_sensor_looks_is_not_requested_again(
    platform: Platform, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first question finds it stale; then the run ends, so that it is not under way any more either."""
    platform.materialize("deltas", RUNNING)
    looks = []

    def look_and_end_the_run(*arguments: Any, **options: Any) -> dict[str, dict[str, str]]:
        looks.append(found := stale_now(*arguments, **options))
        if len(looks) == 1:
            platform.materialize("minute_counts", RUNNING)
        return found

    monkeypatch.setattr(automation, "stale_now", look_and_end_the_run)
    assert "minute_counts" not in platform.tick()
    assert RUNNING in looks[0]["minute_counts"]
    assert platform.tick() == {"hourly_counts": [RUNNING]}


def test_nothing_that_happened_requests_nothing(platform: Platform) -> None:
    assert platform.tick() == {}


def test_touched_hours_their_days_weeks_and_months_are_requested_and_no_others(platform: Platform) -> None:
    """Also the running hour, and one that a delta three weeks late has touched."""
    for hour in (RUNNING, OLD):
        platform.materialize("deltas", hour)
    requested = platform.tick()
    assert requested == hours_of(RUNNING, OLD)
    platform.follow(requested)
    requested = platform.tick()
    assert requested == {"daily_counts": [OLD_DAY, TODAY]}
    platform.follow(requested)
    requested = platform.tick()
    assert requested == {"weekly_counts": [OLD_WEEK, THIS_WEEK], "monthly_counts": [THIS_MONTH]}
    platform.follow(requested)
    assert platform.tick() == {}


def test_what_was_done_is_not_requested_again(platform: Platform) -> None:
    platform.materialize("deltas", RUNNING)
    platform.follow_to_the_end()
    assert platform.tick() == {}
    platform.materialize("deltas", OLD)
    assert platform.tick() == hours_of(OLD)


def test_an_update_that_arrives_while_a_run_is_under_way_is_not_lost(platform: Platform) -> None:
    platform.materialize("deltas", RUNNING)
    platform.tick()
    read = platform.versions["deltas"]
    platform.materialize("deltas", RUNNING)  # after the run has read its input, before it says so
    platform.materialize("minute_counts", RUNNING, made_from=read)
    platform.materialize("hourly_counts", RUNNING)
    assert platform.tick() == hours_of(RUNNING)


def test_a_tick_that_was_lost_in_a_crash_is_made_up_for(platform: Platform) -> None:
    platform.materialize("deltas", RUNNING)
    platform.tick()
    platform.cursor = None
    assert platform.tick() == hours_of(RUNNING)


def test_a_later_asset_alone_is_brought_up_to_date(platform: Platform) -> None:
    """A backfill of minutes, by hand, is followed by their hours, days, weeks and months."""
    for asset in ("deltas", "minute_counts", "hourly_counts"):
        platform.materialize(asset, OLD)
    platform.materialize("daily_counts", OLD_DAY)
    platform.materialize("weekly_counts", OLD_WEEK)
    platform.materialize("monthly_counts", THIS_MONTH)
    platform.materialize("minute_counts", OLD)
    requested = platform.tick()
    assert requested == {"hourly_counts": [OLD]}
    platform.follow(requested)
    requested = platform.tick()
    assert requested == {"daily_counts": [OLD_DAY]}
    platform.follow(requested)
    assert platform.tick() == {"weekly_counts": [OLD_WEEK], "monthly_counts": [THIS_MONTH]}


def test_an_hour_found_wrong_holds_back_what_hangs_on_it_and_nothing_else(platform: Platform) -> None:
    """O4, across runs: minutes and hours of the bad hour, its day and its week, wait; the good ones go on."""
    platform.materialize("deltas", OLD)
    platform.materialize("deltas", RUNNING, passed=False)
    requested = platform.tick()
    assert requested == hours_of(OLD)
    platform.follow(requested)
    assert platform.tick() == {"daily_counts": [OLD_DAY]}
    platform.judge("deltas", RUNNING, passed=True)
    assert platform.tick() == hours_of(RUNNING) | {"daily_counts": [OLD_DAY]}


def test_an_hour_of_the_day_found_wrong_holds_back_the_day_and_the_week(platform: Platform) -> None:
    for hour in (RUNNING, EARLIER):
        platform.materialize("deltas", hour)
        platform.materialize("minute_counts", hour)
    platform.materialize("hourly_counts", EARLIER)
    platform.materialize("hourly_counts", RUNNING, passed=False)
    assert platform.tick() == {}
    platform.judge("hourly_counts", RUNNING, passed=True)
    assert platform.tick() == {"daily_counts": [TODAY]}


def test_an_hour_without_a_verdict_is_waited_for(platform: Platform) -> None:
    """Between the report of an hour and its check there may be a tick."""
    platform.materialize("deltas", RUNNING)
    platform.follow_to_the_end()
    platform.materialize("deltas", RUNNING, passed=None)
    assert platform.tick() == {}
    platform.judge("deltas", RUNNING, passed=True)
    assert platform.tick() == hours_of(RUNNING)


def request(hour: str, *assets: str) -> dg.RunRequest:
    """As Dagster's sensor makes it."""
    keys = [dg.AssetKey(asset) for asset in assets]
    return dg.RunRequest(asset_selection=keys, partition_key=hour, tags={"dagster/partition": hour, "from": "a sensor"})


def test_neighbouring_hours_of_the_same_assets_are_one_run() -> None:
    """A run is a JVM: a backfill of a day is not followed by twenty-four of them."""
    both = ("minute_counts", "hourly_counts")
    day = [request(hour, *both) for hour in hours_between("2026-03-02-00:00", "2026-03-02-23:00")]
    found = in_ranges([*reversed(day), request(OLD, *both), request(RUNNING, "hourly_counts")])
    assert [(each.partition_key, each.tags) for each in found] == [
        (None, {"from": "a sensor", RANGE_START: "2026-03-02-00:00", RANGE_END: "2026-03-02-23:00"}),
        (OLD, {"dagster/partition": OLD, "from": "a sensor"}),
        (RUNNING, {"dagster/partition": RUNNING, "from": "a sensor"}),
    ]
    assert set(found[0].asset_selection or ()) == {dg.AssetKey(asset) for asset in both}


def test_a_month_that_became_stale_is_a_handful_of_runs() -> None:
    month = [request(hour, "hourly_counts") for hour in hours_between("2026-03-01-00:00", "2026-03-30-23:00")]
    found = in_ranges(month)
    assert len(found) == 5
    assert (found[-1].tags[RANGE_START], found[-1].tags[RANGE_END]) == ("2026-03-29-00:00", "2026-03-30-23:00")


def test_the_sensor_asks_for_ranges(platform: Platform) -> None:
    for hour in (OLD, EARLIER, RUNNING):
        platform.materialize("deltas", hour)
    repository = platform.defs.get_repository_def()
    context = dg.build_sensor_context(platform.instance, repository_def=repository)
    data = repository.get_sensor_def("follow_inputs").evaluate_tick(context)
    asked = [
        (each.tags.get(RANGE_START, each.partition_key), each.tags.get(RANGE_END)) for each in data.run_requests or ()
    ]
    assert sorted(asked, key=str) == [(OLD, None), (EARLIER, RUNNING)]


# The drain's sensor.


def ask(instance: dg.DagsterInstance) -> dg.RunRequest | dg.SkipReason:
    answer = follow_manifest(dg.build_sensor_context(instance))
    assert isinstance(answer, dg.RunRequest | dg.SkipReason)
    return answer


def told_of_run(instance: dg.DagsterInstance, request: dg.RunRequest, status: dg.DagsterRunStatus) -> None:
    instance.add_run(dg.DagsterRun(job_name="drain_job", status=status, tags=dict(request.tags)))


def report_drain(instance: dg.DagsterInstance, epochs: dict[int, tuple[int, int]]) -> None:
    tell(instance, record_of("drain", None, epochs=epochs))


def test_segments_are_drained_once_they_are_sealed(home: Home) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert isinstance(ask(instance), dg.SkipReason)
        send(home, [signal("a")], [signal("b")])
        first = ask(instance)
        assert isinstance(first, dg.RunRequest)
        assert first.tags[HEAD_TAG] == "0:3"
        assert ask(instance) == first, "two ticks ask for the same run, which the orchestrator starts once"
        report_drain(instance, {0: (1, 3)})
        assert isinstance(ask(instance), dg.SkipReason)


def test_only_one_drain_is_under_way(home: Home) -> None:
    send(home, [signal("a")])
    with dg.DagsterInstance.ephemeral() as instance:
        request = ask(instance)
        assert isinstance(request, dg.RunRequest)
        told_of_run(instance, request, dg.DagsterRunStatus.STARTED)
        assert isinstance(ask(instance), dg.SkipReason)


def test_a_failed_drain_is_tried_again_until_somebody_has_to_look(home: Home) -> None:
    """A run key that did not change would block the retry."""
    send(home, [signal("a")])
    keys = set()
    with dg.DagsterInstance.ephemeral() as instance:
        for _ in range(MAX_ATTEMPTS):
            request = ask(instance)
            assert isinstance(request, dg.RunRequest)
            keys.add(request.run_key)
            told_of_run(instance, request, dg.DagsterRunStatus.FAILURE)
        assert len(keys) == MAX_ATTEMPTS
        with pytest.raises(GaveUpError, match="drain_job by hand"):
            ask(instance)
        send(home, [signal("b")])
        assert isinstance(ask(instance), dg.RunRequest), "new segments are tried again"


# The clock.


def test_the_floor_drains_every_hour_unless_a_drain_is_under_way(home: Home) -> None:
    with open_instance(home) as instance, dg.build_schedule_context(instance) as context:
        assert isinstance(hourly_floor(context), dg.RunRequest)
        instance.add_run(dg.DagsterRun(job_name="drain_job", status=dg.DagsterRunStatus.STARTED))
        assert isinstance(hourly_floor(context), dg.SkipReason)


def test_everything_that_runs_by_itself_is_on_from_the_first_day() -> None:
    defs = build_defs()
    repository = defs.get_repository_def()
    assert {each.name: each.default_status.value for each in repository.sensor_defs} == {
        "follow_manifest": "RUNNING",
        "follow_tables": "RUNNING",
        "follow_vectors": "RUNNING",
        "compact_when_due": "RUNNING",
        "follow_inputs": "RUNNING",
    }
    assert {each.name: (each.cron_schedule, each.default_status.value) for each in repository.schedule_defs} == {
        "hourly_floor": ("5 * * * *", "RUNNING"),
        "hourly_windows": ("*/10 * * * *", "RUNNING"),
        "nightly_maintenance": ("30 3 * * *", "RUNNING"),
    }


def test_every_derived_table_follows_its_inputs_by_being_declared() -> None:
    graph = build_defs().resolve_asset_graph()
    for key in graph.get_all_asset_keys():
        node = graph.get(key)
        # Buckets are no partitions of time: a sensor of their own asks for those that have new deltas.
        is_of_time = isinstance(node.partitions_def, dg.TimeWindowPartitionsDefinition)
        assert bool(node.automation_condition) == (key.to_user_string() in GRAPH and is_of_time), key
        assert is_of_time == (node.is_partitioned and key.to_user_string() not in BUCKETED_ASSETS), key
    assert graph.get(dg.AssetKey("drain")).freshness_policy is not None
