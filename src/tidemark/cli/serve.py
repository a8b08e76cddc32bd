"""`serve`: the platform open to programs, over the network and on this machine.

Belongs here: the command and its options. What runs is in `gateway/serve.py`.
"""

import click

from tidemark.cli.app import founding_command
from tidemark.cli.output import say
from tidemark.gateway.places import read_serving
from tidemark.model.errors import ConfigurationError
from tidemark.storage.home import Home


@founding_command
@click.option("--listen", metavar="HOST:PORT", help="Where W1 is spoken. Default: [serve] listen, 127.0.0.1:7433.")
@click.option("--http-listen", metavar="HOST:PORT", help="Where HTTP is. Default: [serve] http_listen, 127.0.0.1:7480.")
@click.option("--no-http", is_flag=True, help="Without HTTP, and without the page.")
def serve(home: Home, listen: str | None, http_listen: str | None, no_http: bool) -> None:
    """Open the platform to producers, subscribers and readers, until Ctrl-C.

    Programs send to the first address with `tidemark.connect`, and by HTTP to the second, where a browser finds a live
    page. While it runs, the other commands go through it. Port 0 takes any free port.
    """
    home.create()
    if (serving := read_serving(home)) is not None:
        raise ConfigurationError(
            f"Process {serving.pid} serves {home.root} already, at {', '.join(serving.w1 + serving.http)}. "
            "Stop that one first, or use it."
        )
    from tidemark.gateway.serve import serve as run

    settings = home.settings.serve
    run(home, listen or settings.listen, "" if no_http else http_listen or settings.http_listen, say)
