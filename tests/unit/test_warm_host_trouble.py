"""A warm host outlives what goes wrong around it: clients that go, homes that are deleted, a machine that is full."""

import resource
import shutil
import socket
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestration.warm_host import client
from orchestration.warm_host.place import STREAMS, Place, receive, send
from orchestration.warm_host.stamp import stamp_of
from tests.support.hosted import LIMIT_S, host_of, hosting
from tests.support.running import wait_until
from tidemark.storage.home import Home

# Until this is there, the host imports: it takes requests, and answers none.
GO = "go"
SLOW_IMPORT = f"""
import time

def prepare():
    while not (home.root / "{GO}").exists():
        time.sleep(0.05)

"""
COMMANDS_LEAVE_A_FILE = """
child.run_command = lambda arguments: (home.root / arguments[0]).touch() or 0
"""
RUNS_LEAVE_A_FILE = """
child.execute_run = lambda run_id, storage: (home.root / run_id).touch() or 0
"""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    made = Home(tmp_path / "home").create()
    yield made
    client.stop(made)


def ask(home: Home, kind: str, **more: object) -> socket.socket:
    """Send a request, and leave the answer for later."""
    connection = Place.of(home).connect()
    assert connection is not None, "there is no host"
    message = {"kind": kind, "directory": "/", "environment": {}, "umask": 0o077, "stamp": stamp_of(home), **more}
    send(connection, message, STREAMS)
    return connection


def exit_code(connection: socket.socket) -> int:
    """How a command ended that was asked for."""
    with connection:
        taken, _ = receive(connection)
        assert taken["taken"]
        ended, _ = receive(connection)
    return int(ended["exit"])


def test_a_command_whose_client_went_before_its_turn_is_not_begun(home: Home) -> None:
    with hosting(home, SLOW_IMPORT + COMMANDS_LEAVE_A_FILE) as host:
        ask(home, "command", arguments=["first"]).close()
        second = ask(home, "command", arguments=["second"])
        (home.root / GO).touch()
        assert exit_code(second) == 0
        assert host.poll() is None
    assert (home.root / "second").exists()
    assert not (home.root / "first").exists(), "its client may have had it done in another way"


def test_a_command_whose_client_goes_before_it_is_answered_is_ended(home: Home) -> None:
    waits = "host.is_gone = lambda connection: False\nchild.run_command = lambda arguments: time.sleep(600)"
    with hosting(home, SLOW_IMPORT + waits) as host:
        ask(home, "command", arguments=[]).close()
        with ask(home, "lease", owns_runs=False) as last:
            (home.root / GO).touch()
            assert receive(last)[0]["taken"]
        wait_until("it is ended", lambda: not psutil.Process(host.pid).children(), limit_s=LIMIT_S)
        assert host.poll() is None


def test_a_run_goes_on_when_its_launcher_goes_before_it_is_answered(home: Home) -> None:
    with hosting(home, SLOW_IMPORT + "host.is_gone = lambda connection: False" + RUNS_LEAVE_A_FILE) as host:
        ask(home, "run", run_id="first", storage="").close()
        (home.root / GO).touch()
        wait_until("the run is done", (home.root / "first").exists, limit_s=LIMIT_S)
        assert host.poll() is None


def test_a_command_of_which_a_stream_did_not_come_is_not_begun(home: Home) -> None:
    with hosting(home, COMMANDS_LEAVE_A_FILE):
        with Place.of(home).connect() or pytest.fail("there is no host") as connection:
            message = {"kind": "command", "arguments": ["first"], "directory": "/", "environment": {}, "umask": 0o077}
            send(connection, {**message, "stamp": stamp_of(home)}, STREAMS[:2])
            with pytest.raises(OSError, match="No message came"):
                receive(connection)
        assert exit_code(ask(home, "command", arguments=["second"])) == 0
    assert not (home.root / "first").exists()


def test_the_death_of_a_run_is_reported_while_the_host_ends_and_with_the_environment_of_the_run(home: Home) -> None:
    report = """
import os

def report_death(run_id, storage, how):
    (home.root / "begun").touch()
    time.sleep(1.0)
    (home.root / "reported").write_text(f"{run_id} {how}, {os.environ.get('DAGSTER_PASSWORD')}")
    return 0

child.execute_run = lambda run_id, storage: 3
child.report_death = report_death
"""
    with hosting(home, SLOW_IMPORT + report) as host:
        (home.root / GO).touch()
        with ask(home, "run", run_id="first", storage="", environment={"DAGSTER_PASSWORD": "secret"}) as launcher:
            assert receive(launcher)[0]["taken"]
        wait_until("its death is being reported", (home.root / "begun").exists, limit_s=LIMIT_S)
        host.terminate()
        assert host.wait(LIMIT_S) == 0
    assert (home.root / "reported").read_text() == "first ended with 3, secret"


@pytest.mark.parametrize("is_moved", [False, True], ids=["deleted", "moved"])
def test_the_host_of_a_home_that_has_gone_ends_and_leaves_the_next_one_alone(
    home: Home, tmp_path: Path, is_moved: bool
) -> None:
    with hosting(home, SLOW_IMPORT) as host:
        if is_moved:
            home.root.rename(tmp_path / "elsewhere")
        else:
            shutil.rmtree(home.root)
        home.create()
        with hosting(home) as successor:
            (home.root / GO).touch()
            wait_until("the first one has ended", host.poll, lambda code: code is not None, limit_s=LIMIT_S)
            wait_until("the second one says who it is", lambda: client.describe(home), limit_s=LIMIT_S)
            assert host_of(home) == successor.pid
            with ask(home, "lease", owns_runs=False) as connection:
                assert receive(connection)[0]["taken"]


def test_a_host_for_which_the_disk_is_full_goes_on_and_says_later_who_it_is(home: Home) -> None:
    full = """
import errno

class NoRoom(NoSpark):
    tries = 0

    def look(self):
        self.tries += 1
        if self.tries < 3:
            raise OSError(errno.ENOSPC, "as open_notes does")
        return super().look()

class FullDisk:
    def write(self, text):
        raise OSError(errno.ENOSPC, "no room for this either")

    def flush(self):
        pass

written = Path.write_text

def write_text(path, text):
    if spark.tries < 5:
        raise OSError(errno.ENOSPC, "as it does here")
    return written(path, text)

spark, Path.write_text, sys.stderr = NoRoom(home), write_text, FullDisk()
"""
    with hosting(home, full + COMMANDS_LEAVE_A_FILE) as host:
        assert exit_code(ask(home, "command", arguments=["first"])) == 0
        wait_until("it has said who it is", lambda: client.describe(home), limit_s=LIMIT_S)
        assert host_of(home) == host.pid


def test_a_host_with_too_many_clients_takes_the_next_ones_when_some_have_gone(home: Home) -> None:
    few = """
import resource, os
used = len(os.listdir("/proc/self/fd"))
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 12, used + 12))
"""
    with hosting(home, few + COMMANDS_LEAVE_A_FILE) as host:
        crowd = [ask(home, "lease", owns_runs=False) for _ in range(30)]
        process = psutil.Process(host.pid)
        limit, _ = process.rlimit(resource.RLIMIT_NOFILE)
        wait_until("it is full", process.num_fds, lambda number: number == limit, limit_s=LIMIT_S)
        for each in crowd:
            each.close()
        assert exit_code(ask(home, "command", arguments=["first"])) == 0
        assert host.poll() is None
