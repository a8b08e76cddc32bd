"""Commands through a small host, and small hosts that have it hard, for tests.

What a host imports itself is in `small_host.py`: this here imports much more.
"""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from orchestration.warm_host import client
from orchestration.warm_host.place import Place
from tests.support.running import wait_until
from tests.support.small_host import ROOT, command
from tests.support.spark import without_server
from tidemark.storage.home import Home

# Many times what a process needs to start on a busy machine.
LIMIT_S = 120.0
INPUT = "never.jsonl"
HOST = """
import sys
from pathlib import Path
from orchestration.warm_host import child, forked, host
from tests.support.small_host import NoSpark
from tidemark.storage.home import Home

home, prepare = Home(Path(sys.argv[1])), lambda: None
spark = NoSpark(home)
{trouble}
host.serve(home, spark=spark, prepare=prepare)
"""


def done(home: Home, *arguments: str, **environment: str) -> tuple[int, str, str]:
    process = command(home, *arguments, before=None, **environment)
    out, err = process.communicate(timeout=LIMIT_S)
    return process.returncode, out, err


def host_of(home: Home) -> int:
    state = client.describe(home)
    assert state is not None, "there is no host"
    return int(state["pid"])


def waiting_command(
    home: Home, tmp_path: Path, before: Callable[[], object] | None = None
) -> tuple["subprocess.Popen[str]", psutil.Process]:
    """A command that waits for its input until `give_input`, and the process that runs it."""
    os.mkfifo(tmp_path / INPUT)
    process = command(home, "send", str(tmp_path / INPUT), before=before)

    def children() -> list[psutil.Process]:
        state = client.describe(home)
        return psutil.Process(state["pid"]).children() if state else []

    [child] = wait_until("the command has begun", children, limit_s=LIMIT_S)
    return process, child


def give_input(tmp_path: Path) -> None:
    """To the command that waits for it: a line that is refused, so that it ends with 1."""
    (tmp_path / INPUT).write_text("{}\n")


@contextmanager
def hosting(home: Home, trouble: str = "", **environment: str) -> "Iterator[subprocess.Popen[bytes]]":
    """A small host in the foreground, after some lines of Python that make it hard for it."""
    Place.of(home).make()
    host = subprocess.Popen(
        [sys.executable, "-c", HOST.replace("{trouble}", trouble), str(home.root)],
        env={**without_server(os.environ), "PYTHONPATH": str(ROOT), **environment},
    )
    try:
        wait_until("it listens", lambda: _listens(home, host), limit_s=LIMIT_S)
        yield host
    finally:
        host.terminate()
        host.wait(LIMIT_S)


def _listens(home: Home, host: "subprocess.Popen[bytes]") -> bool:
    connection = Place.of(home).connect()
    if connection is not None:
        connection.close()
    return connection is not None or host.poll() is not None
