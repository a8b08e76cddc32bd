"""Jobs that a run launcher starts in processes of their own: one that succeeds, one that dies, one that waits."""

import os
import signal
import time

import dagster as dg


@dg.op
def say_process(context: dg.OpExecutionContext) -> None:
    context.log.info("process %d, %s", os.getpid(), os.environ["ONLY_HERE"])


@dg.op
def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dg.op
def wait() -> None:
    while True:
        time.sleep(0.05)


@dg.job(executor_def=dg.in_process_executor)
def saying() -> None:
    say_process()


@dg.job(executor_def=dg.in_process_executor)
def dying() -> None:
    die()


@dg.job(executor_def=dg.in_process_executor)
def waiting() -> None:
    wait()
