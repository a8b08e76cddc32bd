"""The orchestrator's pages and its daemon, for one home, for as long as somebody watches.

Belongs here: starting both as children, and ending both with this process. Whoever can reach the port can do
everything: it listens on this machine only, and has no passwords.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from orchestration.instance import ensure_instance
from resources.errors import TidemarkError
from resources.home import HOME_VARIABLE, Home

WORKSPACE = Path(__file__).resolve().parent.parent / "workspace.yaml"
PR_SET_PDEATHSIG = 1
# A run that is in the middle of a commit is asked to end, and given this long.
GRACE_S = 20.0


class UiStoppedError(TidemarkError):
    """The pages or the daemon ended by themselves."""


def commands(port: int, *, is_read_only: bool = False) -> dict[str, list[str]]:
    """What is started, by name."""
    workspace = ["-w", str(WORKSPACE)]
    web = [sys.executable, "-m", "dagster_webserver", "-h", "127.0.0.1", "-p", str(port), *workspace]
    return {
        "the pages": [*web, "--read-only"] if is_read_only else web,
        "the daemon": [sys.executable, "-m", "dagster._daemon", "run", *workspace],
    }


def environment(home: Home) -> dict[str, str]:
    """What both children need to find this home."""
    return {**os.environ, "DAGSTER_HOME": str(ensure_instance(home)), HOME_VARIABLE: str(home.root)}


def serve(
    home: Home, *, port: int = 3000, is_read_only: bool = False, ready: Callable[[str], None] | None = None
) -> None:
    """Run both until Ctrl-C or SIGTERM; an error says which of them ended by itself."""
    children: dict[str, subprocess.Popen[bytes]] = {}
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        for name, command in commands(port, is_read_only=is_read_only).items():
            children[name] = subprocess.Popen(
                command,
                env=environment(home),
                cwd=home.root,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 (this process has one thread, and the call is one prctl)
            )
        if ready:
            ready(f"http://127.0.0.1:{port}")
        _watch(children)
    except KeyboardInterrupt:
        return
    finally:
        _stop(list(children.values()))


def _watch(children: dict[str, subprocess.Popen[bytes]]) -> None:
    while True:
        for name, child in children.items():
            if child.poll() is not None:
                status = child.returncode
                raise UiStoppedError(f"{name.capitalize()} ended with status {status}. The lines above say why.")
        time.sleep(0.2)


def _interrupt(_signum: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _die_with_parent() -> None:
    """In the child, before it becomes the program: be told to end when the parent dies, however it dies."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def _stop(children: Sequence[subprocess.Popen[bytes]]) -> None:
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
