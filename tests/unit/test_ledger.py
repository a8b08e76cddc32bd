"""A ledger is a dict that survives: whatever was committed is there, after any crash, and damage is never an answer."""

import threading
from collections.abc import Callable, Mapping
from io import BufferedIOBase, BytesIO
from math import log2
from pathlib import Path
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from chaos.disks import EVERY_KIND, Call, CallKind, Fault, FaultyDisk, Moment, PowerCut, SimulatedDisk, Survival
from resources.coordinator.disk import Disk, RealDisk
from resources.coordinator.errors import LogDamageError
from resources.coordinator.ledger import Ledger, RunInfo, Sizes

HOME = Path("/home")
LEDGER = HOME / "ledger"
STATE = HOME / "runs.json"
# A few pairs fill a block, a few blocks a run, and one step of a merge is rarely enough.
SMALL = Sizes(block=60, run=200, cache=500, read=150)

KEYS = st.sampled_from(["", "a", "aa", "b", "bär", "z", "\U0001f600", *(f"producer-{n}" for n in range(30))])
VALUES = st.binary(max_size=30) | st.just(b"long" * 60)
CHANGES = st.dictionaries(KEYS, VALUES, max_size=8)


class Owner:
    """Keeps a ledger as a shard does: the list of runs is in its own file, and replacing that file is the commit."""

    def __init__(self, disk: Disk, sizes: Sizes = SMALL) -> None:
        self._disk = disk
        disk.make_directory(HOME)
        disk.sync_directory(HOME)  # what is read below may be there only in the cache
        runs = []
        if STATE.name in disk.list(HOME):
            runs = msgspec.json.decode(disk.read(STATE), type=list[RunInfo])
        self.ledger = Ledger(disk, LEDGER, runs, sizes)
        self.ledger.remove_unlisted()

    def commit(self, changes: Mapping[str, bytes]) -> None:
        runs = self.ledger.write(changes)
        self._disk.replace(STATE, msgspec.json.encode(runs))
        self.ledger.adopt(runs)
        self.ledger.remove_unlisted()

    def content(self) -> dict[str, bytes]:
        return dict(self.ledger.items())


def many(random: Random, count: int, keys: int, size: int = 20) -> dict[str, bytes]:
    """Changes of so many producers out of all."""
    return {f"producer-{number:07d}": random.randbytes(size) for number in random.sample(range(keys), count)}


def tiers_of(ledger: Ledger) -> int:
    return len({run.tier for run in ledger.runs})


def merge_everything(disk: Disk, owner: Owner) -> None:
    """Let a merge of all runs be under way, of which nothing is done yet."""
    oldest = min(run.tier for run in owner.ledger.runs)
    runs = [msgspec.structs.replace(run, into=oldest) for run in owner.ledger.runs]
    disk.replace(STATE, msgspec.json.encode(runs))
    owner.ledger.adopt(runs)


# Against a dict.


class LedgerAgainstDict(RuleBasedStateMachine):
    """Any order of writes, lists that are never adopted, restarts, errors and crashes."""

    @initialize()
    def begin(self) -> None:
        self.disk = SimulatedDisk()
        self.model: dict[str, bytes] = {}
        self.owner = Owner(self.disk)

    @rule(changes=CHANGES)
    def commit(self, changes: dict[str, bytes]) -> None:
        self.owner.commit(changes)
        self.model |= changes

    @rule(changes=CHANGES, removes=st.booleans())
    def write_without_commit(self, changes: dict[str, bytes], removes: bool) -> None:
        self.owner.ledger.write(changes)
        if removes:
            self.owner.ledger.remove_unlisted()

    @rule(keys=st.lists(KEYS))
    def look_up(self, keys: list[str]) -> None:
        assert self.owner.ledger.get_many(keys) == {key: self.model[key] for key in keys if key in self.model}

    @rule()
    def restart(self) -> None:
        self.owner = Owner(self.disk)

    @rule(
        changes=CHANGES,
        at=st.integers(1, 30),
        moment=st.sampled_from(Moment),
        mode=st.sampled_from(Survival),
        seed=st.integers(0, 9),
    )
    def crash(self, changes: dict[str, bytes], at: int, moment: Moment, mode: Survival, seed: int) -> None:
        self.disk.cut_power(len(self.disk.trace) + at, moment)
        is_done = False
        try:
            self.owner.commit(changes)
            is_done = True
        except PowerCut:
            pass
        self.disk = self.disk.crash(mode, Random(seed))
        self.owner = Owner(self.disk)
        after = self.model | changes
        found = self.owner.content()
        assert found == after if is_done else found in (self.model, after)
        self.model = found

    @invariant()
    def shows_what_was_committed(self) -> None:
        assert self.owner.content() == dict(sorted(self.model.items()))
        assert list(self.owner.content()) == sorted(self.model)
        assert {key: self.owner.ledger.get(key) for key in self.model} == self.model

    @invariant()
    def runs_of_a_tier_do_not_overlap(self) -> None:
        for before, after in zip(self.owner.ledger.runs, self.owner.ledger.runs[1:], strict=False):
            assert before.first <= before.last
            assert (before.tier, before.last) < (after.tier, after.first)


TestLedgerAgainstDict = LedgerAgainstDict.TestCase
TestLedgerAgainstDict.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)


# Crashes and errors.


def fixed_changes(round_: int) -> dict[str, bytes]:
    """Many at first, then a few a round, some of them new."""
    numbers = range(40) if round_ == 0 else range(round_ * 7, round_ * 7 + 4)
    return {f"key-{number:02d}": f"{round_}/{number}".encode() * 5 for number in numbers}


ROUNDS = 7


def states() -> list[dict[str, bytes]]:
    """What the ledger holds before and after each round."""
    found: list[dict[str, bytes]] = [{}]
    for round_ in range(ROUNDS):
        found.append(found[-1] | fixed_changes(round_))
    return found


def test_after_a_crash_at_any_call_in_any_way_all_that_was_committed_is_there_and_nothing_is_half_there() -> None:
    disk, expected = SimulatedDisk(), states()
    committed = 0
    crashes = 0

    def look(_: Call, __: Moment, then: SimulatedDisk) -> None:
        nonlocal crashes
        for mode in Survival:
            for seed in range(3 if mode in {Survival.PREFIX, Survival.SUFFIX, Survival.RANDOM} else 1):
                left = then.after(mode, Random(seed))
                owner = Owner(left)
                assert owner.content() in expected[committed : committed + 2], (mode, seed)
                # What a start has removed must not be missed when the power goes right behind it.
                assert Owner(left.after(Survival.NOTHING, Random(0))).content() == owner.content(), (mode, seed)
                crashes += 1

    owner = Owner(disk)
    owner.commit(expected[1])
    committed += 1
    merge_everything(disk, owner)
    disk.watch(look)
    under_way = 0
    for round_ in range(1, ROUNDS):
        owner.commit(fixed_changes(round_))
        committed += 1
        under_way += any(run.into == 1 for run in owner.ledger.runs)
    assert owner.content() == expected[-1]
    assert under_way > 1, "a merge was under way between two writes"
    assert tiers_of(owner.ledger) < ROUNDS, "and another one has come to its end"
    assert crashes > 1_000


@pytest.mark.parametrize("kind", sorted(EVERY_KIND))
def test_a_write_that_the_disk_refuses_changes_nothing_and_may_be_tried_again(kind: CallKind) -> None:
    for nth in range(1, 100):
        simulated = SimulatedDisk()
        disk = FaultyDisk(simulated)
        owner = Owner(disk)
        for round_ in range(ROUNDS):
            owner.commit(fixed_changes(round_))
        disk.fail_from_now(Fault(frozenset({kind}), nth))
        before = owner.content()
        try:
            owner.ledger.write(fixed_changes(ROUNDS))
        except OSError:
            assert owner.content() == before
            owner.commit(fixed_changes(ROUNDS))
            after = before | fixed_changes(ROUNDS)
            assert owner.content() == after
            assert Owner(simulated.after(Survival.NOTHING, Random(0))).content() == after
        else:
            return
    pytest.fail("a write has no end")


def test_what_a_crash_left_and_what_was_merged_away_is_removed_and_nothing_else() -> None:
    disk = SimulatedDisk()
    owner = Owner(disk)
    for round_ in range(ROUNDS):
        owner.commit(fixed_changes(round_))
    owner.ledger.write({"never": b"adopted"})
    disk.replace(LEDGER / "README", b"not ours")
    owner = Owner(disk)
    assert set(disk.list(LEDGER)) == {"README", *(run.file for run in owner.ledger.runs)}
    assert owner.ledger.get("never") is None


def test_what_write_has_given_is_on_the_disk_before_anybody_saves_the_list() -> None:
    disk = SimulatedDisk()
    runs = Ledger(disk, LEDGER, sizes=SMALL).write(fixed_changes(0))
    for mode in Survival:
        left = disk.after(mode, Random(0))
        assert dict(Ledger(left, LEDGER, runs, SMALL).items()) == fixed_changes(0), mode


def test_a_write_does_not_touch_what_others_have_left() -> None:
    disk = SimulatedDisk()
    left = Ledger(disk, LEDGER, sizes=SMALL).write({"a": b"left"})
    found = Ledger(disk, LEDGER, sizes=SMALL).write({"a": b"new"})
    assert dict(Ledger(disk, LEDGER, left, SMALL).items()) == {"a": b"left"}
    assert dict(Ledger(disk, LEDGER, found, SMALL).items()) == {"a": b"new"}


def test_a_list_that_is_not_saved_yet_keeps_its_files() -> None:
    owner = Owner(SimulatedDisk())
    owner.commit({"a": b"1"})
    runs = owner.ledger.write({"b": b"2"})
    owner.ledger.remove_unlisted()
    assert owner.content() == {"a": b"1"}
    owner.ledger.adopt(runs)
    assert owner.content() == {"a": b"1", "b": b"2"}


# Damage.


def damaged_ledger(damage: Callable[[bytes], bytes]) -> tuple[SimulatedDisk, str, dict[str, bytes]]:
    """A ledger with several runs, of which the first was damaged."""
    disk = SimulatedDisk()
    owner = Owner(disk)
    for round_ in range(ROUNDS):
        owner.commit(fixed_changes(round_))
    expected = owner.content()
    # Only bytes that nobody reads any more may be damaged unseen: take a run that is not partly merged away.
    whole = [run for run in owner.ledger.runs if run.into is None]
    assert whole
    path = LEDGER / whole[0].file
    disk.store(path, damage(disk.read(path)))
    return disk, str(path), expected


def assert_is_noticed(disk: SimulatedDisk, path: str, expected: dict[str, bytes]) -> None:
    """Every answer is right or an error, never a wrong one; and reading everything finds the damage."""
    owner = Owner(disk)
    for key, value in expected.items():
        try:
            found = owner.ledger.get(key)
        except LogDamageError:
            continue
        assert found == value
    with pytest.raises(LogDamageError, match=path):
        owner.content()


def run_bytes() -> int:
    disk, path, _ = damaged_ledger(lambda data: data)
    return len(disk.read(Path(path)))


RUN_BYTES = run_bytes()


@settings(max_examples=300, deadline=None)
@given(bit=st.integers(0, RUN_BYTES * 8 - 1))
def test_a_flipped_bit_anywhere_in_a_run_is_noticed(bit: int) -> None:
    def flip(data: bytes) -> bytes:
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        return bytes(changed)

    assert_is_noticed(*damaged_ledger(flip))


@settings(deadline=None)
@given(size=st.integers(0, RUN_BYTES - 1))
def test_a_run_that_was_cut_anywhere_is_noticed(size: int) -> None:
    assert_is_noticed(*damaged_ledger(lambda data: data[:size]))


def test_a_run_that_has_grown_is_noticed() -> None:
    assert_is_noticed(*damaged_ledger(lambda data: data + b"\0"))


def test_a_run_that_is_missing_is_damage_and_not_an_absent_key() -> None:
    disk, path, expected = damaged_ledger(lambda data: data)
    disk.remove(Path(path))
    assert_is_noticed(disk, path, expected)


def test_a_merge_refuses_damage_and_does_not_spread_it() -> None:
    disk, path, expected = damaged_ledger(lambda data: bytes([data[0] ^ 1]) + data[1:])
    owner = Owner(disk)

    def write_on() -> None:
        for round_ in range(100):
            owner.commit({f"other-{round_}": b"x" * 50})

    with pytest.raises(LogDamageError, match=path):
        write_on()
    assert_is_noticed(disk, path, expected)


# What it costs.


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


# What may be stored.


def test_keys_that_have_no_bytes_are_refused_when_written_and_absent_when_asked_for() -> None:
    owner = Owner(SimulatedDisk())
    owner.commit({"a": b"1"})
    with pytest.raises(UnicodeEncodeError):
        owner.commit({"\ud800": b"x"})
    assert owner.ledger.get("\ud800") is None
    assert owner.content() == {"a": b"1"}


def test_an_empty_write_to_an_empty_ledger_gives_an_empty_list() -> None:
    owner = Owner(SimulatedDisk())
    owner.commit({})
    assert owner.ledger.runs == []
    assert owner.content() == {}
    assert owner.ledger.get("a") is None
