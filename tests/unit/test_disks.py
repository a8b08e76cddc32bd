"""The simulated disk behaves as the real one until the power goes, and then keeps only what was synced; the faulty one
fails where it is told to. What is not tested here cannot be believed of anything that was tested on them."""

import errno
import os
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chaos.disks import (
    EVERY_KIND,
    SECTOR,
    SYNCS,
    WRITES,
    Call,
    CallKind,
    Fault,
    FaultyDisk,
    Moment,
    PowerCut,
    SimulatedDisk,
    Survival,
)
from tidemark.storage.disk import Disk, RealDisk

HOME = Path("/home")
FILE = HOME / "file"
OTHER = HOME / "other"
SEEDS = range(40)


@pytest.fixture
def disk() -> SimulatedDisk:
    """An empty directory, on the disk for certain."""
    disk = SimulatedDisk()
    disk.make_directory(HOME)
    return disk


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


# The simulated disk against the real one.

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


# When the power goes.


def workload(disk: Disk) -> None:
    fd = disk.create(FILE, 4 * SECTOR)
    disk.pwrite(fd, sectors("a", "b"), 0)
    disk.sync(fd)
    disk.sync_directory(HOME)
    disk.replace(OTHER, b"other")


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


# The faulty disk.


def test_the_nth_call_of_a_kind_fails_and_the_others_go_on(disk: SimulatedDisk) -> None:
    faulty = FaultyDisk(disk, [Fault(frozenset({CallKind.FSYNC}), nth=2, error=errno.ENOSPC)])
    faulty.append(FILE, b"a")
    with pytest.raises(OSError, match="No space") as refused:
        faulty.append(FILE, b"b")
    assert refused.value.errno == errno.ENOSPC
    faulty.append(FILE, b"c")
    assert faulty.read(FILE) == b"abc"


def test_every_call_of_a_workload_can_be_made_to_fail(disk: SimulatedDisk) -> None:
    counted = FaultyDisk(disk)
    workload(counted)
    for nth, call in enumerate(counted.trace, start=1):
        fresh = SimulatedDisk()
        fresh.make_directory(HOME)
        faulty = FaultyDisk(fresh, [Fault(EVERY_KIND, nth)])
        with pytest.raises(OSError, match="Input/output error"):
            workload(faulty)
        assert faulty.trace[-1] == call or faulty.trace[-2] == call
    assert {call.kind for call in counted.trace} == EVERY_KIND - {CallKind.TRUNCATE, CallKind.UNLINK, CallKind.MKDIR}


def test_a_lasting_fault_lasts(disk: SimulatedDisk) -> None:
    faulty = FaultyDisk(disk, [Fault(SYNCS, nth=3, is_lasting=True)])
    faulty.replace(FILE, b"a")
    for _ in range(3):
        with pytest.raises(OSError, match="Input/output error"):
            faulty.append(FILE, b"b")


def test_a_short_write_is_continued(disk: SimulatedDisk) -> None:
    faulty = FaultyDisk(disk, [Fault(WRITES, nth=1, error=None, written=2), Fault(WRITES, 2, None, written=3)])
    faulty.append(FILE, b"abcdefgh")
    assert faulty.read(FILE) == b"abcdefgh"
    assert [call.size for call in faulty.trace if call.kind in WRITES] == [8, 6, 3]


def test_a_disk_that_fills_up_takes_the_first_part_of_a_write(disk: SimulatedDisk) -> None:
    faulty = FaultyDisk(disk, [Fault(WRITES, nth=1, error=errno.ENOSPC, written=2)])
    fd = faulty.create(FILE, 10)
    with pytest.raises(OSError, match="No space"):
        faulty.pwrite(fd, b"abcd", 0)
    assert faulty.read(FILE) == b"ab" + bytes(8)


def test_where_there_is_no_space_there_is_no_file_either(disk: SimulatedDisk) -> None:
    faulty = FaultyDisk(disk, [Fault(frozenset({CallKind.ALLOCATE}), nth=1, error=errno.ENOSPC)])
    with pytest.raises(OSError, match="No space"):
        faulty.create(FILE, 10)
    assert contents(faulty) == {}
    faulty.create(FILE, 10)


def test_what_a_failed_sync_has_lost_no_later_sync_brings_back(disk: SimulatedDisk) -> None:
    faulty = FaultyDisk(disk, [Fault(frozenset({CallKind.FDATASYNC}), nth=2)])
    fd = faulty.create(FILE, 4 * SECTOR)
    faulty.sync(fd)
    faulty.sync_directory(HOME)
    faulty.pwrite(fd, sectors("a", "b"), 0)
    with pytest.raises(OSError, match="Input/output error"):
        faulty.sync(fd)
    faulty.pwrite(fd, sectors("c"), 2 * SECTOR)
    faulty.sync(fd)
    assert faulty.read(FILE) == sectors("a", "b", "c", "\0"), "the cache still shows it"
    assert outcomes(disk, Survival.NOTHING) == [{"file": sectors("\0", "\0", "c", "\0")}]
    assert {left["file"] for left in outcomes(disk, Survival.RANDOM)} == {
        sectors(*letters, "c", "\0") for letters in product("\0a", "\0b")
    }
    next_life = disk.crash(Survival.CACHE, Random(0))
    assert next_life.read(FILE) == sectors("a", "b", "c", "\0")
    next_life.append(FILE, b"d")
    assert outcomes(next_life, Survival.NOTHING) == [{"file": sectors("\0", "\0", "c", "\0") + b"d"}]


def test_names_lie_in_the_journal_and_are_not_lost_by_a_sync_that_failed(disk: SimulatedDisk) -> None:
    faulty = FaultyDisk(disk, [Fault(frozenset({CallKind.FSYNC_DIRECTORY}), nth=1)])
    with pytest.raises(OSError, match="Input/output error"):
        faulty.replace(FILE, b"a")
    assert contents(disk.after(Survival.NOTHING, Random(0))) == {}
    faulty.sync_directory(HOME)
    assert contents(disk.after(Survival.NOTHING, Random(0))) == {"file": b"a"}


def test_free_space_is_what_one_says(disk: SimulatedDisk, tmp_path: Path) -> None:
    assert disk.free_bytes(HOME) > 0
    assert RealDisk().free_bytes(tmp_path) > 0
    faulty = FaultyDisk(disk)
    faulty.set_free_bytes(17)
    assert faulty.free_bytes(HOME) == 17
    faulty.set_free_bytes(None)
    assert faulty.free_bytes(HOME) == disk.free_bytes(HOME)


def test_a_real_disk_can_be_made_to_fail_too(tmp_path: Path) -> None:
    faulty = FaultyDisk(RealDisk(), [Fault(frozenset({CallKind.FSYNC_DIRECTORY}), nth=1)])
    with pytest.raises(OSError, match="Input/output error"):
        faulty.append(tmp_path / "file", b"a")
    faulty.append(tmp_path / "file", b"b")
    assert (tmp_path / "file").read_bytes() == b"ab"
