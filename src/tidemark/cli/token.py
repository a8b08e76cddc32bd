"""`token`: who may speak to the door of a home, and what each may do.

Belongs here: the commands and their output. What a token is and how it is kept is in
`tidemark/gateway/access/tokens.py`.
"""

from typing import Any

import click

from tidemark.cli.app import as_json, command
from tidemark.cli.output import answer_json, at, console, say, table
from tidemark.event_time.clock import system_clock
from tidemark.gateway.access.tokens import StoredToken, TokenStore
from tidemark.model.timegrid import from_us
from tidemark.storage.home import Home
from tidemark.streams.durations import NoDurationError, parse_duration

EXAMPLES = """\b
    ./tidemark token create checkout --write shop --expires 90d
    ./tidemark token create dashboard --read '*'
    ./tidemark token revoke checkout"""


@click.group(epilog=EXAMPLES)
def token() -> None:
    """Tokens: who may speak to './tidemark serve', and what each may do. The guide's page on security says more."""


class _Duration(click.ParamType[int]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return parse_duration(str(value))
        except NoDurationError as error:
            self.fail(str(error), param, ctx)


@command
@click.argument("name")
@click.option("--write", "writes", multiple=True, metavar="NAMESPACE", help="May write to it; '*': to all. Repeatable.")
@click.option("--read", "reads", multiple=True, metavar="NAMESPACE", help="May read it; '*': all. Repeatable.")
@click.option("--admin", is_flag=True, help="May do everything.")
@click.option("--expires", "expires_in_us", type=_Duration(), metavar="90d", help="When it ends. Default: never.")
@click.option("--certificate", is_flag=True, help="No token: for whoever has a client certificate with this NAME.")
@as_json
def create(
    home: Home,
    name: str,
    writes: tuple[str, ...],
    reads: tuple[str, ...],
    admin: bool,
    expires_in_us: int | None,
    certificate: bool,
    as_json: bool,
) -> None:
    """Make a token for NAME and print it: it is shown this once, and kept nowhere.

    A name may have several, so that a new one can be handed out before the old one is revoked.
    """
    scopes = [f"write:{each}" for each in writes] + [f"read:{each}" for each in reads] + ["admin"] * admin
    expires_us = None if expires_in_us is None else system_clock() + expires_in_us
    secret, made = TokenStore(home).create(name, scopes, expires_us=expires_us, is_certificate=certificate)
    if as_json:
        answer_json(({} if secret is None else {"token": secret}) | _as_json(made))
        return
    what = f"with {' '.join(made.scopes)}. It {_end(made)}, and its id is {made.id}."
    if secret is None:
        say(f"Whoever has a client certificate named {name} comes in {what}")
    else:
        say(f"A token for {name} {what} It is shown this once:")
        click.echo(secret)


@command
@as_json
def list_(home: Home, as_json: bool) -> None:
    """All tokens: whose, what they may do, and until when. What they are is kept nowhere."""
    found, now_us = TokenStore(home).tokens(), system_clock()
    if as_json:
        answer_json({"tokens": [{**_as_json(each), "is_expired": each.is_expired(now_us)} for each in found]})
        return
    if not found:
        say("There are no tokens: only programs on this machine can speak to the door.")
        return
    rows = table("Tokens, UTC", "name", "id", "scopes", "made", "ends", "by")
    for each in found:
        ends = "never" if each.expires_us is None else at(each.expires_us)
        rows.add_row(
            each.name,
            each.id,
            " ".join(each.scopes),
            at(each.created_us),
            f"{ends}, over" if each.is_expired(now_us) else ends,
            "certificate" if each.is_certificate else "token",
        )
    console().print(rows)


@command
@click.argument("name_or_id")
@as_json
def revoke(home: Home, name_or_id: str, as_json: bool) -> None:
    """Forget a token, by its name or its id. Connections that came in by it end within a second."""
    gone = TokenStore(home).revoke(name_or_id)
    if as_json:
        answer_json(_as_json(gone))
    else:
        say(f"{gone.name} ({gone.id}) counts no more.")


for each in (create, revoke):
    token.add_command(each)
token.add_command(list_, "list")  # the function may not hide Python's own


def _end(made: StoredToken) -> str:
    return "never ends" if made.expires_us is None else f"ends at {at(made.expires_us)} UTC"


def _as_json(stored: StoredToken) -> dict[str, Any]:
    return {
        "id": stored.id,
        "name": stored.name,
        "scopes": list(stored.scopes),
        "created": from_us(stored.created_us).isoformat(),
        "expires": None if stored.expires_us is None else from_us(stored.expires_us).isoformat(),
        "is_certificate": stored.is_certificate,
    }
