"""`chaos`: try to break the coordinator on a disk that forgets and fails, by seed.

Belongs here: the options. The work is in `chaos/`, which is run from the checkout and not installed.
"""

import sys
import tempfile
from pathlib import Path

import click

from orchestration.cli.develop import clean_environment, exit_code, run_in_checkout
from tidemark.cli.app import as_json


@click.command()
@click.option("--seeds", default=1_000, show_default=True, type=click.IntRange(min=1), help="How many.")
@click.option("--first-seed", default=0, show_default=True, help="The first; the same seed does the same.")
@click.option("--planted", is_flag=True, help="Plant known bugs instead, and see that each is caught.")
@click.option("--jobs", default=2, show_default=True, type=click.IntRange(min=1), help="Processes.")
@as_json
def chaos(seeds: int, first_seed: int, planted: bool, jobs: int, as_json: bool) -> None:
    """Lives of a shard with crashes and failing disks; 0 when no rule was broken, or every planted bug was caught."""
    options = ["--seeds", str(seeds), "--first-seed", str(first_seed), "--jobs", str(jobs)]
    options += [*(["--planted"] if planted else []), *(["--json"] if as_json else [])]
    with tempfile.TemporaryDirectory(prefix="tidemark-chaos-") as scratch:
        code = run_in_checkout([sys.executable, "-m", "chaos", *options], clean_environment(Path(scratch)))
    raise click.exceptions.Exit(exit_code(code))
