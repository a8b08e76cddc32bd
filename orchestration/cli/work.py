"""`drain`, `rebuild` and `backfill`: work on the tables, as runs of the orchestrator in this process.

Belongs here: which hours are meant, and the output at the end. `orchestration/materialize.py` makes the runs.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import click

from assets.partitions import first_partition
from assets.rollups.schema import MINUTE_COUNTS
from assets.tables import GRAPH, TABLES
from orchestration.cli.warm import cold_option
from orchestration.interrupts import stoppable
from orchestration.materialize import (
    CHECKED_ASSETS,
    DRAIN,
    PARTITIONED_ASSETS,
    check_hours,
    drain_and_refresh,
    hours_between,
    materialize_everything_stale,
    materialize_hours,
)
from orchestration.runs import RunResults, Step
from orchestration.vectors import materialize_vectors
from orchestration.windowed_counts import materialize_windowed_counts
from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, console, progress, say, table
from tidemark.counts.retention import settled_before
from tidemark.gateway.control import seal_served
from tidemark.model.timegrid import HOUR_US, from_us, hour_key, hour_start, to_us
from tidemark.storage.home import Home
from tidemark.tables.lake_files import partitions

INGESTED = ("deltas", "dead_letters")
# Computed again if no asset is named: everything that is made from deltas, partition by partition.
DERIVED = tuple(GRAPH)
# The assets that a drain, or a rebuild, comes to, in the order in which it does.
EVERYTHING = tuple(dict.fromkeys((DRAIN, *PARTITIONED_ASSETS, *TABLES)))
# The running hour is a partition, and so is the next one, in which a producer's clock may be (O3).
HOURS_AHEAD = 2


class HourType(click.ParamType[int]):
    """The start of an hour, UTC."""

    name = "hour"
    formats = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d-%H:%M", "%Y-%m-%dT%H:%M:%SZ")

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        start = next((start for form in self.formats if (start := _parse(str(value), form)) is not None), None)
        if start is None or start % HOUR_US:
            self.fail(f"{value!r} is not the start of an hour; write 2026-03-02 or 2026-03-02T14:00 (UTC).", param, ctx)
        return start


def _parse(text: str, form: str) -> int | None:
    try:
        return to_us(datetime.strptime(text, form).replace(tzinfo=UTC))
    except ValueError:
        return None


from_option = click.option("--from", "first", type=HourType(), help="First hour. Default: the first that has data.")
to_option = click.option(
    "--to", "end", type=HourType(), help="The hour after the last one. Default: all that have data."
)


@command
@cold_option
@as_json
def drain(home: Home, as_json: bool) -> None:
    """Bring all sealed segments into deltas and dead_letters, refresh what that made stale, and check everything.

    If `serve` has the home open, what it has taken is sealed first.
    """
    seal_served(home)
    with watched("draining", EVERYTHING) as watch:
        outcome = drain_and_refresh(home, progress=watch) + materialize_vectors(home, progress=watch)
    _tell(outcome, as_json)


@command
@from_option
@to_option
@cold_option
@as_json
def rebuild(home: Home, first: int | None, end: int | None, as_json: bool) -> None:
    """Write hours of deltas and dead_letters again from the segments of committed plans, and refresh what follows.

    The rows are the same as the drain's. Undrained segments are left alone.
    """
    hours = _hours(home, first, end)
    with watched("rebuilding", EVERYTHING) as watch:
        outcome = materialize_hours(home, INGESTED, hours, progress=watch)
        outcome += materialize_everything_stale(home, progress=watch) + materialize_vectors(home, progress=watch)
    _tell(outcome, as_json)


@command
@from_option
@to_option
@click.argument("assets", nargs=-1, type=click.Choice(PARTITIONED_ASSETS), metavar="[ASSET]...")
@click.option("--again", is_flag=True, help="Start over, also if the same backfill was interrupted before.")
@cold_option
@as_json
def backfill(
    home: Home, first: int | None, end: int | None, assets: tuple[str, ...], again: bool, as_json: bool
) -> None:
    """Compute hours of chosen assets again, up to a week of them in one Spark job; then what is coarser and holds them.

    Without names: everything that is made from deltas: counts of every tier, windows and joins. One that was
    interrupted goes on where it stopped.
    """
    # The inputs of these hours were dropped, so they cannot be computed again; naming such hours is an error (R5).
    settled_us = settled_before(home, MINUTE_COUNTS.name)
    hours = [key for key in _hours(home, first, end) if first is not None or hour_start(key) >= (settled_us or 0)]
    with watched("backfilling") as watch:
        outcome = materialize_hours(home, assets or DERIVED, hours, progress=watch, is_resumed=not again)
    _tell(outcome, as_json)


@command
@from_option
@to_option
@click.argument("tables", nargs=-1, type=click.Choice(CHECKED_ASSETS), metavar="[TABLE]...")
@cold_option
@as_json
def check(home: Home, first: int | None, end: int | None, tables: tuple[str, ...], as_json: bool) -> None:
    """Run the suites again on what lies in the tables now; writes verdicts and nothing else.

    Tables of vectors are checked in all of their buckets, whatever hours are given.

    A partition that somebody has changed by hand fails its check here, with its rows, until it is written anew.
    """
    hours = _hours(home, first, end)
    with watched("checking", tables or CHECKED_ASSETS) as watch:
        outcome = check_hours(home, tables or CHECKED_ASSETS, hours, progress=watch)
    _tell(outcome, as_json)


@command
@click.option(
    "--as-of", default="", help="A minute in UTC, as 2026-03-02T10:37Z. Default: the last one that is settled."
)
@cold_option
@as_json
def count_all(home: Home, as_of: str, as_json: bool) -> None:
    """Compute windowed_counts: every entity over 1h, 24h, 7d, 30d and all, with velocities and decayed scores.

    It replaces the moment that the table held. The daemon does it once an hour.
    """
    with watched("all windows") as watch:
        outcome = materialize_windowed_counts(home, as_of, progress=watch)
    _tell(outcome, as_json)


@contextmanager
def watched(what: str, order: Sequence[str] = ()) -> Iterator[Callable[[Step], None]]:
    """Show the step that is running: a progress bar on a terminal, and a line for each step anywhere else.

    `order` are the tables in the order in which they are reached: how far the bar is, is how far down that list. A
    request that takes several runs counts these.
    """
    with stoppable(), progress() as bar:
        task = bar.add_task(what, total=None, note="starting")
        if bar.disable:
            say(f"{what}: starting")
        reached = Reached(order)

        def show(step: Step) -> None:
            done, total = (step.part - 1, step.parts) if step.parts > 1 else reached.by(step)
            bar.update(task, total=total, completed=done, note=describe(step))
            if bar.disable:
                say(f"{what}: {describe(step)}")

        yield show
        bar.update(task, total=1, completed=1, note="done")


class Reached:
    """How far down a list of tables a request is. Each is computed, then checked; what is not stale is passed over."""

    def __init__(self, order: Sequence[str]) -> None:
        self._place = {name: place for place, name in enumerate(order)}
        self._done = 0

    def by(self, step: Step) -> tuple[int, int | None]:
        """Steps that are behind this one, of how many; a table that is reached again changes nothing."""
        self._done = max(self._done, 2 * self._place.get(step.asset, 0) + step.is_check)
        return self._done, 2 * len(self._place) or None


def describe(step: Step) -> str:
    """The step in words, with its number of partitions."""
    size = f" ({len(step.partitions)})" if step.partitions else ""
    part = f", part {step.part} of {step.parts}" if step.parts > 1 else ""
    return f"{'checking' if step.is_check else 'computing'} {step.asset}{size}{part}"


def _hours(home: Home, first: int | None, end: int | None) -> list[str]:
    """Keys of the requested hours, all of them between the first that a window may begin in and the next hour."""
    starts = [start for name in INGESTED for start in partitions(home.lake / name)]
    if not starts:
        raise click.UsageError("There is nothing in the tables yet. Send something, then './tidemark drain'.")
    first = min(starts) if first is None else first
    # As they were loaded: the runs of this process know no others.
    earliest, latest = hour_start(first_partition()), time.time_ns() // 1_000 + HOURS_AHEAD * HOUR_US
    # Hours that only a wrong clock has seen are no partitions before they come (C15), so they cannot be meant.
    end = max([start for start in starts if start + HOUR_US <= latest] or starts) + HOUR_US if end is None else end
    if first >= end:
        raise click.UsageError(f"The range is empty: {hour_key(first)} is not before {hour_key(end)}.")
    if first < earliest or end > latest:
        raise click.UsageError(
            f"Hours lie between {from_us(earliest):%Y-%m-%dT%H:%M} and {from_us(latest):%Y-%m-%dT%H:00}."
        )
    return hours_between(hour_key(first), hour_key(end - HOUR_US))


def outcome_as_json(outcome: RunResults) -> dict[str, Any]:
    """What was done, and what the checks found."""
    return {
        "partitions": {asset: list(keys) for asset, keys in outcome.partitions.items()},
        "checks": {
            "passed": sum(check.passed for check in outcome.checks),
            "failed": [
                {"asset": check.asset, "partition": check.partition, "message": check.message}
                for check in outcome.checks
                if not check.passed
            ],
        },
        "resumed_parts": outcome.resumed,
        "held_back": {asset: list(keys) for asset, keys in (outcome.held_back or {}).items()},
        "held_because": outcome.held_because or {},
        "runs": [
            {"run_id": run.run_id, "assets": list(run.assets), "seconds": round(run.seconds, 3), "error": run.error}
            for run in outcome.runs
        ],
    }


def problems(outcome: RunResults) -> list[str]:
    """Everything that went wrong, one sentence each."""
    return [
        *(f"The run {run.run_id} failed: {run.error}" for run in outcome.runs if run.error),
        *(f"{check.asset} {check.partition or ''}: {check.message}" for check in outcome.failed_checks),
        *(
            f"{asset} was not computed for {', '.join(keys)}: {why}."
            for asset, held in (outcome.held_back or {}).items()
            for why, keys in _by_reason(held, (outcome.held_because or {}).get(asset, {})).items()
        ),
    ]


def _by_reason(keys: Sequence[str], because: Mapping[str, str]) -> dict[str, list[str]]:
    """Blocked partitions, by reason."""
    found: dict[str, list[str]] = {}
    for key in keys:
        why = f"it is made of {because[key]}" if key in because else "the check of its input failed"
        found.setdefault(why, []).append(key)
    return found


def _tell(outcome: RunResults, as_json: bool) -> None:
    if as_json:
        answer_json(outcome_as_json(outcome))
    else:
        _show(outcome)
    if not outcome.succeeded:
        raise click.exceptions.Exit(1)


def _show(outcome: RunResults) -> None:
    if outcome.resumed:
        click.echo(f"{outcome.resumed} part(s) were finished before it was interrupted; --again starts over.")
    done = {asset: keys for asset, keys in outcome.partitions.items() if keys}
    if done:
        rows = table("Written", "table", "partitions", "from", "to", numbers=("partitions",))
        for asset, keys in done.items():
            rows.add_row(asset, f"{len(keys):,}", keys[0], keys[-1])
        console().print(rows)
    elif not outcome.checks and outcome.succeeded:
        click.echo("Nothing was new and nothing was stale.")
    passed = sum(check.passed for check in outcome.checks)
    click.echo(
        f"{passed:,} of {len(outcome.checks):,} checks passed, in {sum(run.seconds for run in outcome.runs):.1f} s."
    )
    for sentence in problems(outcome):
        click.echo(f"FAILED: {sentence}")
