"""Dagster's daemon as `ui` runs it: its own loops, but two of them do nothing while nothing has happened.

Belongs here: what differs from `dagster-daemon run`, which asks the storage of runs every second whether a run waits,
and reads all definitions again every minute. An idle home pays for that in CPU, all day. Here a look at the queue waits
until the file of runs has changed, and definitions are read again when their server says that it is another one. Does
not belong here: what sensors do when nothing has happened (`news.py`), the children of `ui` (`ui.py`).
"""

import argparse
import signal
import sys
import time
from collections.abc import Callable, Generator, Hashable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import dagster as dg

from orchestration.news import state_of_files
from orchestration.timetable import WATCHED_EVERY_S
from resources.dagster_internals import (
    QueuedRunCoordinatorDaemon,
    WorkspaceFileTarget,
    create_daemons_from_instance,
    daemon_controller_from_instance,
    server_watcher,
)

if TYPE_CHECKING:
    from resources.dagster_internals import DagsterDaemon

# What follows from the clock alone, such as another try to reach a server of definitions, is found this late at most.
LOOK_AT_LEAST_EVERY_S = 30.0
# A thread that has died ends the process, and `ui` with it; a thread that hangs is only told about.
THREADS_EVERY_S, HEARTBEATS_EVERY_S = 5.0, 60.0


class WaitingCoordinator(QueuedRunCoordinatorDaemon):
    """Dagster's queue of runs, which is looked at when something has been written to the storage of runs."""

    def __init__(self, interval_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(interval_seconds)
        self._clock = clock
        self._files: tuple[str, ...] | None = None
        self._seen: Hashable = None
        self._looked_s: float | None = None

    def run_iteration(
        self, workspace_process_context: Any, fixed_iteration_time: float | None = None
    ) -> Generator[Any, None, None]:
        """One look at the queue, if it may have changed since the last."""
        if self._files is None:
            self._files = runs_files(workspace_process_context.instance)
        now = state_of_files(self._files)
        is_due = self._looked_s is None or self._clock() - self._looked_s >= LOOK_AT_LEAST_EVERY_S
        if is_due or not self._files or now != self._seen:
            # As it was before the look: what is written meanwhile is news for the next one.
            self._seen, self._looked_s = now, self._clock()
            yield from super().run_iteration(workspace_process_context, fixed_iteration_time)


def runs_files(instance: dg.DagsterInstance) -> tuple[str, ...]:
    """The files that change with everything that is written about runs; none where they are kept elsewhere."""
    with instance.run_storage.connect() as connection:  # type: ignore[attr-defined]
        url = connection.engine.url
    if url.get_backend_name() != "sqlite" or not url.database:
        return ()
    return url.database, f"{url.database}-wal"


def daemons_of(instance: dg.DagsterInstance) -> "list[DagsterDaemon[Any]]":
    """Every daemon that Dagster would run for an instance."""
    return [
        WaitingCoordinator(each.interval_seconds) if type(each) is QueuedRunCoordinatorDaemon else each
        for each in create_daemons_from_instance(instance)
    ]


def run(workspace: str, log_level: str) -> None:
    """Run them until an interrupt, or until one has died."""
    with (
        dg.DagsterInstance.get() as instance,
        daemon_controller_from_instance(
            instance, WorkspaceFileTarget([workspace]), gen_daemons=daemons_of, log_level=log_level
        ) as controller,
    ):
        told_s = time.monotonic()
        while True:
            time.sleep(THREADS_EVERY_S)
            controller.check_daemon_threads()
            if time.monotonic() - told_s >= HEARTBEATS_EVERY_S:
                controller.check_daemon_heartbeats()
                told_s = time.monotonic()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-w", "--workspace", required=True)
    parser.add_argument("--log-level", default="warning")
    asked = parser.parse_args()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.default_int_handler)
    server_watcher.WATCH_INTERVAL = WATCHED_EVERY_S
    with suppress(KeyboardInterrupt):
        run(asked.workspace, asked.log_level)
    sys.exit(0)
