"""The demo's stages: send the day, drain it, sum it up, check everything, and report.

Belongs here: the order of stages and how long each takes. Each stage is the product's own code.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.progress import Progress, TaskID

from assets.tables import TABLES
from orchestration.demo.feed import SETTINGS_TEXT, Fed, feed
from orchestration.demo.generator import Write, generate
from orchestration.demo.report import Check, Report, put_together
from orchestration.materialize import drain, materialize_everything_stale
from orchestration.runs import RunResults, Step
from orchestration.vectors import materialize_vectors
from orchestration.windowed_counts import materialize_windowed_counts
from tidemark.cli.output import say
from tidemark.model.timegrid import from_us
from tidemark.observe.status import read_status
from tidemark.storage.home import Home


@dataclass
class Stages:
    """Stopwatch and progress bar of one run."""

    bar: Progress
    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str, total: float | None = None) -> Iterator["Stage"]:
        """One stage, shown while it runs."""
        task = self.bar.add_task(name, total=total, note="")
        started = time.monotonic()
        yield Stage(self.bar, task)
        self.seconds[name] = time.monotonic() - started
        self.bar.update(task, total=total or 1, completed=total or 1, note="done")
        if self.bar.disable:
            # There is no terminal to show the bar; a log file should still name the stage.
            say(f"{name}: {self.seconds[name]:.1f} s")


@dataclass
class Stage:
    """The line of one stage in the progress bar."""

    bar: Progress
    task: TaskID

    def advance(self, amount: float, note: str) -> None:
        """A part of the stage is done."""
        self.bar.update(self.task, advance=amount, note=note)

    def note(self, step: Step) -> None:
        """A step of the stage has begun."""
        from orchestration.cli.work import describe

        self.bar.update(self.task, note=describe(step))


def run_demo(home: Home, *, seed: int, deltas: int, bar: Progress) -> tuple[Report, RunResults]:
    """Run all stages once. A home that has this day already is left as it is; another day is added to its data."""
    stages = Stages(bar)
    home.create(SETTINGS_TEXT)
    with stages.stage("send and seal", total=deltas) as stage, _session_in_background(home):
        fed = _send(home, seed, deltas, stage)
    with stages.stage("drain and check") as stage:
        outcome = drain(home, progress=stage.note)
    with stages.stage("sum up and check") as stage:
        outcome += materialize_everything_stale(home, progress=stage.note)
    with stages.stage("fold vectors") as stage:
        outcome += materialize_vectors(home, progress=stage.note)
    with stages.stage("all windows") as stage:
        outcome += materialize_windowed_counts(home, progress=stage.note)
    with stages.stage("take account") as stage:
        checks = check_results(home, outcome)
        is_changed = bool(fed.writes) or bool(outcome.runs[1:])
        report = put_together(home, checks, stages.seconds, is_changed=is_changed)
    return report, outcome


@contextmanager
def _session_in_background(home: Home) -> Iterator[None]:
    """Start a JVM for a new home while deltas are sent, which leaves it a core. A filled home may not need one."""
    if any(shard.rows for shard in read_status(home)):
        yield
        return
    from resources.spark_server import find_session

    starting = threading.Thread(target=find_session, args=(home,), kwargs={"is_fast_start": True}, daemon=True)
    starting.start()
    yield
    starting.join()


def _send(home: Home, seed: int, deltas: int, stage: Stage) -> Fed:
    def on_write(write: Write) -> None:
        stage.advance(0 if write.is_retry else len(write.deltas), f"{from_us(write.arrival_us):%H:%M}")

    return feed(home, generate(seed=seed, deltas=deltas), on_write)


def check_results(home: Home, outcome: RunResults) -> list[Check]:
    """The present state of every table that was made, by the last check result of each partition, from any run."""
    from assets.check_states import CheckState, check_states
    from assets.names import CHECK_NAME
    from orchestration.instance import open_instance

    messages = {(check.asset, check.partition): check.message for check in outcome.failed_checks}
    found = []
    with open_instance(home) as instance:
        for name in TABLES:
            is_whole = TABLES[name].is_whole  # a check result from before it had partitions is out of date
            states = {key: state for key, state in check_states(instance, name).items() if key or is_whole}
            if not states:
                continue  # never made, because it is not due yet
            failed = sorted(key or "" for key, state in states.items() if state is not CheckState.PASSED)
            said = [f"{key}: {messages.get((name, key), 'see ./tidemark ui')}" for key in failed]
            found.append(Check(name, CHECK_NAME, len(states), failed, " ".join(said)))
    return found
