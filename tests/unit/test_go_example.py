"""The producer in Go, written from `docs/protocol/` alone, speaks with the real server (W1, W5, W7, W9)."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.support.served import home_at
from tidemark.gateway import places
from tidemark.storage.home import Home

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "examples" / "go-producer"
# Where Go's own installer puts it, beside the path.
GO = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
DELTAS = 300_000

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.skipif(GO is None, reason="There is no Go here (`go` on the path or in /usr/local/go)."),
]


class Go(NamedTuple):
    """Go, and what it needs to build without a network."""

    environment: dict[str, str]
    program: Path

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [str(GO), *arguments], cwd=SOURCE, env=self.environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [str(self.program), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def go(tmp_path_factory: pytest.TempPathFactory) -> Go:
    folder = tmp_path_factory.mktemp("go")
    alone = {"GOPROXY": "off", "GOTOOLCHAIN": "local", "GOFLAGS": ""}
    found = Go({**os.environ, **alone}, folder / "producer")
    found.run("build", "-o", str(found.program), ".")
    return found


class Server:
    """`./tidemark serve` on a home, which may be killed and started again."""

    def __init__(self, home: Home) -> None:
        self.home = home
        self.address = f"unix:{places.w1_socket(home)}"
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        command = [sys.executable, "-m", "tidemark.cli", "serve", "--home", str(self.home.root)]
        command += ["--listen", "127.0.0.1:0", "--no-http"]
        self._process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "Ctrl-C" in line:
                return
        raise AssertionError("The server ended at once.")

    def end(self, how: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(how)
            self._process.communicate(timeout=60)
            self._process = None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    found = Server(home_at(tmp_path / "home"))
    found.start()
    yield found
    found.end(signal.SIGTERM)


def click(number: int) -> str:
    signal_ = {"entity_id": f"page-{number % 100}", "signal": "click"}
    moment_us = 1_748_858_400_000_000 + number
    return json.dumps(
        {"namespace": "shop", "kind": "signal", "delta_id": f"c-{number}", "event_ts": moment_us, "signal": signal_}
    )


def test_w9_it_reads_and_writes_the_golden_bytes(go: Go) -> None:
    assert go.run("vet", ".") == ""
    assert go.run("test", "-count=1", ".").startswith("ok")


def test_its_source_is_formatted(go: Go) -> None:
    assert go.run("fmt", "./...") == ""


def test_w7_what_it_sends_it_gets_by_a_durable_name_each_once(go: Go, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "clicks.jsonl"
    file.write_text("\n".join([*map(click, range(50)), "{broken", click(3)]))
    sending = go.start("send", "-to", server.address, "-producer", "tills", "-batch", "7", str(file))
    said, log = sending.communicate(timeout=60)
    assert said.startswith("accepted 50, duplicate 1, refused 1, in writes that were not taken 0, taken before 0"), log
    assert "malformed" in log
    taking = ("subscribe", "-to", server.address, "-name", "dashboard")
    first = go.start(*taking, "-from-beginning", "-count", "50").communicate(timeout=60)[0].splitlines()
    assert sorted(json.loads(line)["delta_id"] for line in first) == sorted(f"c-{number}" for number in range(50))
    # The name goes on where it stands, for a program that knows nothing of the first.
    second = go.start(*taking, "-count", "1")
    more = tmp_path / "more.jsonl"
    more.write_text(click(1_000))
    go.start("send", "-to", server.address, "-producer", "later", str(more)).communicate(timeout=60)
    assert json.loads(second.communicate(timeout=60)[0])["delta_id"] == "c-1000"


def test_q2_a_second_run_sends_nothing_again(go: Go, server: Server, tmp_path: Path) -> None:
    file = tmp_path / "clicks.jsonl"
    file.write_text("\n".join(map(click, range(30))))
    sending = ("send", "-to", server.address, "-producer", "tills", "-batch", "10", str(file))
    assert go.start(*sending).communicate(timeout=60)[0].startswith("accepted 30")
    assert "accepted 0, duplicate 0" in (said := go.start(*sending).communicate(timeout=60)[0])
    assert said.endswith("taken before 30\n")


def test_w5_it_goes_on_after_a_kill_of_the_server_and_of_itself_and_nothing_is_lost_or_there_twice(
    go: Go, server: Server, tmp_path: Path
) -> None:
    file = tmp_path / "clicks.jsonl"
    file.write_text("\n".join(map(click, range(DELTAS))))
    command = ("send", "-to", server.address, "-producer", "tills", "-batch", "20", str(file))
    sending = go.start(*command)
    assert sending.stderr is not None
    wait_for_acknowledgements(sending, 5)
    server.end(signal.SIGKILL)
    server.start()
    wait_for_acknowledgements(sending, 5)
    sending.kill()
    sending.communicate()
    last = go.start(*command)
    wait_for_acknowledgements(last, 3)
    server.end(signal.SIGTERM)  # it says goodbye
    server.start()
    said, log = last.communicate(timeout=120)
    assert last.returncode == 0, log
    taking = go.start("subscribe", "-to", server.address, "-from-beginning", "-count", str(DELTAS))
    found = [json.loads(line)["delta_id"] for line in taking.communicate(timeout=120)[0].splitlines()]
    assert len(found) == len(set(found)) == DELTAS
    assert set(found) == {f"c-{number}" for number in range(DELTAS)}
    assert "duplicate 0, refused 0" in said, "each write was taken once, so no delta was found a second time"


def wait_for_acknowledgements(sending: "subprocess.Popen[str]", count: int) -> None:
    assert sending.stderr is not None
    for line in sending.stderr:
        count -= line.startswith("flushed")
        if not count:
            return
    raise AssertionError(f"It ended too early: {sending.communicate()}")
