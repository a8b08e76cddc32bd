"""`counts`: how often something happened to an entity, over all windows, as of a minute.

Belongs here: the options, and how the answer looks. How it is computed is in `tidemark/counts/lake.py`; it is read from
the tables, without a JVM, and equals a count over `deltas`.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import click

from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, at, console, say, table
from tidemark.counts.lake import Counts, LakeCounts, Reach
from tidemark.counts.windows import Window, shown
from tidemark.model.timegrid import to_us
from tidemark.storage.home import Home
from tidemark.tables.tiers import Tier

BARS = "▁▂▃▄▅▆▇█"


class MomentType(click.ParamType[int]):
    """A time, in microseconds; without a zone it is UTC."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            found = datetime.fromisoformat(str(value))
            # The first and the last year have times that are in no year of UTC.
            return to_us((found if found.tzinfo else found.replace(tzinfo=UTC)).astimezone(UTC))
        except (ValueError, OverflowError):
            self.fail(f"{value!r} is not a time; write 2026-03-02T14:05 or 2026-03-02T14:05:00Z (UTC).", param, ctx)


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
    as_of_us = Tier.MINUTE.floor(time.time_ns() // 1_000) if as_of is None else as_of
    if signal is None:
        found = lake.signals(entity, as_of_us, namespace=namespace)
    else:
        found = {signal: lake.windows(entity, signal, as_of_us, namespace=namespace)}
    if all(each.first_us is None for each in found.values()):
        lake.refuse_unknown(namespace)
        say(_nothing(lake, entity, signal, as_of_us, namespace))
    if as_json:
        answer_json({"namespace": namespace, "entity": entity, **answer(found, signal, as_of_us)})
    elif signal is not None:
        _show_windows(f"{signal} of {entity}", found[signal])
    elif found:
        _show_signals(f"Signals of {entity}", found)


def answer(found: dict[str, Counts], signal: str | None, as_of_us: int) -> dict[str, Any]:
    """For scripts: the counts of one signal, or a table by name of all of them."""
    if signal is not None:
        one = found[signal]
        return {"signal": signal, **_one(one), "reach": _reach(one.reach)}
    reach = next((_reach(each.reach) for each in found.values()), None)
    return {"as_of": shown(as_of_us), "signals": {name: _one(each) for name, each in found.items()}, "reach": reach}


def sparkline(values: Sequence[int]) -> str:
    """Numbers as bars of eight heights; zero is a dot, and a negative sum a minus."""
    most = max(values, default=0)
    marks = {-1: "−", 0: "·"}
    return "".join(BARS[(len(BARS) * value - 1) // most] if value > 0 else marks[max(value, -1)] for value in values)


def _one(counted: Counts) -> dict[str, Any]:
    return {
        "as_of": shown(counted.as_of_us),
        "counts": {str(window): each.count for window, each in counted.windows.items()},
        "weights_millionths": {str(window): each.weight_sum for window, each in counted.windows.items()},
        "deltas": {str(window): each.deltas for window, each in counted.windows.items()},
        "velocity_per_hour": {str(window): speed for window, speed in counted.velocity.items()},
        "first_event": None if counted.first_us is None else shown(counted.first_us),
        "last_day": {"from": shown(counted.hours[0][0]), "hours": [count for _, count in counted.hours]},
    }


def _reach(reach: Reach) -> dict[str, Any]:
    return {
        "versions": reach.versions,
        "epochs": {str(shard): epoch for shard, epoch in reach.epochs.items()},
        "watermark": None if reach.watermark_us is None else shown(reach.watermark_us),
        "recounted_hours": [shown(hour) for hour in reach.recounted_hours],
    }


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
