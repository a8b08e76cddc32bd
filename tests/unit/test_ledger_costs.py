"""What a ledger reads and writes follows what is asked and changed, not what is there; and readers need no lock."""

import threading
from io import BufferedIOBase, BytesIO
from math import log2
from pathlib import Path
from random import Random

import pytest

from chaos.disks import SimulatedDisk
from tests.support.ledgers import LEDGER, SMALL, Owner, many, merge_everything, tiers_of
from tidemark.log.ledger import Ledger, RunInfo, Sizes
from tidemark.model.shard_errors import LogDamageError
from tidemark.storage.disk import RealDisk


class CountingFile(BytesIO):
    """Says how much of it is read."""

    def __init__(self, data: bytes, disk: "CountingDisk") -> None:
        super().__init__(data)
        self._disk = disk

    def read(self, size: int | None = -1) -> bytes:
        data = super().read(size)
        self._disk.bytes_read += len(data)
        return data


class CountingDisk(SimulatedDisk):
    """Counts the files that are opened, and the bytes that are read and written."""

    opened = bytes_read = bytes_written = 0

    def open(self, path: Path) -> BufferedIOBase:
        self.opened += 1
        with super().open(path) as file:
            return CountingFile(file.read(), self)

    def pwrite(self, fd: int, data: bytes | memoryview, offset: int) -> None:
        self.bytes_written += len(data)
        super().pwrite(fd, data, offset)


SCALED = Sizes(block=500, run=20_000, cache=20_000, read=2_000)


@pytest.mark.parametrize("keys", [100, 1_000, 10_000])
def test_opening_reads_nothing_and_a_lookup_reads_an_index_and_a_block_however_many_keys_there_are(keys: int) -> None:
    disk = CountingDisk()
    owner = Owner(disk, SCALED)
    owner.commit(many(Random(0), keys, keys))
    disk.opened = disk.bytes_read = 0
    ledger = Ledger(disk, LEDGER, owner.ledger.runs, SCALED)
    assert (disk.opened, disk.bytes_read) == (0, 0)
    assert ledger.get("producer-0000050") is not None
    assert disk.opened == 2
    assert disk.bytes_read < 4_000
    assert ledger.get("producer-0000050") is not None
    assert disk.opened == 2, "the second time it is in the cache"
    assert ledger.get("somebody else") is None
    assert disk.opened == 2, "no run has such a key in its range"


def test_a_key_that_is_not_there_hardly_ever_costs_a_block() -> None:
    disk = CountingDisk()
    owner = Owner(disk, SCALED._replace(cache=10**6))
    for round_ in range(20):
        owner.commit(many(Random(round_), 50, 1_000))
    absent = [f"producer-{number:07d}x" for number in range(1_000)]
    assert owner.ledger.get_many(absent) == {}
    disk.opened = 0
    ledger = Ledger(disk, LEDGER, owner.ledger.runs, SCALED._replace(cache=10**6))
    assert ledger.get_many(absent) == {}
    assert disk.opened < len(ledger.runs) + 0.05 * len(absent)


@pytest.mark.parametrize("changed", [5, 50, 500])
@pytest.mark.parametrize("is_clustered", [False, True])
def test_a_write_costs_what_it_changes_times_the_logarithm_of_what_is_there(changed: int, is_clustered: bool) -> None:
    disk, keys, random = CountingDisk(), 5_000, Random(1)
    owner = Owner(disk, SCALED)
    owner.commit(many(random, keys, keys))
    one = disk.bytes_written / keys
    total, rounds = 0, max(20, 2 * keys // changed)
    for round_ in range(min(rounds, 300)):
        before = disk.bytes_written
        if is_clustered:
            owner.commit({f"producer-{number % keys:07d}": b"x" * 20 for number in range(round_, round_ + changed)})
        else:
            owner.commit(many(random, changed, keys))
        cost = disk.bytes_written - before
        total += cost
        # One write does its own work, and at most so much of the merges: never a merge of everything.
        own = changed * one * 1.3 + 200
        assert cost <= own * (tiers_of(owner.ledger) + 4) + 2 * SCALED.run, round_
        assert tiers_of(owner.ledger) <= log2(keys / changed) + 4
    doublings = log2(keys / changed)
    assert total <= min(rounds, 300) * (changed * one * 1.3 + 200) * (doublings + 3)


def test_a_merge_of_everything_goes_on_over_many_writes_and_restarts() -> None:
    disk, random = CountingDisk(), Random(2)
    owner = Owner(disk, SCALED)
    expected = many(random, 5_000, 5_000)
    owner.commit(expected)
    changes = many(random, 2_000, 5_000)
    owner.commit(changes)
    expected |= changes
    assert tiers_of(owner.ledger) == 2
    merge_everything(disk, owner)
    steps = 0
    while any(run.into is not None for run in owner.ledger.runs):
        before = disk.bytes_written
        owner.commit({})
        assert disk.bytes_written - before <= 1.3 * SCALED.run
        owner = Owner(disk, SCALED)
        assert owner.content() == expected
        steps += 1
    assert steps > 5
    assert tiers_of(owner.ledger) == 1


def test_small_writes_do_not_pile_up_behind_a_merge_of_everything() -> None:
    sizes = SCALED._replace(run=2_000)
    disk, random = SimulatedDisk(), Random(3)
    owner = Owner(disk, sizes)
    owner.commit(many(random, 5_000, 5_000))
    owner.commit(many(random, 2_000, 5_000))
    merge_everything(disk, owner)
    writes = 0
    while any(run.into == 1 for run in owner.ledger.runs):
        owner.commit(many(random, 3, 5_000))
        writes += 1
        assert tiers_of(owner.ledger) <= log2(writes + 1) + 4
    assert writes > 30


def test_keys_that_only_grow_do_not_leave_a_file_for_every_write() -> None:
    owner = Owner(SimulatedDisk(), SCALED)
    for number in range(300):
        owner.commit({f"producer-{number:07d}": b"x" * 50})
    assert len(owner.ledger.runs) <= log2(300) + 3
    assert len(owner.content()) == 300


def test_the_cache_holds_no_more_than_it_may() -> None:
    owner = Owner(SimulatedDisk(), SCALED)
    expected = many(Random(0), 5_000, 5_000)
    owner.commit(expected)
    for key in expected:
        assert owner.ledger.get(key) == expected[key]
        cache = owner.ledger._runs._cache
        assert cache._used == sum(cost for _, cost in cache._kept.values()) <= SCALED.cache


# Threads.


def test_readers_get_right_answers_while_runs_are_written_merged_and_removed(tmp_path: Path) -> None:
    ledger = Ledger(RealDisk(), tmp_path / "ledger", [], SMALL)
    keys = [f"producer-{number}" for number in range(40)]
    committed, is_over = 0, threading.Event()
    errors: list[Exception] = []

    def commit(round_: int) -> None:
        ledger.adopt(ledger.write({key: str(round_).encode() for key in keys[round_ % 3 :: 3]}))
        ledger.remove_unlisted()

    def read(random: Random) -> None:
        try:
            while not is_over.is_set():
                key, at_least = random.choice(keys), committed
                value = ledger.get(key)
                assert value is not None
                assert int(value) >= at_least - 2
        except (AssertionError, LogDamageError, OSError) as error:
            errors.append(error)

    for round_ in range(3):
        commit(round_)
    readers = [threading.Thread(target=read, args=(Random(seed),)) for seed in range(3)]
    for reader in readers:
        reader.start()
    for round_ in range(3, 50):
        commit(round_)
        committed = round_
    is_over.set()
    for reader in readers:
        reader.join()
    assert errors == []


def test_a_reader_whose_run_is_removed_before_it_opens_it_looks_again() -> None:
    disk = SimulatedDisk()
    owner = Owner(disk)
    owner.commit({"a": b"old"})
    find, calls = owner.ledger._runs.find, 0

    def overtaken(info: RunInfo, key: str) -> bytes | None:
        nonlocal calls
        calls += 1
        if calls == 1:
            owner.commit({"a": b"new"})
            assert info.file not in disk.list(LEDGER)
        return find(info, key)

    owner.ledger._runs.find = overtaken  # type: ignore[method-assign]
    assert owner.ledger.get("a") == b"new"
