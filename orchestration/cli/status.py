"""`status`: how far each shard and each table is, once or again and again.

Belongs here: the options, and when to look. It opens nothing for writing and starts no JVM, so it can run at any time,
also while another process writes. `orchestration/snapshot.py` reads the home, `status_view.py` draws the page.
"""

import time
from collections.abc import Callable

import click
from rich.console import RenderableType
from rich.live import Live

from orchestration.cli.status_view import file_parts, orchestrator_parts, status_view
from orchestration.snapshot import ask_orchestrator, read_files, snapshot_as_json, take_snapshot
from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, console
from tidemark.event_time.clock import system_clock
from tidemark.model.errors import TidemarkError
from tidemark.storage.home import Home


@command
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option(
    "--every",
    type=click.FloatRange(min=0.1),
    default=2.0,
    show_default=True,
    metavar="SECONDS",
    help="With --watch: the pause between two looks.",
)
@as_json
def status(home: Home, watch: bool, every: float, as_json: bool) -> None:
    """How far each shard is, what waits for the lake, what each table holds, the last runs and the failing checks.

    With --watch the page is drawn again in place; into a file or a pipe it is printed again, with --json as one line.
    """
    if watch:
        watch_home(home, every_s=every, as_json=as_json)
    elif as_json:
        answer_json(snapshot_as_json(take_snapshot(home, now_us=system_clock())))
    else:
        show(home, now_us=system_clock())


def show(home: Home, *, now_us: int) -> None:
    """Print the upper part at once, and the lower part after asking the orchestrator, which takes a second or two."""
    out, files = console(), read_files(home, now_us=now_us)
    for part in file_parts(files):
        out.print(part)
    for part in orchestrator_parts(ask_orchestrator(home, files)):
        out.print(part)


def watch_home(
    home: Home,
    *,
    every_s: float,
    as_json: bool,
    now_us: Callable[[], int] | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Show snapshot after snapshot until Ctrl-C, which is no error."""
    now_us = now_us or system_clock
    try:
        if as_json:
            while True:
                answer_json(_look_for_json(home, now_us()))
                pause(every_s)
        out = console()
        if not out.is_terminal:
            while True:
                out.print(_look(home, now_us()))
                pause(every_s)
        with Live(_look(home, now_us()), console=out, auto_refresh=False) as page:
            while True:
                pause(every_s)
                page.update(_look(home, now_us()), refresh=True)
    except KeyboardInterrupt:
        return


def _look(home: Home, now_us: int) -> RenderableType:
    """One page. A watcher goes on after an error: a writer may be in the middle of something."""
    try:
        return status_view(take_snapshot(home, now_us=now_us))
    except (TidemarkError, OSError) as error:
        return f"Home {home.root}\nUNKNOWN: {error}"


def _look_for_json(home: Home, now_us: int) -> dict[str, object]:
    try:
        return snapshot_as_json(take_snapshot(home, now_us=now_us))
    except (TidemarkError, OSError) as error:
        return {"home": str(home.root), "error": str(error)}
