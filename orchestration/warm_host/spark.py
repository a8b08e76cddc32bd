"""The Spark of a warm host, or of a `ui` without one: one server for many runs, started again when it dies.

Belongs here: when it is started and ended. How a server is started is in `resources/spark_server.py`.
"""

import ctypes
import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestration.pause import Pause
from resources.session import open_notes
from resources.spark_server import server_address, server_command
from tidemark.storage.home import Home

PR_SET_PDEATHSIG = 1
GRACE_S = 10.0


@dataclass
class SparkChild:
    """The server, if there is one at this moment, and its address, which stays."""

    home: Home
    address: Mapping[str, str] = field(default_factory=server_address)
    process: "subprocess.Popen[bytes] | None" = None
    pause: Pause = field(default_factory=Pause)

    @property
    def pid(self) -> int | None:
        """The server's process, while it runs."""
        return self.process.pid if self.process is not None else None

    def look(self) -> bool:
        """Start it if there is none and the pause is over; whether anything has changed."""
        if self.process is not None:
            if self.process.poll() is None:
                return False
            self.process = None
        if not self.pause.is_over():
            return False
        # Not the options for a fast start: this server lives long, and what it does often should be compiled well.
        command = server_command(self.home, self.address)
        with open_notes(self.home) as notes:
            self.process = subprocess.Popen(
                command,
                env={**os.environ, **self.address},
                cwd=self.home.root,
                start_new_session=True,
                preexec_fn=_end_with_parent,  # noqa: PLW1509 (whoever has one has one thread, and the call is one prctl)
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


def _end_with_parent() -> None:
    """In the child, before it becomes Spark: no signal stays blocked, and it ends when its parent dies."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
