"""The program `tidemark`: its commands by group, its global options, and how errors end.

Belongs here: the table of commands and the way from an error to an exit code. Nothing heavy is imported here: a
command's module is imported when the command is called. Another program may add commands of its own to the table.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any, Concatenate, NamedTuple, NoReturn

import click

from tidemark.arrays.without_pandas import spare_pandas
from tidemark.cli.home_option import home_in
from tidemark.cli.output import say_error
from tidemark.model.errors import StoppedError, TidemarkError
from tidemark.storage import privacy
from tidemark.storage.home import HOME_VARIABLE, Home


class Entry(NamedTuple):
    """One command: where its code is, its heading, and its line in the list."""

    group: str
    name: str
    place: str  # package.module:function
    summary: str
    is_light: bool = False  # answered from files, in about a second
    starts_runs: bool = False  # may be run by a process that has everything imported


# The headings, in the order in which they are listed.
GROUPS = ("Run", "Ask", "Operate", "Develop")
# Those that need neither Dagster nor Spark; `orchestration/cli/app.py` has the others.
COMMANDS = (
    Entry("Run", "send", "tidemark.cli.send:send", "Send a file of deltas: JSON lines, CSV or Parquet.", is_light=True),
    Entry("Run", "serve", "tidemark.cli.serve:serve", "Open the platform to programs and a browser.", is_light=True),
    Entry(
        "Ask",
        "account",
        "tidemark.cli.account:account",
        "Where every delta went: accepted, duplicate, or refused and why.",
        is_light=True,
    ),
    Entry(
        "Ask",
        "checksum",
        "tidemark.cli.checksum:checksum",
        "Rows and checksum of each table, whatever its files.",
        is_light=True,
    ),
    Entry(
        "Ask",
        "counts",
        "tidemark.cli.counts:counts",
        "How often something happened to an entity, in five windows.",
        is_light=True,
    ),
    Entry("Ask", "top", "tidemark.cli.top:top", "The entities with the highest counts of a signal.", is_light=True),
    Entry(
        "Ask",
        "vector",
        "tidemark.cli.vector:vector",
        "A vector's state, now or earlier, and the deltas that made it.",
        is_light=True,
    ),
    Entry(
        "Ask",
        "windows",
        "tidemark.cli.windows:windows",
        "The latest windows of a stream, and whether each is final.",
        is_light=True,
    ),
    Entry(
        "Ask",
        "nearest",
        "tidemark.cli.nearest:nearest",
        "The vectors nearest to one of them, or to some numbers.",
        is_light=True,
    ),
    Entry(
        "Operate",
        "verify",
        "tidemark.cli.verify:verify",
        "Read every segment, log and manifest again, and verify them.",
        is_light=True,
    ),
    Entry(
        "Operate",
        "clock",
        "tidemark.cli.clock:clock",
        "Whether clock and log agree; go on from a wrong clock.",
        is_light=True,
    ),
    Entry(
        "Operate",
        "token",
        "tidemark.cli.token:token",
        "Who may speak to the door: make, list and revoke tokens.",
        is_light=True,
    ),
)


@dataclass
class Invocation:
    """The values of the global options."""

    home: str | None = None
    is_debug: bool = False
    is_own_process: bool = False  # whether the process ends with the command


class _Commands(click.Group):
    """A table of commands, imported when called and listed under their headings."""

    entries: Mapping[str, Entry] = {}

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(self.entries)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = self.entries.get(cmd_name)
        if entry is None:
            return None
        invocation = ctx.find_object(Invocation)
        if entry.is_light and invocation and invocation.is_own_process:
            spare_pandas()
        module, _, function = entry.place.partition(":")
        found: click.Command = getattr(importlib.import_module(module), function)
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.entries:
            raise click.UsageError(f"There is no command {args[0]!r}. 'tidemark --help' lists them.", ctx)
        invocation = ctx.find_object(Invocation)
        home = home_in(args) or ctx.params.get("home")
        if home and invocation and invocation.is_own_process:
            # The home's streams decide which tables there are, when they are first imported.
            os.environ[HOME_VARIABLE] = home
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's signature
        for group in GROUPS:
            listed = [(entry.name, entry.summary) for entry in self.entries.values() if entry.group == group]
            if listed:
                with formatter.section(group):
                    formatter.write_dl(listed)


def _group_of(commands: Sequence[Entry]) -> click.Group:
    """The program with these commands, and its global options."""

    @click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
    @click.option(
        "--home", metavar="DIR", help="All state of the platform. Default: TIDEMARK_HOME, else .tidemark/ here."
    )
    @click.option("--debug", is_flag=True, help="Show where an error came from.")
    @click.pass_obj
    def cli(invocation: Invocation, home: str | None, debug: bool) -> None:
        """Streams of small changes, made durable, ordered and exact."""
        invocation.home, invocation.is_debug = home or invocation.home, debug or invocation.is_debug

    cli.entries = {entry.name: entry for entry in commands}
    return cli


def command(function: Callable[Concatenate[Home, ...], None]) -> click.Command:
    """A command about a home that exists, which it gets first. `--home` and `--debug` may stand on both sides of it."""

    @wraps(function)
    def run(home: Home, /, **arguments: Any) -> None:
        function(home.require(), **arguments)

    return founding_command(run)


def founding_command(function: Callable[Concatenate[Home, ...], None]) -> click.Command:
    """A command that creates the home if it does not exist."""

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


def main(
    arguments: Sequence[str] | None = None, *, commands: Sequence[Entry] = COMMANDS, is_own_process: bool = False
) -> int:
    """Run one of the commands; the exit code is 0 done, 1 the work or a check failed, 2 wrong usage.

    130 and 143: stopped by Ctrl-C and by SIGTERM.
    """
    invocation = Invocation(is_own_process=is_own_process)
    if is_own_process:
        privacy.take_process()
    try:
        # With standalone_mode off, click returns the code of an Exit and raises everything else.
        result = _group_of(commands).main(arguments, prog_name="tidemark", obj=invocation, standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt) as error:
        # click puts an Abort of its own around the interrupt.
        stopped = error.__cause__ if isinstance(error.__cause__, StoppedError) else StoppedError()
        say_error(str(stopped))
        return stopped.exit_code
    except BrokenPipeError:
        # The reader of the answer has gone; nothing that is still in the buffer has a reader.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (TidemarkError, OSError) as error:
        if invocation.is_debug:
            traceback.print_exc()
        say_error(str(error))
        return 1
    return result if isinstance(result, int) else 0


def run_process(commands: Sequence[Entry] = COMMANDS) -> NoReturn:
    """Run the command that this process was started for, and end the process."""
    code = main(commands=commands, is_own_process=True)
    sys.stdout.flush()
    sys.stderr.flush()
    # Everything is closed and flushed. Threads of native libraries, ended by the interpreter at its own exit, have
    # aborted the process before: a success would then exit with the code of a failure.
    os._exit(code)
