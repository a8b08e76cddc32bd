"""Requests: how one is cut into runs, how one that was interrupted goes on, what is not there yet. No Spark."""

from collections.abc import Iterator

import dagster as dg
import pytest

from orchestration import materialize
from orchestration.instance import open_instance
from orchestration.materialize import (
    BACKFILL_TAG,
    PART_TAG,
    hours_between,
    materialize_hours,
)
from orchestration.runs import RunOutcome
from tidemark.storage.home import Home

MONTH = hours_between("2026-03-01-00:00", "2026-03-30-23:00")


class Runs:
    """Stands in for the runs of a request; one of them may be the last before a crash."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance, self.asked, self.crash_at = instance, list[tuple[tuple[str, ...], int]](), 0

    def __call__(
        self,
        home: Home,
        instance: object,
        assets: tuple[str, ...],
        keys: tuple[str, ...],
        *_: object,
        **more: dict[str, str],
    ) -> RunOutcome:
        self.asked.append((assets, len(keys)))
        if len(self.asked) == self.crash_at:
            raise KeyboardInterrupt
        status = dg.DagsterRunStatus.SUCCESS
        self.instance.add_run(dg.DagsterRun(job_name="a run", status=status, tags=more.get("tags")))
        return RunOutcome("", assets, {assets[0]: keys}, (), 0.0)


@pytest.fixture
def runs(home: Home, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    with open_instance(home) as instance:
        found = Runs(instance)
        monkeypatch.setattr(materialize, "run", found)
        yield found


def backfill(home: Home, *, is_resumed: bool = True) -> int:
    return materialize_hours(
        home, ["minute_counts", "daily_counts", "weekly_counts", "monthly_counts"], MONTH, is_resumed=is_resumed
    ).resumed


def test_thirty_days_are_a_handful_of_runs(home: Home, runs: Runs) -> None:
    backfill(home)
    assert runs.asked == [
        *[(("minute_counts",), 168)] * 4,
        (("minute_counts",), 48),
        (("daily_counts",), 30),
        (("weekly_counts",), 6),
        (("monthly_counts",), 1),
    ]


def test_an_interrupted_backfill_goes_on_where_it_stopped(home: Home, runs: Runs) -> None:
    runs.crash_at = 4
    with pytest.raises(KeyboardInterrupt):
        backfill(home)
    runs.asked.clear()
    runs.crash_at = 0
    assert backfill(home) == 3
    assert runs.asked == [
        (("minute_counts",), 168),
        (("minute_counts",), 48),
        (("daily_counts",), 30),
        (("weekly_counts",), 6),
        (("monthly_counts",), 1),
    ]


def test_a_finished_backfill_is_done_again_when_it_is_asked_for_again(home: Home, runs: Runs) -> None:
    backfill(home)
    runs.asked.clear()
    assert backfill(home) == 0
    assert len(runs.asked) == 8


def test_an_interrupted_backfill_can_be_started_over(home: Home, runs: Runs) -> None:
    runs.crash_at = 4
    with pytest.raises(KeyboardInterrupt):
        backfill(home)
    runs.crash_at = 0
    runs.asked.clear()
    assert backfill(home, is_resumed=False) == 0
    assert len(runs.asked) == 8


def test_every_run_of_a_request_says_which_part_it_is(home: Home, runs: Runs) -> None:
    backfill(home)
    tags = [run.tags for run in runs.instance.get_runs()]
    assert [tag[PART_TAG] for tag in reversed(tags)] == ["1", "2", "3", "4", "5", "6", "7", "8"]
    assert len({tag[BACKFILL_TAG] for tag in tags}) == 1
