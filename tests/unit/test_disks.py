"""The simulated disk behaves as the real one until the power goes, and then keeps only what was synced. What is not
tested here cannot be believed of anything that was tested on it."""

import os
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos.disks import SECTOR, SimulatedDisk, Survival
from tests.support.disks import FILE, HOME, OTHER, all_outcomes, contents, empty_disk, outcomes, sectors, write_to
from tidemark.storage.disk import RealDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return empty_disk()


NAMES = st.sampled_from(["a", "b", "sub/a", "sub"])
DATA = st.binary(max_size=40) | st.integers(0, 3).map(lambda count: b"x" * (count * SECTOR))
STEPS = st.one_of(
    st.tuples(st.just("create"), NAMES, st.integers(0, 2 * SECTOR)),
    st.tuples(st.just("pwrite"), st.integers(0, 3), DATA, st.integers(0, 2 * SECTOR)),
    st.tuples(st.just("truncate"), st.integers(0, 3), st.integers(0, 3 * SECTOR)),
    st.tuples(st.sampled_from(["sync", "close"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["append", "replace"]), NAMES, DATA),
    st.tuples(st.just("rename"), *[st.sampled_from(["a", "b", "c"])] * 2),
    st.tuples(st.sampled_from(["remove", "read", "list", "make_directory", "sync_directory"]), NAMES),
)


def take(disk: RealDisk, root: Path, descriptors: list[int], step: tuple[Any, ...]) -> object:
    """The result of a step, or the error; a descriptor is named by its number in the order of creation."""
    name, *arguments = step
    arguments = [root / each if isinstance(each, str) else each for each in arguments]
    if name in {"pwrite", "truncate", "sync", "close"}:
        if arguments[0] >= len(descriptors):
            return None
        arguments[0] = descriptors.pop(arguments[0]) if name == "close" else descriptors[arguments[0]]
    try:
        result = getattr(disk, name)(*arguments)
    except OSError as error:
        return error.errno
    if name == "create":
        descriptors.append(result)
        return None
    return result


def tree(disk: RealDisk, folder: Path) -> dict[str, object]:
    found: dict[str, object] = {}
    for name in disk.list(folder):
        try:
            found[name] = disk.read(folder / name)
        except IsADirectoryError:
            found[name] = tree(disk, folder / name)
    return found


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=25))
def test_without_a_crash_the_simulated_disk_shows_what_the_real_one_shows(
    steps: list[tuple[Any, ...]], tmp_path: Path
) -> None:
    root = tmp_path / str(len(list(tmp_path.iterdir())))
    real, simulated = RealDisk(), SimulatedDisk()
    open_real: list[int] = []
    open_simulated: list[int] = []
    for disk in (real, simulated):
        disk.make_directory(root / "sub")
    for step in steps:
        assert take(simulated, root, open_simulated, step) == take(real, root, open_real, step), step
    for fd in open_real:
        real.close(fd)
    assert tree(simulated, root) == tree(real, root)
    assert tree(simulated.crash(Survival.EVERYTHING, Random(0)), root) == tree(real, root)


@given(steps=st.lists(STEPS, max_size=25), mode=st.sampled_from(Survival), seed=st.integers(0, 9))
def test_the_same_seed_leaves_the_same_and_what_was_left_stays(
    steps: list[tuple[Any, ...]], mode: Survival, seed: int
) -> None:
    disk = SimulatedDisk()
    disk.make_directory(HOME / "sub")
    descriptors: list[int] = []
    for step in steps:
        take(disk, HOME, descriptors, step)
    left = disk.crash(mode, Random(seed))
    found = tree(left, HOME)
    assert tree(disk.crash(mode, Random(seed)), HOME) == found
    if mode is not Survival.CACHE:
        for again in Survival:
            assert tree(left.crash(again, Random(seed)), HOME) == found


# What survives, rule by rule.


def test_what_was_synced_with_its_name_survives_in_every_mode(disk: SimulatedDisk) -> None:
    fd = disk.create(FILE, 4 * SECTOR)
    disk.pwrite(fd, b"kept", 700)
    disk.sync(fd)
    disk.sync_directory(HOME)
    expected = {"file": bytes(700) + b"kept" + bytes(4 * SECTOR - 704)}
    assert all(left == expected for left in all_outcomes(disk))


def test_every_composed_call_is_safe_in_every_mode(disk: SimulatedDisk) -> None:
    disk.append(FILE, b"one\n")
    disk.append(FILE, b"two\n")
    disk.replace(OTHER, b"old")
    disk.replace(OTHER, b"new")
    disk.replace(HOME / "moved", b"moved")
    disk.rename(HOME / "moved", HOME / "here")
    disk.replace(HOME / "gone", b"gone")
    disk.remove(HOME / "gone")
    assert all(left == {"file": b"one\ntwo\n", "other": b"new", "here": b"moved"} for left in all_outcomes(disk))


def test_of_an_unsynced_write_any_set_of_whole_sectors_may_survive(disk: SimulatedDisk) -> None:
    disk.replace(FILE, sectors("a", "b", "c"))
    write_to(disk, FILE, sectors("A", "B", "C"))
    found = {left["file"] for left in outcomes(disk, Survival.RANDOM)}
    assert found == {sectors(*letters) for letters in product("aA", "bB", "cC")}
    assert {left["file"] for left in outcomes(disk, Survival.PREFIX)} == {
        sectors(*letters) for letters in ("abc", "Abc", "ABc", "ABC")
    }
    assert {left["file"] for left in outcomes(disk, Survival.SUFFIX)} == {
        sectors(*letters) for letters in ("ABC", "aBC", "abC", "abc")
    }
    for mode, letters in (
        (Survival.NOTHING, "abc"),
        (Survival.NAMES, "abc"),
        (Survival.SIZES, "abc"),
        (Survival.DATA, "ABC"),
        (Survival.EVERYTHING, "ABC"),
        (Survival.CACHE, "ABC"),
    ):
        assert outcomes(disk, mode) == [{"file": sectors(*letters)}], mode


def test_a_sector_written_twice_may_hold_either_and_never_half_of_one(disk: SimulatedDisk) -> None:
    disk.replace(FILE, sectors("a"))
    write_to(disk, FILE, b"b" * 100)
    write_to(disk, FILE, b"c" * 50)
    assert {left["file"] for left in outcomes(disk, Survival.RANDOM)} == {
        sectors("a"),
        b"b" * 100 + b"a" * 412,
        b"c" * 50 + b"b" * 50 + b"a" * 412,
    }


def test_a_file_that_grew_may_have_any_size_between_and_zeros_where_data_is_missing(disk: SimulatedDisk) -> None:
    disk.append(FILE, b"old")
    write_to(disk, FILE, sectors("n", "n"), os.O_APPEND)
    found = {left["file"] for left in outcomes(disk, Survival.RANDOM)}
    assert {len(each) for each in found} == {3, SECTOR, 2 * SECTOR, 2 * SECTOR + 3}
    assert {each[:3] for each in found} == {b"old"}
    assert b"old" + bytes(2 * SECTOR) in {each.ljust(2 * SECTOR + 3, b"\0") for each in found}
    assert outcomes(disk, Survival.SIZES) == [{"file": b"old" + bytes(2 * SECTOR)}]
    assert outcomes(disk, Survival.NAMES) == [{"file": b"old"}]


def test_what_was_set_aside_reads_as_zeros(disk: SimulatedDisk) -> None:
    disk.create(FILE, 3 * SECTOR)
    disk.sync_directory(HOME)
    assert {left["file"] for left in all_outcomes(disk)} == {b"", bytes(3 * SECTOR)}


def test_a_file_that_was_cut_may_have_either_size(disk: SimulatedDisk) -> None:
    fd = disk.create(FILE, 3 * SECTOR)
    disk.sync(fd)
    disk.sync_directory(HOME)
    disk.truncate(fd, 10)
    assert {left["file"] for left in all_outcomes(disk)} == {bytes(10), bytes(3 * SECTOR)}


def test_a_sync_of_a_file_covers_its_data_and_not_its_name(disk: SimulatedDisk) -> None:
    fd = disk.create(FILE, 2)
    disk.pwrite(fd, b"ab", 0)
    disk.sync(fd)
    assert [left for mode in (Survival.NOTHING, Survival.DATA) for left in outcomes(disk, mode)] == [{}, {}]
    assert {} in outcomes(disk, Survival.RANDOM)
    assert {tuple(left.items()) for left in all_outcomes(disk)} == {(), (("file", b"ab"),)}


def test_a_sync_of_a_directory_covers_names_and_not_data(disk: SimulatedDisk) -> None:
    write_to(disk, FILE, sectors("a"))
    disk.sync_directory(HOME)
    assert {left["file"] for left in all_outcomes(disk)} == {b"", bytes(SECTOR), sectors("a")}


def test_a_removed_file_may_be_back_as_it_was(disk: SimulatedDisk) -> None:
    disk.replace(FILE, b"old")
    disk.system.unlink(FILE)
    assert {tuple(left.items()) for left in all_outcomes(disk)} == {(), (("file", b"old"),)}
    assert outcomes(disk, Survival.NOTHING) == [{"file": b"old"}]


def test_a_rename_has_happened_or_not_and_no_file_has_two_names(disk: SimulatedDisk) -> None:
    disk.replace(FILE, b"new")
    disk.replace(OTHER, b"old")
    disk.system.rename(FILE, OTHER)
    before, after = {"file": b"new", "other": b"old"}, {"other": b"new"}
    assert all(left in (before, after) for left in all_outcomes(disk))
    assert outcomes(disk, Survival.RANDOM) in ([before, after], [after, before])
    disk = disk.crash(Survival.EVERYTHING, Random(0))
    disk.system.rename(OTHER, FILE)
    disk.system.rename(FILE, HOME / "third")
    assert all(left in ({name: b"new"} for name in ("other", "file", "third")) for left in all_outcomes(disk))


def test_names_of_one_directory_survive_each_on_its_own(disk: SimulatedDisk) -> None:
    disk.replace(FILE, b"")
    disk.system.unlink(FILE)
    write_to(disk, OTHER, b"")
    assert {frozenset(left) for left in outcomes(disk, Survival.RANDOM)} == {
        frozenset(),
        frozenset({"file"}),
        frozenset({"other"}),
        frozenset({"file", "other"}),
    }
    assert {frozenset(left) for left in outcomes(disk, Survival.PREFIX)} == {
        frozenset({"file"}),
        frozenset(),
        frozenset({"other"}),
    }


def test_a_directory_that_a_killed_process_has_made_is_synced_by_the_next_that_wants_it(disk: SimulatedDisk) -> None:
    disk.system.mkdir(HOME / "sub")
    next_life = disk.crash(Survival.CACHE, Random(0))
    next_life.make_directory(HOME / "sub")
    next_life.replace(HOME / "sub" / "file", b"synced")
    assert contents(next_life.crash(Survival.NOTHING, Random(0)), HOME / "sub") == {"file": b"synced"}


def test_a_directory_that_was_not_synced_is_lost_with_all_that_was(disk: SimulatedDisk) -> None:
    disk.system.mkdir(HOME / "sub")
    disk.replace(HOME / "sub" / "file", b"synced")
    assert disk.crash(Survival.NOTHING, Random(0)).list(HOME) == []
    assert contents(disk.crash(Survival.NAMES, Random(0)), HOME / "sub") == {"file": b"synced"}


def test_when_only_the_process_died_all_is_there_but_still_not_certain(disk: SimulatedDisk) -> None:
    write_to(disk, FILE, b"unsynced")
    next_life = disk.crash(Survival.CACHE, Random(0))
    assert contents(next_life) == {"file": b"unsynced"}
    assert contents(next_life.after(Survival.NOTHING, Random(0))) == {}
    write_to(next_life, OTHER, b"later")
    assert {"other"} not in [set(left) for left in outcomes(next_life, Survival.PREFIX)]
