"""`compact`: make checkpoints of vectors, and remove payloads before the horizon.

Belongs here: the options and the output. The steps are in `orchestration/compact.py`.
"""

from dataclasses import replace
from typing import Any

import click
import msgspec

from assets.vectors.due import find_due
from orchestration.cli.warm import cold_option
from orchestration.cli.work import outcome_as_json, problems, watched
from orchestration.compact import Compaction, Wanted, cut_of
from orchestration.compact import compact as compact_vectors
from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, console, in_bytes, say, table
from tidemark.counts.windows import shown
from tidemark.event_time.clock import system_clock
from tidemark.storage.home import Home
from tidemark.streams.durations import NoDurationError, parse_duration
from tidemark.vectors.checkpoints import CompactionRules, Strategy


class DurationType(click.ParamType[int]):
    """A duration such as 7d, in microseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Microseconds, or what to write instead."""
        try:
            return parse_duration(str(value), is_zero_allowed=True)
        except NoDurationError as error:
            self.fail(str(error), param, ctx)


@command
@click.option("--strategy", type=click.Choice([each.value for each in Strategy]), help="Instead of the settings'.")
@click.option("--horizon", type=DurationType(), metavar="DURATION", help="How far back vectors stay readable: 7d.")
@click.option("--force", is_flag=True, help="Every vector with anything pending, due or not.")
@click.option("--remove", is_flag=True, help="Remove payloads before the horizon, for ever.")
@click.option("--clock-is-right", is_flag=True, help="Go on although the last write is more than a day old.")
@click.option("--dry-run", is_flag=True, help="Only say which vectors are due, and where the cut would be.")
@cold_option
@as_json
def compact(
    home: Home,
    strategy: str | None,
    horizon: int | None,
    force: bool,
    remove: bool,
    clock_is_right: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Make checkpoints of the vectors that are due. With --remove, payloads before the horizon go, for ever.

    From then on changes to what vectors were before it are refused as below_horizon, and nothing before it can be read.
    For --remove no producer may have the home open, unless it has cut its own log: platform.cut_vectors.
    """
    if horizon is not None and not remove:
        raise click.UsageError("--horizon says before when payloads are removed: give --remove with it.")
    wanted = Wanted(Strategy(strategy) if strategy else None, horizon, force, remove, clock_is_right)
    if dry_run:
        _show_due(home, wanted, as_json)
        return
    with watched("compacting") as watch:
        done = compact_vectors(home, wanted, clock=system_clock, progress=watch)
    if as_json:
        answer_json(compaction_as_json(done))
    else:
        _show(done)
    if not done.is_done:
        raise click.exceptions.Exit(1)


def compaction_as_json(done: Compaction) -> dict[str, Any]:
    """What was made and removed, and the work this took."""
    return {
        "is_done": done.is_done,
        "cut": None if done.cut_us is None else shown(done.cut_us),
        "considered": None if done.considered_us is None else shown(done.considered_us),
        "checkpoints": msgspec.to_builtins(done.compacted),
        "removed": msgspec.to_builtins(done.removed),
        "outcome": outcome_as_json(done.outcome),
    }


def _show(done: Compaction) -> None:
    made, removed = done.compacted, done.removed
    rows = table("Compaction of vectors", "what", "before", "after", numbers=("before", "after"))
    rows.add_row("deltas to fold for a read of each vector made", f"{made.folded_before:,}", f"{made.folded_after:,}")
    rows.add_row("bytes of vector_checkpoints", in_bytes(made.bytes_before), in_bytes(made.bytes_after))
    rows.add_row("bytes of the hours of deltas", in_bytes(removed.bytes_before), in_bytes(removed.bytes_after))
    console().print(rows)
    why = ", ".join(f"{count:,} by {reason}" for reason, count in made.reasons.items())
    say(f"{made.checkpoints:,} checkpoint(s) of {made.vectors:,} vector(s){f' ({why})' if why else ''}.")
    if done.is_done:
        _show_removal(done)
    for sentence in problems(done.outcome):
        click.echo(f"FAILED: {sentence}")
    if not done.is_done:
        say("No payload was removed. Repair this, then repeat the command.")


def _show_removal(done: Compaction) -> None:
    if done.considered_us is None:
        return
    removed, cut = done.removed, shown(done.considered_us)
    if done.cut_us is None:
        say(f"No payload was removed, and no cut was made: nothing would go with one at {cut}.")
    else:
        say(
            f"{done.compacted.bases:,} base(s) at {cut}; {removed.payloads:,} payload(s) removed from "
            f"{removed.hours:,} hour(s). Their old files go with the next maintenance after its retention."
        )
    for count, why in (
        (removed.kept_back.happened_since, f"happened at {cut} or later"),
        (
            removed.kept_back.received_since,
            f"happened before {cut} but came in later; a cut that is after their receipt lets them go",
        ),
        (removed.kept_back.in_no_base, "wait for their parent, or follow a change that came in later"),
    ):
        if count:
            say(f"{count:,} payload(s) stay: they {why}.")


def _show_due(home: Home, wanted: Wanted, as_json: bool) -> None:
    rules = CompactionRules.from_settings(home.settings.compaction)
    rules = replace(rules, strategy=wanted.strategy or rules.strategy)
    # Every pending delta has waited for zero time or more.
    rules = replace(rules, max_age_us=0) if wanted.is_forced else rules
    due, cut_us = find_due(home, rules, system_clock()).reasons, cut_of(home, wanted, system_clock())
    if as_json:
        answer_json({"due": due, "cut": shown(cut_us) if wanted.is_removing else None})
        return
    rows = table("Vectors that are due", "why", "vectors", numbers=("vectors",))
    for reason, count in due.items():
        rows.add_row(reason, f"{count:,}")
    console().print(rows)
    if wanted.is_removing:
        say(f"Payloads of what happened and was received before {shown(cut_us)} would go.")
