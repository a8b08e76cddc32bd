"""`top`: the entities with the highest counts of a signal, as of a minute.

Belongs here: the options, and how the answer looks. How it is asked is in `tidemark/answers/top.py`; no JVM.
"""

import click

from tidemark.answers.top import ENTITIES, Top, ask_top, top_as_json
from tidemark.cli.app import as_json, command
from tidemark.cli.counts import MomentType
from tidemark.cli.output import answer_json, at, console, say, table
from tidemark.counts.windows import Window, shown
from tidemark.storage.home import Home


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
@click.option("-n", "number", type=click.IntRange(min=1), default=ENTITIES, show_default=True, help="How many.")
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
    found = ask_top(home, namespace=namespace, signal=signal, window=Window(window), number=number, as_of_us=as_of)
    if not found.ranked:
        say(f"Nothing in {namespace} has a {signal!r} in the {window} before {shown(found.as_of_us)}.")
    if as_json:
        answer_json(top_as_json(found))
    else:
        _show(found)


def _show(top: Top) -> None:
    rows = table(f"{top.signal}, {top.window}, as of {at(top.as_of_us)}", "entity", "count", numbers=("count",))
    for each in top.ranked:
        rows.add_row(each.entity, f"{each.count:,}")
    console().print(rows)
    for shard, epoch in sorted(top.applied.items()):
        click.echo(f"shard {shard}: tables up to epoch {top.covered.get(shard, 0):,}, then the log up to {epoch:,}")
