"""What the guide says of serving and of security is so: commands run, files can be read, numbers are the settings'."""

import configparser
import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.running import TIDEMARK, environment
from tests.support.serving import Serving
from tidemark.cli.app import COMMANDS
from tidemark.gateway.access.tls import check_exposure, parse_listen
from tidemark.gateway.access.tokens import TokenStore
from tidemark.gateway.w1.connection import FRAME_MS
from tidemark.model.settings import ServeSettings, Settings, read_settings
from tidemark.storage.home import Home
from tidemark.wire.limits import LIMITS
from tidemark.wire.messages import SILENCE_MS

GUIDE = Path(__file__).resolve().parents[2] / "docs/guide"
SECURITY, SERVE = ((GUIDE / name).read_text() for name in ("security.md", "serve.md"))


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)


def run(script: str, home: Home) -> str:
    """A block as somebody types it, in the checkout."""
    done = subprocess.run(
        ["sh", "-euc", script],  # noqa: S607 - the shell of the machine
        cwd=TIDEMARK.parent,
        env=environment(TIDEMARK_HOME=str(home.root)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "home").create("")


def test_the_commands_on_tokens_run_and_do_what_is_said(home: Home) -> None:
    made, replaced, certificate = blocks(SECURITY, "sh")
    checkout, dashboard, *listed = run(made, home).splitlines()
    store = TokenStore(home)
    assert store.check(checkout, is_loopback=False).may_write("shop")
    assert store.check(dashboard, is_loopback=False).may_read("*")
    assert "write:shop" in "\n".join(listed)
    new = run(replaced, home).split()[0]
    assert store.check(new, is_loopback=False).name == "checkout"
    with pytest.raises(Exception, match="was revoked"):
        store.check(checkout, is_loopback=False)
    assert run(certificate, home) == ""
    assert store.check(None, is_loopback=False, certificate="billing").may_write("billing")


def test_a_token_that_was_found_is_known_by_its_checksum(home: Home) -> None:
    [command] = re.findall(r"^    (printf %s .*)$", SECURITY, re.MULTILINE)
    secret, stored = TokenStore(home).create("checkout", ["admin"])
    assert run(f"FOUND={secret}; {command}", home).strip() == stored.id


def test_the_settings_for_other_machines_are_settings(tmp_path: Path) -> None:
    [text] = blocks(SECURITY, "toml")
    (tmp_path / "platform.toml").write_text(text)
    serve = read_settings(tmp_path / "platform.toml").serve
    assert check_exposure(serve, {"listen": serve.listen, "http": serve.http_listen}, has_tokens=True) == []
    assert not parse_listen(serve.listen).is_loopback


def test_the_limits_are_those_that_count() -> None:
    table = SECURITY.partition("## Limits")[2].partition("So a flood")[0]
    serve = ServeSettings()
    bounds = {
        "connections that have said who": f"{serve.connections:,}",
        "of them with the same": f"{serve.connections_per_token:,}",
        "connections that have said nothing": f"{serve.unauthenticated_connections};",
        "time for the hello": f"{FRAME_MS // 1_000} s",
        "silence": f"{SILENCE_MS // 1_000} s",
        "payload": f"{LIMITS.payload_bytes // 1024**2} MiB",
        "the same, unpacked": f"{LIMITS.unpacked_bytes // 1024**2} MiB, and {LIMITS.ratio} times",
        "deltas in a write": f"{LIMITS.rows:,}",
        "nesting": str(LIMITS.nesting),
        "sent and not": f"{serve.window_bytes // 1024**2} MiB",
    }
    rows = [row for row in table.splitlines() if row.startswith("| ") and not row.startswith(("| what", "| ---"))]
    assert len(rows) == len(bounds)
    for row, (what, bound) in zip(rows, bounds.items(), strict=True):
        assert row.startswith(f"| {what}")
        assert f"| {bound}" in row
    assert set(re.findall(r"`(\w+)` \|$", table, re.MULTILINE)) <= set(ServeSettings.__struct_fields__)


def test_the_addresses_are_the_defaults() -> None:
    for address in (Settings().serve.listen, Settings().serve.http_listen):
        assert address in SECURITY
        assert address in SERVE


def test_a_served_home_answers_what_the_guide_asks(home: Home) -> None:
    start, asked = blocks(SERVE, "sh")
    assert start.split() == ["./tidemark", "serve"]
    with Serving(home) as serving:
        answer = run(asked.replace("7480", str(serving.http_port)), home)
        said = serving.said()
    assert answer.startswith('{"healthy":true}{"ready":true}')
    for name, label in re.findall(r"`(tidemark_\w+)(?:\{(\w+))?", SERVE):
        labelled = rf"\{{.*\b{label}=" if label else ""
        assert re.search(rf"^{name}\w*{labelled}", answer, re.MULTILINE), (name, label)
    [shown] = re.findall(r"^    Serving .*?stops it\.$", SERVE, re.MULTILINE | re.DOTALL)
    words = [line.split()[0] for line in shown.splitlines()]
    assert [line.split()[0] for line in said.splitlines()[:4]] == words


def test_the_unit_starts_what_there_is() -> None:
    [text] = blocks(SERVE, "ini")
    unit = configparser.ConfigParser(strict=True, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read_string(text)
    program, command = unit["Service"]["ExecStart"].split()
    assert Path(program).name == TIDEMARK.name
    assert command in {entry.name for entry in COMMANDS}
    home = unit["Service"]["Environment"].removeprefix("TIDEMARK_HOME=")
    assert os.path.commonpath([home, program, unit["Service"]["ReadWritePaths"]]) == unit["Service"]["ReadWritePaths"]
    assert int(unit["Service"]["LimitNOFILE"]) > 2 * Settings().serve.connections


def test_the_compose_file_listens_where_it_publishes_and_nowhere_else(tmp_path: Path) -> None:
    [text] = blocks(SERVE, "yaml")
    compose: dict[str, Any] = yaml.safe_load(text)
    service = compose["services"]["tidemark"]
    (tmp_path / "platform.toml").write_text(compose["configs"]["settings"]["content"])
    serve = read_settings(tmp_path / "platform.toml").serve
    published = [port.rpartition(":") for port in service["ports"]]
    assert [inside for _, _, inside in published] == [
        text.rpartition(":")[2] for text in (serve.listen, serve.http_listen)
    ]
    assert all(outside.startswith("127.0.0.1:") for outside, _, _ in published), "it is plain"
    assert check_exposure(serve, {"listen": serve.listen}, has_tokens=True)
    command, option, home = service["command"]
    assert (command, option) == ("serve", "--home")
    assert service["volumes"] == [f"data:{home}"]
    assert service["configs"][0]["target"] == f"{home}/platform.toml"
    assert json.loads(json.dumps(service["healthcheck"]["test"]))[:2] == ["CMD", "python"]
