"""Dagster's pages as `ui` runs them: its own server, which asks less often whether the definitions are other ones.

Belongs here: what differs from `dagster-webserver`. Does not belong here: what is asked of the children of `ui`
(`ui.py`), the daemon (`daemon.py`).
"""

import runpy

from orchestration.timetable import WATCHED_EVERY_S
from resources.dagster_internals import server_watcher

if __name__ == "__main__":
    server_watcher.WATCH_INTERVAL = WATCHED_EVERY_S
    runpy.run_module("dagster_webserver", run_name="__main__", alter_sys=True)
