"""Bugs that the simulation does not reach: what one is, and how it is tried.

Belongs here: the shape of such a bug, and the process in which it is in force while its test runs. The bugs themselves
are in `planted_beside.py`, `planted_admission.py`, `planted_wire.py` and `planted_door.py`.
"""

import multiprocessing
import os
import sys
import tempfile
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
# The exit code of pytest when a test has failed; any other means that it could not be run.
TESTS_FAILED = 1


class Beside(NamedTuple):
    """One bug, the rule that it breaks, and the test that must fail."""

    name: str
    rule: str
    what: str
    plant: Callable[[], AbstractContextManager[Any]]
    test: str


class Tried(NamedTuple):
    """The result of the test for a bug."""

    name: str
    is_caught: bool
    said: str  # the end of what pytest printed


def try_out(bug: Beside) -> Tried:
    """Plant one bug in a process of its own, and see whether its test fails.

    The process is forked from one that has imported what takes long: a bug then costs what its test does.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["pytest", "hypothesis", "dagster", "tidemark.gateway.door", "tidemark.client"])
    with tempfile.NamedTemporaryFile("r", prefix="tidemark-planted-") as printed:
        process = context.Process(target=_try, args=(bug, printed.name))
        process.start()
        process.join()
        return Tried(bug.name, process.exitcode == TESTS_FAILED, printed.read()[-2_000:])


def _try(bug: Beside, printed: str) -> None:
    """Run the test of one bug with the bug in force; the process ends with the exit code of pytest."""
    import pytest

    file = os.open(printed, os.O_WRONLY)
    os.dup2(file, 1)
    os.dup2(file, 2)
    # It is no worker of a test run that this may be part of.
    for variable in [each for each in os.environ if each.startswith("PYTEST_")]:
        del os.environ[variable]
    os.environ["TIDEMARK_TEST_PATIENCE_S"] = "5"
    os.chdir(ROOT)
    with bug.plant():
        code = int(pytest.main(["-q", "-x", "-p", "no:cacheprovider", str(ROOT / bug.test)]))
    # Threads that a broken test has left behind are not waited for.
    sys.stdout.flush()
    os._exit(code)
