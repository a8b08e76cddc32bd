"""Ctrl-C and SIGTERM while a command makes runs: one sentence, the code that shells expect, and no run after that."""

import signal
import subprocess
import sys
import textwrap

import pytest

RUN_THAT_IS_STOPPED = """
import logging, os, signal, sys, time
import dagster as dg
from orchestration.interrupts import raise_if_stopped, stoppable
from tidemark.cli.app import main

begun = []

@dg.op
def work():
    begun.append(1)
    try:
        os.kill(os.getpid(), SIGNAL)
        time.sleep(60)
    except BaseException:
        logging.exception("while sending command")
        raise

@dg.job
def tables():
    work()

def make_runs():
    with stoppable():
        for _ in range(3):
            with dg.instance_for_test() as instance:
                done = tables.execute_in_process(instance=instance, raise_on_error=False)
                assert not done.success
                assert instance.get_run_by_id(done.run_id).status == dg.DagsterRunStatus.FAILURE
                raise_if_stopped()
"""
RUN_COMMAND = """
import click
from tidemark.cli import app

app._Commands.get_command = lambda *_: click.Command("status", callback=make_runs)
code = app.main(["verify"])
assert begun == [1], begun
sys.exit(code)
"""
STUCK = """
import os, signal, sys, time
from orchestration.interrupts import stoppable

with stoppable(grace_s=0.2):
    signal.signal(SIGNAL, lambda *_: None)  # a library that takes the signal and goes on
    os.kill(os.getpid(), SIGNAL)
    time.sleep(TIME)
    print("went on to the end", flush=True)
"""


def run(script: str, number: int, **words: object) -> "subprocess.CompletedProcess[str]":
    words = {"SIGNAL": number, **words}
    given = "\n".join(f"{name} = {value!r}" for name, value in words.items())
    return subprocess.run(
        [sys.executable, "-c", f"{given}\n{textwrap.dedent(script)}"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_is_recorded_as_failed_and_is_the_last_one(number: int, code: int) -> None:
    done = run(RUN_THAT_IS_STOPPED + RUN_COMMAND, int(number))
    assert done.returncode == code, done.stderr
    said = [line for line in done.stderr.splitlines() if line.startswith("tidemark: ")]
    assert said == ["tidemark: stopped. Everything that was acknowledged is kept; the same command goes on from here."]
    assert "ERROR:root" not in done.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_process_that_cannot_be_interrupted_ends_when_its_grace_is_over(number: int, code: int) -> None:
    done = run(STUCK, int(number), TIME=100)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith("tidemark: stopped.")


def test_a_signal_that_a_library_took_is_raised_before_the_end() -> None:
    done = run(STUCK.replace("grace_s=0.2", ""), int(signal.SIGINT), TIME=0)
    assert done.stdout == "went on to the end\n"
    assert "StoppedError" in done.stderr
