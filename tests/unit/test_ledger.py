"""A ledger is a dict that survives: whatever was committed is there, after any crash, and damage is never an answer."""

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from chaos.disks import EVERY_KIND, Call, CallKind, Fault, FaultyDisk, Moment, PowerCut, SimulatedDisk, Survival
from tests.support.ledgers import LEDGER, SMALL, Owner, merge_everything, tiers_of
from tidemark.log.ledger import Ledger
from tidemark.model.shard_errors import LogDamageError

KEYS = st.sampled_from(["", "a", "aa", "b", "bär", "z", "\U0001f600", *(f"producer-{n}" for n in range(30))])
VALUES = st.binary(max_size=30) | st.just(b"long" * 60)
CHANGES = st.dictionaries(KEYS, VALUES, max_size=8)


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
        disk.fail(Fault(frozenset({kind}), nth))
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
