"""`retain`: drop old minutes, hours and days of the counts.

Belongs here: the options and the output. The steps are in `orchestration/retain.py`.
"""

from collections.abc import Callable
from typing import Any

import click

from orchestration.cli.warm import cold_option
from orchestration.cli.work import outcome_as_json, problems, watched
from orchestration.retain import Retained, half_lives_of, plan_retention
from orchestration.retain import retain as drop_old
from tidemark.cli.app import as_json, command
from tidemark.cli.counts import MomentType
from tidemark.cli.output import answer_json, console, in_bytes, say, table
from tidemark.counts.retention import CUT_AT, gone_before, latest_cuts
from tidemark.counts.windows import shown
from tidemark.event_time.clock import system_clock
from tidemark.storage.home import Home
from tidemark.tables.tiers import Tier


def cut_options(function: Callable[..., None]) -> Callable[..., None]:
    """An option for each tier that may be dropped."""
    for tier, grid in reversed(CUT_AT.items()):
        border = grid.declared.border
        finer = f"Nor {tier}s; on {border}. {str(tier.made_from).capitalize()}s go with them."
        said = finer if tier.made_from else f"Keep no older {tier}s; on {border}, UTC."
        function = click.option(f"--{tier}s-before", type=MomentType(), metavar="MOMENT", help=said)(function)
    return function


@command
@cut_options
@click.option("--clock-is-right", is_flag=True, help="Go on although the last write is more than a day old.")
@click.option("--dry-run", is_flag=True, help="Only say what would be dropped.")
@cold_option
@as_json
def retain(home: Home, clock_is_right: bool, dry_run: bool, as_json: bool, **cuts: int | None) -> None:
    """Drop old minutes, hours and days of the counts, for ever. What is coarser stays: all that was ever counted.

    From then on older events are refused as too_old. Without options: what is gone, and what may go at the latest.
    No producer may have the home open, unless it has raised its own log: platform.raise_earliest.
    """
    wanted = {tier: before_us for tier in CUT_AT if (before_us := cuts[f"{tier}s_before"]) is not None}
    if not wanted:
        _show_state(home, as_json)
        return
    if dry_run:
        retained = plan_retention(home, wanted, now_us=system_clock())
    else:
        with watched("retaining") as watch:
            retained = drop_old(home, wanted, clock=system_clock, progress=watch, is_clock_right=clock_is_right)
    if as_json:
        answer_json(retained_as_json(retained))
    else:
        _show(retained, is_dry=dry_run)
    if not retained.is_done and not dry_run:
        raise click.exceptions.Exit(1)


def retained_as_json(retained: Retained) -> dict[str, Any]:
    """What is gone, what was dropped for it, and what was done before."""
    return {
        "is_done": retained.is_done,
        "gone_before": {f"{tier}s": shown(cut_us) for tier, cut_us in retained.cuts.items()},
        "dropped": [
            {"table": each.table, "partitions": each.partitions, "rows": each.rows, "bytes": each.bytes}
            for each in retained.dropped
        ],
        "outcome": outcome_as_json(retained.outcome),
    }


def _show(retained: Retained, *, is_dry: bool) -> None:
    rows = table(
        "Would be dropped" if is_dry else "Dropped",
        *("table", "before, UTC", "partitions", "rows", "bytes"),
        numbers=("partitions", "rows", "bytes"),
    )
    for each in retained.dropped:
        rows.add_row(each.table, shown(each.before_us), f"{each.partitions:,}", f"{each.rows:,}", in_bytes(each.bytes))
    console().print(rows)
    for sentence in problems(retained.outcome):
        click.echo(f"FAILED: {sentence}")
    if not is_dry and not retained.is_done:
        say("Nothing was dropped. Older events are refused already; repair this, then repeat the command.")


def _show_state(home: Home, as_json: bool) -> None:
    gone, latest = gone_before(home), latest_cuts(system_clock(), half_lives_of(home))
    if as_json:
        answer_json(
            {
                "gone_before": {f"{tier}s": shown(cut_us) for tier, cut_us in gone.items()},
                "may_go_before": {f"{tier}s": shown(cut_us) for tier, cut_us in latest.items()},
            }
        )
        return
    rows = table("Buckets of the counts", "tier", "gone before, UTC", "may go before, UTC")
    for tier in Tier:
        may_go = shown(latest[tier]) if tier in latest else "never"
        rows.add_row(f"{tier}s", shown(gone[tier]) if tier in gone else "nothing", may_go)
    console().print(rows)
