"""`report`: one HTML page with plots of this home.

Belongs here: the options. The page itself is made in `orchestration/report/`.
"""

import time
from pathlib import Path

import click

from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json
from tidemark.storage.home import Home


@command
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Where to write it. Default: reports/report.html in the home.",
)
@as_json
def report(home: Home, out: Path | None, as_json: bool) -> None:
    """Write one HTML page with plots: arrivals, lateness, counts, watermarks, outcomes and checks.

    It opens from the disk, without a network, and shows the home as it is now. Prints where the page is.
    """
    from orchestration.report.page import write_report

    path = write_report(home, now_us=time.time_ns() // 1_000, out=out)
    if as_json:
        answer_json({"report": str(path)})
    else:
        click.echo(path)
