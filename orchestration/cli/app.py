"""What `tidemark` understands: its commands by group, its global options, and how errors end.

Belongs here: the table of commands and the way from an error to an exit code. Nothing heavy is imported here: a
command's module is imported when the command is called.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib.abc import MetaPathFinder
from typing import Any, Concatenate, NamedTuple

import click

from orchestration.cli.output import say_error
from resources import privacy
from resources.errors import TidemarkError
from resources.home import HOME_VARIABLE, Home


class Entry(NamedTuple):
    """One command: where its code is, under which heading it is listed, and what is said of it there."""

    group: str
    name: str
    place: str  # module:function
    summary: str
    is_light: bool = False  # answered from files, in about a second


COMMANDS = (
    Entry("Run", "demo", "demo:demo", "A seeded day of deltas, from producers to checked tables."),
    Entry("Run", "send", "send:send", "Send a file of deltas: JSON lines, CSV or Parquet.", is_light=True),
    Entry("Run", "drain", "work:drain", "Bring sealed segments into the tables; refresh what is stale."),
    Entry("Run", "rebuild", "work:rebuild", "Write hours of deltas and dead_letters again, from segments."),
    Entry("Run", "backfill", "work:backfill", "Compute hours of chosen assets again."),
    Entry("Run", "count-all", "work:count_all", "All windows of all entities, as of a minute, as a table."),
    Entry("Run", "check", "work:check", "Run the checks again on what lies in the tables now."),
    Entry("Ask", "status", "status:status", "How far each shard and each table is.", is_light=True),
    Entry(
        "Ask",
        "account",
        "account:account",
        "Where every delta went: accepted, duplicate, or refused and why.",
        is_light=True,
    ),
    Entry(
        "Ask", "checksum", "checksum:checksum", "Rows and checksum of each table, whatever its files.", is_light=True
    ),
    Entry(
        "Ask", "counts", "counts:counts", "How often something happened to an entity, in five windows.", is_light=True
    ),
    Entry("Ask", "top", "top:top", "The entities with the highest counts of a signal.", is_light=True),
    Entry(
        "Ask", "vector", "vector:vector", "What a vector is, what it was, and which deltas made it so.", is_light=True
    ),
    Entry(
        "Ask",
        "windows",
        "windows:windows",
        "The latest windows of a stream, and whether each is final.",
        is_light=True,
    ),
    Entry(
        "Ask",
        "nearest",
        "nearest:nearest",
        "The vectors that are nearest to one of them, or to some numbers.",
        is_light=True,
    ),
    Entry("Ask", "report", "report:report", "One HTML page with plots of this home, to look at offline."),
    Entry(
        "Operate",
        "verify",
        "verify:verify",
        "Read every segment, log and manifest again, and prove them.",
        is_light=True,
    ),
    Entry("Operate", "clock", "clock:clock", "Whether clock and log agree; go on from a wrong one.", is_light=True),
    Entry("Operate", "compact", "compact:compact", "Checkpoints of vectors; remove payloads before the horizon."),
    Entry("Operate", "retain", "retain:retain", "Drop old minutes, hours and days of the counts, for ever."),
    Entry("Operate", "ui", "ui:ui", "Dagster's web interface and daemon on this home."),
    Entry("Develop", "test", "develop:test", "Lint, types, imports and tests; arguments go to pytest."),
    Entry("Develop", "chaos", "chaos:chaos", "Crashes and failing disks by seed, against the coordinator."),
    Entry("Develop", "bench", "develop:bench", "Measure against a peer on the same data."),
)
_BY_NAME = {entry.name: entry for entry in COMMANDS}


@dataclass
class Invocation:
    """What the global options said."""

    home: str | None = None
    is_debug: bool = False
    is_own_process: bool = False  # whether the process ends with the command


class _Commands(click.Group):
    """The commands, imported when called and listed under their headings."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(_BY_NAME)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = _BY_NAME.get(cmd_name)
        if entry is None:
            return None
        invocation = ctx.find_object(Invocation)
        if entry.is_light and invocation and invocation.is_own_process:
            _spare_pandas()
        module, _, function = entry.place.partition(":")
        found: click.Command = getattr(importlib.import_module(f"orchestration.cli.{module}"), function)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in _BY_NAME:
            raise click.UsageError(f"There is no command {args[0]!r}. 'tidemark --help' lists them.", ctx)
        invocation = ctx.find_object(Invocation)
        home = _home_in(args) or ctx.params.get("home")
        if home and invocation and invocation.is_own_process:
            # Which tables there are follows from the home's streams, and is decided when they are first imported.
            os.environ[HOME_VARIABLE] = home
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        for group in dict.fromkeys(entry.group for entry in COMMANDS):
            with formatter.section(group):
                formatter.write_dl([(entry.name, entry.summary) for entry in COMMANDS if entry.group == group])


def _home_in(arguments: Sequence[str]) -> str | None:
    """The home that is named behind a command."""
    for place, word in enumerate(arguments):
        if word == "--home" and place + 1 < len(arguments):
            return arguments[place + 1]
        if word.startswith("--home="):
            return word.removeprefix("--home=")
    return None


class _WithoutPandas(MetaPathFinder):
    """Says that pandas is not installed. pyarrow and DuckDB import it only to see whether they were given some."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:  # noqa: ARG002 - the protocol's signature
        if fullname == "pandas":
            raise ModuleNotFoundError("pandas is not needed by a light command", name="pandas")


def _spare_pandas() -> None:
    """Keep pandas out of this process: importing it takes longer than most light commands."""
    sys.meta_path.insert(0, _WithoutPandas())


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.option("--home", metavar="DIR", help="All state of the platform. Default: TIDEMARK_HOME, else .tidemark/ here.")
@click.option("--debug", is_flag=True, help="Show where an error came from.")
@click.pass_obj
def cli(invocation: Invocation, home: str | None, debug: bool) -> None:
    """Streams of small changes, made durable, ordered and exact."""
    invocation.home, invocation.is_debug = home or invocation.home, debug or invocation.is_debug


def command(function: Callable[Concatenate[Home, ...], None]) -> click.Command:
    """A command that is given the home first. `--home` and `--debug` may stand before or after its name."""

    @click.option("--home", metavar="DIR", hidden=True)
    @click.option("--debug", is_flag=True, hidden=True)
    @click.pass_obj
    @wraps(function)
    def run(invocation: Invocation, /, *, home: str | None, debug: bool, **arguments: Any) -> None:
        invocation.home, invocation.is_debug = home or invocation.home, debug or invocation.is_debug
        found = Home.locate(invocation.home)
        privacy.follow(found.root)
        function(found, **arguments)

    return click.command(run)


as_json = click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")


def main(arguments: Sequence[str] | None = None, *, is_own_process: bool = False) -> int:
    """Run one command; the exit code is 0 done, 1 the work failed or a check did, 2 wrong usage."""
    invocation = Invocation(is_own_process=is_own_process)
    if is_own_process:
        privacy.take_process()
    try:
        # With standalone_mode off, click gives back the code of an Exit and raises everything else.
        result = cli.main(arguments, prog_name="tidemark", obj=invocation, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say_error("stopped. What was acknowledged is kept; run the same command again to go on.")
        return 1
    except BrokenPipeError:
        # Whoever read the answer has gone; nothing that is still in the buffer has a reader.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (TidemarkError, OSError) as error:
        if invocation.is_debug:
            traceback.print_exc()
        say_error(str(error))
        return 1
    return result if isinstance(result, int) else 0
