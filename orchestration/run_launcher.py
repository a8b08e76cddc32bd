"""Whether a run that claims to be under way is: the question that the daemon's monitoring asks of its run launcher.

Belongs here: finding the process of a run and saying whether it lives. Dagster's own launcher cannot tell, so that a
run whose process was killed together with the one that would have noticed stays "started" for ever, and whatever waits
for it waits too. Every run leaves the number of its process behind with the event that started it, whoever started it:
the daemon, the pages, or a command.
"""

import os
import time
from pathlib import Path

from dagster import DagsterEventType, DagsterRun, DefaultRunLauncher

from resources.dagster_internals import CheckRunHealthResult, WorkerStatus

PROC = Path("/proc")
# Wall clocks are set right now and then. A process that began so much later than its run has only got its number.
CLOCK_STEP_S = 60.0
DEAD_STATES = "ZX"  # killed, and not yet fetched by its parent


class WatchedRunLauncher(DefaultRunLauncher):
    """Dagster's default launcher, which can also tell whether the process of a run is alive. One machine, Linux."""

    @property
    def supports_check_run_worker_health(self) -> bool:
        """Where there is no /proc, a run is believed, as Dagster's own launcher does."""
        return (PROC / "self" / "stat").exists()

    def check_run_worker_health(self, run: DagsterRun) -> CheckRunHealthResult:
        """By the event that made the run a started one: it carries the number of the process that wrote it."""
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
    """Whether the process that had this number at that moment still runs; numbers are used again."""
    try:
        text = (PROC / str(pid) / "stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # The name, in parentheses, may hold anything; behind it: the state first, and 19 fields later the start.
    fields = text.rpartition(")")[2].split()
    uptime_s = float((PROC / "uptime").read_text().split()[0])
    age_s = uptime_s - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return fields[0] not in DEAD_STATES and time.time() - age_s <= since + CLOCK_STEP_S
