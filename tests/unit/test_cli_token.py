"""`token`: a token is on standard output once, and nothing else is; what is kept of it is listed and revoked."""

import json
from pathlib import Path

import pytest

from tidemark.cli.app import main
from tidemark.gateway.access.tokens import TokenStore, UnauthenticatedError
from tidemark.model.timegrid import DAY_US
from tidemark.storage.home import Home


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    home = Home(tmp_path / "home").create("")
    monkeypatch.setenv("TIDEMARK_HOME", str(home.root))
    return home


def test_a_token_is_printed_alone_so_that_a_script_can_take_it(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "create", "checkout", "--write", "shop", "--read", "*", "--expires", "90d"]) == 0
    printed = capsys.readouterr()
    [secret] = printed.out.splitlines()
    assert secret not in printed.err
    assert "write:shop read:*" in printed.err
    grant = TokenStore(home).check(secret, is_loopback=False)
    [stored] = TokenStore(home).tokens()
    assert (grant.may_write("shop"), grant.may_write("other"), grant.may_read("other")) == (True, False, True)
    assert stored.expires_us is not None
    assert abs(stored.expires_us - stored.created_us - 90 * DAY_US) < DAY_US


def test_the_list_shows_all_but_the_tokens(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    main(["token", "create", "checkout", "--write", "shop"])
    secret = capsys.readouterr().out.strip()
    main(["token", "create", "billing", "--certificate", "--admin"])
    assert capsys.readouterr().out == ""
    assert main(["token", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(word in shown for word in ("checkout", "write:shop", "never", "billing", "admin", "certificate"))
    assert main(["token", "list", "--json"]) == 0
    answer = capsys.readouterr().out
    assert [(each["name"], each["scopes"], each["expires"]) for each in json.loads(answer)["tokens"]] == [
        ("billing", ["admin"], None),
        ("checkout", ["write:shop"], None),
    ]
    assert secret not in shown + answer


def test_a_revoked_token_counts_no_more(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    main(["token", "create", "checkout", "--write", "shop", "--json"])
    made = json.loads(capsys.readouterr().out)
    assert main(["token", "revoke", made["id"], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["name"] == "checkout"
    with pytest.raises(UnauthenticatedError):
        TokenStore(home).check(made["token"], is_loopback=True)
    assert main(["token", "list"]) == 0
    assert "There are no tokens" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "why"),
    [
        (["create", "checkout"], 1, "without a scope"),
        (["create", "checkout", "--write", "a/b"], 1, "is no scope"),
        (["create", "a b", "--admin"], 1, "is no name"),
        (["create", "checkout", "--admin", "--expires", "soon"], 2, "is no duration"),
        (["revoke", "checkout"], 1, "no such token"),
    ],
)
def test_what_cannot_be_done_says_why(
    home: Home, arguments: list[str], code: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", *arguments]) == code
    printed = capsys.readouterr()
    assert printed.out == ""
    assert why in " ".join(printed.err.split())
    assert not (home.door / "tokens.json").exists()
