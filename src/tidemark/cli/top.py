"""`top`: the entities with the highest counts of a signal, as of a minute.

Belongs here: the options, and how the answer looks. Counts come from the tables and, beyond these, from the log,
without a JVM: `tidemark/counts/warm/restore.py`.
"""

import time

import click

from tidemark.cli.app import as_json, command
from tidemark.cli.counts import MomentType
from tidemark.cli.output import answer_json, at, console, say, table
from tidemark.counts.lake import LakeCounts
from tidemark.counts.retention import gone_before, refuse_gone
from tidemark.counts.warm.cells import PLACES
from tidemark.counts.warm.counters import Ranked, ranking
from tidemark.counts.warm.restore import state_as_of
from tidemark.counts.warm.state import State
from tidemark.counts.windows import Window, on_a_minute, shown
from tidemark.model.timegrid import MINUTE_US
from tidemark.storage.home import Home
from tidemark.tables.tiers import Tier


@command
@click.option("--namespace", required=True, metavar="NAME", help="The namespace of the entities.")
@click.option("--signal", required=True, metavar="NAME", help="Which signal.")
@click.option(
    "--window",
    type=click.Choice([str(window) for window in Window]),
    default=str(Window.DAY),
    show_default=True,
    help="How far back counts reach.",
)
@click.option("-n", "number", type=click.IntRange(min=1), default=10, show_default=True, help="How many.")
@click.option(
    "--as-of",
    type=MomentType(),
    metavar="TIME",
    help="The end of the window, on a minute, UTC. Default: the start of the running minute.",
)
@as_json
def top(home: Home, namespace: str, signal: str, window: str, number: int, as_of: int | None, as_json: bool) -> None:
    """The entities with the highest counts of a signal, exactly; ties in the order of their names.

    Everything flushed is counted, whether or not it is in the tables yet. A duplicate that was too old for the
    coordinator's memory is counted until the drain has found it.
    """
    chosen = Window(window)
    as_of_us = Tier.MINUTE.floor(time.time_ns() // 1_000) if as_of is None else on_a_minute(as_of)
    refuse_gone(chosen, as_of_us, gone_before(home))
    state = state_as_of(home, as_of_us // MINUTE_US, namespace=namespace, signal=signal)
    found = ranking(state, namespace, signal, PLACES[chosen], number, state.head)
    if not found:
        LakeCounts(home).refuse_unknown(namespace)
        say(f"Nothing in {namespace} has a {signal!r} in the {window} before {shown(as_of_us)}.")
    if as_json:
        _answer(state, namespace, signal, chosen, as_of_us, found)
    else:
        _show(state, signal, chosen, as_of_us, found)


def _answer(state: State, namespace: str, signal: str, window: Window, as_of_us: int, found: list[Ranked]) -> None:
    answer_json(
        {
            "namespace": namespace,
            "signal": signal,
            "window": str(window),
            "as_of": shown(as_of_us),
            "top": [{"entity": each.entity, "count": each.count} for each in found],
            "reach": {
                "tables": {str(shard): epoch for shard, epoch in state.covered.items()},
                "log": {str(shard): epoch for shard, epoch in state.applied.items()},
            },
        }
    )


def _show(state: State, signal: str, window: Window, as_of_us: int, found: list[Ranked]) -> None:
    rows = table(f"{signal}, {window}, as of {at(as_of_us)}", "entity", "count", numbers=("count",))
    for each in found:
        rows.add_row(each.entity, f"{each.count:,}")
    console().print(rows)
    for shard, epoch in sorted(state.applied.items()):
        click.echo(f"shard {shard}: tables up to epoch {state.covered.get(shard, 0):,}, then the log up to {epoch:,}")
