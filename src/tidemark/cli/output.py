"""Where the command line writes: answers to standard output, everything else to standard error.

Belongs here: the consoles, the progress bar and how numbers look. The texts belong to the commands.
"""

import json
import sys
import textwrap
from typing import IO, TYPE_CHECKING

import click

from tidemark.answers.plain import without_infinity

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress
    from rich.table import Table

# Wide enough for every table here, when there is no terminal to tell its width.
PLAIN_WIDTH = 120


def answer_json(answer: object) -> None:
    """Print one object on standard output, on one line; infinity and NaN are texts in it."""
    click.echo(json.dumps(without_infinity(answer), ensure_ascii=False, allow_nan=False))


def say(text: str) -> None:
    """Print a message for the person in front of the screen; no script reads this."""
    click.echo(text, err=True)


def say_error(message: str) -> None:
    """Print one clear paragraph on standard error."""
    say(textwrap.fill(f"tidemark: {message}", width=100, break_long_words=False, break_on_hyphens=False))


def console() -> "Console":
    """The console for tables, on standard output."""
    return _console(sys.stdout)


def progress() -> "Progress":
    """A progress bar on standard error; it leaves nothing behind in a file."""
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

    return Progress(
        TextColumn("{task.description:<18}"),
        BarColumn(bar_width=20),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.fields[note]}"),
        console=_console(sys.stderr),
        disable=not sys.stderr.isatty(),
    )


def table(title: str, *columns: str, numbers: tuple[str, ...] = ()) -> "Table":
    """An empty table; columns in `numbers` are aligned to the right."""
    from rich import box
    from rich.table import Table

    made = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, title_style="bold")
    for column in columns:
        made.add_column(column, justify="right" if column in numbers else "left", overflow="fold")
    return made


def counted(number: int, noun: str) -> str:
    """A number of things as people read it."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def in_bytes(count: int) -> str:
    """A size as people read it."""
    size, unit = float(count), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{count} B" if unit == "B" else f"{size:.1f} {unit}"


def duration(seconds: float) -> str:
    """A length of time as people say it, in its two largest units."""
    sign, rest = ("-" if seconds < 0 else ""), abs(seconds)
    if rest < 60:
        return f"{sign}{rest:.1f} s"
    minutes, hours, days = int(rest // 60), int(rest // 3_600), int(rest // 86_400)
    if hours == 0:
        return f"{sign}{minutes} min {int(rest % 60)} s"
    return f"{sign}{hours} h {minutes % 60} min" if days == 0 else f"{sign}{days} d {hours % 24} h"


def at(time_us: int | None) -> str:
    """A time as people read it."""
    from tidemark.model.timegrid import from_us

    return f"{from_us(time_us):%Y-%m-%d %H:%M:%S}" if time_us is not None else "none yet"


def _console(stream: IO[str]) -> "Console":
    from rich.console import Console

    return Console(
        file=stream, width=None if stream.isatty() else PLAIN_WIDTH, highlight=False, markup=False, emoji=False
    )
