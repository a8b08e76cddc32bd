"""The whole way of a delta on a disk that forgets: client, door and coordinator, while the power goes again and again.

The client goes on by itself. What it was told is on the disk stays there, and in the end everything is there once.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random

import pytest

import tidemark
from chaos.disks import PowerCut, SimulatedDisk, Survival
from tests.support.conversations import clock
from tests.support.served import ServedHome, home_at, served
from tidemark.client.client import Client
from tidemark.client.handles import Sent
from tidemark.gateway import places
from tidemark.model.shard_errors import CoordinatorError
from tidemark.storage.home import Home

CUTS = 4


class Sending:
    """A program that sends deltas, each with an id of its own, until it is told to stop."""

    def __init__(self, client: Client, random: Random) -> None:
        self._client, self._random = client, random
        self._is_stopping = threading.Event()
        self.sent: list[tuple[list[str], Sent]] = []
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def acknowledged(self) -> set[str]:
        """The ids of which it was told that they are on the disk."""
        return {each for ids, handle in list(self.sent) if handle.outcome.waiting == 0 for each in ids}

    def stop(self) -> None:
        """Send no more, and return when everything is acknowledged."""
        self._is_stopping.set()
        self._thread.join()
        for _, handle in self.sent:
            handle.wait(timeout=60)

    def _send(self) -> None:
        number = 0
        while not self._is_stopping.is_set():
            ids = [f"d-{number + place}" for place in range(self._random.randint(1, 5))]
            number += len(ids)
            signal = {"entity_id": "e", "signal": "view"}
            deltas = [
                {"namespace": "shop", "kind": "signal", "delta_id": each, "event_ts": clock(), "signal": signal}
                for each in ids
            ]
            self.sent.append((ids, self._client.send(deltas)))
            time.sleep(0.001)


@contextmanager
def life(home: Home, disk: SimulatedDisk) -> Iterator[ServedHome]:
    """The home is served on this disk; that it ends badly is part of it."""
    for shard in range(home.settings.shards):
        with suppress(FileNotFoundError):  # the process that had the lock died with the power
            (home.log(shard) / "writer.lock").unlink()
    with (
        suppress(PowerCut, CoordinatorError),
        served(home, clock=clock, disk=disk, durable_epochs=dict, rules={}) as door,
    ):
        yield door


def stored(door: ServedHome) -> list[str]:
    """The ids of all accepted deltas in the log."""
    tables = [shard.snapshot().read() for shard in door.platform.shards.values()]
    rows = [row for table in tables for row in table.select(["delta_id", "verdict"]).to_pylist()]
    return [row["delta_id"] for row in rows if row["verdict"] == "accepted"]


def campaign(seed: int, folder: Path) -> None:
    """Cut the power some times while a program sends, and check after each."""
    random = Random(seed)
    home, disk = home_at(folder, f"shards = {random.choice((1, 2))}\n"), SimulatedDisk()
    acknowledged: set[str] = set()
    address = f"unix:{places.w1_socket(home)}"
    with tidemark.connect(address, producer="web", longest_wait_s=0.05, linger_s=0.001, random=random) as client:
        sending = Sending(client, Random(seed))
        for _ in range(CUTS):
            with life(home, disk) as door:
                assert acknowledged <= set(stored(door)), "an acknowledged delta is gone"
                time.sleep(0.1 + 0.2 * random.random())
                acknowledged = sending.acknowledged()
                disk = disk.crash(random.choice(list(Survival)), random)
        with life(home, disk) as door:
            assert acknowledged <= set(stored(door)), "an acknowledged delta is gone"
            sending.stop()
            found = stored(door)
    assert len(found) == len(set(found)), "a delta is there twice"
    assert set(found) == {each for ids, _ in sending.sent for each in ids}
    assert acknowledged, "nothing was acknowledged between the cuts, so nothing was tried"


@pytest.mark.parametrize("seed", range(2))
def test_no_power_cut_loses_or_repeats_what_goes_through_the_door_c7(seed: int, tmp_path: Path) -> None:
    campaign(seed, tmp_path / "home")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2, 40))
def test_many_power_cuts_lose_and_repeat_nothing_c7(seed: int, tmp_path: Path) -> None:
    campaign(seed, tmp_path / "home")
