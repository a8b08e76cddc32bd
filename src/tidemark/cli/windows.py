"""`windows`: the latest windows of a stream, with their statistics, and whether each is final.

Belongs here: the options, and how the answer looks. How it is found is in `tidemark/streams/latest.py`; no JVM.
"""

from typing import Any

import click

from tidemark.answers.windows import WINDOWS, parse_key, windows_as_json
from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, at, console, in_bytes, say, table
from tidemark.model.timegrid import DAY_US, MINUTE_US, floor_to, to_us
from tidemark.storage.home import Home
from tidemark.streams.durations import show_duration
from tidemark.streams.latest import LatestWindow, LatestWindows, WindowState, latest_windows

IN_WORDS = {
    WindowState.OPEN: "open",
    WindowState.CLOSED: "closed",
    WindowState.REOPENED: "reopened",
}


@command
@click.argument("stream")
@click.option("--last", type=click.IntRange(min=1), default=WINDOWS, show_default=True, help="How many.")
@click.option(
    "--key",
    "keys",
    multiple=True,
    metavar="VALUE",
    help="Only this key. If it has several fields: FIELD=VALUE, once for each field you want to match.",
)
@as_json
def windows(home: Home, stream: str, last: int, keys: tuple[str, ...], as_json: bool) -> None:
    """The latest windows of a STREAM: bounds, deltas, revision, late ones, aggregates, and whether more may come.

    A window is open while a new delta would not be late for it, then closed; a closed one that got a late delta was
    emitted again. This is derived from the table's watermark at every read, and stored nowhere.
    """
    found = latest_windows(home, stream, last=last, key=parse_key(keys))
    if as_json:
        answer_json(windows_as_json(found))
        return
    if not found.windows:
        say(f"{stream} has no windows{' of this key' if keys else ' yet'}.")
    else:
        console().print(window_table(found))
    click.echo(f"none older expected {at(found.watermark_us)}")


def window_table(found: LatestWindows) -> Any:
    """For people: a row for each window."""
    stream = found.stream
    keys, aggregates = list(found.windows[0].key), list(found.windows[0].aggregates)
    numbers = ("deltas", "revision", "late", "bytes", "mean", *aggregates)
    columns = (*keys, "from, UTC", "to, UTC", "deltas", "revision", "late", "bytes", "mean", *aggregates, "state")
    spec = stream.window
    lengths = [show_duration(each) for each in (spec.size_us, spec.gap_us) if each]
    lengths += [f"offset {show_duration(spec.offset_us)}"] if spec.offset_us else []
    rows = table(f"{stream.name}: {' '.join([str(spec.type), *lengths])}", *columns, numbers=numbers)
    # The names of aggregates may be long: they are broken between their words, and nothing else is.
    rows.collapse_padding = True
    for name, column in zip(columns, rows.columns, strict=True):
        column.header = name.replace("_", " ") if name in aggregates else name
        column.no_wrap = name not in aggregates
    for window in found.windows:
        rows.add_row(*_cells(window))
    return rows


def _cells(window: LatestWindow) -> list[str]:
    row = window.statistics
    start_us, end_us = to_us(row["window_start"]), to_us(row["window_end"])
    return [
        *("" if value is None else str(value) for value in window.key.values()),
        _time(start_us),
        # The day is shown once, unless the end is on another day.
        _time(end_us).split()[-1] if floor_to(start_us, DAY_US) == floor_to(end_us, DAY_US) else _time(end_us),
        *(f"{row[name]:,}" for name in ("deltas", "revision", "late")),
        in_bytes(row["bytes"]),
        in_bytes(round(row["mean_bytes"])),
        *(_number(value) for value in window.aggregates.values()),
        IN_WORDS[window.state],
    ]


def _time(time_us: int) -> str:
    """To the minute, if it is a whole one, as the bounds of most windows are."""
    return at(time_us).removesuffix(":00") if time_us % MINUTE_US == 0 else at(time_us)


def _number(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:,.6g}" if isinstance(value, float) else f"{value:,}"
