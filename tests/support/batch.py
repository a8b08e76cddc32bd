"""Small builders for tests of the batch plane: what is sent, and what is in the tables afterwards."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from tests.support.live import HandClock, open_platform
from tests.support.spark import without_server
from tidemark.storage.failpoints import FAILPOINTS
from tidemark.storage.home import Home
from tidemark.tables import lake_files, table_checksums

# Where a drain can be killed, in the order in which one run comes there; other commands have steps of their own.
OTHER_COMMANDS = ("log.", "seal.", "retain.", "clock.", "compact.")
DRAIN_STEPS = [name for name in FAILPOINTS if not name.startswith(OTHER_COMMANDS)]
# Nothing is remembered at arrival, so that every copy is the drain's to find.
FORGETFUL = 'recent_identities = 0\n[spark]\nmaster = "local[2]"\n'


def send(
    home: Home, *writes: Iterable[Any], producer: str = "checkout", clock: Callable[[], int] | None = None
) -> None:
    """Each write under its own epoch, all of them in one sealed segment."""
    with open_platform(home, clock or HandClock()) as platform:
        sender = platform.producer(producer)
        for write in writes:
            sender.write(list(write))


def checksums(home: Home, *tables: str) -> dict[str, table_checksums.Checksum]:
    return {table: table_checksums.checksum(home.lake / table) for table in tables or ("deltas", "dead_letters")}


def rows_of(home: Home, table: str, *columns: str) -> list[tuple[Any, ...]]:
    """Some columns of every row, sorted, read without Spark."""
    found = lake_files.open_table(home.lake / table)
    assert found is not None
    rows = found.to_pyarrow_table(columns=list(columns)).to_pylist()
    return sorted(tuple(row[column] for column in columns) for row in rows)


def run(home: Home, command: str, failpoint: str | None = None, options: Sequence[str] = ()) -> tuple[int, bytes]:
    """A command in a process of its own, killed at a step if one is named: its code and its answer."""
    environment = without_server(os.environ)
    environment.pop("TIDEMARK_FAILPOINT", None)
    if failpoint:
        environment["TIDEMARK_FAILPOINT"] = failpoint
    done = subprocess.run(
        [sys.executable, "-m", "orchestration.cli", "--home", str(home.root), command, *options, "--json"],
        env=environment,
        stdout=subprocess.PIPE,
        check=False,
    )
    return done.returncode, done.stdout
