"""The Spark of a warm host: one server for everything that the host forks, started again when it dies.

Belongs here: when it is started and ended. How a server is started is in `resources/spark_server.py`.
"""

import ctypes
import os
import signal
import subprocess
import time
from dataclasses import dataclass, field

from resources.session import open_notes
from resources.spark_server import server_address, server_command
from tidemark.storage.home import Home

PR_SET_PDEATHSIG = 1
# Between two starts; it doubles each time, until one has lasted.
PAUSE_S = 10.0
LASTED_S = 300.0
GRACE_S = 10.0


@dataclass
class SparkChild:
    """The server, if there is one at this moment, and its address, which stays."""

    home: Home
    address: dict[str, str] = field(default_factory=server_address)
    process: "subprocess.Popen[bytes] | None" = None
    started_s: float = 0.0
    due_s: float = 0.0
    pause_s: float = PAUSE_S

    @property
    def pid(self) -> int | None:
        """The server's process, while it runs."""
        return self.process.pid if self.process is not None else None

    def look(self) -> bool:
        """Start it if there is none and the pause is over; whether anything has changed."""
        now_s = time.monotonic()
        if self.process is not None:
            if self.process.poll() is None:
                return False
            self.process = None
            if now_s - self.started_s > LASTED_S:
                self.pause_s = PAUSE_S
            self.due_s, self.pause_s = now_s if self.pause_s == PAUSE_S else now_s + self.pause_s, 2 * self.pause_s
        if now_s < self.due_s:
            return True
        self.started_s = now_s
        command = server_command(self.home, self.address)
        with open_notes(self.home) as notes:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **self.address},
                cwd=self.home.root,
                start_new_session=True,
                preexec_fn=_end_with_host,  # noqa: PLW1509 (the host has one thread, and the call is one prctl)
                stdin=subprocess.DEVNULL,
                stdout=notes,
                stderr=notes,
            )
        return True

    def stop(self) -> None:
        """End it."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


def _end_with_host() -> None:
    """In the child, before it becomes Spark: no signal stays blocked, and it ends when the host dies for any reason."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
