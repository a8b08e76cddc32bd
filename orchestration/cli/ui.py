"""`ui`: the orchestrator's pages and daemon on this home.

Belongs here: the options. How they are run is in `orchestration/ui.py`.
"""

import click

from orchestration.ui import log_of, serve
from tidemark.cli.app import founding_command
from tidemark.cli.output import say
from tidemark.storage.home import Home


@founding_command
@click.option("--port", type=click.IntRange(1, 65_535), default=3000, show_default=True, help="On this machine only.")
@click.option("--read-only", is_flag=True, help="Look, but start nothing.")
def ui(home: Home, port: int, read_only: bool) -> None:
    """Dagster's web interface and daemon on this home, until Ctrl-C. It has no passwords and listens only here."""

    def ready(url: str) -> None:
        say(f"Open {url} (Ctrl-C ends it). What it and its runs say is kept in {log_of(home)}.")

    serve(home.create(), port=port, is_read_only=read_only, ready=ready)
