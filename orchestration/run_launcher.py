"""Whether a run that claims to be under way is alive: the daemon's monitoring asks its run launcher.

Belongs here: finding the process of a run and saying whether it lives. Dagster's own launcher cannot tell. If a run's
process is killed together with its watcher, the run stays "started" for ever, and everything that waits for it waits
too. Every run records its process id with its start event, whether the daemon, the pages or a command started it.
"""

import os
import time
from pathlib import Path

from dagster import DagsterEventType, DagsterRun, DefaultRunLauncher

from resources.dagster_internals import CheckRunHealthResult, WorkerStatus

PROC = Path("/proc")
# Wall clocks are corrected now and then. A process that began so much later than its run only reuses its number.
CLOCK_STEP_S = 60.0
DEAD_STATES = "ZX"  # killed, and not yet reaped by its parent


class WatchedRunLauncher(DefaultRunLauncher):
    """Dagster's default launcher, which can also tell whether the process of a run is alive. One machine, Linux."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Without /proc a run counts as alive, as in Dagster's own launcher."""
        return (PROC / "self" / "stat").exists()

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """Look for the process that wrote the run's start event: the event contains its process id."""
        started = self._instance.event_log_storage.get_logs_for_run(
            run.run_id, of_type={DagsterEventType.RUN_START}, limit=1
        )
        if not started or started[0].dagster_event is None or started[0].dagster_event.pid is None:
            return CheckRunHealthResult(WorkerStatus.RUNNING, "It does not say which process it is.")
        pid = started[0].dagster_event.pid
        if is_alive(pid, since=started[0].timestamp):
            return CheckRunHealthResult(WorkerStatus.RUNNING)
        return CheckRunHealthResult(WorkerStatus.NOT_FOUND, f"Its process {pid} is gone.")


def is_alive(pid: int, *, since: float) -> bool:
    """Whether the process that had this id at that time still runs; ids are reused."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # The name, in parentheses, may hold anything; behind it: the state first, and 19 fields later the start.
    fields = text.rpartition(")")[2].split()
    uptime_s = float((PROC / "uptime").read_text().split()[0])
    age_s = uptime_s - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] not in DEAD_STATES and time.time() - age_s <= since + CLOCK_STEP_S
