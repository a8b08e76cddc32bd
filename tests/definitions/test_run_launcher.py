"""A run whose process is gone is found, by the daemon's own monitoring; no daemon, no sleeping."""

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import dagster as dg

from orchestration.attempts import is_under_way
from orchestration.instance import open_instance
from orchestration.jobs import drain_job
from orchestration.processes import CLOCK_STEP_S, is_alive
from orchestration.run_launcher import WatchedRunLauncher
from tests.support.dagster_internals import execute_run_monitoring_iteration
from tidemark.storage.home import Home

ROOT = Path(__file__).resolve().parents[2]
HOUR_S = 3_600.0
KILLED_COMMAND = """
import os, pathlib, sys
import dagster as dg
from orchestration.instance import open_instance
from tidemark.storage.home import Home

@dg.op
def die():
    os.kill(os.getpid(), 9)

@dg.job(executor_def=dg.in_process_executor)
def killed():
    die()

with open_instance(Home(pathlib.Path(sys.argv[1]))) as instance:
    killed.execute_in_process(instance=instance)
"""


def ended_process() -> int:
    """The number of a process that has been."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def started_run(instance: dg.DagsterInstance, pid: int) -> str:
    """A drain that says it was started by this process."""
    run = instance.add_run(dg.DagsterRun(job_name="drain_job", status=dg.DagsterRunStatus.STARTING))
    event = dg.DagsterEvent(event_type_value=dg.DagsterEventType.RUN_START.value, job_name="drain_job", pid=pid)
    instance.report_dagster_event(event, run_id=run.run_id)
    return str(run.run_id)


def look(instance: dg.DagsterInstance) -> None:
    """What the daemon does every twenty seconds."""
    workspace = cast("Any", SimpleNamespace(instance=instance, create_request_context=lambda: None))
    assert not [error for error in execute_run_monitoring_iteration(workspace, logging.getLogger("tests")) if error]


def test_a_run_whose_process_is_gone_is_failed_and_blocks_nothing(home: Home) -> None:
    with open_instance(home) as instance:
        assert isinstance(instance.run_launcher, WatchedRunLauncher)
        pid = ended_process()
        run_id = started_run(instance, pid)
        assert is_under_way(instance, drain_job)
        look(instance)
        assert not is_under_way(instance, drain_job)
        found = instance.get_run_by_id(run_id)
        assert found is not None
        assert found.status == dg.DagsterRunStatus.FAILURE
        said = [entry.dagster_event.message for entry in instance.all_logs(run_id) if entry.dagster_event]
        assert any(f"Its process {pid} is gone." in str(message) for message in said)


def test_a_run_whose_process_lives_is_left_alone(home: Home) -> None:
    with open_instance(home) as instance:
        started_run(instance, os.getpid())
        look(instance)
        assert is_under_way(instance, drain_job)


def test_a_run_that_names_no_process_is_believed(home: Home) -> None:
    with open_instance(home) as instance:
        instance.add_run(dg.DagsterRun(job_name="drain_job", status=dg.DagsterRunStatus.STARTED))
        look(instance)
        assert is_under_way(instance, drain_job)


def test_a_process_that_only_got_the_number_is_another_one() -> None:
    """After a restart of the machine, small numbers are given out again."""
    assert is_alive(os.getpid(), since=time.time())
    own_start = Path(f"/proc/{os.getpid()}").stat().st_ctime
    assert not is_alive(os.getpid(), since=own_start - CLOCK_STEP_S - HOUR_S)


def test_a_process_that_nobody_has_fetched_yet_is_dead() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.read()  # it is closed when the process has ended
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert not is_alive(process.pid, since=time.time())
    process.wait()


def test_a_run_in_a_command_that_was_killed_is_found(home: Home) -> None:
    """A command's run is in its own process: nobody is left who could have said that it ended."""
    done = subprocess.run([sys.executable, "-c", KILLED_COMMAND, str(home.root)], cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    with open_instance(home) as instance:
        [run] = instance.get_runs()
        assert run.status == dg.DagsterRunStatus.STARTED
        look(instance)
        [run] = instance.get_runs()
        assert run.status == dg.DagsterRunStatus.FAILURE
