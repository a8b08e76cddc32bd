"""Checks that are interrupted again and again in a process with a JVM of its own, and a whole one after each.

`python -m tests.support.interrupted_checks HOME` prints how each of these whole ones ended. Not with a session on a
server: it speaks to it by gRPC and by threads of its own, neither of which survives an exception in the midst of its
code, and what interrupts a process that uses one ends it.
"""

import signal
import sys
from pathlib import Path
from types import FrameType

from expectations.runner import run_suite
from resources.session import start_session
from tests.transform.test_suite_runner import ELEVEN, KNOWN, POSITIVE, TEN, UNIQUE, suite, things
from tidemark.storage.home import Home

AFTER_S = (0.03, 0.1, 0.3)


class InterruptedRunError(BaseException):
    """What a signal raises wherever the process is at that moment."""


def interrupt(_number: int, _frame: FrameType | None) -> None:
    raise InterruptedRunError


def main(root: Path) -> None:
    spark = start_session(Home(root), is_fast_start=True)
    batch, asked = things(spark, (TEN, 1, "red"), (ELEVEN, 3, "green")), suite(KNOWN, POSITIVE, UNIQUE)
    signal.signal(signal.SIGALRM, interrupt)
    kept = []
    for seconds in AFTER_S:
        try:
            # More than once: one that falls into the destruction of an object is ignored by Python.
            signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)
            while True:
                run_suite(asked, batch, partitions=[TEN, ELEVEN])
        except InterruptedRunError as error:
            kept.append(error)  # as whoever reports it does
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
        found = run_suite(asked, batch, partitions=[TEN, ELEVEN])
        print(*(result.passed for result in found), flush=True)  # noqa: T201 - for the test that started it


if __name__ == "__main__":
    main(Path(sys.argv[1]))
