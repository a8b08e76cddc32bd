"""What a process does that the warm host has forked: a command, a run of the daemon, or saying that a run has died.

Belongs here: from a copy of the host to a process as it would be without one: streams, directory, environment, signals.
Does not belong here: whom it is forked for (`host.py`).
"""

import ctypes
import io
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

# What a command would have found at its start.
DEFAULTS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGCHLD, signal.SIGTSTP, signal.SIGCONT)
PR_SET_PDEATHSIG = 1
FAILED = 1
INTERRUPTED = 128 + signal.SIGINT


@dataclass(frozen=True)
class Surroundings:
    """What a process has from whoever asked for it."""

    directory: str
    environment: Mapping[str, str]
    umask: int
    ignored: Sequence[int]  # signals

    @classmethod
    def of(cls, message: Mapping[str, Any], spark: Mapping[str, str]) -> "Surroundings":
        """Those of a request, and the host's Spark."""
        environment = {**message["environment"], **spark}
        return cls(message["directory"], environment, message["umask"], message.get("ignored", ()))


def become(
    work: Callable[[], int], files: Sequence[int], own: Surroundings, host: int, close: Callable[[], None]
) -> NoReturn:
    """In the new process: close what is the host's, take on the surroundings, work, and end with an exit code."""
    code = FAILED
    try:
        close()
        _take_on(files, own, host)
        code = work()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else FAILED
    except KeyboardInterrupt:
        code = INTERRUPTED  # it came before the work had begun
    except BaseException:  # noqa: BLE001 - a copy of the host must never go on as the host
        sys.excepthook(*sys.exc_info())
        code = FAILED
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError):
                code = code or FAILED
        # As without a host: threads of native libraries could turn a success into a failure at the interpreter's end.
        os._exit(code)


def _take_on(files: Sequence[int], own: Surroundings, host: int) -> None:
    os.setsid()
    signal.set_wakeup_fd(-1)
    for each in DEFAULTS:
        signal.signal(each, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in own.ignored:
        signal.signal(number, signal.SIG_IGN)
    # Spark ends with the host, so this process could not go on, and nobody would hear how it ended.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != host:
        os._exit(FAILED)
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    sys.stdin, sys.stdout, sys.stderr = _reader(0), _writer(1), _writer(2, errors="backslashreplace")
    os.environ.clear()
    os.environ.update(own.environment)
    os.umask(own.umask)
    os.chdir(own.directory)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _reader(number: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BufferedReader(io.FileIO(number, "r", closefd=False)), encoding="utf-8")


def _writer(number: int, errors: str = "strict") -> io.TextIOWrapper:
    raw = io.FileIO(number, "w", closefd=False)
    is_direct = raw.isatty() or number == 2
    return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors=errors, line_buffering=is_direct)


def run_command(arguments: Sequence[str]) -> int:
    """A command of the command line, as if it had been started by itself."""
    from orchestration.cli.app import main

    sys.argv = ["tidemark", *arguments]
    return main(arguments, is_own_process=True)


def execute_run(run_id: str, dagster_home: str) -> int:
    """A run that the daemon launched."""
    import dagster as dg

    from resources.dagster_internals import ExecuteRunArgs, execute_run_command, serialize_value

    os.environ["DAGSTER_HOME"] = dagster_home
    with dg.DagsterInstance.from_config(dagster_home) as instance:
        run, reference = instance.get_run_by_id(run_id), instance.get_ref()
    if run is None or run.job_code_origin is None:
        raise LookupError(f"The storage in {dagster_home} has no run {run_id} with its code.")
    told = serialize_value(ExecuteRunArgs(job_origin=run.job_code_origin, run_id=run_id, instance_ref=reference))
    return execute_run_command.main([told], standalone_mode=False) or 0


def report_death(run_id: str, dagster_home: str, how: str) -> int:
    """Say in the orchestrator's storage that the process of a run has died, if the run did not end before."""
    import dagster as dg

    with dg.DagsterInstance.from_config(dagster_home) as instance:
        run = instance.get_run_by_id(run_id)
        if run is not None and not run.is_finished:
            instance.report_run_failed(run, f"The process of this run {how}.")
    return 0
