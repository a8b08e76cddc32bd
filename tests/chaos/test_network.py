"""Clients are killed, networks cut and servers killed: lost nothing, twice nothing, in order (Q2, W4, W5, C7)."""

import socket
from pathlib import Path

import pytest

from chaos.network import InMemory, Served, run_campaign
from tidemark.storage.home import Home
from tidemark.testing import server

SEED = 11


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_killed_clients_and_a_network_that_fails_lose_and_repeat_nothing(tmp_path: Path) -> None:
    with server(heartbeat_ms=200) as found:
        campaign = run_campaign(
            InMemory(found), tmp_path / "spool", seed=SEED, kills=4, cuts=20, server_kills=2, rate=0.1
        )
        assert campaign.left == 0
        assert min(campaign.levels["flushed"], campaign.levels["spooled"]) > 5


def test_so_do_kills_of_the_server_itself(tmp_path: Path) -> None:
    """The whole path: a spool, a bad network, and `serve` with its log on a disk."""
    home = Home(tmp_path / "home").create()
    served = Served(home.root, free_port())
    try:
        campaign = run_campaign(served, tmp_path / "spool", seed=SEED, kills=3, cuts=5, server_kills=2, rate=0.1)
        assert campaign.left == 0
        assert campaign.levels["flushed"] > 5
    finally:
        served.stop()


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_two_hundred_killed_clients_and_a_thousand_cuts(tmp_path: Path, seed: int) -> None:
    with server(heartbeat_ms=200) as found:
        run_campaign(InMemory(found), tmp_path / "spool", seed=seed, kills=100, cuts=500, server_kills=50, rate=0.2)


@pytest.mark.slow
def test_two_hundred_killed_clients_and_servers_and_a_thousand_cuts_on_a_disk(tmp_path: Path) -> None:
    home = Home(tmp_path / "home").create()
    served = Served(home.root, free_port())
    try:
        run_campaign(served, tmp_path / "spool", seed=SEED, kills=200, cuts=1_000, server_kills=200, rate=0.2)
    finally:
        served.stop()
