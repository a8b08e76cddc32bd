"""`retain`: drop old minutes, hours and days of the counts.

Belongs here: the options, and what is said. The steps are in `orchestration/retain.py`.
"""

import time
from typing import Any

import click

from orchestration.cli.work import outcome_as_json, problems, watched
from orchestration.retain import DROPPED, Retained, half_lives_of, plan_retention
from orchestration.retain import retain as drop_old
from tidemark.cli.app import as_json, command
from tidemark.cli.counts import MomentType
from tidemark.cli.output import answer_json, console, in_bytes, say, table
from tidemark.counts.retention import gone_before, latest_cuts
from tidemark.counts.windows import Tier, shown
from tidemark.storage.home import Home


@command
@click.option("--minutes-before", type=MomentType(), metavar="MOMENT", help="Keep no older minutes; on an hour, UTC.")
@click.option("--hours-before", type=MomentType(), metavar="MOMENT", help="Nor hours; on a day. Minutes go with them.")
@click.option("--days-before", type=MomentType(), metavar="MOMENT", help="Nor days; on a Monday. Hours go with them.")
@click.option("--clock-is-right", is_flag=True, help="Go on although the last write is more than a day old.")
@click.option("--dry-run", is_flag=True, help="Only say what would be dropped.")
@as_json
def retain(
    home: Home,
    minutes_before: int | None,
    hours_before: int | None,
    days_before: int | None,
    clock_is_right: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Drop old minutes, hours and days of the counts, for ever. Weeks stay, and with them all that was ever counted.

    From then on older events are refused as too_old. Without options: what is gone, and what may go at the latest.
    No producer may have the home open, unless it has raised its own log: platform.raise_earliest.
    """
    asked = {Tier.MINUTE: minutes_before, Tier.HOUR: hours_before, Tier.DAY: days_before}
    wanted = {tier: before_us for tier, before_us in asked.items() if before_us is not None}
    if not wanted:
        _show_state(home, as_json)
        return
    if dry_run:
        retained = plan_retention(home, wanted, now_us=_now_us())
    else:
        with watched("retaining") as watch:
            retained = drop_old(home, wanted, clock=_now_us, progress=watch, is_clock_right=clock_is_right)
    if as_json:
        answer_json(retained_as_json(retained))
    else:
        _show(retained, is_dry=dry_run)
    if not retained.is_done and not dry_run:
        raise click.exceptions.Exit(1)


def retained_as_json(retained: Retained) -> dict[str, Any]:
    """What is gone, what was dropped for it, and what had to be done before."""
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
    gone, latest = gone_before(home), latest_cuts(_now_us(), half_lives_of(home))
    if as_json:
        answer_json(
            {
                "gone_before": {f"{tier}s": shown(cut_us) for tier, cut_us in gone.items()},
                "may_go_before": {f"{tier}s": shown(cut_us) for tier, cut_us in latest.items()},
            }
        )
        return
    rows = table("Buckets of the counts", "tier", "gone before, UTC", "may go before, UTC")
    for tier in DROPPED:
        rows.add_row(f"{tier}s", shown(gone[tier]) if tier in gone else "nothing", shown(latest[tier]))
    rows.add_row(f"{Tier.WEEK}s", "nothing", "never")
    console().print(rows)


def _now_us() -> int:
    return time.time_ns() // 1_000
