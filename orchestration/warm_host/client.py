"""Reaching the warm host of a home: a command that hands itself over, and anything else that needs the host.

Belongs here: finding the host, starting it if there is none, and standing for a command that it runs. This is imported
before anything else of a command: nothing heavy may be imported here. Does not belong here: which commands there are.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from orchestration.warm_host.place import (
    IDLE_VARIABLE,
    STREAMS,
    VARIABLE,
    BrokenMessageError,
    Place,
    is_gone,
    receive,
    send,
)
from orchestration.warm_host.stamp import PROJECT, stamp_of
from tidemark.cli.home_option import home_in
from tidemark.model.errors import TidemarkError
from tidemark.storage.home import Home

# An operator who names a Spark server means that one, and not the host's.
SERVER_VARIABLE = "TIDEMARK_SPARK_SERVER"
PROGRAM = ("-m", "orchestration.warm_host")
COLD = "--cold"
# A description is needed once, and by nobody who waits for Spark.
HELP = ("-h", "--help")
# It listens before it imports anything; later than this it has not started at all.
LISTENS_S = 20.0
# Importing takes seconds, and many more on a busy machine.
ANSWERS_S = 120.0
# A host that is told to end gives what it runs some seconds, too.
ENDS_S = 60.0
# The host that is found may be out of date or about to end, and so may one that somebody else has just started.
TRIES = 3
# What `nohup` and shells switch off for what is to go on without them. SIGTERM is none of these: a process has to end
# with its host, and Dagster leaves it switched off in a process where Ctrl-C is.
SWITCHED_OFF = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTSTP)
FORWARDED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGWINCH)
LOG_LIMIT = 1024 * 1024
INTERRUPTED = 128 + signal.SIGINT


class Answer(NamedTuple):
    """What the host said to a request that it has taken, and the connection, which is the caller's now."""

    connection: socket.socket
    said: dict[str, Any]


def run_warm(arguments: Sequence[str], commands: Collection[str]) -> int | None:
    """Have the host run this command, if it is one of these; its exit code, or None if it is to be run here."""
    if command_in(arguments) not in commands or COLD in arguments or set(HELP) & set(arguments):
        return None
    home = Home.locate(home_in(arguments))
    if not home.root.is_dir() or not is_allowed(home):
        return None
    message = {
        "kind": "command",
        "arguments": list(arguments),
        "directory": str(Path.cwd()),
        "environment": dict(os.environ),
        "umask": _umask(),
        "ignored": _ignored(),
    }
    try:
        answer = ask(home, message, files=STREAMS)
        return None if answer is None else _stand_for(answer.connection)
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError:
        return None


def is_allowed(home: Home) -> bool:
    """Whether a host may be used and started: neither the environment nor the settings of the home forbid it."""
    if os.environ.get(VARIABLE) == "0" or os.environ.get(SERVER_VARIABLE) or not sys.platform.startswith("linux"):
        return False
    try:
        return home.settings.warm_host.enabled
    except TidemarkError:
        return False  # the command itself says what is wrong with the settings


def ask(home: Home, message: Mapping[str, Any], *, files: Sequence[int] = ()) -> Answer | None:
    """Have the host take a request; one is started if there is none. None if that does not help."""
    place, stamp = Place.of(home), stamp_of(home)
    for _ in range(TRIES):
        connection = place.connect() or _start(home, place)
        if connection is None:
            return None
        connection.settimeout(ANSWERS_S)
        try:
            send(connection, {**message, "stamp": stamp}, files)
            answer, _ = receive(connection)
        except (BrokenMessageError, BrokenPipeError, ConnectionResetError):
            connection.close()  # it ended at this moment
            continue
        except BaseException:
            connection.close()
            raise
        if answer.get("taken"):
            connection.settimeout(None)
            return Answer(connection, answer)
        connection.close()  # it is out of date, and has made room for another one
    return None


def _start(home: Home, place: Place) -> socket.socket | None:
    """Start a host; one that another command starts at the same time will do."""
    place.make()
    if place.log.exists() and place.log.stat().st_size > LOG_LIMIT:
        place.log.unlink()
    with open(place.log, "ab", opener=lambda path, flags: os.open(path, flags, 0o600)) as log:
        subprocess.run(
            [sys.executable, *PROGRAM, str(home.root)],
            cwd=PROJECT,
            env=host_environment(home),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            check=False,
        )
    deadline = time.monotonic() + LISTENS_S
    while (connection := place.connect()) is None and time.monotonic() < deadline:
        time.sleep(0.01)
    return connection


def host_environment(home: Home) -> dict[str, str]:
    """This environment without what concerns this command alone."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_FAIL", "DAGSTER_"))}
    paths = dict.fromkeys((str(PROJECT), *filter(None, kept.get("PYTHONPATH", "").split(os.pathsep))))
    return {
        **kept,
        "TIDEMARK_HOME": str(home.root),
        "PYTHONPATH": os.pathsep.join(paths),  # as the launcher has it
        "PYTHONSAFEPATH": "1",
    }


def idle_s(home: Home) -> float:
    """After how long without work the host ends."""
    said = os.environ.get(IDLE_VARIABLE)
    return float(said) if said else home.settings.warm_host.idle_minutes * 60.0


def _stand_for(connection: socket.socket) -> int:
    """Pass signals on until the command has ended; its exit code."""
    stopped: list[int] = []

    def forward(number: int, _: FrameType | None) -> None:
        stopped.append(number)
        _pass_on(connection, number)

    def pause(number: int, _: FrameType | None) -> None:
        _pass_on(connection, signal.SIGSTOP)
        # By the same signal, which the shell names, and which stops nothing that no shell could continue.
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
        signal.signal(number, pause)
        _pass_on(connection, signal.SIGCONT)

    handlers = {**dict.fromkeys(FORWARDED, forward), signal.SIGTSTP: pause}
    for each in handlers.keys() - set(_ignored()):
        signal.signal(each, handlers[each])
    try:
        ended, _ = receive(connection)
    except OSError:
        ended = {"signal": int(signal.SIGKILL), "host": True}
    if "exit" in ended:
        return int(ended["exit"])
    number = int(ended["signal"])
    if number not in stopped:
        who = "The warm host of this home ended" if ended.get("host") else "The process of this command was killed"
        # Nothing that prints is imported here.
        sys.stderr.write(
            f"tidemark: {who} ({signal.Signals(number).name}). Everything that was acknowledged is kept; run the same "
            "command again to go on.\n"
        )
    return 128 + number


def _pass_on(connection: socket.socket, number: int) -> None:
    try:
        connection.send(bytes([number]))
    except OSError:
        return  # it has ended; its exit code is on the way


class Hold:
    """The host is kept for as long as this is held; the daemon's runs end with it."""

    def __init__(self, home: Home) -> None:
        self._home = home
        self._connection: socket.socket | None = None

    def take(self) -> None:
        """Take hold of a host, which is started if there is none."""
        with suppress(OSError):
            answer = ask(self._home, {"kind": "lease", "owns_runs": True})
            self._connection = None if answer is None else answer.connection

    def is_held(self) -> bool:
        """Whether that host is still the one that takes requests."""
        if self._connection is None:
            return False
        if is_gone(self._connection):
            self._connection.close()
            self._connection = None
        return self._connection is not None

    def release(self, patience_s: float) -> None:
        """Let it go: it ends the runs, which are given this time."""
        if self._connection is None:
            return
        with self._connection as connection, suppress(OSError):
            connection.settimeout(patience_s)
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
        self._connection = None


@contextmanager
def with_spark(home: Home) -> Iterator[None]:
    """Use the Spark of the home's host in this process, if there may be a host; it is started if there is none."""
    answer = None
    with suppress(OSError):
        answer = ask(home, {"kind": "lease", "owns_runs": False}) if is_allowed(home) else None
    if answer is None:
        yield
        return
    address = answer.said["environment"]
    os.environ.update(address)
    try:
        yield
    finally:
        for name in address:
            os.environ.pop(name, None)
        answer.connection.close()


def command_in(arguments: Sequence[str]) -> str | None:
    """The name of the command: the first word that is no global option."""
    words = iter(arguments)
    for word in words:
        if word == "--home":
            next(words, None)
        elif not word.startswith("-"):
            return word
    return None


def _ignored() -> list[int]:
    """What this command is to outlive: `nohup` says so, and shells do of what a script leaves in the background."""
    return [each for each in SWITCHED_OFF if signal.getsignal(each) == signal.SIG_IGN]


def _umask() -> int:
    found = os.umask(0o077)
    os.umask(found)
    return found


def describe(home: Home) -> dict[str, Any] | None:
    """What a running host says of itself; none is started for this."""
    return Place.of(home).read_state()


def stop(home: Home) -> bool:
    """End the host, with what it runs; whether there was one. Gives running work some seconds to end."""
    place = Place.of(home)
    connection = place.connect()
    if connection is None:
        return False
    with connection:
        connection.settimeout(ENDS_S)
        send(connection, {"kind": "stop"})
        try:
            while connection.recv(1024):
                pass
        except OSError as error:
            raise TidemarkError(
                f"The warm host did not end within {ENDS_S:.0f} s ({json.dumps(place.read_state())}). "
                "Its process may be killed: nothing acknowledged is lost by that."
            ) from error
    return True
