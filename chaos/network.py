"""A client under kills and cuts, against any server: lives that end at any moment, and the judgement of what arrived.

Belongs here: the campaign, and the servers that it can be run against. The network is in `proxy.py`, the program that
is killed in `sending.py`.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Protocol
from urllib.parse import urlsplit

from chaos.proxy import Proxy, proxy
from tidemark.testing import Server

_ROOT = Path(__file__).resolve().parents[1]
# No life lasts longer than this, whatever a loaded machine does.
_LIFE_S = 300.0


class Target(Protocol):
    """A server that can be killed."""

    def address(self) -> tuple[str, int]:
        """Where it listens now."""

    def kill(self) -> None:
        """End it without a word, and start it again."""

    def received(self) -> list[str]:
        """The id of every delta that it has accepted, in order; called once, at the end."""


class InMemory:
    """The server in memory: what it has taken survives its restarts."""

    def __init__(self, server: Server) -> None:
        self._server = server

    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._server.port

    def kill(self) -> None:
        self._server.restart()

    def received(self) -> list[str]:
        return [delta["delta_id"] for delta in self._server.deltas]


class Served:
    """`tidemark serve` as a process of its own, with a home on the disk."""

    def __init__(self, home: Path, port: int) -> None:
        self._home, self._port = home, port
        self._process = self._started()

    def address(self) -> tuple[str, int]:
        return "127.0.0.1", self._port

    def _started(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tidemark.cli", "--home", str(self._home), "serve", "--no-http"]
        return subprocess.Popen(
            [*command, "--listen", f"127.0.0.1:{self._port}"],
            env={**os.environ, "PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT}"},
            stderr=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process = self._started()

    def wait_until_there(self) -> None:
        """Return when it listens."""
        for _ in range(600):
            try:
                socket.create_connection(self.address()).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise TimeoutError("the server does not listen")

    def stop(self) -> int:
        """End it as an operator does; returns its exit code."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(60)

    def received(self) -> list[str]:
        import pyarrow.parquet as pq

        from tidemark.coordinator.platform import Platform
        from tidemark.storage.home import Home

        self.stop()
        home = Home(self._home)
        with Platform.open(home) as platform:
            platform.seal()
        found: list[tuple[int, int, str, str]] = []
        for file in home.segments(0).rglob("*.parquet"):
            rows = pq.read_table(file, columns=["epoch", "ordinal", "delta_id", "verdict"]).to_pylist()
            found += [(row["epoch"], row["ordinal"], row["delta_id"], row["verdict"]) for row in rows]
        # A duplicate would be a delta that the client has sent under two numbers.
        return [f"{name}" if verdict == "accepted" else f"{name} {verdict}" for _, _, name, verdict in sorted(found)]


@dataclass
class Campaign:
    """What the lives have said."""

    told: dict[str, int] = field(default_factory=dict)  # name of a call → deltas in it
    levels: Counter[str] = field(default_factory=Counter)
    kills: int = 0
    server_kills: int = 0
    left: int | None = None

    def hear(self, text: str) -> None:
        """The output of a life; its last line may be torn."""
        for line in text.splitlines(keepends=True):
            words = line.split()
            if not line.endswith("\n") or len(words) < 2:
                continue
            self.levels[words[0]] += 1
            if words[0] == "left":
                self.left = int(words[1])
            else:
                self.told[words[1]] = int(words[2])

    def judge(self, received: Sequence[str]) -> None:
        """Nothing that was told is missing, nothing is there twice, and the deltas of a life are in their order."""
        counts = Counter(received)
        twice = [name for name, count in counts.items() if count > 1 or " " in name]
        assert not twice, f"there twice: {twice[:10]}"  # noqa: S101 - a judgement
        parts = [f"{name}-{part}" for name, size in self.told.items() for part in range(size)]
        lost = [name for name in parts if name not in counts]
        assert not lost, f"lost: {lost[:10]}"  # noqa: S101
        order: dict[str, list[tuple[int, int]]] = {}
        for name in received:
            life, number, part = name.split("-")
            order.setdefault(life, []).append((int(number), int(part)))
        assert all(found == sorted(found) for found in order.values()), "out of order"  # noqa: S101
        lives = [int(name.partition("-")[0]) for name in received]
        assert lives == sorted(lives), "a later life came before an earlier one"  # noqa: S101


def run_campaign(
    target: Target, spool: Path, *, seed: int, kills: int, cuts: int, server_kills: int = 0, rate: float = 0.02
) -> Campaign:
    """So many lives that are killed, with cuts and kills of the server under them, and one that comes to its end."""
    random, campaign = Random(seed), Campaign()
    with proxy(target.address, seed=seed, rate=rate) as network:
        life = 0
        while campaign.kills < kills or network.cuts < cuts or campaign.server_kills < server_kills:
            wants_kill = campaign.server_kills < server_kills
            _killed_life(campaign, target if wants_kill else None, network, spool, life, random)
            life += 1
        network.rate = 0.0
        process = _started(network, spool, life, 20)
        output, _ = process.communicate(timeout=_LIFE_S)
        campaign.hear(output.decode())
        assert process.returncode == 0, "the last life failed"  # noqa: S101
    campaign.judge(target.received())
    return campaign


def _started(network: Proxy, spool: Path, life: int, count: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "chaos.sending", network.url, str(spool), str(life), str(count)]
    environment = {**os.environ, "PYTHONPATH": f"{_ROOT / 'src'}:{_ROOT}"}
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=str(_ROOT))


def _killed_life(
    campaign: Campaign, victim: Target | None, network: Proxy, spool: Path, life: int, random: Random
) -> None:
    """One in eight is killed while it starts, the others while they send; the server somewhere in between."""
    process = _started(network, spool, life, 1_000_000)
    assert process.stdout is not None  # noqa: S101 - it is a pipe
    output = b""
    if random.random() < 1 / 8:
        time.sleep(random.random() / 2)
    else:
        lines = random.randint(1, 120)
        die_at = random.randint(0, lines) if victim is not None else -1
        for line in range(lines):
            if line == die_at and victim is not None:
                victim.kill()
                campaign.server_kills += 1
            read = process.stdout.readline()
            output += read
            if not read:
                break
    process.kill()
    output += process.stdout.read()
    process.stdout.close()
    assert process.wait() == -signal.SIGKILL, "a life ended by itself"  # noqa: S101
    campaign.kills += 1
    campaign.hear(output.decode())


def host_and_port(url: str) -> tuple[str, int]:
    """The two parts of an address."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or 0
