"""How the daemon starts a run, and how its monitoring asks whether a run that claims to be under way is alive.

Belongs here: having the warm host of the home fork the process of a run, and finding that process again, to say whether
it lives or to cancel it. Without a host this is Dagster's own launcher, which cannot tell: if the process of a run is
killed together with its watcher, the run stays "started" for ever, and all that waits for it waits too. Every run
records its process id with its start event, whether the daemon, the pages or a command started it.
"""

import os
import signal
from pathlib import Path

from dagster import DagsterEventType, DagsterRun, DefaultRunLauncher

from orchestration.processes import PROC, is_alive, lives, name_of
from orchestration.warm_host.client import ask, is_allowed
from orchestration.warm_host.place import STREAMS
from resources.dagster_internals import CheckRunHealthResult, LaunchRunContext, WorkerStatus
from tidemark.model.errors import TidemarkError
from tidemark.storage.home import Home

# The process of a run that the warm host has forked, and when the system says it began: ids are reused.
PROCESS_TAG = "tidemark/process"


class WatchedRunLauncher(DefaultRunLauncher):
    """Has the warm host of the home run what is launched; tells whether its process is alive. One machine, Linux."""

    def launch_run(self, context: LaunchRunContext) -> None:
        """A run's process imports for seconds; one that is forked from the host begins at once."""
        if not self._fork(context.dagster_run):
            super().launch_run(context)

    def _fork(self, run: DagsterRun) -> bool:
        home, storage = Home.locate(), Path(self._instance.root_directory)
        # An instance that is not the home's own has runs that have nothing to do with the host.
        if not home.dagster.exists() or not storage.samefile(home.dagster) or not is_allowed(home):
            return False
        message = {
            "kind": "run",
            "run_id": run.run_id,
            "storage": str(storage),
            "directory": str(home.root),
            "environment": dict(os.environ),
            "umask": 0o077,
        }
        try:
            with Path(os.devnull).open("rb") as nothing:
                answer = ask(home, message, files=(nothing.fileno(), *STREAMS[1:]))
        except (OSError, TidemarkError):
            return False
        if answer is None:
            return False
        answer.connection.close()
        self._instance.add_run_tags(run.run_id, {PROCESS_TAG: name_of(answer.said["process"])})
        return True

    def terminate(self, run_id: str) -> bool:
        """As Dagster does it: the run is asked by the signal of Ctrl-C."""
        run = self._instance.get_run_by_id(run_id)
        if run is None or run.is_finished or PROCESS_TAG not in run.tags:
            return bool(super().terminate(run_id))  # type: ignore[no-untyped-call]
        self._instance.report_run_canceling(run)
        if is_there := lives(run.tags[PROCESS_TAG]):
            os.kill(int(run.tags[PROCESS_TAG].split()[0]), signal.SIGINT)
        return is_there

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Without /proc a run counts as alive, as in Dagster's own launcher."""
        return (PROC / "self" / "stat").exists()

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Look for the process that the run was given to, or that wrote its start event, which contains its id."""
        if process := run.tags.get(PROCESS_TAG):
            if lives(process):
                return CheckRunHealthResult(WorkerStatus.RUNNING)
            return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"Its process {process.split()[0]} is gone.")
        started = self._instance.event_log_storage.get_logs_for_run(
            run.run_id, of_type={DagsterEventType.RUN_START}, limit=1
        )
        if not started or started[0].dagster_event is None or started[0].dagster_event.pid is None:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "It does not say which process it is.")
        pid = started[0].dagster_event.pid
        if is_alive(pid, since=started[0].timestamp):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"Its process {pid} is gone.")
