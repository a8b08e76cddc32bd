"""A simulated disk with an empty directory, and what may be left of it after a crash."""

import os
from collections.abc import Iterator
from pathlib import Path
from random import Random

from chaos.disks import SECTOR, SimulatedDisk, Survival
from tidemark.storage.disk import Disk

HOME = Path("/home")
FILE = HOME / "file"
OTHER = HOME / "other"
SEEDS = range(40)


def contents(disk: Disk, folder: Path = HOME) -> dict[str, bytes]:
    return {name: disk.read(folder / name) for name in disk.list(folder)}


def outcomes(disk: SimulatedDisk, mode: Survival) -> list[dict[str, bytes]]:
    """What may be left, without repetition."""
    found: list[dict[str, bytes]] = []
    for seed in SEEDS:
        left = contents(disk.crash(mode, Random(seed)))
        if left not in found:
            found.append(left)
    return found


def all_outcomes(disk: SimulatedDisk) -> Iterator[dict[str, bytes]]:
    for mode in Survival:
        yield from outcomes(disk, mode)


def sectors(*letters: str) -> bytes:
    return b"".join(letter.encode() * SECTOR for letter in letters)


def write_to(disk: SimulatedDisk, path: Path, data: bytes, flags: int = 0) -> None:
    """Write without any sync."""
    fd = disk.system.open(path, os.O_WRONLY | os.O_CREAT | flags)
    disk.system.write(fd, memoryview(data))
    disk.system.close(fd)


def workload(disk: Disk) -> None:
    fd = disk.create(FILE, 4 * SECTOR)
    disk.pwrite(fd, sectors("a", "b"), 0)
    disk.sync(fd)
    disk.sync_directory(HOME)
    disk.replace(OTHER, b"other")


def empty_disk() -> SimulatedDisk:
    """An empty directory, on the disk for certain."""
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    return disk
