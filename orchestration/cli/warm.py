"""`warm`: the process that keeps everything imported for commands and runs.

Belongs here: the options and the output. The process itself is in `orchestration/warm_host/`.
"""

import click
from msgspec import to_builtins

from orchestration.snapshot import read_warm_host
from orchestration.warm_host.client import stop as stop_host
from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, at, duration
from tidemark.storage.home import Home


@command
@click.option("--stop", is_flag=True, help="End it and its Spark, with what they are doing.")
@as_json
def warm(home: Home, stop: bool, as_json: bool) -> None:
    """Whether this home has a warm host: everything imported, and a Spark, for commands and the daemon's runs.

    It starts with the first command that needs it, or with ui, and ends by itself when nothing was done for a while.
    TIDEMARK_WARM=0, --cold and [warm_host] enabled = false in platform.toml do without it.
    """
    if stop:
        was_there = stop_host(home)
        if as_json:
            answer_json({"stopped": was_there})
        else:
            click.echo("The warm host has ended." if was_there else "No warm host was running.")
        return
    host = read_warm_host(home)
    if as_json:
        answer_json({"warm_host": to_builtins(host)})
    elif host is None:
        click.echo("No warm host is running.")
    else:
        click.echo(
            f"Process {host.pid}, since {at(host.since_us)} UTC; ends after {duration(host.idle_s)} without work."
        )


# An option of every command that may be run by the host; the host's client looks for it before anything is imported.
cold_option = click.option(
    "--cold", is_flag=True, expose_value=False, help="Not through the warm host: a process and a JVM of its own."
)
