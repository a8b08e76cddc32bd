"""`counts`: how often something happened to an entity, over all windows, as of a minute.

Belongs here: the options, and how the answer looks. How it is computed is in `tidemark/counts/lake.py`; it is read from
the tables, without a JVM, and equals a count over `deltas`.
"""

from collections.abc import Sequence
from typing import Any

import click

from tidemark.answers.counts import ask_counts, counts_as_json
from tidemark.answers.plain import ParameterError, parse_time
from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, at, console, say, table
from tidemark.counts.lake import Counts, LakeCounts, Reach
from tidemark.counts.windows import Window, shown
from tidemark.storage.home import Home

BARS = "▁▂▃▄▅▆▇█"


class MomentType(click.ParamType[int]):
    """A time, in microseconds; without a zone it is UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_time(str(value))
        except ParameterError as error:
            self.fail(str(error), param, ctx)


@command
@click.argument("entity")
@click.option("--namespace", required=True, metavar="NAME", help="The namespace of the entity.")
@click.option("--signal", metavar="NAME", help="Which signal. Default: every signal that the entity has.")
@click.option(
    "--as-of",
    type=MomentType(),
    metavar="TIME",
    help="The end of every window, on a minute, UTC. Default: the start of the running minute.",
)
@as_json
def counts(home: Home, entity: str, namespace: str, signal: str | None, as_of: int | None, as_json: bool) -> None:
    """How often something happened to an entity in the last hour, 24 hours, 7 and 30 days, and ever.

    A window holds the deltas with as_of - window <= event_ts < as_of, exactly. The answer is that of the tables:
    deltas that were sent and not drained yet are not in it, and it says how far it reaches.
    """
    lake = LakeCounts(home)
    asked = ask_counts(lake, entity, namespace=namespace, signal=signal, as_of_us=as_of)
    if asked.is_empty:
        say(_nothing(lake, entity, signal, asked.as_of_us, namespace))
    if as_json:
        answer_json(counts_as_json(asked))
    elif signal is not None:
        _show_windows(f"{signal} of {entity}", asked.found[signal])
    elif asked.found:
        _show_signals(f"Signals of {entity}", asked.found)


def sparkline(values: Sequence[int]) -> str:
    """Numbers as bars of eight heights; zero is a dot, and a negative sum a minus."""
    most = max(values, default=0)
    marks = {-1: "−", 0: "·"}
    return "".join(BARS[(len(BARS) * value - 1) // most] if value > 0 else marks[max(value, -1)] for value in values)


def _show_windows(title: str, counted: Counts) -> None:
    rows = table(
        f"{title}, as of {at(counted.as_of_us)}",
        *("window", "count", "weight", "deltas", "per hour"),
        numbers=("count", "weight", "deltas", "per hour"),
    )
    for window, each in counted.windows.items():
        speed = f"{counted.velocity[window]:,.2f}"
        rows.add_row(str(window), f"{each.count:,}", _weight(each.weight_sum), f"{each.deltas:,}", speed)
    console().print(rows)
    click.echo(f"last day, by hour   {sparkline([count for _, count in counted.hours])}")
    _show_reach(counted.reach)


def _show_signals(title: str, found: dict[str, Counts]) -> None:
    one = next(iter(found.values()))
    windows = [str(window) for window in Window]
    columns = ("signal", *windows, "last day, by hour")
    rows = table(f"{title}, as of {at(one.as_of_us)}", *columns, numbers=tuple(windows))
    for name, counted in found.items():
        bars = sparkline([count for _, count in counted.hours])
        rows.add_row(name, *(f"{counted.windows[window].count:,}" for window in Window), bars)
    console().print(rows)
    _show_reach(one.reach)


def _show_reach(reach: Reach) -> None:
    epochs = ", ".join(f"shard {shard} up to epoch {epoch:,}" for shard, epoch in sorted(reach.epochs.items()))
    click.echo(f"in the tables       {epochs or 'nothing yet'}")
    click.echo(f"none older expected {at(reach.watermark_us)}")
    if reach.recounted_hours:
        click.echo(
            f"{len(reach.recounted_hours):,} hour(s) were counted from deltas, because a rollup is behind or was "
            "changed by hand: ./tidemark drain, or a backfill of these hours, brings it up to date."
        )


def _weight(millionths: int) -> str:
    """The exact weight, without trailing zeros."""
    whole, rest = divmod(abs(millionths), 1_000_000)
    decimals = f".{rest:06d}".rstrip("0") if rest else ""
    return f"{'-' if millionths < 0 else ''}{whole:,}{decimals}"


def _nothing(lake: LakeCounts, entity: str, signal: str | None, as_of_us: int, namespace: str) -> str:
    """A hint for an empty answer: mostly a name is wrong, or the time."""
    when = f"before {shown(as_of_us)}"
    if signal is None:
        return f"No signal of {entity!r} in {namespace} {when} is in the tables. Is the name right, and is it drained?"
    others = list(lake.signals(entity, as_of_us, namespace=namespace))
    known = f"It has {', '.join(others)}." if others else f"Nothing of {entity!r} is: is the name right?"
    return f"No {signal!r} of {entity!r} in {namespace} {when} is in the tables. {known}"
