"""The orchestrator's pages, its daemon, one server of definitions for both, and what its runs need; until Ctrl-C.

Belongs here: starting them as children, and ending them with this process. Anyone who can reach the port of the pages
can do everything: it has no passwords, so it listens on this machine only.
"""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

import yaml

from orchestration.instance import ensure_instance, remove_old_output
from orchestration.news import GLANCE_S, LIMIT_VARIABLE, WHILE_VARIABLE
from orchestration.pause import Pause
from orchestration.warm_host.client import Hold, is_allowed
from orchestration.warm_host.place import Place
from orchestration.warm_host.spark import SparkChild
from orchestration.warm_host.stamp import stamp_of
from resources.session import SERVER_VARIABLE
from resources.spark_server import server_address
from resources.toolchain import activate_toolchain
from tidemark.model.errors import TidemarkError
from tidemark.storage.home import HOME_VARIABLE, Home
from tidemark.storage.privacy import make_directory, make_private

PROJECT = Path(__file__).resolve().parent.parent
LOCATION = "tidemark"  # as in workspace.yaml
DAEMON, PAGES = "orchestration.daemon", "orchestration.pages"
PR_SET_PDEATHSIG = 1
# A run in the middle of a commit is asked to end, and has this long.
GRACE_S = 20.0
# The others can do without these for a while: one that dies is started again.
DEFINITIONS, HOST = "the server of definitions", "the warm host"
# A signal or the end of a child is noticed so soon.
LOOK_EVERY_S = 0.5
# The pages and the daemon are told where it listens; by then it does, or says why not.
DEFINITIONS_LIMIT_S = 120.0
# The longest that a sensor's tick may take, most of it waiting for news.
TICK_LIMIT_S = 360
# How soon edited definitions are those of the pages and the daemon.
EDITED_EVERY_S = 10.0
# How often Dagster's daemon looks whether an asset is older than it may be: the drain may be an hour old.
FRESHNESS_VARIABLE, FRESHNESS_EVERY_S = "FRESHNESS_DAEMON_INTERVAL_SECONDS", 300
# As many sensors and schedules may wait at once, and the pages ask beside them.
WORKERS = 16
# Every look of every sensor is a line or two at the level below; what came of it is on the pages.
LOG_LEVEL = "warning"
# What the children and their runs print is kept up to this size; then the file is begun anew beside the one before.
LOG_LIMIT = 4 * 1024 * 1024
# The system takes 108 bytes; gRPC wants the whole path.
LONGEST_PATH = 100


class UiStoppedError(TidemarkError):
    """The pages or the daemon ended by themselves."""


def log_of(home: Home) -> Path:
    """The file that has what the children print."""
    return home.reports / "ui.log"


def _open_log(home: Home) -> BinaryIO:
    make_directory(home.reports)
    return open(log_of(home), "ab", opener=make_private)


def bound_log(home: Home, limit: int = LOG_LIMIT) -> None:
    """Begin the file anew if it is too large. Whoever writes to it appends, and goes on at its new end."""
    path = log_of(home)
    if path.exists() and path.stat().st_size > limit:
        with path.open("rb") as full, open(path.with_name("ui.log.before"), "wb", opener=make_private) as before:
            shutil.copyfileobj(full, before)
        os.truncate(path, 0)


def commands(port: int, workspace: Path, *, is_read_only: bool = False) -> dict[str, list[str]]:
    """The children that are needed all the time, by name."""
    web = [sys.executable, "-m", PAGES, "-h", "127.0.0.1", "-p", str(port), "-w", str(workspace)]
    web += ["--dagster-log-level", LOG_LEVEL]
    return {
        "the pages": [*web, "--read-only"] if is_read_only else web,
        "the daemon": [sys.executable, "-m", DAEMON, "-w", str(workspace), "--log-level", LOG_LEVEL],
    }


def definitions_command(place: Path) -> list[str]:
    """The server of definitions, which evaluates sensors too. The pages and the daemon would start one each."""
    server = [sys.executable, "-m", "dagster", "api", "grpc", "-s", str(place), "-n", str(WORKERS)]
    server += ["--log-level", LOG_LEVEL]
    # By module and not by file: a run that is forked finds the definitions that its host has imported.
    return [*server, "-m", "orchestration.definitions", "-d", str(PROJECT), "--location-name", LOCATION]


def write_workspace(folder: Path, place: Path) -> Path:
    """Where the pages and the daemon find the server of definitions."""
    workspace = folder / "workspace.yaml"
    workspace.write_text(
        yaml.safe_dump({"load_from": [{"grpc_server": {"socket": str(place), "location_name": LOCATION}}]})
    )
    return workspace


def environment(home: Home, waiting: Path | None = None) -> dict[str, str]:
    """The environment in which all children find this home and Java; without a warm host also a Spark of their own."""
    activate_toolchain()
    return {
        **os.environ,
        "DAGSTER_HOME": str(ensure_instance(home)),
        HOME_VARIABLE: str(home.root),
        FRESHNESS_VARIABLE: str(FRESHNESS_EVERY_S),
        **({LIMIT_VARIABLE: str(TICK_LIMIT_S), WHILE_VARIABLE: str(waiting)} if waiting else {}),
        **({} if is_allowed(home) else server_address()),
    }


def serve(
    home: Home, *, port: int = 3000, is_read_only: bool = False, ready: Callable[[str], None] | None = None
) -> None:
    """Run all of them until Ctrl-C or SIGTERM; an error says which of them ended by itself."""
    signal.signal(signal.SIGTERM, _interrupt)
    remove_old_output(home, now_s=time.time())
    with TemporaryDirectory(prefix="tidemark-ui-") as scratch:
        place = home.host / "definitions"
        if len(str(place)) > LONGEST_PATH:
            place = Path(scratch) / "definitions"
        children = Children(home, place, Path(scratch) / "waiting")
        try:
            children.start_definitions()
            for name, command in commands(
                port, write_workspace(Path(scratch), place), is_read_only=is_read_only
            ).items():
                children.start(name, command)
            if ready:
                ready(f"http://127.0.0.1:{port}")
            children.watch()
        except KeyboardInterrupt:
            return
        finally:
            children.stop()


class Children:
    """The processes of one `ui`, and its hold on the warm host of the home, which runs what the daemon launches."""

    def __init__(self, home: Home, place: Path, waiting: Path) -> None:
        self._home, self._place, self._waiting = home, place, waiting
        self._environment = environment(home, waiting)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._pauses = _pauses()
        self._spark, self._host = SparkChild(home, self._environment), Hold(home)
        self._stamp, self._stamped_s = stamp_of(home), time.monotonic()

    def start(self, name: str, command: list[str]) -> None:
        """Start a child that ends with this process."""
        with _open_log(self._home) as log:
            self._processes[name] = subprocess.Popen(
                command,
                env=self._environment,
                cwd=self._home.root,
                start_new_session=True,
                preexec_fn=_die_with_parent,  # noqa: PLW1509 (this process has one thread, and the call is one prctl)
                stdout=log,
                stderr=log,
            )

    def start_definitions(self) -> None:
        """Start the server of definitions, and wait until it answers."""
        self._look_at_definitions()
        deadline = time.monotonic() + DEFINITIONS_LIMIT_S
        while not self._place.exists():
            child = self._processes[DEFINITIONS]
            if child.poll() is not None:
                raise UiStoppedError(
                    f"The definitions could not be loaded (status {child.returncode}). {log_of(self._home)} says why."
                )
            if time.monotonic() > deadline:
                raise UiStoppedError(f"The definitions were not loaded within {DEFINITIONS_LIMIT_S:.0f} s.")
            time.sleep(0.05)

    def watch(self) -> None:
        """Wait until a needed child ends. What the others can do without for a while is started again."""
        while True:
            for name, child in self._processes.items():
                if name != DEFINITIONS and child.poll() is not None:
                    status = child.returncode
                    raise UiStoppedError(
                        f"{name.capitalize()} ended with status {status}. {log_of(self._home)} says why."
                    )
            self._look_at_definitions()
            bound_log(self._home)
            if SERVER_VARIABLE in self._environment:
                self._spark.look()
            elif not self._host.is_held() and self._pauses[HOST].is_over():
                self._host.take()
            time.sleep(LOOK_EVERY_S)

    def stop(self) -> None:
        """End them all. A run in the middle of a commit is given time, and keeps Spark until then."""
        self._end_waiting()
        _end(list(self._processes.values()))
        self._host.release(GRACE_S + 5.0)
        self._spark.stop()

    def _look_at_definitions(self) -> None:
        """Start the server of definitions if there is none, and again if the definitions were edited."""
        child = self._processes.get(DEFINITIONS)
        if child is not None and self._are_edited():
            self._end_waiting()
            _end([child])
            self._pauses = _pauses()  # what was ended on purpose, or may be mended, starts at once
        if (child is None or child.poll() is not None) and self._pauses[DEFINITIONS].is_over():
            Place.of(self._home).make()
            self._place.unlink(missing_ok=True)  # of one that was killed
            self._waiting.touch()
            self.start(DEFINITIONS, definitions_command(self._place))

    def _end_waiting(self) -> None:
        """Let the ticks end that wait for news: a server of definitions does not end before them."""
        self._waiting.unlink(missing_ok=True)
        time.sleep(3 * GLANCE_S)

    def _are_edited(self) -> bool:
        if time.monotonic() - self._stamped_s < EDITED_EVERY_S:
            return False
        before, self._stamp, self._stamped_s = self._stamp, stamp_of(self._home), time.monotonic()
        return before != self._stamp


def _pauses() -> dict[str, Pause]:
    return {name: Pause() for name in (DEFINITIONS, HOST)}


def _interrupt(_signum: int, _frame: object) -> None:
    raise KeyboardInterrupt


def _die_with_parent() -> None:
    """In the child, before it becomes the program: have the kernel end it when the parent dies for any reason.

    It is ended by the signal of Ctrl-C, which a shell may have switched off for what it starts in the background.
    """
    signal.signal(signal.SIGINT, signal.SIG_DFL)
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
