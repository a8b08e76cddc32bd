"""A warm host that imports nothing beforehand and has no Spark, and a command that hands itself to one.

`python -m tests.support.small_host HOME` is the host. Everything else of it is the real thing, and so are the commands
that it forks: those that need no Spark.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestration.warm_host.spark import SparkChild
from tests.support.spark import without_server
from tidemark.storage.home import Home

ROOT = Path(__file__).resolve().parents[2]
# What the client answers with when it was not handed over.
BY_ITSELF = 99
CLIENT = f"""
import os, sys
from orchestration.warm_host import client
client.PROGRAM = ("-m", "tests.support.small_host")
code = client.run_warm(sys.argv[1:], {{"account", "checksum", "send", "status"}})
os._exit({BY_ITSELF} if code is None else code)
"""


@dataclass
class NoSpark(SparkChild):
    """It never starts."""

    is_new: bool = True

    def look(self) -> bool:
        was_new, self.is_new = self.is_new, False
        return was_new

    def stop(self) -> None:
        pass


def command(
    home: Home, *arguments: str, before: Callable[[], object] | None = None, **environment: str
) -> "subprocess.Popen[str]":
    """A command in a process of its own, which does something before it begins, that hands itself to a small host."""
    surroundings = {**without_server(os.environ), "TIDEMARK_WARM": "1", "PYTHONPATH": str(ROOT), **environment}
    return subprocess.Popen(
        [sys.executable, "-c", CLIENT, "--home", str(home.root), *arguments],
        env=surroundings,
        preexec_fn=before,  # noqa: PLW1509 - it makes one call to the system
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


if __name__ == "__main__":
    if os.fork():
        os._exit(0)
    os.setsid()
    from orchestration.warm_host.host import serve

    serve(Home(Path(sys.argv[1])), spark=NoSpark(Home(Path(sys.argv[1]))), prepare=lambda: None)
