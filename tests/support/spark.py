"""A Spark server for tests, and the environment of those who must not use it."""

import os
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from typing import TYPE_CHECKING

import pytest

from resources.session import SERVER_VARIABLE, open_notes
from resources.spark_server import TOKEN_VARIABLE, server_address, server_command
from tidemark.storage.home import Home

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

STOP_LIMIT_S = 30.0
# Many times what a server needs to start when the machine is busy.
START_LIMIT_S = 300.0


@contextmanager
def served(home: Home, overrides: Mapping[str, str]) -> Iterator[None]:
    """A Spark server, as `ui` has one, that everything in this process uses."""
    address = server_address()
    command = server_command(home, address, is_fast_start=True, overrides=overrides)
    with open_notes(home) as notes:
        server = subprocess.Popen(command, env={**os.environ, **address}, stdout=notes, stderr=notes)
    try:
        with pytest.MonkeyPatch.context() as patch:
            for name, value in address.items():
                patch.setenv(name, value)
            yield
    finally:
        server.terminate()
        server.wait(STOP_LIMIT_S)


def without_server(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a process that starts a JVM of its own, as a command does."""
    # Pyspark leaves a mark of its own in a process that has had a session on a server, and children would inherit it.
    told = (SERVER_VARIABLE, TOKEN_VARIABLE, "SPARK_CONNECT_MODE_ENABLED")
    return {name: value for name, value in environment.items() if name not in told}


def plan_of(rows: "DataFrame") -> str:
    """How Spark will compute rows, in its words; asked in the one way that every session knows."""
    said = StringIO()
    with redirect_stdout(said):
        rows.explain()
    return said.getvalue()
