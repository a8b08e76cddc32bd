"""A run that the launcher gives to the warm host: it is a process, its death is noticed, and it can be cancelled."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import psutil
import pytest

from orchestration.processes import lives
from orchestration.run_launcher import PROCESS_TAG
from orchestration.warm_host import client
from resources.dagster_internals import LaunchRunContext, WorkerStatus
from tests.support.launched import dying, saying, waiting
from tests.support.running import wait_until
from tidemark.storage.home import Home

LIMIT_S = 180.0
Status = dg.DagsterRunStatus


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    made = Home(tmp_path / "home").create()
    monkeypatch.setenv("TIDEMARK_HOME", str(made.root))
    monkeypatch.setenv("TIDEMARK_WARM", "1")
    monkeypatch.delenv("TIDEMARK_SPARK_SERVER", raising=False)
    monkeypatch.setenv("ONLY_HERE", "as the daemon has it")
    monkeypatch.setattr(client, "PROGRAM", ("-m", "tests.support.small_host"))
    yield made
    client.stop(made)


def launch(instance: dg.DagsterInstance, job: dg.JobDefinition) -> str:
    origin = dg.reconstructable(job).get_python_origin()
    run = instance.create_run_for_job(job, job_code_origin=origin, status=Status.STARTING)
    instance.run_launcher.launch_run(LaunchRunContext(run, workspace=None))
    return str(run.run_id)


def run_of(instance: dg.DagsterInstance, run_id: str) -> dg.DagsterRun:
    run = instance.get_run_by_id(run_id)
    assert run is not None
    return run


def wait_for(instance: dg.DagsterInstance, run_id: str, status: Status) -> dg.DagsterRun:
    wait_until(
        f"the run is {status.value}",
        lambda: run_of(instance, run_id).status,
        lambda found: found is status,
        limit_s=LIMIT_S,
    )
    return run_of(instance, run_id)


def said(instance: dg.DagsterInstance, run_id: str) -> str:
    return "\n".join(entry.message for entry in instance.all_logs(run_id))


def test_a_run_is_a_process_of_the_host_with_the_environment_of_its_launcher(
    home: Home, instance: dg.DagsterInstance
) -> None:
    run = wait_for(instance, launch(instance, saying), Status.SUCCESS)
    pid = run.tags[PROCESS_TAG].split()[0]
    assert f"process {pid}, as the daemon has it" in said(instance, run.run_id)
    assert int(pid) != os.getpid()
    wait_until("its process has ended", lambda: not lives(run.tags[PROCESS_TAG]), limit_s=LIMIT_S)


def test_a_run_that_dies_has_failed_and_takes_no_other_with_it(home: Home, instance: dg.DagsterInstance) -> None:
    other = launch(instance, waiting)
    wait_for(instance, other, Status.STARTED)
    died = wait_for(instance, launch(instance, dying), Status.FAILURE)
    assert f"was ended by signal {int(signal.SIGKILL)}" in said(instance, died.run_id)
    launcher = instance.run_launcher
    assert launcher.check_run_worker_health(died).status is WorkerStatus.NOT_FOUND
    assert launcher.check_run_worker_health(run_of(instance, other)).status is WorkerStatus.RUNNING
    assert lives(run_of(instance, other).tags[PROCESS_TAG])


def test_a_run_can_be_cancelled(home: Home, instance: dg.DagsterInstance) -> None:
    run_id = launch(instance, waiting)
    wait_for(instance, run_id, Status.STARTED)
    assert instance.run_launcher.terminate(run_id)
    run = wait_for(instance, run_id, Status.CANCELED)
    wait_until("its process has ended", lambda: not lives(run.tags[PROCESS_TAG]), limit_s=LIMIT_S)
    assert not instance.run_launcher.terminate(run_id), "it has ended"


def test_runs_end_with_whoever_started_the_daemon(home: Home, instance: dg.DagsterInstance) -> None:
    hold = client.Hold(home)
    hold.take()
    assert hold.is_held()
    run_id = launch(instance, waiting)
    wait_for(instance, run_id, Status.STARTED)
    process = run_of(instance, run_id).tags[PROCESS_TAG]
    hold.release(LIMIT_S)
    assert not hold.is_held()
    assert not lives(process)
    assert run_of(instance, run_id).is_finished


def test_a_killed_host_takes_its_runs_with_it_and_the_monitoring_is_told(
    home: Home, instance: dg.DagsterInstance
) -> None:
    run_id = launch(instance, waiting)
    wait_for(instance, run_id, Status.STARTED)
    state = client.describe(home)
    assert state is not None
    psutil.Process(state["pid"]).kill()
    run = run_of(instance, run_id)
    wait_until("its process has ended", lambda: not lives(run.tags[PROCESS_TAG]), limit_s=LIMIT_S)
    if not run_of(instance, run_id).is_finished:  # it was asked to end, and may have said so itself
        assert instance.run_launcher.check_run_worker_health(run).status is WorkerStatus.NOT_FOUND
