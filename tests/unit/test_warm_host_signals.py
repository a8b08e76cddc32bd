"""Signals to a command that a warm host runs: it stops, goes on, ends and goes on regardless as it would by itself."""

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from orchestration.warm_host import client
from tests.support.hosted import LIMIT_S, done, give_input, host_of, waiting_command
from tests.support.running import wait_until
from tests.support.small_host import command
from tidemark.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home").create()
    yield made
    client.stop(made)


def ignoring(number: int) -> Callable[[], object]:
    return lambda: signal.signal(number, signal.SIG_IGN)


def ignored_by(process: psutil.Process) -> int:
    """The signals, a bit each."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(status.partition("SigIgn:")[2].split()[0], 16)


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTSTP])
def test_what_was_started_to_outlive_a_signal_does(home: Home, tmp_path: Path, number: signal.Signals) -> None:
    process, child = waiting_command(home, tmp_path, before=ignoring(number))
    process.send_signal(number)
    assert done(home, "account")[0] == 0  # the host would have passed it on before
    wait_until("it has taken on its surroundings", lambda: ignored_by(child) >> (number - 1) & 1, limit_s=LIMIT_S)
    give_input(tmp_path)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1


def test_a_command_ends_with_its_host_whatever_it_was_started_to_outlive(home: Home, tmp_path: Path) -> None:
    process, child = waiting_command(home, tmp_path, before=ignoring(signal.SIGTERM))
    os.kill(host_of(home), signal.SIGKILL)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 137
    wait_until("its process is gone", lambda: not child.is_running(), limit_s=LIMIT_S)


def test_ctrl_z_stops_a_command_and_its_process_and_fg_continues_both(home: Home, tmp_path: Path) -> None:
    # As a shell does it: a group of its own, in the same session.
    process, child = waiting_command(home, tmp_path, before=lambda: os.setpgid(0, 0))
    process.send_signal(signal.SIGTSTP)
    seen = wait_until(
        "it has stopped", lambda: os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOHANG), limit_s=LIMIT_S
    )
    assert seen is not None
    assert seen.si_status == signal.SIGTSTP
    wait_until("its process has, too", child.status, lambda found: found == psutil.STATUS_STOPPED, limit_s=LIMIT_S)
    process.send_signal(signal.SIGCONT)
    wait_until("it goes on", child.status, lambda found: found != psutil.STATUS_STOPPED, limit_s=LIMIT_S)
    give_input(tmp_path)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1


def test_ctrl_z_stops_nothing_that_no_shell_could_continue(home: Home, tmp_path: Path) -> None:
    process, _ = waiting_command(home, tmp_path, before=os.setsid)
    process.send_signal(signal.SIGTSTP)
    give_input(tmp_path)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1


def test_a_reader_that_has_gone_is_an_exit_code_and_no_traceback(home: Home) -> None:
    process = command(home, "account")
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(LIMIT_S) == 1
