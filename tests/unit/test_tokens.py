"""Tokens: 256 random bits, kept as SHA-256, with scopes and an end, several at once; nothing secret is shown (W10)."""

import hashlib
import json
import os
import stat
import subprocess
import sys
import traceback
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.gateway.access.tokens import (
    ALL,
    OPEN,
    Grant,
    NotAllowedError,
    Scopes,
    TokenStore,
    UnauthenticatedError,
)
from tidemark.model.errors import ConfigurationError, DamageError, TidemarkError
from tidemark.model.timegrid import DAY_US
from tidemark.storage import privacy
from tidemark.storage.home import Home
from tidemark.wire.errors import NackReason
from tidemark.wire.messages import Hello

NOW_US = 1_772_445_600_000_000
NAMES = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)


class Clock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.now_us = NOW_US

    def __call__(self) -> int:
        return self.now_us


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create("")


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store(home: Home, clock: Clock) -> TokenStore:
    return TokenStore(home, clock=clock)


def make(store: TokenStore, name: str = "checkout", *scopes: str, expires_us: int | None = None) -> str:
    secret, _ = store.create(name, scopes or ("write:shop",), expires_us=expires_us)
    assert secret is not None
    return secret


def refused(store: TokenStore, token: str | None, *, is_loopback: bool = False, certificate: str | None = None) -> str:
    with pytest.raises(UnauthenticatedError) as error:
        store.check(token, is_loopback=is_loopback, certificate=certificate)
    assert error.value.reason is NackReason.UNAUTHENTICATED
    return str(error.value)


def test_a_token_is_256_random_bits_behind_a_prefix_that_scanners_find(home: Home) -> None:
    asked: list[int] = []

    def random_bytes(count: int) -> bytes:
        asked.append(count)
        return bytes(range(count))

    secret = make(TokenStore(home, random_bytes=random_bytes))
    assert asked == [32]
    assert secret == "tdm_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8"  # noqa: S105 - the token of a test
    assert make(TokenStore(home)) != make(TokenStore(home))


def test_a_token_grants_its_scopes_and_nothing_else(store: TokenStore) -> None:
    grant = store.check(make(store, "checkout", "write:shop", "read:*"), is_loopback=False)
    assert (grant.name, grant.expires_us, grant.is_admin) == ("checkout", None, False)
    assert grant.may_write("shop")
    assert not grant.may_write("other")
    assert not grant.may_write(ALL)
    assert grant.may_read("shop")
    assert grant.may_read(ALL)
    with pytest.raises(
        NotAllowedError, match=r"'checkout' may not write to the namespace 'other'.*write:other"
    ) as error:
        grant.require_write("other")
    assert error.value.reason is NackReason.NOT_ALLOWED
    with pytest.raises(NotAllowedError, match="scope admin"):
        grant.require_admin()


@given(st.sets(NAMES), st.sets(NAMES), st.booleans(), NAMES)
def test_what_is_allowed_is_what_was_written(writes: set[str], reads: set[str], is_admin: bool, asked: str) -> None:
    scopes = Scopes(frozenset(writes), frozenset(reads), is_admin)
    assert Scopes.parse(scopes.texts()) == scopes
    grant = Grant("one", scopes)
    assert grant.may_write(asked) == (asked in writes or is_admin)
    assert grant.may_read(asked) == (asked in reads or is_admin)


@pytest.mark.parametrize("text", ["", "write", "write:", "read:a/b", "admin:shop", "WRITE:shop", "write:shop\n", "all"])
def test_what_is_no_scope_is_refused_and_said(store: TokenStore, text: str) -> None:
    with pytest.raises(ConfigurationError, match="is no scope"):
        store.create("checkout", [text])


@pytest.mark.parametrize("name", ["", "a b", "../x", "a" * 65, "a\n", "-a", "ä"])
def test_what_is_no_name_is_refused(store: TokenStore, name: str) -> None:
    with pytest.raises(ConfigurationError, match="is no name"):
        store.create(name, ["admin"])
    assert not store.path.exists()


def test_a_token_without_a_scope_is_not_made(store: TokenStore) -> None:
    with pytest.raises(ConfigurationError, match="may do nothing"):
        store.create("checkout", [])


def test_several_tokens_of_one_name_count_at_once_so_that_one_can_replace_the_other(store: TokenStore) -> None:
    old, new = make(store), make(store)
    assert {store.check(each, is_loopback=False).name for each in (old, new)} == {"checkout"}
    with pytest.raises(ConfigurationError, match="several tokens"):
        store.revoke("checkout")
    old_id = store.check(old, is_loopback=False).id
    assert old_id is not None
    assert store.revoke(old_id).id == old_id
    assert "revoked" in refused(store, old)
    assert store.check(new, is_loopback=False).may_write("shop")
    assert store.revoke("checkout").name == "checkout", "one is left, and a name is enough"


def test_what_is_not_there_cannot_be_revoked(store: TokenStore) -> None:
    with pytest.raises(ConfigurationError, match="no such token"):
        store.revoke("checkout")


def test_a_token_that_was_found_somewhere_is_revoked_by_itself_and_not_repeated(store: TokenStore) -> None:
    secret = make(store)
    assert store.revoke(secret).name == "checkout"
    with pytest.raises(ConfigurationError) as error:
        store.revoke(secret)
    assert secret not in str(error.value)


def test_an_expired_token_is_refused_and_says_since_when(store: TokenStore, clock: Clock) -> None:
    secret = make(store, expires_us=NOW_US + DAY_US)
    grant = store.check(secret, is_loopback=False)
    assert grant.expires_us == NOW_US + DAY_US
    clock.now_us += DAY_US - 1
    store.check_again(grant)
    clock.now_us += 1
    assert "'checkout' expired at 2026-03-03T10:00:00Z" in refused(store, secret)
    with pytest.raises(UnauthenticatedError, match="expired"):
        store.check_again(grant)


def test_a_token_that_would_never_count_is_not_made(store: TokenStore) -> None:
    with pytest.raises(ConfigurationError, match="is over"):
        store.create("checkout", ["admin"], expires_us=NOW_US)


def test_a_server_follows_what_other_processes_change(home: Home, clock: Clock) -> None:
    """`serve` and `token revoke` are two processes; what matters is that each reads the file that is there now."""
    server, command = TokenStore(home, clock=clock), TokenStore(home, clock=clock)
    secret = make(command)
    grant = server.check(secret, is_loopback=False)
    server.check_again(grant)
    command.revoke("checkout")
    with pytest.raises(UnauthenticatedError, match="was revoked"):
        server.check_again(grant)
    refused(server, secret)


def test_tokens_made_at_once_by_many_are_all_kept(home: Home) -> None:
    script = (
        "import sys; from pathlib import Path; from tidemark.gateway.access.tokens import TokenStore; "
        "from tidemark.storage.home import Home; "
        "[TokenStore(Home(Path(sys.argv[1]))).create(f'{sys.argv[2]}-{n}', ['admin']) for n in range(5)]"
    )
    others = [subprocess.Popen([sys.executable, "-c", script, str(home.root), f"process-{n}"]) for n in range(2)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda n: TokenStore(home).create(f"thread-{n}", ["admin"]), range(20)))
    assert [process.wait() for process in others] == [0, 0]
    assert len(TokenStore(home).tokens()) == 30


def test_the_file_is_its_owners_alone_also_in_a_home_that_a_group_may_read(home: Home, store: TokenStore) -> None:
    home.root.chmod(0o750)
    privacy.follow(home.root)
    try:
        make(store)
    finally:
        privacy._Process.withheld = privacy.PRIVATE
    assert stat.S_IMODE(home.door.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in home.door.iterdir()} == {0o600}


def test_a_door_that_was_opened_is_closed_when_a_token_is_made(home: Home, store: TokenStore) -> None:
    home.door.mkdir(mode=0o755)
    make(store)
    assert stat.S_IMODE(home.door.stat().st_mode) == 0o700


def test_a_change_is_on_the_disk_before_it_is_told(
    home: Home, store: TokenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Synced, then renamed, then the directory synced: a token that was shown is there after a crash."""
    make(store)
    steps: list[str] = []
    sync, rename = os.fsync, os.rename

    def note_sync(fd: int) -> None:
        steps.append(f"sync {Path(f'/proc/self/fd/{fd}').readlink().name}")
        sync(fd)

    def note_rename(old: Path, new: Path) -> None:
        steps.append(f"rename {Path(old).name} {Path(new).name}")
        rename(old, new)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "rename", note_rename)
    make(store)
    assert steps[:3] == ["sync tokens.new", "rename tokens.new tokens.json", "sync door"]


def test_on_this_machine_no_token_is_needed_unless_the_operator_says_so(home: Home, store: TokenStore) -> None:
    assert store.check(None, is_loopback=True) == OPEN
    assert OPEN.is_admin
    store.check_again(OPEN)
    home.settings_file.write_text("[serve]\nrequire_token = true\n")
    assert "A token is needed" in refused(TokenStore(Home(home.root)), None, is_loopback=True)


def test_from_elsewhere_a_token_is_always_needed(store: TokenStore) -> None:
    assert "A token is needed" in refused(store, None)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda secret: "", "This is no token"),
        (lambda secret: secret[:-1], "Was all of it copied"),
        (lambda secret: secret + "\n", "This is no token"),
        (lambda secret: "x" * 10_000_000, "This is no token"),
        (lambda secret: "tdm_\udcff" + secret[5:], "This is no token"),
        (lambda secret: secret[:-1] + ("A" if secret[-1] != "A" else "B"), "not known here"),
        (lambda secret: "tdm_" + "A" * 43, "not known here"),
    ],
)
def test_a_wrong_token_is_refused_also_on_this_machine(
    store: TokenStore, wrong: Callable[[str], str], why: str
) -> None:
    """Whoever shows a token wants to be somebody: they are not let in as nobody."""
    assert why in refused(store, wrong(make(store)), is_loopback=True)


def test_half_a_digest_is_not_enough(store: TokenStore, home: Home) -> None:
    """The id is how the digest begins; what is found by it is compared as a whole."""
    secret = make(store)
    content = json.loads(store.path.read_text())
    [entry] = content["tokens"]
    entry["sha256"] = entry["sha256"][:8] + "0" * 56
    store.path.write_text(json.dumps(content))
    assert "not known here" in refused(TokenStore(home), secret)


def test_a_grant_to_a_certificate_whose_id_is_a_tokens_by_chance_is_no_token(home: Home, store: TokenStore) -> None:
    secret = make(store)
    content = json.loads(store.path.read_text())
    del content["tokens"][0]["sha256"]
    store.path.write_text(json.dumps(content))
    assert "not known here" in refused(TokenStore(home), secret)


def test_a_certificate_has_what_was_granted_to_its_name(store: TokenStore) -> None:
    assert "'billing' are granted nothing" in refused(store, None, certificate="billing", is_loopback=True)
    secret, _ = store.create("billing", ["write:shop"], is_certificate=True)
    assert secret is None
    grant = store.check(None, is_loopback=False, certificate="billing")
    assert (grant.name, grant.may_write("shop"), grant.may_read("shop")) == ("billing", True, False)
    token = make(store, "billing", "read:shop")
    assert store.check(token, is_loopback=False, certificate="billing").may_read("shop"), "a token counts before it"
    with pytest.raises(ConfigurationError, match="granted something already"):
        store.create("billing", ["admin"], is_certificate=True)
    store.revoke(str(grant.id))
    with pytest.raises(UnauthenticatedError):
        store.check_again(grant)


def test_a_token_does_not_vouch_for_a_certificate_of_its_name(store: TokenStore) -> None:
    make(store, "billing", "admin")
    refused(store, None, certificate="billing")


@pytest.mark.parametrize(
    "content",
    ["", "{", '{"tokens": [{"id": 1}]}', '{"tokens": [{"id": "a", "name": "b", "scopes": ["all"], "created_us": 1}]}'],
)
def test_a_damaged_file_lets_nobody_in_and_tells_the_operator_what_to_do(
    home: Home, store: TokenStore, content: str
) -> None:
    grant = store.check(secret := make(store), is_loopback=False)
    store.path.write_text(content)
    server = TokenStore(home)
    assert "cannot be read" in refused(server, secret)
    server.check_again(grant)
    with pytest.raises(DamageError, match=r"tokens\.json is damaged.*Put back a copy"):
        server.tokens()
    with pytest.raises(DamageError):
        server.create("other", ["admin"])
    assert store.path.read_text() == content, "nothing is repaired by guessing"


def test_without_the_file_nobody_is_let_in_from_elsewhere(store: TokenStore) -> None:
    secret = make(store)
    store.path.unlink()
    refused(store, secret)


def test_nothing_that_is_kept_shown_or_raised_has_the_secret(
    home: Home, store: TokenStore, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    secret, stored = store.create("checkout", ["write:shop"], expires_us=NOW_US + 1)
    assert secret is not None
    seen = [repr(stored), repr(store), repr(store.tokens()), repr(grant := store.check(secret, is_loopback=False))]
    seen += [path.read_text() for path in home.root.rglob("*") if path.is_file()]

    def complain(call: Callable[[], object]) -> None:
        try:
            call()
        except TidemarkError as error:
            seen.extend(["".join(traceback.format_exception(error)), repr(error), repr(error.args)])
        else:
            pytest.fail("this must be refused")

    complain(lambda: store.check(secret + "x", is_loopback=False))
    complain(lambda: store.check(secret[:-2], is_loopback=False))
    complain(lambda: grant.require_write("other"))
    clock.now_us += 1
    complain(lambda: store.check(secret, is_loopback=False))
    store.revoke(secret)
    complain(lambda: store.check(secret, is_loopback=False))
    complain(lambda: store.revoke(secret))
    store.path.write_text("{")
    complain(lambda: TokenStore(home).check(secret, is_loopback=False))
    bits = secret.removeprefix("tdm_")[:12]
    assert not [text for text in (*seen, caplog.text) if bits in text]


def test_the_id_says_whose_a_token_is_that_was_found(store: TokenStore) -> None:
    secret = make(store)
    [stored] = store.tokens()
    assert hashlib.sha256(secret.encode()).hexdigest().startswith(stored.id)


def test_a_hello_that_is_shown_does_not_show_its_token() -> None:
    hello = Hello(token="tdm_" + "A" * 43, producer="checkout")
    assert "AAA" not in f"{hello} {hello!r} {[hello]}"
    assert "checkout" in repr(hello)
