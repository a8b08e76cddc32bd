"""The orchestrator's pages and its daemon, and a Spark for their runs, for one home, until Ctrl-C.

Belongs here: starting them as children, and ending them with this process. Anyone who can reach the port of the pages
can do everything: it has no passwords, so it listens on this machine only.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import BinaryIO

from orchestration.instance import ensure_instance, remove_old_output
from resources.session import open_notes
from resources.spark_server import server_address, server_command
from resources.toolchain import activate_toolchain
from tidemark.model.errors import TidemarkError
from tidemark.storage.home import HOME_VARIABLE, Home

WORKSPACE = Path(__file__).resolve().parent.parent / "workspace.yaml"
# The console script beside the interpreter, because it has no public module.
DAEMON = Path(sys.executable).with_name("dagster-daemon")
PR_SET_PDEATHSIG = 1
# A run in the middle of a commit is asked to end, and has this long.
GRACE_S = 20.0
# Runs can do without this one child: if it dies, it is started again, after a pause that doubles each time.
SPARK = "Spark"
PAUSE_S = 10.0


class UiStoppedError(TidemarkError):
    """The pages or the daemon ended by themselves."""


def commands(port: int, *, is_read_only: bool = False) -> dict[str, list[str]]:
    """The children besides Spark, by name."""
    workspace = ["-w", str(WORKSPACE)]
    web = [sys.executable, "-m", "dagster_webserver", "-h", "127.0.0.1", "-p", str(port), *workspace]
    return {
        "the pages": [*web, "--read-only"] if is_read_only else web,
        "the daemon": [sys.executable, str(DAEMON), "run", *workspace],
    }


def environment(home: Home) -> dict[str, str]:
    """The environment in which all children find this home, each other, and Java."""
    activate_toolchain()
    return {
        **os.environ,
        "DAGSTER_HOME": str(ensure_instance(home)),
        HOME_VARIABLE: str(home.root),
        **server_address(),
    }


def serve(
    home: Home, *, port: int = 3000, is_read_only: bool = False, ready: Callable[[str], None] | None = None
) -> None:
    """Run all of them until Ctrl-C or SIGTERM; an error says which of them ended by itself."""
    signal.signal(signal.SIGTERM, _interrupt)
    remove_old_output(home, now_s=time.time())
    children = Children(home)
    try:
        for name, command in commands(port, is_read_only=is_read_only).items():
            children.start(name, command)
        if ready:
            ready(f"http://127.0.0.1:{port}")
        children.watch()
    except KeyboardInterrupt:
        return
    finally:
        children.stop()


class Children:
    """The processes of one `ui`."""

    def __init__(self, home: Home) -> None:
        self._home, self._environment = home, environment(home)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._spark_due, self._pause_s = 0.0, PAUSE_S

    def start(self, name: str, command: list[str], notes: BinaryIO | None = None) -> None:
        """Start a child that ends with this process."""
        self._processes[name] = subprocess.Popen(
            command,
            env=self._environment,
            cwd=self._home.root,
            start_new_session=True,
            preexec_fn=_die_with_parent,  # noqa: PLW1509 (this process has one thread, and the call is one prctl)
            stdout=notes,
            stderr=notes,
        )

    def watch(self) -> None:
        """Wait until a needed child ends. Spark is started after the others, whenever there is none."""
        while True:
            for name, child in self._processes.items():
                if name != SPARK and child.poll() is not None:
                    status = child.returncode
                    raise UiStoppedError(f"{name.capitalize()} ended with status {status}. The lines above say why.")
            spark = self._processes.get(SPARK)
            if (spark is None or spark.poll() is not None) and time.monotonic() >= self._spark_due:
                self._start_spark()
            time.sleep(0.2)

    def stop(self) -> None:
        """End them all. A run in the middle of a commit is given time, and keeps Spark until then."""
        spark = self._processes.pop(SPARK, None)
        _end(list(self._processes.values()))
        _end([spark] if spark else [])

    def _start_spark(self) -> None:
        self._spark_due, self._pause_s = time.monotonic() + self._pause_s, 2 * self._pause_s
        with open_notes(self._home) as notes:
            self.start(SPARK, server_command(self._home, self._environment), notes)


def _interrupt(_signum: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _die_with_parent() -> None:
    """In the child, before it becomes the program: have the kernel end it when the parent dies for any reason."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _end(children: Sequence[subprocess.Popen[bytes]]) -> None:
    for child in children:
        if child.poll() is None:
            child.send_signal(signal.SIGINT)
    deadline = time.monotonic() + GRACE_S
    for child in children:
        try:
            child.wait(max(0.1, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
