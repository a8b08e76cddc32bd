"""The power goes on the simulated disk where it is told to, and the usual mistakes are seen then."""

import os
from collections.abc import Callable
from random import Random

import pytest

from chaos.disks import SECTOR, WRITES, Call, Moment, PowerCut, SimulatedDisk, Survival
from tests.support.disks import FILE, HOME, OTHER, SEEDS, contents, empty_disk, outcomes, sectors, workload, write_to


@pytest.fixture
def disk() -> SimulatedDisk:
    return empty_disk()


def test_the_power_goes_before_in_the_middle_of_or_after_the_call_that_was_named() -> None:
    def left(at: int, moment: Moment) -> dict[str, bytes]:
        disk = SimulatedDisk()
        disk.make_directory(HOME)
        disk.cut_power(at, moment)
        with pytest.raises(PowerCut, match=f"{moment.value} call {at}"):
            workload(disk)
        return contents(disk.crash(Survival.EVERYTHING, Random(0)))

    empty = bytes(4 * SECTOR)
    assert left(3, Moment.BEFORE) == {}
    assert left(3, Moment.AFTER) == left(4, Moment.BEFORE) == {"file": b""}
    assert left(4, Moment.AFTER) == left(5, Moment.BEFORE) == {"file": empty}
    assert left(5, Moment.MIDDLE) == {"file": sectors("a") + empty[SECTOR:]}
    assert left(5, Moment.AFTER) == {"file": sectors("a", "b") + empty[2 * SECTOR :]}


def test_every_crash_of_a_workload_can_be_seen_in_one_run_of_it() -> None:
    seen: list[tuple[int, Moment, dict[str, bytes]]] = []
    disk = SimulatedDisk()
    disk.make_directory(HOME)

    def look(_: Call, moment: Moment, then: SimulatedDisk) -> None:
        seen.append((len(disk.trace) + 1, moment, contents(then.after(Survival.EVERYTHING, Random(0)))))

    disk.watch(look)
    workload(disk)
    assert len(seen) == len(disk.trace) - 2 + sum(call.kind in WRITES for call in disk.trace)
    for at, moment, left in seen:
        again = SimulatedDisk()
        again.make_directory(HOME)
        again.cut_power(at, moment)
        with pytest.raises(PowerCut):
            workload(again)
        assert contents(again.crash(Survival.EVERYTHING, Random(0))) == left, (at, moment)


def test_the_calls_of_a_life_are_counted_and_named(disk: SimulatedDisk) -> None:
    workload(disk)
    assert [str(call.kind) for call in disk.trace] == [
        "mkdir",
        "fsync_directory",
        "create",
        "allocate",
        "pwrite",
        "fdatasync",
        "fsync_directory",
        "create",
        "write",
        "fsync",
        "rename",
        "fsync_directory",
    ]


def test_nothing_runs_on_when_the_machine_is_off(disk: SimulatedDisk) -> None:
    fd = disk.create(FILE, 10)
    disk.crash(Survival.NOTHING, Random(0))
    later: list[Callable[[], object]] = [
        lambda: disk.read(FILE),
        lambda: disk.list(HOME),
        lambda: disk.pwrite(fd, b"", 0),
        lambda: disk.pwrite(fd, b"x", 0),
        lambda: disk.sync(fd),
        lambda: disk.close(fd),
        lambda: disk.append(FILE, b""),
        lambda: disk.replace(FILE, b""),
        lambda: disk.remove(FILE),
        lambda: disk.make_directory(HOME / "x"),
        lambda: disk.free_bytes(HOME),
    ]
    for number, call in enumerate(later):
        if number == 2:
            continue  # nothing to write is no call at all
        with pytest.raises(PowerCut):
            call()
    assert not issubclass(PowerCut, Exception)


def test_damage_is_put_in_place_without_a_trace(disk: SimulatedDisk) -> None:
    disk.append(FILE, b"good")
    calls = len(disk.trace)
    disk.store(FILE, b"bad")
    disk.store(OTHER, b"bad too")
    assert len(disk.trace) == calls
    assert outcomes(disk, Survival.NOTHING) == [{"file": b"bad", "other": b"bad too"}]


# The usual mistakes: each is seen in some mode, and the right way in none.


def create_file(disk: SimulatedDisk, *, forgets: bool) -> None:
    fd = disk.create(FILE, 4)
    disk.pwrite(fd, b"data", 0)
    disk.sync(fd)
    disk.close(fd)
    if not forgets:
        disk.sync_directory(HOME)


def replace_file(disk: SimulatedDisk, *, forgets: bool) -> None:
    fd = disk.system.open(OTHER, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    disk.system.write(fd, memoryview(b"data"))
    if not forgets:
        disk.system.fsync(fd)
    disk.system.close(fd)
    disk.rename(OTHER, FILE)


def rename_file(disk: SimulatedDisk, *, forgets: bool) -> None:
    disk.replace(OTHER, b"data")
    disk.system.rename(OTHER, FILE)
    if not forgets:
        disk.sync_directory(HOME)


def append_to_file(disk: SimulatedDisk, *, forgets: bool) -> None:
    disk.append(FILE, b"da")
    if forgets:
        write_to(disk, FILE, b"ta", os.O_APPEND)
    else:
        disk.append(FILE, b"ta")


def make_folder(disk: SimulatedDisk, *, forgets: bool) -> None:
    if forgets:
        disk.system.mkdir(HOME / "sub")
    else:
        disk.make_directory(HOME / "sub")
    disk.replace(HOME / "sub" / "file", b"data")


@pytest.mark.parametrize("pattern", [create_file, replace_file, rename_file, append_to_file, make_folder])
def test_a_forgotten_sync_is_seen_in_some_mode_and_the_right_way_in_none(
    disk: SimulatedDisk, pattern: Callable[..., None]
) -> None:
    path = HOME / "sub" / "file" if pattern is make_folder else FILE

    def is_kept(disk: SimulatedDisk) -> bool:
        try:
            return disk.read(path) == b"data"
        except FileNotFoundError:
            return False

    careful, careless = disk.crash(Survival.NOTHING, Random(0)), disk.crash(Survival.NOTHING, Random(0))
    pattern(careful, forgets=False)
    pattern(careless, forgets=True)
    seeds = [(mode, seed) for mode in Survival for seed in SEEDS]
    assert all(is_kept(careful.crash(mode, Random(seed))) for mode, seed in seeds)
    seen_in = {mode for mode, seed in seeds if not is_kept(careless.crash(mode, Random(seed)))}
    assert seen_in >= {Survival.NOTHING, Survival.RANDOM, Survival.PREFIX}
    assert not seen_in & {Survival.EVERYTHING, Survival.CACHE}
