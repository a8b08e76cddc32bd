"""The faulty disk fails where it is told to, and what a failed sync has lost stays lost."""

import errno
from itertools import product
from pathlib import Path
from random import Random

import pytest

from chaos.disks import EVERY_KIND, SECTOR, SYNCS, WRITES, CallKind, Fault, FaultyDisk, SimulatedDisk, Survival
from tests.support.disks import FILE, HOME, contents, empty_disk, outcomes, sectors, workload
from tidemark.storage.disk import RealDisk


@pytest.fixture
def disk() -> SimulatedDisk:
    return empty_disk()


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
