"""`kill -9` of what works by itself: the daemon, runs, the code server, all at once. No partition is forgotten (O3)."""

import itertools
import signal as signals
import subprocess
import time
from pathlib import Path

import dagster as dg
import psutil
import pytest

from assets.stale import stale_partitions
from tests.support.batch import FORGETFUL, rows_of, send
from tests.support.live import signal
from tests.support.running import (
    COMMAND_LIMIT_S,
    STOP_LIMIT_S,
    TIDEMARK,
    Ui,
    environment,
    materialized,
    not_proven,
    open_runs,
    tidemark,
    wait_until,
)
from tidemark.model.timegrid import DAY, HOUR_US, MONTH, WEEK, hour_key
from tidemark.storage.home import Home

pytestmark = pytest.mark.slow

STARTED_LIMIT_S = 240.0
# A rollup that failed is tried again at the next tenth minute.
ALL_DONE_LIMIT_S = 1_500.0
FAILED = dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE])
RUN_START = dg.DagsterEventType.RUN_START
STARTED = dg.RunsFilter(statuses=[dg.DagsterRunStatus.STARTED])


class Sender:
    """Sends a few deltas whenever it is asked to, each time to another hour, and remembers what must be there."""

    def __init__(self, home: Home) -> None:
        self._home, self._numbers = home, itertools.count(1)
        self.hours, self.days, self.weeks, self.months = set[str](), set[str](), set[str](), set[str]()
        self.deltas = 0

    def send(self) -> None:
        number = next(self._numbers)
        now = time.time_ns() // 1_000
        at = now - number * HOUR_US
        send(self._home, [signal(f"{number}-{each}", at=at) for each in range(5)], clock=lambda: now)
        self.hours.add(hour_key(at))
        self.days.add(DAY.key(at))
        self.weeks.add(WEEK.key(at))
        self.months.add(MONTH.key(at))
        self.deltas += 5

    def expected(self) -> dict[str, set[str]]:
        """Table → partitions."""
        return {
            **dict.fromkeys(("deltas", "minute_counts", "hourly_counts"), self.hours),
            "daily_counts": self.days,
            "weekly_counts": self.weeks,
            "monthly_counts": self.months,
        }


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create(FORGETFUL)


def wait_for_failure(what: str, instance: dg.DagsterInstance, before: int) -> None:
    """Until more runs have failed than before."""
    wait_until(
        what,
        lambda: [(run.job_name, run.status.value) for run in instance.get_runs()],
        lambda _: instance.get_runs_count(FAILED) > before,
        limit_s=STARTED_LIMIT_S,
    )


def wait_for_work(ui: Ui, instance: dg.DagsterInstance) -> None:
    """Until a run of this `ui` is under way; one that outlived an earlier `ui` does not count."""

    def processes() -> set[int | None]:
        runs = [instance.all_logs(run.run_id, of_type=RUN_START) for run in instance.get_runs(STARTED)]
        return {entry.dagster_event.pid for events in runs for entry in events if entry.dagster_event}

    wait_until(
        "a run is under way",
        processes,
        lambda seen: seen & {process.pid for process in ui.everything()},
        limit_s=STARTED_LIMIT_S,
    )


def behind(instance: dg.DagsterInstance, home: Home) -> dict[str, list[str]]:
    """Asset → partitions that were made from less than their inputs hold now."""
    return {asset: list(found) for asset, found in stale_partitions(instance, home).items() if found}


def kill(*processes: psutil.Process) -> None:
    for process in processes:
        process.kill()
    psutil.wait_procs(processes, STOP_LIMIT_S)


def a_run_dies_at(step: str, home: Home, instance: dg.DagsterInstance) -> None:
    """The step is one in the middle of a drain or of a rollup; the code server notices."""
    failed = instance.get_runs_count(FAILED)
    with Ui(home, TIDEMARK_FAILPOINT=step):
        wait_for_failure(f"a run was killed at {step}, and is known to have failed", instance, failed)


def the_daemon_dies(home: Home, instance: dg.DagsterInstance) -> None:
    with Ui(home) as ui:
        wait_for_work(ui, instance)
        kill(ui.daemon())
        assert ui.process.wait(STOP_LIMIT_S) == 1, "without the daemon nothing runs by itself: ui says so and ends"


def the_code_server_dies(home: Home, instance: dg.DagsterInstance) -> None:
    with Ui(home) as ui:
        wait_for_work(ui, instance)
        servers = ui.code_servers()
        assert servers
        kill(*servers)


def spark_dies(home: Home, instance: dg.DagsterInstance) -> None:
    """The runs that talk to it fail; it is started again, and so are they."""
    with Ui(home) as ui:
        wait_for_work(ui, instance)
        wait_until("Spark answers", ui.spark, limit_s=STARTED_LIMIT_S)
        died = ui.spark()
        kill(*died)
        wait_until("there is another one", lambda: set(ui.spark()) - set(died), limit_s=STARTED_LIMIT_S)
        wait_until("no run has to do with the one that died", lambda: not open_runs(instance), limit_s=STARTED_LIMIT_S)


def everything_dies(home: Home, instance: dg.DagsterInstance) -> None:
    """As in a power cut: nobody is left who could say that the run has ended."""
    with Ui(home) as ui:
        wait_for_work(ui, instance)
        kill(*ui.everything())
    assert open_runs(instance)


def a_command_dies(home: Home, instance: dg.DagsterInstance) -> None:
    before = {run.run_id for run in instance.get_runs()}
    command = [str(TIDEMARK), "drain", "--json", "--home", str(home.root)]
    died = subprocess.run(
        command,
        env=environment(TIDEMARK_FAILPOINT="plan.written"),
        check=False,
        capture_output=True,
        timeout=COMMAND_LIMIT_S,
    )
    assert died.returncode == -signals.SIGKILL
    own = [run.status for run in instance.get_runs() if run.run_id not in before]
    assert own == [dg.DagsterRunStatus.STARTED], "its run still claims to be under way"


def test_after_any_kill_no_partition_is_forgotten(home: Home, instance: dg.DagsterInstance) -> None:
    sender = Sender(home)
    sender.send()
    a_run_dies_at("dead_letters.committed", home, instance)
    a_run_dies_at("rollup.committed", home, instance)
    sender.send()
    the_daemon_dies(home, instance)
    sender.send()
    the_code_server_dies(home, instance)
    sender.send()
    spark_dies(home, instance)
    sender.send()
    everything_dies(home, instance)
    sender.send()
    a_command_dies(home, instance)
    sender.send()
    with Ui(home):
        expected = sender.expected()
        wait_until(
            "every partition is materialized and proven",
            # Between two runs nothing is open, and there may still be something to do.
            lambda: (not_proven(instance, expected), open_runs(instance), behind(instance, home)),
            lambda seen: not any(seen),
            limit_s=ALL_DONE_LIMIT_S,
        )
    assert {table: set(keys) for table, keys in materialized(instance).items() if table in expected} == expected
    assert len(rows_of(home, "deltas", "delta_id")) == sender.deltas
    assert sum(count for (count,) in rows_of(home, "weekly_counts", "count")) == sender.deltas
    assert tidemark(home, "account")["disagreements"] == []
