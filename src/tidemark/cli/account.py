"""`account`: where every delta went.

Belongs here: displaying it. How it is computed is in `tidemark/observe/account.py`.
"""

import click
from rich.table import Table

from tidemark.answers.account import account_as_json
from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, console, table
from tidemark.model.turned_away import OTHERS
from tidemark.observe.account import Account, take_account
from tidemark.storage.home import Home


@command
@as_json
def account(home: Home, as_json: bool) -> None:
    """Where every delta went: accepted, duplicate, or refused and why. Exits with 1 if the tables disagree."""
    taken = take_account(home)
    if as_json:
        answer_json(account_as_json(taken))
    else:
        console().print(account_table(taken))
        for sentence in taken.unknown_times:
            click.echo(f"UNKNOWN: {sentence}")
        for sentence in taken.disagreements:
            click.echo(f"DOES NOT ADD UP: {sentence}")
    if taken.disagreements:
        raise click.exceptions.Exit(1)


def account_table(taken: Account) -> Table:
    """Outcomes with their details, and the sum."""
    outcomes = taken.outcomes
    rows = table("Where each delta went", "outcome", "deltas", "", numbers=("deltas",))
    rows.add_row("accepted", f"{outcomes.accepted:,}", "in deltas, once each")
    found = f"{taken.duplicates_at_arrival:,} found at arrival, {taken.duplicates_at_drain:,} by the drain"
    rows.add_row("duplicate", f"{outcomes.duplicate:,}", found)
    rows.add_row("refused", f"{outcomes.refused:,}", "in dead_letters, with reason and bytes")
    for reason, count in taken.reasons.items():
        rows.add_row(f"  {reason}", f"{count:,}", "")
    if outcomes.turned_away:
        rows.add_row("turned away", f"{outcomes.turned_away:,}", "before they were numbered; may have come again since")
        for reason, count in taken.turned_away.items():
            rows.add_row(f"  {reason}", f"{count:,}", "")
        for producer, count in taken.turned_away_producers.items():
            rows.add_row(f"  from {'others' if producer == OTHERS else producer or 'nobody known'}", f"{count:,}", "")
    if outcomes.waiting:
        rows.add_row("waiting", f"{outcomes.waiting:,}", "sealed, not drained yet: ./tidemark drain")
    rows.add_section()
    rows.add_row("received", f"{outcomes.received:,}", "")
    return rows
