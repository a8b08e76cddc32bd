"""A warm host: one for a home, and what it runs for a command cannot be told from the command by itself."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from orchestration.warm_host import client
from orchestration.warm_host.place import Place
from orchestration.warm_host.stamp import stamp_of
from tests.support.hosted import LIMIT_S, done, host_of, waiting_command
from tests.support.running import wait_until
from tests.support.small_host import BY_ITSELF, command
from tidemark.cli.home_option import home_in
from tidemark.storage.home import Home


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    # Deeper than the name of a socket may be long.
    made = Home(tmp_path / ("deep-" * 20) / "home").create()
    yield made
    client.stop(made)


def test_answers_exit_codes_and_errors_are_those_of_the_command_itself(home: Home) -> None:
    code, out, err = done(home, "account", "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["disagreements"] == []
    code, out, err = done(home, "account", "--no-such-option")
    assert (code, out) == (2, "")
    assert "--no-such-option" in err
    code, out, err = done(home, "send", "/nowhere/at-all.jsonl")
    assert (code, out) == (2, "") or code == 1
    assert "at-all.jsonl" in err


def test_directory_and_environment_are_those_of_the_command(home: Home, tmp_path: Path) -> None:
    (tmp_path / "two.jsonl").write_text('{"namespace": "shop"}\n{"namespace": "shop"}\n')
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        code, out, err = done(home, "send", "two.jsonl", "--json")
    finally:
        os.chdir(before)
    assert code in {0, 1}, err
    assert json.loads(out)["refused"] == 2
    code, _, err = done(home, "send", str(tmp_path / "two.jsonl"), "--producer", "other", TIDEMARK_FAILPOINT="nowhere")
    assert code == 1
    assert "TIDEMARK_FAILPOINT names 'nowhere'" in " ".join(err.split())


def test_two_commands_that_start_at_once_have_one_host(home: Home) -> None:
    processes = [command(home, "account", "--json") for _ in range(4)]
    ended = [(process.communicate(timeout=LIMIT_S)[1], process.returncode) for process in processes]
    assert ended == [("", 0)] * 4

    def hosts() -> list[int]:
        found = psutil.process_iter(["cmdline"])
        return [each.pid for each in found if str(home.root) in (each.info["cmdline"] or ())]

    # Those that were late look for the lock for a moment more.
    wait_until("there is one host", hosts, lambda found: found == [host_of(home)], limit_s=LIMIT_S)


def test_a_host_that_was_killed_is_replaced(home: Home) -> None:
    assert done(home, "account", "--json")[0] == 0
    killed = host_of(home)
    os.kill(killed, signal.SIGKILL)
    wait_until("it is gone", lambda: client.describe(home) is None, limit_s=LIMIT_S)
    assert done(home, "account", "--json")[0] == 0
    assert host_of(home) != killed


def test_a_host_whose_settings_have_changed_is_replaced(home: Home) -> None:
    assert done(home, "account", "--json")[0] == 0
    before, stamp = host_of(home), stamp_of(home)
    home.settings_file.write_text("clock_skew_ms = 1000\n")
    assert stamp_of(home) != stamp
    assert done(home, "account", "--json")[0] == 0
    assert host_of(home) != before
    wait_until("the old one has ended", lambda: not Path(f"/proc/{before}").exists(), limit_s=LIMIT_S)


def test_a_host_without_work_ends(home: Home) -> None:
    assert done(home, "account", "--json", TIDEMARK_WARM_IDLE_S="0.1")[0] == 0
    wait_until("it has ended", lambda: client.describe(home) is None, limit_s=LIMIT_S)
    assert not Place.of(home).door.exists()
    assert done(home, "account", "--json")[0] == 0


def test_what_stop_ends_is_gone_when_it_says_so(home: Home) -> None:
    assert not client.stop(home)
    assert done(home, "account", "--json")[0] == 0
    host = psutil.Process(host_of(home))
    assert client.stop(home)
    assert client.describe(home) is None
    wait_until("it is gone", lambda: not host.is_running() or host.status() == "zombie", limit_s=LIMIT_S)


def test_a_killed_process_is_an_error_and_takes_nothing_with_it(home: Home, tmp_path: Path) -> None:
    process, child = waiting_command(home, tmp_path)
    host = host_of(home)
    child.kill()
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 128 + signal.SIGKILL
    assert "killed (SIGKILL)" in err
    assert "run the same command again" in err
    assert done(home, "account", "--json")[0] == 0
    assert host_of(home) == host


def test_a_step_that_kills_the_process_is_seen_as_such(home: Home, tmp_path: Path) -> None:
    (tmp_path / "one.jsonl").write_text('{"namespace": "shop"}\n')
    code, out, _ = done(home, "send", str(tmp_path / "one.jsonl"), TIDEMARK_FAILPOINT="log.synced")
    assert (code, out) == (137, "")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_reach_the_process(home: Home, tmp_path: Path, number: signal.Signals, code: int) -> None:
    process, child = waiting_command(home, tmp_path)
    process.send_signal(number)
    out, err = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, out) == (code, "")
    assert "Traceback" not in err
    wait_until("the process is gone", lambda: not child.is_running(), limit_s=LIMIT_S)


def test_a_command_that_was_killed_ends_its_process(home: Home, tmp_path: Path) -> None:
    process, child = waiting_command(home, tmp_path)
    process.kill()
    process.communicate(timeout=LIMIT_S)
    wait_until("its process is gone", lambda: not child.is_running(), limit_s=LIMIT_S)
    assert done(home, "account", "--json")[0] == 0


def test_a_killed_host_takes_its_processes_with_it_and_the_command_says_so(home: Home, tmp_path: Path) -> None:
    process, child = waiting_command(home, tmp_path)
    os.kill(host_of(home), signal.SIGKILL)
    _, err = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 137
    assert "The warm host of this home ended" in err
    wait_until("its process is gone", lambda: not child.is_running(), limit_s=LIMIT_S)


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [
        (("account",), {"TIDEMARK_WARM": "0"}),
        (("account",), {"TIDEMARK_SPARK_SERVER": "sc://localhost:1"}),
        (("account", "--cold"), {}),
        (("account", "--help"), {}),
        (("verify",), {}),
    ],
)
def test_what_is_forbidden_or_needs_none_is_left_to_the_command(
    home: Home, arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    assert done(home, *arguments, **environment)[0] == BY_ITSELF
    assert client.describe(home) is None


def test_settings_forbid_it_too(home: Home) -> None:
    home.settings_file.write_text("[warm_host]\nenabled = false\n")
    assert done(home, "account")[0] == BY_ITSELF


def test_only_its_user_may_reach_it(home: Home) -> None:
    home.root.chmod(0o750)  # open to its group
    assert done(home, "account")[0] == 0
    place = Place.of(home)
    assert place.root.stat().st_mode & 0o777 == 0o700
    assert place.door.stat().st_mode & 0o777 == 0o600


def test_a_home_that_is_not_there_gets_none(tmp_path: Path) -> None:
    assert done(Home(tmp_path / "mistyped"), "account")[0] == BY_ITSELF
    assert not (tmp_path / "mistyped").exists()


@pytest.mark.parametrize(
    ("arguments", "name", "home"),
    [
        (["drain"], "drain", None),
        (["--home", "a", "drain"], "drain", "a"),
        (["--home=a", "--debug", "drain", "--home", "b"], "drain", "b"),
        (["--help"], None, None),
        (["--home"], None, None),
    ],
)
def test_command_and_home_are_found_among_the_options(arguments: list[str], name: str | None, home: str | None) -> None:
    assert (client.command_in(arguments), home_in(arguments)) == (name, home)
