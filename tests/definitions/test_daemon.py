"""The daemon looks at the queue of runs when something was written about a run, and by the clock; not every second."""

from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from orchestration import daemon
from orchestration.daemon import LOOK_AT_LEAST_EVERY_S, WaitingCoordinator, daemons_of, runs_files
from orchestration.instance import RUNS_FILE, open_instance
from resources.dagster_internals import QueuedRunCoordinatorDaemon, create_daemons_from_instance
from tidemark.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create()


class Context:
    """What a daemon is given of a workspace, as far as it is used here."""

    def __init__(self, instance: dg.DagsterInstance) -> None:
        self.instance = instance


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Dagster's own looks at the queue."""
    found: list[str] = []

    def look(*_: object) -> Iterator[None]:
        found.append("a look")
        yield None

    monkeypatch.setattr(QueuedRunCoordinatorDaemon, "run_iteration", look)
    return found


def test_the_queue_is_looked_at_after_something_was_written_about_a_run(home: Home, looks: list[str]) -> None:
    now_s = [0.0]
    with open_instance(home) as instance:
        coordinator = WaitingCoordinator(1, clock=lambda: now_s[0])

        def pass_s(seconds: float) -> int:
            now_s[0] += seconds
            list(coordinator.run_iteration(Context(instance)))
            return len(looks)

        assert pass_s(0) == 1
        assert [pass_s(1), pass_s(1)] == [1, 1], "nothing was written"
        instance.create_run_for_job(_job())
        assert [pass_s(1), pass_s(1)] == [2, 2]
        assert [pass_s(LOOK_AT_LEAST_EVERY_S), pass_s(1)] == [3, 3]


def test_where_runs_are_in_no_file_every_look_is_taken(looks: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "runs_files", lambda _: ())
    with dg.DagsterInstance.ephemeral() as instance:
        coordinator = WaitingCoordinator(1, clock=lambda: 0.0)
        for _ in range(3):
            list(coordinator.run_iteration(Context(instance)))
    assert len(looks) == 3


def test_runs_are_in_the_file_of_the_home(home: Home) -> None:
    with open_instance(home) as instance:
        assert runs_files(instance)[0] == str(home.dagster / RUNS_FILE)


def test_every_daemon_of_dagsters_is_there_with_its_own_interval(home: Home) -> None:
    with open_instance(home) as instance:
        theirs, ours = create_daemons_from_instance(instance), daemons_of(instance)
        assert [each.daemon_type() for each in ours] == [each.daemon_type() for each in theirs]
        [coordinator] = [each for each in ours if isinstance(each, WaitingCoordinator)]
        assert coordinator.interval_seconds == 1


def _job() -> dg.JobDefinition:
    @dg.job
    def nothing() -> None:
        pass

    return nothing
