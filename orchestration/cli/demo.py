"""`demo`: a seeded day, from producers to checked tables.

Belongs here: the options and the exit code. The demo itself is in `orchestration/demo/`.
"""

from contextlib import nullcontext

import click

from orchestration.warm_host.client import with_spark
from tidemark.cli.app import as_json, founding_command
from tidemark.cli.output import answer_json, console, progress, say_error
from tidemark.storage.home import Home

# About two minutes on two cores, from an empty home.
DEFAULT_DELTAS = 60_000
# A smaller day has no room for one of everything.
FEWEST_DELTAS = 100


@founding_command
@click.option("--deltas", type=click.IntRange(min=FEWEST_DELTAS), default=DEFAULT_DELTAS, show_default=True)
@click.option("--seed", type=int, default=7, show_default=True, help="Another seed is another day.")
@click.option("--cold", is_flag=True, help="With a JVM of its own, and no warm host for what comes next.")
@as_json
def demo(home: Home, deltas: int, seed: int, cold: bool, as_json: bool) -> None:
    """A seeded day of deltas: sent by six producers, drained, summed up, checked, and accounted for.

    The same day again changes nothing. A day of another seed or size has producers of its own and is added to what
    is there. Ends with 1 if a check fails or the account does not add up.
    """
    from orchestration.demo.feed import SETTINGS_TEXT

    # The host needs the settings of the home, and is started while this process imports. What one tries next finds it.
    home.create(SETTINGS_TEXT)
    with nullcontext() if cold else with_spark(home):
        _run(home, deltas, seed, as_json)


def _run(home: Home, deltas: int, seed: int, as_json: bool) -> None:
    from orchestration.cli.work import problems
    from orchestration.demo import report as reports
    from orchestration.demo.run import run_demo
    from orchestration.interrupts import stoppable

    steps = reports.next_steps(home)
    with stoppable(), progress() as bar:
        report, outcome = run_demo(home, seed=seed, deltas=deltas, bar=bar)
    if as_json:
        answer_json(reports.as_json(report))
    else:
        reports.show(report, steps, console())
    for sentence in problems(outcome):
        say_error(sentence)
    if not outcome.succeeded or reports.failures(report):
        raise click.exceptions.Exit(1)
